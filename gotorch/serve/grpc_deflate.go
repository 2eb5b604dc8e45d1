package serve

import (
	"compress/zlib"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"

	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// finalResponse are the parameters of each response of a stream: there is one for a request.
var finalResponse = map[string]*pb.InferParameter{
	"triton_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}},
}

// deflate is a compressor of gRPC, of zlib's format, which grpc-go does not bring along and gRPC's other clients have.
type deflate struct{ writers, readers sync.Pool }

func init() { encoding.RegisterCompressor(&deflate{}) }

func (*deflate) Name() string { return "deflate" }

func (d *deflate) Compress(w io.Writer) (io.WriteCloser, error) {
	z, ok := d.writers.Get().(*zlib.Writer)
	if ok {
		z.Reset(w)
	} else {
		z = zlib.NewWriter(w)
	}
	return &deflateWriter{z, &d.writers}, nil
}

type deflateWriter struct {
	*zlib.Writer
	pool *sync.Pool
}

func (w *deflateWriter) Close() error {
	defer w.pool.Put(w.Writer)
	return w.Writer.Close()
}

func (d *deflate) Decompress(r io.Reader) (io.Reader, error) {
	z, ok := d.readers.Get().(io.ReadCloser)
	var err error
	if ok {
		err = z.(zlib.Resetter).Reset(r, nil)
	} else {
		z, err = zlib.NewReader(r)
	}
	if err != nil {
		return nil, err
	}
	return &deflateReader{z, &d.readers}, nil
}

type deflateReader struct {
	unpacked io.ReadCloser // nil after the end
	pool     *sync.Pool
}

// Read gives the reader back at the end: nobody reads on then.
func (r *deflateReader) Read(p []byte) (int, error) {
	if r.unpacked == nil {
		return 0, io.EOF
	}
	n, err := r.unpacked.Read(p)
	if err == io.EOF {
		r.pool.Put(r.unpacked)
		r.unpacked = nil
	}
	return n, err
}
