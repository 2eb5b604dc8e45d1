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
}

// NewTar reads the archive that r has; path is for errors.
func NewTar(path string, r io.Reader) *Tar { return &Tar{path: path, reader: tar.NewReader(r)} }

// All yields the members, and an error at most, behind which there is nothing.
func (t *Tar) All() iter.Seq2[*tar.Header, error] {
	return func(yield func(*tar.Header, error) bool) {
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
