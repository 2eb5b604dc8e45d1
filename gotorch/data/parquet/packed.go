package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	meta "github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// checkPacked refuses a page, whose header is known and whose content begins at a byte, that does not unpack to the size
// in its header. The decoder takes what comes: of a damaged page packed by LZ4 it takes memory for ever, and of one that
// was made for it, a thousand times as much as MaxPage allows.
func checkPacked(f io.ReaderAt, codec meta.CompressionCodec, header *meta.PageHeader, at int64) error {
	packed, unpacked := int64(header.CompressedPageSize), int64(header.UncompressedPageSize)
	if header.Type == meta.DataPageV2 { // levels come first, and are never packed
		v2 := header.DataPageHeaderV2.V
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			return nil
		}
		levels := int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength)
		if v2.RepetitionLevelsByteLength < 0 || v2.DefinitionLevelsByteLength < 0 || levels > packed || levels > unpacked {
			return fmt.Errorf("it should have levels of %d bytes, and has %d", levels, packed)
		}
		at, packed, unpacked = at+levels, packed-levels, unpacked-levels
	}
	if codec == meta.Uncompressed || packed == 0 {
		return nil
	}
	if codec == meta.Snappy {
		packed = min(packed, binary.MaxVarintLen64) // where it says its own size
	}
	content := make([]byte, packed) // the file has as many
	if _, err := f.ReadAt(content, at); err != nil {
		return err
	}
	wrong := errors.New("it does not unpack to the size in its header")
	var r io.Reader
	switch codec {
	case meta.Snappy:
		if n, length := binary.Uvarint(content); length <= 0 || n > uint64(unpacked) {
			return wrong
		}
		return nil
	case meta.Lz4Raw:
		if n, err := lz4.UncompressBlock(content, make([]byte, unpacked)); err != nil || int64(n) != unpacked {
			return wrong
		}
		return nil
	case meta.Gzip:
		unzip, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return err
		}
		r = unzip
	case meta.Brotli:
		r = brotli.NewReader(bytes.NewReader(content))
	case meta.Zstd:
		unzip, err := zstd.NewReader(bytes.NewReader(content), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<28))
		if err != nil {
			return err
		}
		defer unzip.Close()
		r = unzip
	default:
		return nil // which the decoder does not know, and refuses
	}
	if n, err := io.CopyN(io.Discard, r, unpacked+1); err != io.EOF || n != unpacked {
		return wrong
	}
	return nil
}
