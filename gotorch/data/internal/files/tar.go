package files

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Tar reads a tar archive. Its errors say after which member it is damaged, or in which.
type Tar struct {
	path   string
	reader *tar.Reader
	last   string // the name of the member that it is in; "" before the first
	empty  bool   // there is no byte, where an archive without members has a thousand
}

// NewTar reads the archive that a *[Reader] or an *io.SectionReader has; path is for errors.
func NewTar(path string, r io.Reader) *Tar {
	t := &Tar{path: path, reader: tar.NewReader(r)}
	switch r := r.(type) {
	case *Reader:
		_, err := r.Peek(1)
		t.empty = errors.Is(err, io.EOF)
	case *io.SectionReader:
		t.empty = r.Size() == 0
	}
	return t
}

// All yields the members, and an error at most, behind which there is nothing.
func (t *Tar) All() iter.Seq2[*tar.Header, error] {
	return func(yield func(*tar.Header, error) bool) {
		if t.empty {
			yield(nil, Errorf(t.path, "", "the archive has 0 bytes, and is not whole"))
			return
		}
		for {
			head, err := t.reader.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				where := "its first member"
				if t.last != "" {
					where = "after " + t.last
				}
				yield(nil, t.damaged(where, err))
				return
			}
			t.last = head.Name
			if !yield(head, nil) {
				return
			}
		}
	}
}

// Content returns what the member has that was yielded last. Memory grows with what comes, not with what the header says.
func (t *Tar) Content() ([]byte, error) {
	content, err := io.ReadAll(t.reader)
	if err != nil {
		return nil, t.damaged(t.last, err)
	}
	return content, nil
}

func (t *Tar) damaged(where string, err error) error {
	if err = unexpected(err); !IsPathError(err) { // which says what is wrong with the disk
		err = fmt.Errorf("the archive is damaged: %w", err)
	}
	return Wrap(t.path, where, err)
}
