package gotorch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/big"

	"gotorch.dev/gotorch/internal/pickle"
)

// The format that torch.save had before PyTorch 1.6: pickles of a magic number, a version, what the machine was, the
// value, and the keys of the storages, one after the other; then for each key the number of elements and the elements,
// little-endian on every machine. What an element is only the value says.

var legacyMagic, _ = new(big.Int).SetString("1950a86a20f9469cfc6c", 16)

const legacyVersion = 1001

// legacyFile is such a file.
type legacyFile struct {
	r        io.ReaderAt
	length   int64
	storages map[string]legacyRecord
}

// legacyRecord is where a storage is.
type legacyRecord struct{ offset, size int64 }

// mayBeLegacy reports whether a file begins as a pickle with a number does, and not as safetensors.
func mayBeLegacy(head []byte) bool {
	return len(head) > 8 && head[8] != '{' && (head[0] == 0x80 && head[1] <= 5 || head[0] == 'L' && head[1] >= '0' && head[1] <= '9')
}

// decodeLegacy reads such a file.
func decodeLegacy(r io.ReaderAt, size int64, opt LoadOptions) (any, error) {
	l := &legacyFile{r: r, length: size, storages: map[string]legacyRecord{}}
	magic, at, err := l.pickle(0, &skimmer{})
	if n, ok := magic.(*big.Int); err != nil || !ok || n.Cmp(legacyMagic) != 0 {
		return nil, loadError(ValueError, "the file is a pickle, but none of torch.save's: in Python load it with pickle, and save what it holds with torch.save")
	}
	version, at, err := l.pickle(at, &skimmer{})
	if err != nil {
		return nil, err
	}
	if version != int64(legacyVersion) {
		return nil, loadError(ValueError, "the file has version %v of the format that torch.save had before PyTorch 1.6: it must be %d", version, legacyVersion)
	}
	if _, at, err = l.pickle(at, &skimmer{}); err != nil {
		return nil, err
	}
	// The value is read twice: for how long it and its storages are, and when these are known.
	value, skim := at, &skimmer{storages: map[string]int64{}}
	if _, at, err = l.pickle(at, skim); err != nil {
		return nil, err
	}
	data := make([]byte, at-value)
	if err := l.readAt(data, value); err != nil {
		return nil, err
	}
	keys, at, err := l.pickle(at, &skimmer{})
	if err != nil {
		return nil, err
	}
	list, ok := keys.(*pickle.List)
	if !ok {
		return nil, loadError(UnpicklingError, "the file has %s where the keys of its storages are expected", describe(keys))
	}
	for _, item := range list.Items {
		key, ok := textOf(item)
		element, used := skim.storages[key]
		if _, twice := l.storages[key]; !ok || !used || twice {
			return nil, loadError(UnpicklingError, "the file has a storage %.50q that its value does not use", key)
		}
		var head [8]byte
		if err := l.readAt(head[:], at); err != nil {
			return nil, err
		}
		at += int64(len(head))
		n := int64(binary.LittleEndian.Uint64(head[:]))
		if n < 0 || n > (size-at)/element {
			return nil, loadError(ValueError, "storage %.50q is truncated", key)
		}
		l.storages[key] = legacyRecord{at, n * element}
		at += n * element
	}
	u := &unpickler{opt: opt, records: l, left: size, work: 4 * size}
	return u.decode(data)
}

// pickle reads the pickle at a place, and returns where it ends. As nobody knows how long it is, more and more is read.
func (l *legacyFile) pickle(at int64, host *skimmer) (v any, end int64, err error) {
	for n := int64(1 << 16); ; n *= 4 {
		n = min(n, l.length-at)
		data := make([]byte, n)
		if err := l.readAt(data, at); err != nil {
			return nil, 0, err
		}
		host.budget = pickle.NewBudget(len(data))
		v, length, err := pickle.DecodeFirst(data, host, host.budget)
		if errors.Is(err, pickle.ErrTruncated) && n < l.length-at {
			continue
		}
		if err != nil {
			return nil, 0, unpicklingError(err)
		}
		return v, at + int64(length), nil
	}
}

func (l *legacyFile) readAt(b []byte, at int64) error {
	_, err := io.ReadFull(io.NewSectionReader(l.r, at, l.length-at), b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return loadError(ValueError, "the file is truncated")
	}
	return err
}

// size is part of records.
func (l *legacyFile) size(key string) (int64, bool) {
	r, ok := l.storages[key]
	return r.size, ok
}

// read is part of records.
func (l *legacyFile) read(key string, b []byte) error { return l.readAt(b, l.storages[key].offset) }

// mapped is part of records: elements lie at any place, where no tensor may be.
func (l *legacyFile) mapped(string) (*Storage, error) { return nil, nil }

// skimmer is a pickle.Host that makes nothing. It notes the size of an element of each storage.
type skimmer struct {
	budget   *pickle.Budget
	storages map[string]int64
}

// Global is part of pickle.Host.
func (s *skimmer) Global(module, name string) (any, error) {
	return global(module + "." + name), s.budget.Take(64 + len(module) + len(name))
}

// ByteString is part of pickle.ByteStrings.
func (s *skimmer) ByteString(b []byte) any { return (&unpickler{}).ByteString(b) }

// Reduce is part of pickle.Host.
func (s *skimmer) Reduce(any, *pickle.Tuple) (any, error) {
	return &pickle.Object{Call: true}, s.budget.Take(256)
}

// Build is part of pickle.Host.
func (s *skimmer) Build(any, any) error { return nil }

// Persistent is part of pickle.Host.
func (s *skimmer) Persistent(id any) (any, error) {
	ref, err := parseStorageRef(id, s.budget)
	if err == nil && ref.module == nil && s.storages != nil {
		if _, known := s.storages[ref.key]; !known {
			s.storages[ref.key] = int64(max(1, ref.dtype.Size()))
		}
	}
	return &pickle.Object{}, err
}

// Other formats ---------------------------------------------------------------------------------------------

// foreign says what a file is that is no archive.
func foreign(r io.ReaderAt, size int64) string {
	head := make([]byte, min(size, 512))
	if n, _ := r.ReadAt(head, 0); n < len(head) {
		head = head[:n]
	}
	switch {
	case len(head) >= 262 && string(head[257:262]) == "ustar" || bytes.HasPrefix(head, []byte("sys_info\x00")), bytes.HasPrefix(head, []byte("storages\x00")):
		return "the file is in the tar format that torch.save had in PyTorch 0.1: in Python load it with torch.load(path, weights_only=False), if you trust it, and save it once"
	case len(head) > 8 && head[8] == '{':
		return "the file is a safetensors file: read it with LoadTensors"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "the file is truncated or damaged"
	case bytes.HasPrefix(head, []byte("\x89HDF\r\n\x1a\n")):
		return "the file is in the HDF5 format, as Keras writes it, and none of torch.save's"
	case bytes.HasPrefix(head, []byte("\x93NUMPY")):
		return "the file is an array of NumPy's: read it with gotorch/data/npy"
	case bytes.HasPrefix(head, []byte("GGUF")):
		return "the file is in the GGUF format, and none of torch.save's"
	case bytes.HasPrefix(head, []byte("version https://git-lfs")):
		return "the file is a pointer of Git LFS: fetch the file that it stands for with git lfs pull"
	}
	return "the file is none of torch.save's"
}
