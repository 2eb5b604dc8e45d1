package gotorch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	shards, err := readIndex(io.LimitReader(f, size))
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
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		wrong := func(tensor string, err error) *ShardError { return &ShardError{f.Name(), shard, tensor, err} }
		// A name of its own, not a way to another folder. The file may be a link, as in the caches of
		// those who load models.
		if shard != filepath.Base(shard) || !filepath.IsLocal(shard) || strings.ContainsAny(shard, "/\\\x00") || shard == "." {
			return nil, wrong("", newError("LoadTensors", ValueError, "the name of a shard must be that of a file beside the index"))
		}
		held, _, err := LoadSafetensors(filepath.Join(filepath.Dir(f.Name()), shard), opts...)
		if err != nil {
			return nil, wrong("", err)
		}
		for _, name := range shards[shard] {
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

// readIndex returns the names of the tensors in each shard. It reads
//
//	{"metadata": {...}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
//
// by tokens, because an object that names a tensor twice would be one with the last otherwise.
func readIndex(r io.Reader) (map[string][]string, error) {
	d := json.NewDecoder(r)
	if err := open(d); err != nil {
		return nil, err
	}
	var shards map[string][]string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, badIndex(err)
		}
		if key != "weight_map" {
			var ignored json.RawMessage
			if err := d.Decode(&ignored); err != nil {
				return nil, badIndex(err)
			}
			continue
		}
		if shards != nil {
			return nil, errors.New("there are two weight_maps")
		}
		if shards, err = readWeightMap(d); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, badIndex(err)
	}
	if shards == nil {
		return nil, errors.New("there is no weight_map: is this the index of a safetensors file?")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the index")
	}
	return shards, nil
}

func readWeightMap(d *json.Decoder) (map[string][]string, error) {
	if err := open(d); err != nil {
		return nil, err
	}
	shards, seen := map[string][]string{}, map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, badIndex(err)
		}
		name := key.(string) // of an object, or Token fails
		if seen[name] {
			return nil, fmt.Errorf("tensor %q is there twice", name)
		}
		seen[name] = true
		value, err := d.Token()
		if err != nil {
			return nil, badIndex(err)
		}
		shard, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("the shard of tensor %q is no name", name)
		}
		shards[shard] = append(shards[shard], name)
	}
	_, err := d.Token()
	return shards, badIndex(err)
}

// open reads the { of an object.
func open(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return badIndex(err)
	}
	if token != json.Delim('{') {
		return errors.New("the index, and its weight_map, must be JSON objects")
	}
	return nil
}

func badIndex(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the index is truncated")
	}
	return fmt.Errorf("the index is no JSON: %w", err)
}
