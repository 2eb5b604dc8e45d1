// Package shards reads the index of a model whose tensors are in several files, its shards.
package shards

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// CheckName returns an error for a shard's name that is not one of its own, but a way to another folder.
func CheckName(shard string) error {
	if shard != filepath.Base(shard) || !filepath.IsLocal(shard) || strings.ContainsAny(shard, "/\\\x00") || shard == "." {
		return errors.New("the name of a shard must be that of a file beside the index")
	}
	return nil
}

// Read returns the names of the tensors in each shard. It reads
//
//	{"metadata": {...}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
//
// by tokens, because an object that names a tensor twice would be one with the last otherwise.
func Read(r io.Reader) (map[string][]string, error) {
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
