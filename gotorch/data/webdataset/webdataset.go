// Package webdataset reads samples out of tar archives, one after the other, as the Python package of this name does:
// the way to train on more than memory holds, from disks that are fast in a row and slow in between.
//
// A sample is the files of an archive that follow each other and are named alike up to the first dot:
//
//	train-000000.tar:  0001.jpg  0001.cls  0002.jpg  0002.cls  ...
//
//	shards, err := webdataset.Expand("train-{000000..000146}.tar")
//	if err != nil {
//		return err
//	}
//	stream := webdataset.New(shards, webdataset.Options{Shuffle: 1000})
//	for sample, err := range stream.All() { // one epoch
//		if err != nil {
//			return err
//		}
//		picture, err := sample.Image("jpg", "png")
//		class, err := sample.Int("cls")
//		...
//	}
//
// Archives may be packed by gzip. A stream holds no more in memory than Shuffle samples, and no sample is larger than
// MaxSample. Its StateDict says where it is, and LoadStateDict goes on from there, also in the midst of shuffled samples.
//
// What is wrong is a *data.FileError with the archive and the sample. A loop that goes on after one gets the next
// sample, or, where an archive is damaged, the next archive's.
package webdataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/data/npy"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/vision/imageio"
)

// Field is a file of a sample.
type Field struct {
	Name string // what follows the first dot, in lower case: "jpg", "seg.png"
	Data []byte
}

// Sample is files that belong together.
type Sample struct {
	Shard  string // the archive's path
	Key    string // the files' name up to the first dot
	Fields []Field
}

// Bytes returns the file of the first of the names that the sample has.
func (s *Sample) Bytes(names ...string) ([]byte, error) {
	f, err := s.field(names)
	return f.Data, err
}

func (s *Sample) field(names []string) (Field, error) {
	for _, name := range names {
		for _, f := range s.Fields {
			if f.Name == name {
				return f, nil
			}
		}
	}
	has := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		has[i] = f.Name
	}
	return Field{}, s.broken("", &gotorch.Error{Kind: gotorch.KeyError, Msg: fmt.Sprintf("the sample has none of the files %.200q, but %.200q", names, has)})
}

// broken is the error for a file of the sample.
func (s *Sample) broken(name string, err error) error {
	where := s.Key
	if name != "" {
		where += "." + name
	}
	var inner *data.FileError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &data.FileError{Path: s.Shard, Where: where, Err: err}
}

func (s *Sample) invalid(name, format string, values ...any) error {
	return s.broken(name, &gotorch.Error{Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)})
}

// Text returns the file of the first of the names that the sample has, which must be UTF-8.
func (s *Sample) Text(names ...string) (string, error) {
	f, err := s.field(names)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(f.Data) {
		return "", s.invalid(f.Name, "the text is not UTF-8")
	}
	return string(f.Data), nil
}

// Int returns the number that is in the file of the first of the names that the sample has, in decimal digits.
func (s *Sample) Int(names ...string) (int, error) {
	f, err := s.field(names)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(f.Data[:min(len(f.Data), 64)])))
	if err != nil || len(f.Data) > 64 {
		return 0, s.invalid(f.Name, "%.40q is no integer", f.Data)
	}
	return n, nil
}

// JSON reads the file of that name into what value points to, as json.Unmarshal does.
func (s *Sample) JSON(name string, value any) error {
	f, err := s.field([]string{name})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(f.Data, value); err != nil {
		return s.broken(f.Name, err)
	}
	return nil
}

// Image decodes the file of the first of the names that the sample has, with the default options of package vision/imageio.
func (s *Sample) Image(names ...string) (image.Image, error) {
	f, err := s.field(names)
	if err != nil {
		return nil, err
	}
	picture, err := imageio.DecodeImage(f.Data)
	if err != nil {
		return nil, s.broken(f.Name, err)
	}
	return picture, nil
}

// Tensor reads the file of the first of the names that the sample has, which NumPy has written (.npy).
func (s *Sample) Tensor(names ...string) (gotorch.Tensor, error) {
	f, err := s.field(names)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	t, err := npy.Parse(f.Data)
	if err != nil {
		return t, s.broken(f.Name, err)
	}
	return t, nil
}

// Options say how a [Stream] walks through archives.
type Options struct {
	Shuffle       int            // samples that are held back, to be yielded in random order; 0: the archives' order
	ShuffleShards bool           // walk through the archives in another order in every epoch
	Seed          gotorch.Scalar // of both; default: the data.Loader's, or drawn from gotorch's default generator
	MaxSample     gotorch.Scalar // bytes of the largest sample; default: 1<<28
}

// Stream is the samples of archives. It is used by one goroutine at a time; [Stream.Shard] makes one for each of several.
type Stream struct {
	shards        []string
	maxSample     int64
	shuffleShards bool
	at            files.Epoch
}

// New makes a stream of the samples of archives. None is opened yet. It panics with a ValueError for options that do not
// fit.
func New(shards []string, opts ...Options) *Stream {
	const op = "webdataset.New"
	opt := args.Option(opts)
	s := &Stream{
		shards: slices.Clone(shards), shuffleShards: opt.ShuffleShards, maxSample: args.Int(op, "MaxSample", opt.MaxSample, 1<<28),
		at: files.Epoch{Kind: "webdataset.Stream", Shuffle: opt.Shuffle},
	}
	if opt.Shuffle < 0 || s.maxSample < 1 {
		panic(args.ValueError(op, "Shuffle must not be negative and MaxSample be positive, but got %d and %d", opt.Shuffle, s.maxSample))
	}
	if opt.Shuffle > 0 || s.shuffleShards {
		s.at.SetSeed(op, opt.Seed)
	}
	return s
}

// Shard returns a stream of every n-th archive, beginning with the i-th, for one of n processes or goroutines. With
// ShuffleShards each shuffles its own. It panics with a ValueError if there is no i-th part of n.
func (s *Stream) Shard(i, n int) *Stream {
	if n < 1 || i < 0 || i >= n {
		panic(args.ValueError("webdataset.Stream.Shard", "there is no part %d of %d", i, n))
	}
	part := *s
	part.shards, part.at = nil, s.at.Fresh()
	for k := i; k < len(s.shards); k += n {
		part.shards = append(part.shards, s.shards[k])
	}
	return &part
}

// Shards returns the paths of the archives.
func (s *Stream) Shards() []string { return slices.Clone(s.shards) }

// Epoch returns which epoch the next loop over All is of, from 0.
func (s *Stream) Epoch() int { return s.at.Next() }

// All yields the samples of an epoch, each of which has another random order: all of them, or after LoadStateDict the rest of the
// epoch that the state is in, for which the samples before are read again. A loop that is left early is an epoch, too.
func (s *Stream) All() iter.Seq2[*Sample, error] { return both(files.Samples(&s.at, s.read)) }

// From yields the samples of an epoch from a place on, as data.Seekable says: those before are read and dropped. The order follows
// from the Seed of the options and the start's Epoch, or from the start's Seed if they have none. From leaves the stream's state
// alone, and may be called by several goroutines.
func (s *Stream) From(start data.Start) iter.Seq2[*Sample, error] {
	if err := s.at.Waiting(); err != nil {
		return func(yield func(*Sample, error) bool) { yield(nil, err) }
	}
	return both(files.SamplesFrom(&s.at, start, s.read))
}

func both(results iter.Seq[result]) iter.Seq2[*Sample, error] {
	return func(yield func(*Sample, error) bool) {
		for r := range results {
			if !yield(r.sample, r.err) {
				return
			}
		}
	}
}

type result struct {
	sample *Sample
	err    error
}

// read yields the samples of the archives of an epoch, one archive after the other.
func (s *Stream) read(rng *rand.Rand) iter.Seq[result] {
	shards := s.shards
	if s.shuffleShards {
		shards = slices.Clone(shards)
		rng.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
	}
	return func(yield func(result) bool) {
		for _, shard := range shards {
			if !s.readShard(shard, yield) {
				return
			}
		}
	}
}

// readShard yields the samples of an archive; false if the loop is left.
func (s *Stream) readShard(shard string, yield func(result) bool) bool {
	file, err := files.Open(shard)
	if err != nil {
		return yield(result{err: err})
	}
	defer file.Close()
	members := files.NewTar(shard, file)
	var (
		sample *Sample
		names  = map[string]bool{} // of its files, of which a hostile sample has very many
		size   int64
		broken error // why the sample is not yielded
	)
	flush := func() bool {
		done := result{sample, broken}
		sample, size, broken = nil, 0, nil
		switch {
		case done.err != nil:
			return yield(result{err: done.err})
		case done.sample != nil:
			return yield(done)
		}
		return true
	}
	for head, err := range members.All() {
		if err != nil {
			// The sample may lack what would have followed.
			return yield(result{err: err})
		}
		key, name, ok := split(head.Name)
		if !files.IsRegular(head) || !ok {
			continue
		}
		if sample == nil || sample.Key != key {
			if !flush() {
				return false
			}
			sample = &Sample{Shard: shard, Key: key}
			clear(names)
		}
		tooLong := head.Size > s.maxSample-size // where nothing overflows
		size += head.Size
		switch {
		case broken != nil:
			continue
		case tooLong:
			broken = files.Errorf(shard, key, "the sample has %d bytes or more, and MaxSample allows %d", size, s.maxSample)
			continue
		case names[name]:
			broken = files.Errorf(shard, key, "it has two files %q", name)
			continue
		}
		content, err := members.Content()
		if err != nil {
			return yield(result{err: err})
		}
		names[name] = true
		sample.Fields = append(sample.Fields, Field{name, content})
	}
	return flush()
}

// split cuts the name of a file at the first dot behind its folders. It is false for what belongs to no sample: names
// without a dot or with nothing before it, and what the format reserves, "__name__".
func split(name string) (key, field string, ok bool) {
	folder := strings.LastIndexByte(name, '/') + 1
	key, field, ok = strings.Cut(name[folder:], ".")
	if !ok || key == "" || strings.HasPrefix(name, "__") && strings.HasSuffix(strings.Split(name, "/")[0], "__") {
		return "", "", false
	}
	return name[:folder] + key, strings.ToLower(field), true
}

// StateDict returns where the stream is: behind the last sample that was yielded.
func (s *Stream) StateDict() gotorch.Dict {
	return append(s.at.StateDict(), gotorch.DictItem{Key: "shards", Value: int64(len(s.shards))}, gotorch.DictItem{Key: "shuffle_shards", Value: s.shuffleShards})
}

// LoadStateDict makes the stream go on from where another of the same archives and options was. The next All reads what
// came before once more, and yields what follows. It returns a ValueError if the state is of something else.
func (s *Stream) LoadStateDict(dict gotorch.Dict) error {
	at := s.at
	if err := at.LoadStateDict(dict); err != nil {
		return err
	}
	if n, each := dict.Get("shards"), dict.Get("shuffle_shards"); n != int64(len(s.shards)) || each != s.shuffleShards {
		return args.ValueError(at.Kind, "the state is of a stream of %v archives with ShuffleShards: %v, and this one has %d with %v", n, each, len(s.shards), s.shuffleShards)
	}
	s.at = at
	return nil
}
