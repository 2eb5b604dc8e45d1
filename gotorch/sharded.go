package gotorch

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch/internal/shards"
)

// ShardError says what is wrong with a safetensors file in parts: with its index, or with a part, its shard.
// Err is the reason. Of kind ValueError it is for an index that is none, that gives a tensor twice or
// names a file outside of its folder; of kind KeyError for a tensor that is not in its shard; and what
// reading the shard returned else, which errors.Is finds to be fs.ErrNotExist where it is missing.
type ShardError struct {
	Index  string // the path of the index
	Shard  string // the shard's name in the index; "" where the index itself is wrong
	Tensor string // the tensor's name, where it is about one
	Err    error
}

func (e *ShardError) Error() string {
	parts := []string{e.Index}
	if e.Shard != "" {
		parts = append(parts, "shard "+strconv.Quote(e.Shard))
	}
	if e.Tensor != "" {
		parts = append(parts, "tensor "+strconv.Quote(e.Tensor))
	}
	return strings.Join(append(parts, e.Err.Error()), ": ")
}

// Unwrap returns the reason.
func (e *ShardError) Unwrap() error { return e.Err }

// loadSharded reads the tensors that an index names, each from its shard beside the index.
func loadSharded(f *os.File, size int64, opts []LoadOptions) (tensors map[string]Tensor, err error) {
	parts, err := shards.Read(io.LimitReader(f, size))
	if err != nil {
		return nil, &ShardError{Index: f.Name(), Err: newError("LoadTensors", ValueError, err.Error())}
	}
	tensors = map[string]Tensor{}
	defer func() {
		if err != nil {
			closeAll(tensors)
			tensors = nil
		}
	}()
	for _, shard := range slices.Sorted(maps.Keys(parts)) {
		wrong := func(tensor string, err error) *ShardError { return &ShardError{f.Name(), shard, tensor, err} }
		// The file may be a link, as in the caches of those who load models.
		if err := shards.CheckName(shard); err != nil {
			return nil, wrong("", newError("LoadTensors", ValueError, err.Error()))
		}
		held, _, err := LoadSafetensors(filepath.Join(filepath.Dir(f.Name()), shard), opts...)
		if err != nil {
			return nil, wrong("", err)
		}
		for _, name := range parts[shard] {
			t, ok := held[name]
			if !ok {
				closeAll(held)
				return nil, wrong(name, newError("LoadTensors", KeyError, "the shard does not hold the tensor"))
			}
			tensors[name] = t
			delete(held, name)
		}
		closeAll(held) // which the index says to be elsewhere, or nowhere
	}
	return tensors, nil
}

func closeAll(tensors map[string]Tensor) {
	for _, t := range tensors {
		t.Close()
	}
}
