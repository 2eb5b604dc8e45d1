package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	meta "github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

var errSize = errors.New("it does not unpack to the size in its header")

// buffers are what the pages of a column are read and unpacked to, one after the other.
type buffers struct{ packed, unpacked []byte }

var buffersPool = sync.Pool{New: func() any { return &buffers{} }}

// put gives the buffers back, but for such as are rarely needed.
func (b *buffers) put() {
	const most = 1 << 22
	if cap(b.packed) <= most && cap(b.unpacked) <= most {
		buffersPool.Put(b)
	}
}

// sized returns n bytes of a buffer, which is made longer if need be.
func sized(buffer *[]byte, n int64) []byte {
	if int64(cap(*buffer)) < n {
		*buffer = make([]byte, n)
	}
	*buffer = (*buffer)[:n]
	return *buffer
}

// unpack returns what content unpacks to, which must have the size that its header says. Memory is taken for what is there,
// and no more for what is only said: a byte of the formats whose size must be known before stands for some hundred at most.
// It may be in buffer, until that is used again.
func unpack(buffer *[]byte, codec meta.CompressionCodec, content []byte, size int64) ([]byte, error) {
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
		return snappy.Decode(sized(buffer, size), content)
	case meta.Lz4Raw, meta.Lz4:
		if size > most {
			return nil, errSize
		}
		unpacked := sized(buffer, size)
		if codec == meta.Lz4 && ofHadoop(unpacked, content) {
			return unpacked, nil
		}
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
		if size <= min(most, mostZstd) { // beyond which there are pages of zeros, but their memory is taken as they come
			unpacked, err := unzip.DecodeAll(content, sized(buffer, size)[:0])
			if err != nil || int64(len(unpacked)) != size {
				return nil, errSize
			}
			return unpacked, nil
		}
		if err := unzip.Reset(bytes.NewReader(content)); err != nil {
			return nil, err
		}
		r = unzip
	default:
		return nil, fmt.Errorf("it is packed by %s, which is not read", codec)
	}
	unpacked := bytes.NewBuffer((*buffer)[:0])
	unpacked.Grow(int(min(size, most)) + bytes.MinRead)
	defer func() { *buffer = unpacked.Bytes() }()
	if n, err := unpacked.ReadFrom(io.LimitReader(r, size+1)); err != nil || n != size {
		return nil, errSize
	}
	return unpacked.Bytes(), nil
}

// ofHadoop unpacks blocks of LZ4 that have their sizes, unpacked and packed, before them. It reports whether they fill the buffer.
func ofHadoop(to, from []byte) bool {
	for len(from) > 8 {
		size, packed := uint64(binary.BigEndian.Uint32(from)), uint64(binary.BigEndian.Uint32(from[4:]))
		if from = from[8:]; packed > uint64(len(from)) || size > uint64(len(to)) {
			return false
		}
		if n, err := lz4.UncompressBlock(from[:packed], to[:size]); err != nil || uint64(n) != size {
			return false
		}
		to, from = to[size:], from[packed:]
	}
	return len(to) == 0 && len(from) == 0
}

const mostZstd = 1 << 28 // bytes of a window, or of what is unpacked in one go

var zstds = sync.Pool{New: func() any {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(mostZstd), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // of the options
	}
	return unzip
}}
