// Package files is what the readers of data sets share: their errors, packed files, and where a stream of
// samples has come to.
package files

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/regular"
)

// Errorf returns a *data.FileError with a ValueError.
func Errorf(path, where, format string, values ...any) *data.FileError {
	return &data.FileError{Path: path, Where: where, Err: &gotorch.Error{Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)}}
}

// Wrap returns a *data.FileError with a cause. An end of file is one that comes too early.
func Wrap(path, where string, err error) error {
	if err == nil {
		return nil
	}
	var already *data.FileError
	if errors.As(err, &already) {
		return err
	}
	return &data.FileError{Path: path, Where: where, Err: unexpected(err)}
}

// OutOfRange is the error for a sample that there is not.
func OutOfRange(op, what string, i, n int) error {
	return &gotorch.Error{Op: op, Kind: gotorch.IndexError, Msg: fmt.Sprintf("there is no %s %d among %d", what, i, n)}
}

// Closed is the error for a data set that was closed.
func Closed(path string) error {
	return &data.FileError{Path: path, Err: &gotorch.Error{Kind: gotorch.ValueError, Msg: "the data set is closed"}}
}

// Reader reads a file from its beginning, unpacked if it is packed by gzip.
type Reader struct {
	*bufio.Reader
	Packed bool
	Size   int64 // of the file
	file   *os.File
}

// Open opens a file to be read once, from its beginning. Whether it is packed its first bytes say, not its name.
func Open(path string) (*Reader, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{Reader: bufio.NewReaderSize(f, 1<<16), Size: size, file: f}
	head, err := r.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, err
	}
	if bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(r.Reader)
		if err != nil {
			f.Close()
			return nil, Wrap(path, "", fmt.Errorf("its gzip header is damaged: %w", unexpected(err)))
		}
		r.Reader, r.Packed = bufio.NewReaderSize(unpacked, 1<<16), true
	}
	return r, nil
}

// Skip moves on to an offset of what is unpacked, from the beginning. It may be called once, before anything is read.
func (r *Reader) Skip(offset int64) error {
	if offset == 0 {
		return nil
	}
	if r.Packed {
		n, err := io.CopyN(io.Discard, r.Reader, offset)
		if err != nil && n < offset {
			return unexpected(err)
		}
		return nil
	}
	if offset > r.Size {
		return io.ErrUnexpectedEOF
	}
	if _, err := r.file.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	r.Reset(r.file)
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// IsRegular reports whether a member of an archive is a file, as Python's TarInfo.isreg does: also one that is stored without
// its zeros, which the module reads with them.
func IsRegular(head *tar.Header) bool {
	switch head.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return true
	}
	return false
}

// IsPathError reports whether err is of the file system, which names the file itself.
func IsPathError(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}
