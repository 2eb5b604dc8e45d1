package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"unicode/utf8"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/counting"
	"gotorch.dev/gotorch/internal/replace"
)

// SaveOptions are the arguments of [Save] that have defaults.
type SaveOptions struct {
	// Group is the ranks that save together, all of which must call Save; default: this process alone.
	Group *distributed.Group
	// NoOverwrite is an error where the folder has a checkpoint.
	NoOverwrite bool
}

// Save writes a checkpoint of what all ranks of a group have. Each writes a file of its own, and rank 0 at last .metadata: until
// then the folder holds the checkpoint that it held before, or none, whatever ends the job. An older one is removed afterwards.
//
// All ranks return an error, or none does: of kind ValueError for names that come twice, are not UTF-8 or are for different things
// on different ranks, for parts that are not a tensor together and for a state that is in itself, TypeError for values that cannot
// be saved, NotImplementedError for sparse, quantised and meta tensors, RuntimeError where another job saves into the folder at
// this moment and the file system has locks, one of package os of the rank whose disk fails, NetworkError or TimeoutError where
// ranks do not come.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.save
func Save(dir string, state State, opts ...SaveOptions) error {
	opt := args.Option(opts)
	s := &saver{dir: dir, group: opt.Group}
	if s.group != nil {
		s.rank = s.group.Rank()
	}
	if err := s.together(func() error { return s.plan(state) }); err != nil {
		return err
	}
	if err := s.merge(); err != nil {
		return err
	}
	defer func() { s.lock.Close() }() // of nil an error that says nothing
	if err := s.together(func() error { return s.enter(opt.NoOverwrite) }); err != nil {
		return err
	}
	if err := s.together(s.write); err != nil {
		// No rank comes to the end, so no .metadata will name the file.
		if s.file != "" {
			os.Remove(filepath.Join(dir, s.file))
		}
		return err
	}
	if err := s.merge(); err != nil {
		return err
	}
	return s.together(s.commit)
}

const saveOp = "checkpoint.Save"

type saver struct {
	dir    string
	group  *distributed.Group
	rank   int
	items  []*item  // this rank's
	values []any    // of items
	file   string   // this rank's, once it is complete
	lock   *os.File // of rank 0: the folder
	whole  *metadata
}

// together does a step on all ranks: either it succeeds on all, or it is an error on all.
func (s *saver) together(step func() error) error {
	return agree(saveOp, s.group, tried(step))
}

// plan finds what this rank has. What several have the first of them writes.
func (s *saver) plan(state State) error {
	return flatten(nil, state, func(l leaf) error {
		it := &item{Key: joined(l.path), Path: l.path}
		if !utf8.ValidString(it.Key) {
			return args.ValueError(saveOp, "the name %q is not UTF-8, as Python's are", it.Key)
		}
		p := part{Rank: s.rank}
		var t gotorch.Tensor
		switch v := l.value.(type) {
		case distributed.Shard:
			t, it.Shape, p.Offsets = v.Local, v.Shape, v.Offsets
		case gotorch.Tensor:
			if t = v; t.T != nil {
				it.Shape, p.Offsets = t.Shape(), make([]int64, t.Dim())
			}
		default:
			it.Parts = []part{p}
			s.items, s.values = append(s.items, it), append(s.values, l.value)
			return nil
		}
		if t.T == nil {
			return args.ValueError(saveOp, "%q is a nil tensor", it.Key)
		}
		it.Tensor, it.DType, p.Sizes = true, t.DType(), t.Shape()
		it.Parts = []part{p}
		s.items, s.values = append(s.items, it), append(s.values, t)
		return nil
	})
}

// merge puts together what all ranks have, alike on all.
func (s *saver) merge() error {
	all := [][]*item{s.items}
	if s.group != nil && s.group.Size() > 1 {
		var err error
		if all, err = distributed.AllGatherObject(s.group, s.items); err != nil {
			return err
		}
	}
	s.whole = &metadata{}
	byKey := map[string]*item{}
	for rank, items := range all {
		mine := map[string]bool{}
		for _, it := range items {
			if mine[it.Key] {
				return args.ValueError(saveOp, "%q is there twice", it.Key)
			}
			mine[it.Key] = true
			known := byKey[it.Key]
			if known == nil {
				known = &item{Key: it.Key, Path: it.Path, Tensor: it.Tensor, DType: it.DType, Shape: it.Shape}
				byKey[it.Key] = known
				s.whole.items = append(s.whole.items, known)
			}
			if known.Tensor != it.Tensor || known.DType != it.DType || !slices.Equal(known.Shape, it.Shape) || !slices.Equal(known.Path, it.Path) {
				return args.ValueError(saveOp, "%q is %s on rank %d, and on another %s", it.Key, it, rank, known)
			}
			for _, p := range it.Parts {
				p.Rank = rank
				if !slices.ContainsFunc(known.Parts, p.same) { // of ranks that have the same, the first
					known.Parts = append(known.Parts, p)
				}
			}
		}
	}
	for _, it := range s.whole.items { // what has no elements is in no file
		if n, ok := numel(it.Shape); it.Tensor && (!ok || n > 0) {
			it.Parts = slices.DeleteFunc(it.Parts, func(p part) bool { n, ok := numel(p.Sizes); return ok && n == 0 })
		}
	}
	if err := s.whole.index(); err != nil {
		return args.ValueError(saveOp, "%v", err)
	}
	return nil
}

// enter makes the folder, and has rank 0 lock it: a second job would take this one's files for what a third has left. The system
// takes the lock away with the process.
func (s *saver) enter(noOverwrite bool) error {
	if err := os.MkdirAll(s.dir, 0o777); err != nil {
		return err
	}
	if s.rank == 0 {
		lock, err := os.Open(s.dir)
		if err != nil {
			return err
		}
		s.lock = lock
		if err := replace.Lock(lock); errors.Is(err, syscall.EWOULDBLOCK) { // other errors are of file systems without locks
			return args.Errorf(saveOp, gotorch.RuntimeError, "another job saves into %s at this moment: give each its own folder", s.dir)
		}
	}
	if noOverwrite {
		if _, err := os.Lstat(filepath.Join(s.dir, metadataName)); err == nil {
			return &fs.PathError{Op: "create", Path: filepath.Join(s.dir, metadataName), Err: fs.ErrExist}
		}
	}
	return nil
}

// write writes this rank's file, and says in items what is where.
func (s *saver) write() error {
	name, err := s.unused()
	if err != nil {
		return err
	}
	var written []*item
	err = replace.File(filepath.Join(s.dir, name), func(w io.Writer) error {
		out := &counting.Writer{W: w}
		for i, it := range s.items {
			p := it.Parts[0]
			if !slices.ContainsFunc(s.whole.byKey[it.Key].Parts, func(kept part) bool { return kept.Rank == s.rank && kept.same(p) }) {
				continue
			}
			p.File, p.At = name, out.N
			if err := encode(out, s.values[i]); err != nil {
				return about(saveOp, it.Key, err)
			}
			p.Length = out.N - p.At
			done := *it
			done.Parts = []part{p}
			written = append(written, &done)
		}
		return nil
	})
	if err == nil {
		s.file, s.items = name, written
	}
	return err
}

// unused is a name that no file of an older checkpoint has, which is whole until this one is.
func (s *saver) unused() (string, error) {
	for n := 0; ; n++ {
		name := fmt.Sprintf("__%d_%d.distcp", s.rank, n)
		_, err := os.Lstat(filepath.Join(s.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// encode writes a value as torch.save does, of a tensor no more than its elements.
func encode(w io.Writer, value any) (err error) {
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		if t, is := value.(gotorch.Tensor); is {
			t = t.Detach()
			if t.Layout() == gotorch.Strided && t.StorageBytes() != t.Numel()*int64(t.DType().Size()) {
				t = t.Clone(gotorch.CloneOptions{MemoryFormat: gotorch.ContiguousFormat})
			}
			value = t
		}
		err = gotorch.Encode(w, "archive", value)
	})
	return err
}

// distcp is what files are called that belong to checkpoints.
var distcp = regexp.MustCompile(`^__\d+_\d+\.distcp$`)

// commit has rank 0 write .metadata, and remove what it does not name.
func (s *saver) commit() error {
	if s.rank != 0 {
		return nil
	}
	named := map[string]bool{}
	for _, it := range s.whole.items {
		for _, p := range it.Parts {
			if !named[p.File] {
				if _, err := os.Lstat(filepath.Join(s.dir, p.File)); err != nil {
					return args.Errorf(saveOp, gotorch.RuntimeError, "rank %d has written %s, which rank 0 does not see: the folder must be one that all ranks have: %v", p.Rank, p.File, err)
				}
			}
			named[p.File] = true
		}
	}
	err := replace.File(filepath.Join(s.dir, metadataName), func(w io.Writer) error {
		_, err := w.Write(s.whole.encode())
		return err
	})
	if err != nil { // it is not in its place, and all ranks have written theirs
		for name := range named {
			os.Remove(filepath.Join(s.dir, name))
		}
		return err
	}
	found, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // it is saved, and files too many do no harm
	}
	for _, f := range found {
		if distcp.MatchString(f.Name()) && !named[f.Name()] {
			os.Remove(filepath.Join(s.dir, f.Name()))
		}
	}
	return nil
}
