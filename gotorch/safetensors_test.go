package gotorch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func TestSafetensorsToAWriter(t *testing.T) {
	want := map[string]string{"format": "pt"}
	var b bytes.Buffer
	if err := gotorch.EncodeSafetensors(&b, named(), want); err != nil {
		t.Fatal(err)
	}
	got, metadata, err := gotorch.ParseSafetensors(b.Bytes())
	if err != nil || fmt.Sprint(metadata) != fmt.Sprint(want) {
		t.Fatal(metadata, err)
	}
	sameTensors(t, got, named())
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := gotorch.SaveSafetensors(path, named(), want); err != nil {
		t.Fatal(err)
	}
	if file, err := os.ReadFile(path); err != nil || !bytes.Equal(file, b.Bytes()) {
		t.Error("the file is another", err)
	}
}

// pieces keeps what it is given, as it is given.
type pieces struct{ written [][]byte }

func (p *pieces) Write(b []byte) (int, error) {
	p.written = append(p.written, b)
	return len(b), nil
}

func TestElementsAreWrittenFromWhereTheyAre(t *testing.T) {
	x := ones(1000)
	defer x.Close()
	var p pieces
	if err := gotorch.EncodeSafetensors(&p, map[string]gotorch.Tensor{"x": x}, nil); err != nil {
		t.Fatal(err)
	}
	if len(p.written) != 2 || &p.written[1][0] != &gotorch.RawData(x)[0] {
		t.Error("the elements were copied")
	}
}

type failing struct{ after int }

var errFailing = errors.New("no more")

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errFailing
	}
	return len(b), nil
}

func TestAWriterThatFails(t *testing.T) {
	for _, after := range []int{0, 300, 600} {
		if err := gotorch.EncodeSafetensors(&failing{after}, map[string]gotorch.Tensor{"x": ones(100)}, nil); !errors.Is(err, errFailing) && after < 600 {
			t.Error(after, err)
		}
	}
	var p pieces
	err := gotorch.EncodeSafetensors(&p, map[string]gotorch.Tensor{"x": ones(2), "y": ones(2).ToSparse()}, nil)
	if !errors.Is(err, gotorch.NotImplementedError) || len(p.written) != 0 {
		t.Error("something was written:", p.written, err)
	}
}

// sharded writes two shards with a and b, c, and an index; it returns the index's path.
func sharded(t testing.TB, index string) string {
	t.Helper()
	dir := t.TempDir()
	save := func(name string, tensors map[string]gotorch.Tensor) {
		if err := gotorch.SaveSafetensors(filepath.Join(dir, name), tensors, nil); err != nil {
			t.Fatal(err)
		}
	}
	save("m-1.safetensors", map[string]gotorch.Tensor{"a": ones(2), "b": ones(3)})
	save("m-2.safetensors", map[string]gotorch.Tensor{"c": ones(4)})
	path := filepath.Join(dir, "m.safetensors.index.json")
	if err := os.WriteFile(path, []byte(index), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSafetensorsInParts(t *testing.T) {
	path := sharded(t, `{"metadata": {"total_size": 36}, "weight_map": {"a": "m-1.safetensors", "c": "m-2.safetensors", "b": "m-1.safetensors"}}`)
	for _, mapped := range []bool{false, true} {
		got, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Map: mapped})
		if err != nil {
			t.Fatal(err)
		}
		sameTensors(t, got, map[string]gotorch.Tensor{"a": ones(2), "b": ones(3), "c": ones(4)})
	}
	// Of a shard's tensors those that the index gives it.
	path = sharded(t, `{"weight_map": {"a": "m-1.safetensors"}}`)
	got, err := gotorch.LoadTensors(path)
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, got, map[string]gotorch.Tensor{"a": ones(2)})
}

func TestIndexesThatAreWrong(t *testing.T) {
	for index, want := range map[string]struct {
		is            error
		shard, tensor string
		said          string
	}{
		`{"weight_map": {"a": "m-2.safetensors"}}`:                         {gotorch.KeyError, "m-2.safetensors", "a", "does not hold"},
		`{"weight_map": {"a": "none.safetensors"}}`:                        {fs.ErrNotExist, "none.safetensors", "", "no such file"},
		`{"weight_map": {"a": "../m.safetensors"}}`:                        {gotorch.ValueError, "../m.safetensors", "", "beside the index"},
		`{"weight_map": {"a": "/etc/passwd"}}`:                             {gotorch.ValueError, "/etc/passwd", "", "beside the index"},
		`{"weight_map": {"a": "sub/m.safetensors"}}`:                       {gotorch.ValueError, "sub/m.safetensors", "", "beside the index"},
		`{"weight_map": {"a": ".."}}`:                                      {gotorch.ValueError, "..", "", "beside the index"},
		`{"weight_map": {"a": "."}}`:                                       {gotorch.ValueError, ".", "", "beside the index"},
		`{"weight_map": {"a": ""}}`:                                        {gotorch.ValueError, "", "", "beside the index"},
		`{"weight_map": {"a": "m\u0000.safetensors"}}`:                     {gotorch.ValueError, "m\x00.safetensors", "", "beside the index"},
		`{"weight_map": {"a": "m-1.safetensors", "a": "m-2.safetensors"}}`: {gotorch.ValueError, "", "", `"a" is there twice`},
		`{"weight_map": {"a": "m.safetensors.index.json"}}`:                {gotorch.ValueError, "m.safetensors.index.json", "", "header"},
		`{"weight_map": {}, "weight_map": {}}`:                             {gotorch.ValueError, "", "", "two weight_maps"},
		`{"weight_map": {"a": 5}}`:                                         {gotorch.ValueError, "", "", "no name"},
		`{"weight_map": ["m-1.safetensors"]}`:                              {gotorch.ValueError, "", "", "JSON objects"},
		`{"weights": {}}        `:                                          {gotorch.ValueError, "", "", "no weight_map"},
		`{"weight_map": {"a": `:                                            {gotorch.ValueError, "", "", "truncated"},
		`{"weight_map": {}} {}`:                                            {gotorch.ValueError, "", "", "more after"},
		`{"weight_map": nothing}`:                                          {gotorch.ValueError, "", "", "no JSON"},
	} {
		path := sharded(t, index)
		got, err := gotorch.LoadTensors(path)
		var e *gotorch.ShardError
		if !errors.As(err, &e) || got != nil {
			t.Errorf("%s: got %v, %v", index, got, err)
			continue
		}
		if !errors.Is(err, want.is) || e.Index != path || e.Shard != want.shard || e.Tensor != want.tensor || !strings.Contains(err.Error(), want.said) {
			t.Errorf("%s: %+v is not %+v", index, err, want)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata": {"total_size": 36}, "weight_map": {"a": "m-1.safetensors", "c": "m-2.safetensors"}}`))
	f.Add([]byte(`{"weight_map": {"a": "../m-1.safetensors", "a": ""}}`))
	path := sharded(f, "")
	f.Fuzz(func(t *testing.T, index []byte) {
		if err := os.WriteFile(path, index, 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := gotorch.LoadTensors(path)
		if err == nil && !json.Valid(index) && (len(index) < 9 || index[8] != '{') {
			t.Errorf("%q gave %v", index, got)
		}
		for _, x := range got {
			x.Close()
		}
	})
}
