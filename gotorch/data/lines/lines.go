// Package lines reads text, a line to a sample, from files that may be larger than memory.
//
// [Open] is for a file in which any line can be asked for, in any order:
//
//	text, err := lines.Open("corpus.txt")
//	if err != nil {
//		return err
//	}
//	defer text.Close()
//	line, err := text.At(123456)
//
// It reads the file once from end to end, to learn where lines begin, and keeps of it an index that is at most a
// sixteenth as large. It is a data.Dataset[string]: data.Transform makes tensors of lines.
//
// [NewStream] reads one file after another from the beginning, those packed by gzip too, and knows where it is:
//
//	stream := lines.NewStream([]string{"a.txt.gz", "b.txt"})
//	for line, err := range stream.All() {
//		if err != nil {
//			return err
//		}
//		...
//		state := stream.StateDict() // LoadStateDict goes on behind this line
//	}
//
// A line ends with "\n" or "\r\n", which are no part of it; what follows after the last of them is a line too, unless
// there is nothing. A line that is no UTF-8, or is longer than the options allow, is a *data.FileError that says which.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sort"
	"sync"
	"unicode/utf8"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Options say what a line may be.
type Options struct {
	MaxLine  gotorch.Scalar // bytes of the longest line that is taken; default: 1<<24
	AnyBytes bool           // take lines that are no UTF-8, too
}

type limits struct {
	maxLine  int
	anyBytes bool
}

func (o Options) limits(op string) limits {
	l := limits{int(args.Int(op, "MaxLine", o.MaxLine, 1<<24)), o.AnyBytes}
	if l.maxLine < 1 {
		panic(args.ValueError(op, "MaxLine must be positive, but got %d", l.maxLine))
	}
	return l
}

// apart is how many bytes are at least between two lines whose places are remembered.
const apart = 256

// mark is where a line begins.
type mark struct{ line, offset int64 }

// File is a text file whose lines can be read in any order. All methods may be called from several goroutines.
type File struct {
	path   string
	limits limits
	size   int64
	n      int64
	marks  []mark // each at least apart bytes behind the one before

	mutex sync.RWMutex
	file  *os.File // nil: closed
}

// Open reads through a file and opens it. It panics with a ValueError if MaxLine is not positive. It returns an
// *fs.PathError if the file cannot be read, and a *data.FileError if it is packed, which is for [NewStream].
func Open(path string, opts ...Options) (*File, error) {
	limits := args.Option(opts).limits("lines.Open")
	file, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, limits: limits, file: file, size: size}
	if err := f.index(); err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

func (f *File) index() error {
	r := io.NewSectionReader(f.file, 0, f.size)
	buffer := make([]byte, 1<<18)
	var at int64 // where the buffer lies in the file
	begun := int64(0)
	f.marks = []mark{{}}
	for {
		n, err := r.Read(buffer)
		part := buffer[:n]
		if at == 0 && bytes.HasPrefix(part, []byte{0x1f, 0x8b}) {
			return files.Errorf(f.path, "", "a file that is packed by gzip can only be read from its beginning: unpack it, or use NewStream")
		}
		for i := 0; ; {
			next := bytes.IndexByte(part[i:], '\n')
			if next < 0 {
				break
			}
			i += next + 1
			begun = at + int64(i)
			f.n++
			if last := f.marks[len(f.marks)-1]; begun-last.offset >= apart {
				f.marks = append(f.marks, mark{f.n, begun})
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if at < f.size { // it was cut meanwhile
		f.size = at
	}
	if begun < f.size {
		f.n++
	}
	f.marks = slices.Clip(f.marks)
	return nil
}

// Len returns the number of lines.
func (f *File) Len() int { return int(f.n) }

// At returns the i-th line, from 0. It returns an IndexError if there is none.
func (f *File) At(i int) (string, error) {
	if i < 0 || int64(i) >= f.n {
		return "", files.OutOfRange("lines.File", "line", i, int(f.n))
	}
	f.mutex.RLock()
	defer f.mutex.RUnlock()
	if f.file == nil {
		return "", files.Closed(f.path)
	}
	m := f.marks[sort.Search(len(f.marks), func(k int) bool { return f.marks[k].line > int64(i) })-1]
	section := io.NewSectionReader(f.file, m.offset, f.size-m.offset)
	r := readers.Get().(*bufio.Reader)
	defer readers.Put(r)
	defer r.Reset(nil)
	r.Reset(section)
	for line := m.line; ; line++ {
		text, _, err := f.limits.next(r, line == int64(i))
		if err != nil {
			return "", f.limits.broken(f.path, line, err)
		}
		if line == int64(i) {
			return text, nil
		}
	}
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1024) }}

// Close closes the file. At returns an error then.
func (f *File) Close() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

var (
	errLong    = errors.New("too long")
	errNotUTF8 = errors.New("not UTF-8")
)

// next reads a line, and how many bytes it takes in the file. Where it is not wanted, it is only passed by. After
// errLong and errNotUTF8 the reader is behind the line.
func (l limits) next(r *bufio.Reader, wanted bool) (line string, length int64, err error) {
	var text []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		length += int64(len(part))
		if wanted && !long {
			// Its end does not count.
			if len(text)+len(part) > l.maxLine+2 || len(text)+len(bytes.TrimRight(part, "\r\n")) > l.maxLine {
				long, text = true, nil
			} else {
				text = append(text, part...)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && length > 0: // the last line
		default:
			return "", length, err
		}
		break
	}
	if long {
		return "", length, errLong
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if wanted && !l.anyBytes && !utf8.Valid(text) {
		return "", length, errNotUTF8
	}
	return string(text), length, nil
}

// broken is the error for a line, numbered from 0.
func (l limits) broken(path string, line int64, err error) error {
	where := fmt.Sprintf("line %d", line+1)
	switch {
	case errors.Is(err, errLong):
		return files.Errorf(path, where, "the line has more than %d bytes: set MaxLine if it is meant to", l.maxLine)
	case errors.Is(err, errNotUTF8):
		return files.Errorf(path, where, "the line is not UTF-8: set AnyBytes to take it as it is")
	case errors.Is(err, io.EOF):
		return files.Errorf(path, where, "the file ends before it: it was changed since it was opened")
	}
	return files.Wrap(path, where, err)
}

// Stream is the lines of files, one after the other. It is used by one goroutine at a time.
type Stream struct {
	paths  []string
	limits limits
	at     files.Position
}

// NewStream makes a stream of the lines of files. None is opened yet. It panics with a ValueError if MaxLine is not
// positive.
func NewStream(paths []string, opts ...Options) *Stream {
	return &Stream{paths: slices.Clone(paths), limits: args.Option(opts).limits("lines.NewStream"), at: files.Position{Kind: "lines.Stream", Files: len(paths)}}
}

// All yields the lines of an epoch: all of them, or after LoadStateDict the rest of the epoch that the state is in. A loop that is left
// early changes nothing for the next one.
//
// A *data.FileError about one line comes in the place of the line, and the next line follows, if the loop goes on. One
// about a file as a whole is followed by the next file.
func (s *Stream) All() iter.Seq2[string, error] {
	return files.All(&s.at, s.walk)
}

// From yields the lines of an epoch from a place on, as data.Seekable says: those before are read and dropped. It leaves the
// stream's state alone, and may be called by several goroutines.
func (s *Stream) From(start data.Start) iter.Seq2[string, error] {
	return files.From(&s.at, start, s.walk)
}

func (s *Stream) walk(at *files.Position, skip int, yield func(string, error) bool) bool {
	for at.File < len(s.paths) {
		if !s.file(s.paths[at.File], at, &skip, yield) {
			return false
		}
	}
	return true
}

// file yields the lines of one file; false if the loop is left.
func (s *Stream) file(path string, at *files.Position, skip *int, yield func(string, error) bool) bool {
	give := func(text string, err error) bool {
		if *skip > 0 {
			*skip--
			return true
		}
		return yield(text, err)
	}
	ends := func(err error) bool {
		at.Begin(at.File + 1)
		return err == nil || give("", err)
	}
	r, err := files.Open(path)
	if err != nil {
		return ends(err)
	}
	defer r.Close()
	if err := r.Skip(at.Offset); err != nil {
		return ends(files.Wrap(path, "", err))
	}
	for {
		text, length, err := s.limits.next(r.Reader, *skip == 0)
		if length == 0 && errors.Is(err, io.EOF) {
			return ends(nil)
		}
		fatal := err != nil && !errors.Is(err, errLong) && !errors.Is(err, errNotUTF8)
		if err != nil {
			err = s.limits.broken(path, at.Sample, err)
		}
		if fatal {
			return ends(err)
		}
		at.Offset += length
		at.Sample++
		if !give(text, err) {
			return false
		}
	}
}

// StateDict returns where the stream is: behind the last line that was yielded.
func (s *Stream) StateDict() gotorch.Dict { return s.at.StateDict() }

// LoadStateDict makes the stream go on from where another of the same files was. It returns a ValueError if the state
// is of something else.
func (s *Stream) LoadStateDict(dict gotorch.Dict) error { return s.at.LoadStateDict(dict) }
