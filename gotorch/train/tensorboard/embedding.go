package tensorboard

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
)

// AddEmbeddingOptions are the arguments of [SummaryWriter.AddEmbedding] that have defaults.
type AddEmbeddingOptions struct {
	Metadata       [][]string     // of each point, its texts: one, or as many as MetadataHeader has; default: none
	MetadataHeader []string       // what the texts are; default: one text has no name
	LabelImg       gotorch.Tensor // a picture for each point, (N, C, H, W) as of AddImages; default: none
	Tag            string         // name of the embedding; default: "default"
}

// AddEmbedding writes points (N, D) for TensorBoard's projector: files in the folder STEP/TAG below the writer's, and
// projector_config.pbtxt, which names all embeddings of this writer.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_embedding.
func (w *SummaryWriter) AddEmbedding(mat gotorch.Tensor, globalStep int, opts ...AddEmbeddingOptions) error {
	o := args.Option(opts)
	if o.Tag == "" {
		o.Tag = "default"
	}
	folder := filepath.Join(fmt.Sprintf("%05d", globalStep), encoded(o.Tag))
	if !local(folder) || encoded(o.Tag) == "." || encoded(o.Tag) == ".." {
		return w.refuse(valueError("AddEmbedding", "the tag %q is no name of a folder", o.Tag))
	}
	config, files, err := embeddingFiles(mat, globalStep, folder, o)
	if err != nil {
		return w.refuse(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files == nil {
		_, err := w.file("")
		return err
	}
	if err := os.MkdirAll(filepath.Join(w.folder, folder), 0o777); err != nil {
		return w.keep(err)
	}
	for _, f := range files {
		if err := write(filepath.Join(w.folder, folder, f.name), f.content); err != nil {
			return w.keep(err)
		}
	}
	w.configs = append(w.configs, config)
	return w.keep(write(filepath.Join(w.folder, "projector_config.pbtxt"), []byte(strings.Join(w.configs, ""))))
}

func write(path string, content []byte) error {
	return replace.File(path, func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	})
}

// encoded is a tag as the name of a folder.
func encoded(tag string) string {
	return strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c").Replace(tag)
}

type file struct {
	name    string
	content []byte
}

// embeddingFiles returns what belongs to an embedding, and what the configuration says of it.
func embeddingFiles(mat gotorch.Tensor, step int, folder string, o AddEmbeddingOptions) (config string, files []file, err error) {
	err = gotorch.Try0(func() {
		if mat.Dim() != 2 {
			panic(valueError("AddEmbedding", "the points must be (N, D), but are %v", mat.Shape()))
		}
		n, d := int(mat.Size(0)), int(mat.Size(1))
		var b bytes.Buffer
		numbers := read[float64](mat, gotorch.Float64)
		for i := range n {
			for k := range d {
				if k > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(strconv.FormatFloat(numbers[i*d+k], 'g', -1, 64))
			}
			b.WriteByte('\n')
		}
		files = append(files, file{"tensors.tsv", b.Bytes()})
		text := fmt.Sprintf("embeddings {\n  tensor_name: %s\n", quoted(fmt.Sprintf("%s:%05d", o.Tag, step)))
		if o.Metadata != nil {
			files = append(files, file{"metadata.tsv", metadataOf(n, o)})
			text += fmt.Sprintf("  metadata_path: %s\n", quoted(filepath.Join(folder, "metadata.tsv")))
		}
		if given(o.LabelImg) {
			if s := o.LabelImg.Shape(); len(s) != 4 || int(s[0]) != n || n == 0 {
				panic(valueError("AddEmbedding", "LabelImg is %v, where (%d, C, H, W) is expected", s, n))
			}
			sprite, err := spriteOf(o.LabelImg)
			if err != nil {
				panic(valueError("AddEmbedding", "%v", err))
			}
			files = append(files, file{"sprite.png", sprite})
			text += fmt.Sprintf("  sprite {\n    image_path: %s\n    single_image_dim: %d\n    single_image_dim: %d\n  }\n",
				quoted(filepath.Join(folder, "sprite.png")), o.LabelImg.Size(3), o.LabelImg.Size(2))
		}
		text += fmt.Sprintf("  tensor_path: %s\n}\n", quoted(filepath.Join(folder, "tensors.tsv")))
		config = text
	})
	return config, files, err
}

// quoted is a string in the text format of protocol buffers.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(valid(s)) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func metadataOf(n int, o AddEmbeddingOptions) []byte {
	if len(o.Metadata) != n {
		panic(valueError("AddEmbedding", "there are %d points and %d Metadata", n, len(o.Metadata)))
	}
	columns := max(1, len(o.MetadataHeader))
	rows := o.Metadata
	if len(o.MetadataHeader) > 0 {
		rows = append([][]string{o.MetadataHeader}, rows...)
	}
	var b bytes.Buffer
	for _, row := range rows {
		if len(row) != columns {
			panic(valueError("AddEmbedding", "a point has %d texts in Metadata, where there are %d columns", len(row), columns))
		}
		for i, text := range row {
			if strings.ContainsAny(text, "\t\n\r") {
				panic(valueError("AddEmbedding", "the text %q in Metadata has a tab or more than one line", text))
			}
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(valid(text))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// spriteOf puts pictures into a square.
func spriteOf(t gotorch.Tensor) ([]byte, error) {
	n, h, w := int(t.Size(0)), int(t.Size(2)), int(t.Size(3))
	columns := int(math.Ceil(math.Sqrt(float64(n))))
	side := columns * max(h, w)
	if side > 1<<14 {
		return nil, valueError("AddEmbedding", "the pictures together are %d points wide, and TensorBoard shows 8192", side)
	}
	canvas := image.NewRGBA(image.Rect(0, 0, columns*w, max(columns*w, (n+columns-1)/columns*h)))
	for i := 3; i < len(canvas.Pix); i += 4 {
		canvas.Pix[i] = 255
	}
	for i := range n {
		p := pixelsOf("AddEmbedding", t.Select(0, int64(i)), "CHW")
		for y := range h {
			for x := range w {
				to := canvas.PixOffset(i%columns*w+x, i/columns*h+y)
				copy(canvas.Pix[to:to+3], p.bytes[int(p.channels)*(y*w+x):][:3])
			}
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, canvas)
	return b.Bytes(), err
}
