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
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &data.FileError{Path: path, Where: where, Err: err}
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

// Position is where a stream has come to: what it yields next.
type Position struct {
	File   int   // which of its files
	Offset int64 // in bytes, of what is unpacked
	Sample int64 // how many of the file came before
}

// Dict returns the position as a state dict; kind and n say of what.
func (p Position) Dict(kind string, n int) gotorch.Dict {
	return gotorch.Dict{
		{Key: "kind", Value: kind}, {Key: "files", Value: int64(n)}, {Key: "file", Value: int64(p.File)},
		{Key: "offset", Value: p.Offset}, {Key: "sample", Value: p.Sample},
	}
}

// PositionOf reads what Dict has returned. It returns a ValueError where that was of something else.
func PositionOf(d gotorch.Dict, kind string, n int) (Position, error) {
	refuse := func(format string, values ...any) error {
		return &gotorch.Error{Op: kind, Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)}
	}
	if got := d.Get("kind"); got != kind {
		return Position{}, refuse("the state is not one of %s, but of %v", kind, got)
	}
	var numbers [4]int64
	for i, key := range []string{"files", "file", "offset", "sample"} {
		value := d.Get(key)
		number, ok := value.(int64)
		if !ok || number < 0 {
			return Position{}, refuse("the state's %q must be a number that is not negative, but is %v", key, value)
		}
		numbers[i] = number
	}
	if numbers[0] != int64(n) || numbers[1] > int64(n) {
		return Position{}, refuse("the state is of a stream of %d files, and this one has %d", numbers[0], n)
	}
	return Position{int(numbers[1]), numbers[2], numbers[3]}, nil
}
