package tensorboard

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/png"
	"math"
	"strings"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AddImageOptions are the arguments of [SummaryWriter.AddImage] that have defaults.
type AddImageOptions struct {
	DataFormats string    // what the dimensions are: C channels, H height, W width, N pictures; default: "CHW"
	Walltime    time.Time // when it was made; default: now
}

// AddImage adds a picture: a tensor of uint8, from 0 to 255, or of real numbers, from 0 to 1, with 1, 3 or 4 channels.
// Numbers beyond are taken for the nearest within, and one channel for grey.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_image.
func (w *SummaryWriter) AddImage(tag string, img gotorch.Tensor, globalStep int, opts ...AddImageOptions) error {
	o := args.Option(opts)
	if o.DataFormats == "" {
		o.DataFormats = "CHW"
	}
	picture, err := gotorch.Try(func() pixels { return pixelsOf("AddImage", img, o.DataFormats) })
	if err != nil {
		return w.refuse(err)
	}
	encoded, err := picture.png()
	if err != nil {
		return w.refuse(err)
	}
	return w.summary(globalStep, o.Walltime, imageOf(tag, picture, encoded))
}

// AddImagesOptions are the arguments of [SummaryWriter.AddImages] that have defaults.
type AddImagesOptions struct {
	DataFormats string    // what the dimensions are: N pictures, C channels, H height, W width; default: "NCHW"
	Walltime    time.Time // when they were made; default: now
}

// AddImages adds several pictures, of 1 or 3 channels, as one, in which up to eight stand side by side. See
// [SummaryWriter.AddImage].
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_images.
func (w *SummaryWriter) AddImages(tag string, img gotorch.Tensor, globalStep int, opts ...AddImagesOptions) error {
	o := args.Option(opts)
	if o.DataFormats == "" {
		o.DataFormats = "NCHW"
	}
	return w.AddImage(tag, img, globalStep, AddImageOptions(o))
}

// AddFigureOptions are the arguments of [SummaryWriter.AddFigure] that have defaults.
type AddFigureOptions struct {
	Walltime time.Time // when it was made; default: now
}

// AddFigure adds a picture that the program has drawn, where PyTorch takes one of matplotlib.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_figure.
func (w *SummaryWriter) AddFigure(tag string, figure image.Image, globalStep int, opts ...AddFigureOptions) error {
	o := args.Option(opts)
	if figure == nil || figure.Bounds().Empty() {
		return w.refuse(valueError("AddFigure", "the picture is nil or empty"))
	}
	var b bytes.Buffer
	if err := png.Encode(&b, figure); err != nil {
		return w.refuse(err)
	}
	size := figure.Bounds().Size()
	return w.summary(globalStep, o.Walltime, imageOf(tag, pixels{int64(size.Y), int64(size.X), 3, nil}, b.Bytes()))
}

// pixels are bytes by height, width and channel.
type pixels struct {
	height, width, channels int64
	bytes                   []byte
}

func imageOf(tag string, p pixels, encoded []byte) message {
	proto := message{}.varint(1, p.height).varint(2, p.width).varint(3, p.channels).bytes(4, encoded)
	return summaryOf(tag, message{}.bytes(4, proto))
}

// pixelsOf makes pixels of a tensor whose dimensions are named.
func pixelsOf(method string, t gotorch.Tensor, formats string) pixels {
	names := strings.ToUpper(formats)
	if len(names) != int(t.Dim()) {
		panic(valueError(method, "the tensor has %d dimensions, and DataFormats is %q", t.Dim(), formats))
	}
	order := map[int]string{2: "HW", 3: "HWC", 4: "NCHW"}[len(names)]
	permuted := make([]int64, len(order))
	for i, name := range order {
		at := strings.IndexRune(names, name)
		if at < 0 {
			panic(valueError(method, "DataFormats is %q, where %q in some order is expected", formats, order))
		}
		permuted[i] = int64(at)
	}
	if order == "" {
		panic(valueError(method, "DataFormats is %q, which is none", formats))
	}
	if t.Numel() == 0 {
		panic(valueError(method, "the picture is empty: %v", t.Shape()))
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) pixels {
		t := inBytes(t).Permute(permuted)
		switch len(order) {
		case 2:
			t = t.Unsqueeze(-1)
		case 4:
			t = grid(method, t).Permute([]int64{1, 2, 0})
		}
		if t.Size(2) == 1 {
			t = t.Expand([]int64{-1, -1, 3})
		}
		if c := t.Size(2); c != 3 && c != 4 {
			panic(valueError(method, "a picture has 1, 3 or 4 channels, not %d", c))
		}
		return pixels{t.Size(0), t.Size(1), t.Size(2), gotorch.ToSlice[uint8](t.Contiguous())}
	})
}

// inBytes returns a tensor as uint8 on the CPU.
func inBytes(t gotorch.Tensor) gotorch.Tensor {
	t = t.Detach().To(gotorch.CPU)
	if t.DType() == gotorch.Uint8 {
		return t
	}
	return t.To(gotorch.Float32).MulScalar(255).Clamp(gotorch.ClampOptions{Min: 0, Max: 255}).NaNToNum().To(gotorch.Uint8)
}

// grid puts pictures (N, C, H, W) side by side: (3, H*, W*).
func grid(method string, t gotorch.Tensor) gotorch.Tensor {
	n, c, h, w := t.Size(0), t.Size(1), t.Size(2), t.Size(3)
	if c != 1 && c != 3 {
		panic(valueError(method, "several pictures have 1 or 3 channels, not %d", c))
	}
	columns := min(n, 8)
	rows := (n + columns - 1) / columns
	canvas := gotorch.Zeros([]int64{3, h * rows, w * columns}, gotorch.TensorOptions{DType: gotorch.Uint8})
	for i := range n {
		canvas.Narrow(1, i/columns*h, h).Narrow(2, i%columns*w, w).Copy_(t.Select(0, i))
	}
	return canvas
}

func (p pixels) png() ([]byte, error) {
	rect := image.Rect(0, 0, int(p.width), int(p.height))
	var b bytes.Buffer
	err := png.Encode(&b, p.image(rect))
	return b.Bytes(), err
}

func (p pixels) image(rect image.Rectangle) image.Image {
	if p.channels == 4 {
		return &image.NRGBA{Pix: p.bytes, Stride: 4 * rect.Dx(), Rect: rect}
	}
	img := image.NewRGBA(rect)
	for i := range rect.Dx() * rect.Dy() {
		img.Pix[4*i], img.Pix[4*i+1], img.Pix[4*i+2], img.Pix[4*i+3] = p.bytes[3*i], p.bytes[3*i+1], p.bytes[3*i+2], 255
	}
	return img
}

// AddVideoOptions are the arguments of [SummaryWriter.AddVideo] that have defaults.
type AddVideoOptions struct {
	FPS      gotorch.Scalar // pictures in a second, an integer from 1 to 100; default: 4
	Walltime time.Time      // when it was made; default: now
}

// AddVideo adds moving pictures (N, T, C, H, W), of uint8 from 0 to 255 or of real numbers from 0 to 1, with 1 or 3
// channels. T is time; the N stand side by side. It is a GIF, of 256 colours.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_video.
func (w *SummaryWriter) AddVideo(tag string, video gotorch.Tensor, globalStep int, opts ...AddVideoOptions) error {
	const op = "tensorboard.SummaryWriter.AddVideo"
	o := args.Option(opts)
	var size pixels
	encoded, err := gotorch.Try(func() []byte {
		fps := args.Int(op, "FPS", o.FPS, 4)
		switch {
		case fps < 1 || fps > 100:
			panic(valueError("AddVideo", "FPS must be from 1 to 100, but is %d", fps))
		case video.Dim() != 5:
			panic(valueError("AddVideo", "the video must be (N, T, C, H, W), but is %v", video.Shape()))
		}
		var all gif.GIF
		for i := range video.Size(1) {
			size = pixelsOf("AddVideo", video.Select(1, i), "NCHW")
			rect := image.Rect(0, 0, int(size.width), int(size.height))
			frame := image.NewPaletted(rect, palette.Plan9)
			if gray(size.bytes) {
				frame.Palette = grays
			}
			draw.FloydSteinberg.Draw(frame, rect, size.image(rect), image.Point{})
			all.Image, all.Delay = append(all.Image, frame), append(all.Delay, int(100/fps))
		}
		if len(all.Image) == 0 {
			panic(valueError("AddVideo", "the video is empty: %v", video.Shape()))
		}
		var b bytes.Buffer
		if err := gif.EncodeAll(&b, &all); err != nil {
			panic(valueError("AddVideo", "%v", err))
		}
		return b.Bytes()
	})
	if err != nil {
		return w.refuse(err)
	}
	return w.summary(globalStep, o.Walltime, imageOf(tag, size, encoded))
}

var grays = func() (p color.Palette) {
	for i := range 256 {
		p = append(p, color.Gray{uint8(i)})
	}
	return p
}()

func gray(rgb []byte) bool {
	for i := 0; i+2 < len(rgb); i += 3 {
		if rgb[i] != rgb[i+1] || rgb[i] != rgb[i+2] {
			return false
		}
	}
	return true
}

// AddAudioOptions are the arguments of [SummaryWriter.AddAudio] that have defaults.
type AddAudioOptions struct {
	SampleRate gotorch.Scalar // numbers in a second; default: 44100
	Walltime   time.Time      // when it was made; default: now
}

// AddAudio adds a sound: numbers from -1 to 1, of one channel. Numbers beyond are taken for the nearest within.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_audio.
func (w *SummaryWriter) AddAudio(tag string, sound gotorch.Tensor, globalStep int, opts ...AddAudioOptions) error {
	const op = "tensorboard.SummaryWriter.AddAudio"
	o := args.Option(opts)
	var rate int64
	wav, err := gotorch.Try(func() []byte {
		rate = args.Int(op, "SampleRate", o.SampleRate, 44100)
		if rate < 1 || rate > math.MaxInt32/2 {
			panic(valueError("AddAudio", "SampleRate must be positive, but is %d", rate))
		}
		flat := sound.Detach().Squeeze()
		if flat.Dim() != 1 || flat.Numel() > math.MaxInt32/2-64 {
			panic(valueError("AddAudio", "a sound has one dimension, but this is %v", sound.Shape()))
		}
		if d := flat.DType(); d != gotorch.Float64 {
			flat = flat.To(gotorch.Float32)
		}
		flat = flat.Clamp(gotorch.ClampOptions{Min: -1, Max: 1}).MulScalar(math.MaxInt16).NaNToNum()
		return wave(read[int16](flat.To(gotorch.Int16), gotorch.Int16), uint32(rate))
	})
	if err != nil {
		return w.refuse(err)
	}
	frames := int64(len(wav)-44) / 2
	proto := message{}.float(1, float64(rate)).varint(2, 1).varint(3, frames).bytes(4, wav).text(5, "audio/wav")
	return w.summary(globalStep, o.Walltime, summaryOf(tag, message{}.bytes(6, proto)))
}

// wave is a WAV file of one channel with 16 bits.
func wave(samples []int16, rate uint32) []byte {
	size := uint32(2 * len(samples))
	b := append([]byte(nil), "RIFF"...)
	b = binary.LittleEndian.AppendUint32(b, 36+size)
	b = append(b, "WAVEfmt "...)
	b = binary.LittleEndian.AppendUint32(b, 16)
	b = binary.LittleEndian.AppendUint16(b, 1) // integers
	b = binary.LittleEndian.AppendUint16(b, 1) // channels
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = binary.LittleEndian.AppendUint32(b, 2*rate)
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, 16)
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, size)
	for _, s := range samples {
		b = binary.LittleEndian.AppendUint16(b, uint16(s))
	}
	return b
}
