package parquet

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	meta "github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

var errSize = errors.New("it does not unpack to the size in its header")

// unpack returns what content unpacks to, which must have the size that its header says. Memory is taken for what is there,
// and no more for what is only said: a byte of the formats whose size must be known before stands for some hundred at most.
func unpack(codec meta.CompressionCodec, content []byte, size int64) ([]byte, error) {
	most := 256*int64(len(content)) + 256
	var r io.Reader
	switch codec {
	case meta.Uncompressed:
		if int64(len(content)) != size {
			return nil, fmt.Errorf("it has %d bytes, and should have %d", len(content), size)
		}
		return content, nil
	case meta.Snappy:
		if n, err := snappy.DecodedLen(content); err != nil || int64(n) != size || size > most {
			return nil, errSize
		}
		return snappy.Decode(nil, content)
	case meta.Lz4Raw:
		if size > most {
			return nil, errSize
		}
		unpacked := make([]byte, size)
		if n, err := lz4.UncompressBlock(content, unpacked); err != nil || int64(n) != size {
			return nil, errSize
		}
		return unpacked, nil
	case meta.Gzip:
		unzip, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return nil, err
		}
		r = unzip
	case meta.Brotli:
		r = brotli.NewReader(bytes.NewReader(content))
	case meta.Zstd:
		unzip := zstds.Get().(*zstd.Decoder)
		defer zstds.Put(unzip)
		if err := unzip.Reset(bytes.NewReader(content)); err != nil {
			return nil, err
		}
		r = unzip
	default:
		return nil, fmt.Errorf("it is packed by %s, which is not read", codec)
	}
	var unpacked bytes.Buffer
	if n, err := unpacked.ReadFrom(io.LimitReader(r, size+1)); err != nil || n != size {
		return nil, errSize
	}
	return unpacked.Bytes(), nil
}

var zstds = sync.Pool{New: func() any {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<28))
	if err != nil {
		panic(err) // of the options
	}
	return unzip
}}
