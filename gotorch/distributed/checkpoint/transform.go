package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

const (
	mostTransforms = 4       // of one part
	mostWindow     = 1 << 27 // bytes that zstd may look back
	mostOverhead   = 1 << 20 // bytes of a file of torch.save's beside its tensor
	mostData       = 1 << 30 // bytes of a value that is no tensor, which says nowhere how large it is
)

// sized is what a part is read from.
type sized interface {
	io.ReaderAt
	Size() int64
}

// untransformed returns a part as it was before Python's extensions of class StreamTransformExtension have changed it. PyTorch
// has one: zstd.
func untransformed(op string, it *item, p part, content *io.SectionReader) (sized, error) {
	if len(p.Transforms) == 0 {
		return content, nil
	}
	var r io.Reader = content
	for _, name := range p.Transforms {
		if name != "stream.zstd/1" && !strings.HasPrefix(name, "stream.zstd/1.") {
			return nil, args.Errorf(op, gotorch.NotImplementedError, "%q was changed by the extension %q, and only stream.zstd/1 can be undone: save it without", it.Key, name)
		}
		unpacker, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", op, it.Key, err)
		}
		defer unpacker.Close()
		r = unpacker
	}
	most := int64(mostData)
	if it.Tensor {
		n, _ := numel(p.Sizes)
		most = mostOverhead
		if size := int64(it.DType.Size()); n <= (1<<62)/size {
			most += n * size
		}
	}
	var unpacked bytes.Buffer
	n, err := unpacked.ReadFrom(io.LimitReader(r, most+1))
	if err == nil && n > most {
		err = errors.New("it is larger than it may be")
	}
	if err != nil {
		return nil, args.Errorf(op, gotorch.UnpicklingError, "%q cannot be unpacked from %s: %v", it.Key, p.File, err)
	}
	return bytes.NewReader(unpacked.Bytes()), nil
}
