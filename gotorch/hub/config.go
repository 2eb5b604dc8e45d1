package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Config is a JSON file of a model's folder, such as config.json. [Config.Decode] fills a struct, [Get] reads
// one value of it.
type Config struct {
	path string
	raw  []byte
	top  map[string]json.RawMessage
}

// Bounds of what is read as a Config. The largest that are known, with the names of 21,843 classes, take 2 MB.
const (
	maxConfig = 64 << 20 // bytes
	maxDepth  = 64       // of objects within objects
)

// ReadConfig reads a JSON object from a file of up to 64 MiB. What is none is an error of kind ValueError, and
// so is one in which a key is there twice, of which every reader would take another one.
func ReadConfig(path string) (*Config, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxConfig {
		return nil, args.ValueError("hub.ReadConfig", "%s has %d bytes, and %d are the most that is read", path, size, maxConfig)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, err
	}
	return parseConfig(raw, path)
}

func parseConfig(raw []byte, path string) (*Config, error) {
	if err := checkJSON(raw); err != nil {
		return nil, args.ValueError("hub.ReadConfig", "%s: %v", path, err)
	}
	c := &Config{path: path, raw: raw}
	if err := json.Unmarshal(raw, &c.top); err != nil || c.top == nil {
		return nil, args.ValueError("hub.ReadConfig", "%s: the file is JSON, but no object", path)
	}
	return c, nil
}

// checkJSON returns an error for what is no JSON, or has a key twice, or objects within more than maxDepth others.
func checkJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("the file is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	// level is an object or array that is open: an object has seen keys, and may await the value of one.
	type level struct {
		seen  map[string]bool
		value bool
	}
	var open []level
	for started := false; !started || len(open) > 0; started = true {
		token, err := d.Token()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return errors.New("the file is truncated")
			}
			return fmt.Errorf("the file is no JSON: %w", err)
		}
		var in *level
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		delim, isDelim := token.(json.Delim)
		if in != nil && in.seen != nil && !in.value && !isDelim {
			key, _ := token.(string)
			if in.seen[key] {
				return fmt.Errorf("the key %q is there twice", key)
			}
			in.seen[key], in.value = true, true
			continue
		}
		if in != nil {
			in.value = false
		}
		switch {
		case !isDelim:
		case delim == '{' || delim == '[':
			if len(open) == maxDepth {
				return fmt.Errorf("there are more than %d objects within one another", maxDepth)
			}
			next := level{}
			if delim == '{' {
				next.seen = map[string]bool{}
			}
			open = append(open, next)
		default:
			open = open[:len(open)-1]
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the object")
	}
	return nil
}

// Bytes returns the file's content, which must not be changed. It is nil where there is no file.
func (c *Config) Bytes() []byte {
	if c == nil {
		return nil
	}
	return c.raw
}

// Decode puts the file's values into the struct that into points to, by the rules of encoding/json. What the file
// does not have stays as it was, so that a struct may be filled with defaults before:
//
//	config := struct {
//		HiddenSize int64   `json:"hidden_size"`
//		Eps        float64 `json:"layer_norm_eps"`
//	}{Eps: 1e-12}
//	err := folder.Config().Decode(&config)
//
// Other keys are left alone. A value of another type is an error of kind TypeError that names its key, and then
// into may be filled in part. A Config that is nil, as that of a folder without config.json, is one of kind KeyError.
func (c *Config) Decode(into any) error {
	if c == nil {
		return keyError("hub.Config.Decode", "the folder has no config.json")
	}
	return decode("hub.Config.Decode", c.path, "", c.raw, into)
}

func decode(op, path, at string, raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		if wrong.Field != "" {
			at = strings.TrimPrefix(at+"."+wrong.Field, ".")
		}
		return args.TypeError(op, "%s: %q is a JSON %s, where %v is expected", path, at, wrong.Value, wrong.Type)
	}
	return args.TypeError(op, "%s: %v", path, err)
}

// Has reports whether the file has a value, which may be null: Has("rope_scaling", "factor").
func (c *Config) Has(path ...string) bool {
	_, ok := c.at(path)
	return ok
}

func (c *Config) at(path []string) (json.RawMessage, bool) {
	if c == nil {
		return nil, false
	}
	raw, in := json.RawMessage(c.raw), c.top
	for i, key := range path {
		if i > 0 {
			in = nil
			if json.Unmarshal(raw, &in) != nil {
				return nil, false
			}
		}
		var ok bool
		if raw, ok = in[key]; !ok {
			return nil, false
		}
	}
	return raw, true
}

// Get returns a value of a configuration, by its key, or by the keys on the way to it:
//
//	heads, err := hub.Get[int64](config, "num_attention_heads")
//	factor, err := hub.Get[float64](config, "rope_scaling", "factor")
//
// A key that is not there is an error of kind KeyError, and a value of another type, also null, one of kind TypeError.
func Get[T any](c *Config, path ...string) (value T, err error) {
	raw, ok := c.at(path)
	at := strings.Join(path, ".")
	if !ok {
		if c == nil {
			return value, keyError("hub.Get", "the folder has no config.json")
		}
		return value, keyError("hub.Get", "%s has no %q", c.path, at)
	}
	if string(raw) == "null" {
		return value, args.TypeError("hub.Get", "%s: %q is null, where %T is expected", c.path, at, value)
	}
	err = decode("hub.Get", c.path, at, raw, &value)
	return value, err
}

// GetOr is [Get] with a value for where there is none, or null.
func GetOr[T any](c *Config, value T, path ...string) (T, error) {
	if raw, ok := c.at(path); !ok || string(raw) == "null" {
		return value, nil
	}
	return Get[T](c, path...)
}

// ModelType returns the key model_type: "gpt2". It is "" where there is none.
func (c *Config) ModelType() string {
	name, _ := GetOr(c, "", "model_type")
	return name
}

// Architectures returns the names of the Python classes that the weights are of: ["GPT2LMHeadModel"].
func (c *Config) Architectures() []string {
	names, _ := GetOr[[]string](c, nil, "architectures")
	return names
}

// DType returns the dtype that the weights were saved in, by the key dtype or torch_dtype; 0 where that is not said.
func (c *Config) DType() gotorch.DType {
	name, _ := GetOr(c, "", "torch_dtype")
	name, _ = GetOr(c, name, "dtype")
	return dtypes[strings.TrimPrefix(name, "torch.")]
}

var dtypes = map[string]gotorch.DType{
	"float16": gotorch.Float16, "bfloat16": gotorch.BFloat16, "float32": gotorch.Float32, "float64": gotorch.Float64,
	"float": gotorch.Float32, "half": gotorch.Float16, "double": gotorch.Float64,
}

// readJSON reads a Config of a folder; nil where there is no such file.
func (f *Folder) readJSON(name string) (*Config, error) {
	real, err := f.resolve(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := ReadConfig(real)
	if c != nil {
		c.path = filepath.Join(f.dir, name)
	}
	return c, err
}
