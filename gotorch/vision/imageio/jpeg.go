package imageio

import (
	"image"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/vision/imageio/internal/jpeg"
)

func isJPEG(encoded []byte) bool { return len(encoded) > 1 && encoded[0] == 0xff && encoded[1] == 0xd8 }

// openJPEG reads what is before the pixels. The decoder is to be closed.
func openJPEG(encoded []byte, l limits) (*jpeg.Decoder, error) {
	d, err := jpeg.Open(encoded)
	if err != nil {
		return nil, ofDecoder(err)
	}
	if err := l.size(d.Width, d.Height, "jpeg", len(encoded)); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// jpegImage makes a Gray, RGBA or CMYK.
func jpegImage(encoded []byte, l limits) (picture image.Image, err error) {
	d, err := openJPEG(encoded, l)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	frame := image.Rect(0, 0, d.Width, d.Height)
	var to []byte
	switch d.Channels {
	case 1:
		p := image.NewGray(frame)
		picture, to = p, p.Pix
	case 3:
		p := image.NewRGBA(frame)
		picture, to = p, p.Pix
	default:
		p := image.NewCMYK(frame)
		picture, to = p, p.Pix
	}
	if err := d.Pixels(to); err != nil {
		return nil, ofDecoder(err)
	}
	if l.orient {
		picture = turn(picture, ofJPEG(encoded))
	}
	return picture, nil
}

// jpegTensor decodes into the memory of a tensor.
func jpegTensor(encoded []byte, l limits, mode Mode) (t gotorch.Tensor, err error) {
	d, err := openJPEG(encoded, l)
	if err != nil {
		return t, err
	}
	defer d.Close()
	if d.Channels == 1 {
		mode = mode.or(Gray)
	} else {
		mode = mode.or(RGB)
	}
	if d.Channels == 4 || d.Channels == 3 && mode == Gray {
		picture, err := jpegImage(encoded, l)
		if err != nil {
			return t, err
		}
		return gotorch.Try(func() gotorch.Tensor { return FromImage(picture, mode) })
	}
	h, w := d.Height, d.Width
	n := h * w
	t, err = gotorch.Try(func() gotorch.Tensor {
		return gotorch.Empty([]int64{channels(mode), int64(h), int64(w)}, gotorch.TensorOptions{DType: gotorch.Uint8})
	})
	if err != nil {
		return t, err
	}
	to := gotorch.Data[uint8](t)
	if mode == Gray {
		err = d.Planes(to, nil, nil)
	} else {
		err = d.Planes(to[:n], to[n:2*n], to[2*n:3*n])
		for i := 3 * n; i < len(to); i++ {
			to[i] = 255
		}
	}
	if err != nil {
		t.Close()
		return gotorch.Tensor{}, ofDecoder(err)
	}
	return t, nil
}
