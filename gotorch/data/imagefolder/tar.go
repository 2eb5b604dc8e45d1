package imagefolder

import (
	"archive/tar"
	"io"
	"iter"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
)

// class returns the name of the class that a member of an archive belongs to; false for what is no picture of one.
func (o Options) class(head *tar.Header) (string, bool) {
	name := path.Clean(head.Name)
	if !files.IsRegular(head) || !o.isPicture(name) {
		return "", false
	}
	if o.Root == "" {
		class := path.Base(path.Dir(name))
		return class, class != "." && class != "/"
	}
	below, ok := strings.CutPrefix(name, path.Clean(o.Root)+"/")
	if path.Clean(o.Root) == "." {
		below, ok = name, true
	}
	class, _, deeper := strings.Cut(below, "/")
	return class, ok && deeper
}

// isSparse reports whether a member lies in the archive without its zeros, and so not as what it is.
func isSparse(head *tar.Header) bool {
	if head.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range head.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (f *Folder) lookTar(size int64, opt Options) error {
	section := io.NewSectionReader(f.file, 0, size)
	var start [2]byte
	if n, _ := section.ReadAt(start[:], 0); n == 2 && start == [2]byte{0x1f, 0x8b} {
		return files.Errorf(f.archive, "", "an archive that is packed by gzip can only be read from its beginning: unpack it, or use NewStream")
	}
	found := map[string]bool{}
	var names []string
	for head, err := range files.NewTar(f.archive, section).All() {
		if err != nil {
			return err
		}
		class, ok := opt.class(head)
		if !ok {
			continue
		}
		offset, err := section.Seek(0, io.SeekCurrent)
		switch {
		case err != nil:
			return files.Wrap(f.archive, head.Name, err)
		case isSparse(head):
			return files.Errorf(f.archive, head.Name, "it is stored as a sparse file, which cannot be read by place: use NewStream")
		case head.Size > size-offset:
			return files.Errorf(f.archive, head.Name, "it should have %d bytes, and the archive ends after %d", head.Size, max(0, size-offset))
		}
		found[class] = true
		f.entries = append(f.entries, entry{path: head.Name, offset: offset, size: head.Size})
		names = append(names, class)
	}
	classes, numbers, err := opt.numbers(f.archive, found)
	if err != nil {
		return err
	}
	f.classes = classes
	kept := f.entries[:0]
	for i, e := range f.entries {
		class, known := numbers[names[i]]
		if known { // options may leave classes out
			e.class = class
			kept = append(kept, e)
		}
	}
	f.entries = kept
	return f.checkEmpty(opt)
}

// checkEmpty refuses classes without a picture, unless the options take them.
func (f *Folder) checkEmpty(opt Options) error {
	has := make([]bool, len(f.classes))
	for _, e := range f.entries {
		has[e.class] = true
	}
	var empty []string
	for i, ok := range has {
		if !ok {
			empty = append(empty, f.classes[i])
		}
	}
	if len(empty) > 0 && !opt.AllowEmpty {
		return noPictures(f.archive, empty, opt)
	}
	return nil
}

// TarClasses reads through an archive, packed by gzip or not, and returns the names of its classes, sorted, for
// [StreamOptions].
func TarClasses(archive string, opts ...Options) ([]string, error) {
	opt := args.Option(opts)
	found := map[string]bool{}
	r, err := files.Open(archive)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for head, err := range files.NewTar(archive, r).All() {
		if err != nil {
			return nil, err
		}
		if class, ok := opt.class(head); ok {
			found[class] = true
		}
	}
	opt.Classes = nil
	classes, _, err := opt.numbers(archive, found)
	return classes, err
}

// StreamOptions say how a [Stream] yields pictures.
type StreamOptions struct {
	Shuffle int            // pictures that are held back, to be yielded in random order; 0: the archive's order
	Seed    gotorch.Scalar // of the order; default: the data.Loader's, or drawn from gotorch's default generator
}

// Stream is the pictures of an archive, .tar or .tar.gz, from its beginning to its end. It is used by one goroutine at a
// time.
type Stream struct {
	archive string
	options Options
	classes []string
	numbers map[string]int
	most    int64
	at      files.Epoch
}

// NewStream makes a stream of the pictures of an archive. With Classes in the options nothing is read yet; else it reads
// through the archive once, as [TarClasses] does. It panics with a ValueError for options that do not fit.
func NewStream(archive string, opt Options, opts ...StreamOptions) (*Stream, error) {
	const op = "imagefolder.NewStream"
	stream := args.Option(opts)
	if stream.Shuffle < 0 {
		panic(args.ValueError(op, "Shuffle must not be negative, but got %d", stream.Shuffle))
	}
	most := args.Int(op, "MaxBytes", opt.Image.MaxBytes, maxBytes)
	found := map[string]bool{}
	if opt.Classes == nil {
		names, err := TarClasses(archive, opt)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found[name] = true
		}
	}
	classes, numbers, err := opt.numbers(archive, found)
	if err != nil {
		return nil, err
	}
	at := files.Epoch{Kind: "imagefolder.Stream", Shuffle: stream.Shuffle}
	at.SetSeed(op, stream.Seed)
	return &Stream{archive: archive, options: opt, classes: classes, numbers: numbers, most: most, at: at}, nil
}

// Classes returns the names of the classes, by their numbers.
func (s *Stream) Classes() []string { return slices.Clone(s.classes) }

// All yields the pictures of an epoch, each of which has another random order: all of them, or after LoadStateDict the rest of the
// epoch that the state is in. A loop that is left early is an epoch, too.
//
// A picture that cannot be decoded is a *data.FileError in its place, and the next one follows, if the loop goes on.
// After an error of the archive itself the stream ends.
func (s *Stream) All() iter.Seq2[Sample, error] {
	return s.decoded(files.Samples(&s.at, s.members))
}

// From yields the pictures of an epoch from a place on, as data.Seekable says: those before are read, and not decoded. The order
// follows from the Seed of the options and the start's Epoch, or from the start's Seed if they have none. From leaves the stream's
// state alone, and may be called by several goroutines.
func (s *Stream) From(start data.Start) iter.Seq2[Sample, error] {
	if err := s.at.Waiting(); err != nil {
		return func(yield func(Sample, error) bool) { yield(Sample{}, err) }
	}
	return s.decoded(files.SamplesFrom(&s.at, start, s.members))
}

func (s *Stream) decoded(members iter.Seq[member]) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		for m := range members {
			if m.err != nil {
				if !yield(Sample{}, m.err) {
					return
				}
				continue
			}
			if !yield(decode(s.archive, m.name, m.class, m.encoded, s.options.Image)) {
				return
			}
		}
	}
}

// member is a picture as it is in the archive.
type member struct {
	name    string
	class   int
	encoded []byte
	err     error
}

func (s *Stream) members(*rand.Rand) iter.Seq[member] {
	return func(yield func(member) bool) {
		file, err := files.Open(s.archive)
		if err != nil {
			yield(member{err: err})
			return
		}
		defer file.Close()
		members := files.NewTar(s.archive, file)
		for head, err := range members.All() {
			if err != nil {
				yield(member{err: err})
				return
			}
			name, ok := s.options.class(head)
			class, known := s.numbers[name]
			if !ok || !known {
				continue
			}
			m := member{name: head.Name, class: class}
			if head.Size > s.most {
				m.err = tooLong(s.archive, head.Name, head.Size, s.most)
			} else if m.encoded, err = members.Content(); err != nil {
				yield(member{err: err})
				return
			}
			if !yield(m) {
				return
			}
		}
	}
}

// StateDict returns where the stream is: behind the last picture that was yielded.
func (s *Stream) StateDict() gotorch.Dict { return s.at.StateDict() }

// LoadStateDict makes the stream go on from where another of the same archive was: it reads the pictures before once
// more, without decoding them. It returns a ValueError if the state is of something else, or of other options.
func (s *Stream) LoadStateDict(dict gotorch.Dict) error { return s.at.LoadStateDict(dict) }
