package hub_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/internal/testhelp"
)

// header is how a safetensors file begins.
func header(text string) []byte {
	text += strings.Repeat(" ", (8-len(text)%8)%8)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}

func write(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
}

func save(t testing.TB, dir, name string, tensors map[string]gotorch.Tensor) {
	t.Helper()
	testhelp.Must(t, gotorch.SaveSafetensors(filepath.Join(dir, name), tensors, nil))
}

func open(t testing.TB, dir string, opts ...hub.OpenOptions) *hub.Folder {
	t.Helper()
	f, err := hub.Open(dir, opts...)
	testhelp.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func count(n int64) gotorch.Tensor {
	return gotorch.Arange(n, gotorch.TensorOptions{DType: gotorch.Float32})
}

// sharded is a folder of two shards: a (2) and b (3, 4) in the first, c (30000) in the second.
func sharded(t testing.TB) string {
	dir := t.TempDir()
	save(t, dir, "model-00001-of-00002.safetensors", map[string]gotorch.Tensor{"a": count(2), "b": count(12).View([]int64{3, 4})})
	save(t, dir, "model-00002-of-00002.safetensors", map[string]gotorch.Tensor{"c": count(30000)})
	write(t, dir, "model.safetensors.index.json", []byte(`{"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
		"b": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}}`))
	write(t, dir, "config.json", []byte(`{"model_type": "tiny", "architectures": ["Tiny"], "dtype": "float32", "hidden_size": 4, "eps": 1e-5,
		"names": {"0": "no", "1": "yes"}, "nothing": null}`))
	return dir
}

func TestAFolderOfShards(t *testing.T) {
	f := open(t, sharded(t))
	if names := f.Names(); !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Error(names)
	}
	info, ok := f.Lookup("b")
	if !ok || info.DType != gotorch.Float32 || info.Format != "F32" || !slices.Equal(info.Shape, []int64{3, 4}) || info.Bytes != 48 || info.File != "model-00001-of-00002.safetensors" {
		t.Errorf("%+v", info)
	}
	for name, want := range map[string]gotorch.Tensor{"a": count(2), "b": count(12).View([]int64{3, 4}), "c": count(30000)} {
		for _, opt := range []hub.TensorOptions{{}, {Read: true}} {
			got, err := f.Tensor(name, opt)
			testhelp.Must(t, err)
			gotorchtest.AssertEqual(t, got, want)
		}
		got, err := f.Tensor(name, hub.TensorOptions{DType: gotorch.BFloat16})
		testhelp.Must(t, err)
		gotorchtest.AssertEqual(t, got, want.To(gotorch.BFloat16))
	}
	got, err := f.Rows("b", 1, 3)
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, got, count(12).View([]int64{3, 4}).Narrow(0, 1, 2))
	got, err = f.Rows("c", 100, 29000)
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, got, count(30000).Narrow(0, 100, 28900))
	for _, rows := range [][2]int64{{-1, 1}, {2, 1}, {0, 4}, {4, 4}} {
		if _, err := f.Rows("b", rows[0], rows[1]); !errors.Is(err, gotorch.IndexError) {
			t.Error(rows, err)
		}
	}
	if got, err := f.Rows("b", 0, 3); err != nil || got.Numel() != 12 {
		t.Error(err)
	}
	if got, err := f.Rows("b", 3, 3); err != nil || got.Numel() != 0 {
		t.Error(err)
	}
	if _, err := f.Tensor("d"); !errors.Is(err, gotorch.KeyError) {
		t.Error(err)
	}
}

// mappings returns the lines of the process's map about a file.
func mappings(t testing.TB, path string) (lines []string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	testhelp.Must(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, path) {
			lines = append(lines, line)
		}
	}
	return lines
}

// resident returns how many bytes of memory the process has.
func resident(t testing.TB) int64 {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	testhelp.Must(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	testhelp.Must(t, err)
	return pages * int64(os.Getpagesize())
}

func TestATensorOfManyGigabytesCostsWhatIsUsedOfIt(t *testing.T) {
	const size = 200 << 30 // more than there is memory
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	head := header(fmt.Sprintf(`{"big":{"dtype":"F32","shape":[%d,1024],"data_offsets":[0,%d]}}`, size/4096, size))
	write(t, dir, "model.safetensors", head)
	if err := os.Truncate(path, int64(len(head))+size); err != nil {
		t.Skip("the file system has no files of that size: ", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	testhelp.Must(t, err)
	last := int64(len(head)) + size - 4096
	_, err = file.WriteAt(binary.LittleEndian.AppendUint32(nil, 0x3f800000), last) // a row that begins with 1
	testhelp.Must(t, err)
	testhelp.Must(t, file.Close())

	f := open(t, dir)
	before := resident(t)
	big, err := f.Tensor("big")
	testhelp.Must(t, err)
	row := big.Select(0, size/4096-1)
	if got := gotorch.Item[float32](row.Select(0, 0)); got != 1 {
		t.Error("the last row begins with", got)
	}
	rows, err := f.Rows("big", size/4096-100, size/4096)
	testhelp.Must(t, err)
	if got := gotorch.Item[float32](rows.Sum()); got != 1 {
		t.Error("the sum of the last rows is", got)
	}
	if grown := resident(t) - before; grown > 64<<20 {
		t.Errorf("%d MB are in memory", grown>>20)
	}
	if len(mappings(t, path)) == 0 {
		t.Error("nothing is mapped")
	}
	testhelp.Must(t, f.Close())
	big.Close()
	rows.Close()
	if got := gotorch.Item[float32](row.Select(0, 0)); got != 1 { // a view keeps it
		t.Error("after Close the last row begins with", got)
	}
	row.Close()
	// The views that were made in between are the collector's.
	for range 500 {
		finalize.Dead()
		if len(mappings(t, path)) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the mapping is still there: %v", mappings(t, path))
}

func TestWritingChangesNeitherTheFileNorOthers(t *testing.T) {
	dir := sharded(t)
	path := filepath.Join(dir, "model-00002-of-00002.safetensors")
	before, err := os.ReadFile(path)
	testhelp.Must(t, err)
	f := open(t, dir)
	a, err := f.Tensor("c")
	testhelp.Must(t, err)
	a.Fill_(7)
	b, err := f.Tensor("c")
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, b, count(30000))
	gotorchtest.AssertEqual(t, a, gotorch.Full([]int64{30000}, 7.0))
	after, err := os.ReadFile(path)
	testhelp.Must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the file has changed")
	}
}

func TestElementsThatLieAnywhereAreRead(t *testing.T) {
	dir := t.TempDir()
	raw := gotorch.RawData(count(30000))
	data := append(header(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"F32","shape":[30000],"data_offsets":[1,120001]}}`), 5)
	write(t, dir, "model.safetensors", append(data, raw...))
	f := open(t, dir)
	y, err := f.Tensor("y")
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, y, count(30000))
	if len(mappings(t, dir)) > 0 {
		t.Error("it is mapped")
	}
	y, err = f.Rows("y", 17, 25000)
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, y, count(30000).Narrow(0, 17, 24983))
}

func TestAFileThatBecomesShorterIsAnError(t *testing.T) {
	dir := sharded(t)
	f := open(t, dir)
	testhelp.Must(t, os.Truncate(filepath.Join(dir, "model-00002-of-00002.safetensors"), 4096))
	for _, opt := range []hub.TensorOptions{{}, {Read: true}, {DType: gotorch.Float64}} {
		if _, err := f.Tensor("c", opt); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "file") {
			t.Error(opt, err)
		}
	}
	if _, err := f.Rows("c", 29000, 30000); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if got, err := f.Rows("c", 0, 500); err != nil || got.Numel() != 500 { // which are there
		t.Error(err)
	}
}

func TestFilesAreThoseThatWereOpened(t *testing.T) {
	dir := sharded(t)
	descriptors := testhelp.Descriptors(t)
	f := open(t, dir)
	testhelp.Must(t, os.RemoveAll(dir))
	got, err := f.Tensor("c")
	testhelp.Must(t, err)
	testhelp.Must(t, f.Close())
	testhelp.Must(t, f.Close())
	gotorchtest.AssertEqual(t, got, count(30000))
	if _, err := f.Tensor("c"); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	if now := testhelp.Descriptors(t); now != descriptors {
		t.Errorf("%d files are open, and %d were", now, descriptors)
	}
}

func TestGoroutinesShareAFolder(t *testing.T) {
	f := open(t, sharded(t))
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for range 20 {
				got, err := f.Tensor("c", hub.TensorOptions{Read: i%2 == 0})
				if err != nil {
					if i != 7 && !strings.Contains(err.Error(), "closed") {
						t.Error(err)
					}
					return
				}
				if n := gotorch.Item[float32](got.Select(0, 29999)); n != 29999 {
					t.Error(n)
				}
				got.Close()
			}
			if i == 7 {
				f.Close()
			}
		})
	}
	wait.Wait()
}

func TestFilesOfTorchSave(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, gotorch.Save(filepath.Join(dir, "w-1.bin"), map[string]gotorch.Tensor{"a": count(5), "b": count(6).View([]int64{3, 2})}))
	testhelp.Must(t, gotorch.Save(filepath.Join(dir, "w-2.bin"), map[string]gotorch.Tensor{"c": count(7)}))
	write(t, dir, "pytorch_model.bin.index.json", []byte(`{"weight_map": {"a": "w-1.bin", "b": "w-1.bin", "c": "w-2.bin"}}`))
	f := open(t, dir)
	got, err := f.Tensor("b", hub.TensorOptions{DType: gotorch.Float64})
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, got, count(6).View([]int64{3, 2}).To(gotorch.Float64))
	got, err = f.Rows("b", 1, 2, hub.TensorOptions{Read: true})
	testhelp.Must(t, err)
	got.Fill_(0)
	got, err = f.Rows("b", 1, 3)
	testhelp.Must(t, err)
	gotorchtest.AssertEqual(t, got, count(6).View([]int64{3, 2}).Narrow(0, 1, 2))
	for _, rows := range [][2]int64{{-1, 1}, {2, 1}, {0, 4}, {4, 4}} {
		if _, err := f.Rows("b", rows[0], rows[1]); !errors.Is(err, gotorch.IndexError) {
			t.Error(rows, err)
		}
	}
	if got, err := f.Rows("b", 3, 3); err != nil || got.Numel() != 0 {
		t.Error(err)
	}
	testhelp.Must(t, f.Close())
	gotorchtest.AssertEqual(t, got, count(6).View([]int64{3, 2}).Narrow(0, 1, 2))
}

func TestWhichWeightsAreOpened(t *testing.T) {
	dir := t.TempDir()
	if _, err := hub.Open(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "neither model.safetensors nor model.safetensors.index.json nor pytorch_model.bin") {
		t.Error(err)
	}
	if _, err := hub.Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, c := range []struct {
		file string
		opt  hub.OpenOptions
	}{
		{"model.safetensors", hub.OpenOptions{}}, {"model.fp16.safetensors", hub.OpenOptions{Variant: "fp16"}},
		{"adapter_model.safetensors", hub.OpenOptions{Weights: "adapter_model"}},
		{"unet.ema.safetensors", hub.OpenOptions{Weights: "unet", Variant: "ema"}},
	} {
		save(t, dir, c.file, map[string]gotorch.Tensor{c.file: count(1)})
		if f := open(t, dir, c.opt); !slices.Equal(f.Names(), []string{c.file}) || f.WeightsFile() != c.file {
			t.Error(c, f.Names())
		}
	}
	for _, opt := range []hub.OpenOptions{{Weights: "../x"}, {Variant: "/etc/passwd"}, {Weights: ".."}} {
		if _, err := hub.Open(dir, opt); !errors.Is(err, gotorch.ValueError) {
			t.Error(opt, err)
		}
	}
}

func TestLinks(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(root, "secrets.json")
	write(t, root, "secrets.json", []byte(`{"password": "x"}`))
	save(t, root, "other.safetensors", map[string]gotorch.Tensor{"a": count(1)})
	link := func(dir, to, name string) {
		t.Helper()
		testhelp.Must(t, os.MkdirAll(dir, 0o777))
		testhelp.Must(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	for name, target := range map[string]string{"config.json": outside, "model.safetensors": "../other.safetensors"} {
		dir := filepath.Join(root, "folder of "+name)
		link(dir, target, name)
		if name != "model.safetensors" {
			save(t, dir, "model.safetensors", map[string]gotorch.Tensor{"a": count(1)})
		}
		if _, err := hub.Open(dir); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "outside of the folder") || strings.Contains(err.Error(), "password") {
			t.Error(name, err)
		}
		open(t, dir, hub.OpenOptions{FollowLinks: true})
	}
	within := filepath.Join(root, "within")
	testhelp.Must(t, os.MkdirAll(within, 0o777))
	save(t, within, "real.safetensors", map[string]gotorch.Tensor{"a": count(1)})
	link(within, "real.safetensors", "model.safetensors")
	link(within, "config.json", "config.json") // to itself
	if _, err := hub.Open(within); err == nil {
		t.Error("a link to itself is opened")
	}
	testhelp.Must(t, os.Remove(filepath.Join(within, "config.json")))
	f := open(t, within)
	link(within, outside, "vocab.json")
	if files := f.TokenizerFiles(); len(files) != 0 {
		t.Error(files)
	}
	if _, err := f.File("vocab.json"); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	for _, name := range []string{"../secrets.json", outside, "", "a/../../secrets.json", "x\x00"} {
		if path, err := f.File(name); err == nil {
			t.Errorf("%q is %s", name, path)
		}
	}
	// As huggingface_hub has it.
	cache := filepath.Join(root, "models--org--name")
	testhelp.Must(t, os.MkdirAll(filepath.Join(cache, "blobs"), 0o777))
	save(t, filepath.Join(cache, "blobs"), "0123", map[string]gotorch.Tensor{"a": count(3)})
	snapshot := filepath.Join(cache, "snapshots", "abcd")
	link(snapshot, "../../blobs/0123", "model.safetensors")
	link(filepath.Join(snapshot, "unet"), "../../../blobs/0123", "model.safetensors")
	open(t, snapshot)
	open(t, filepath.Join(snapshot, "unet"))
	link(snapshot, "../../../other.safetensors", "model.x.safetensors")
	if _, err := hub.Open(snapshot, hub.OpenOptions{Variant: "x"}); err == nil {
		t.Error("a link out of the cache is followed")
	}
}

func TestHostileFolders(t *testing.T) {
	entry := func(begin, end int) string {
		return fmt.Sprintf(`{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, end-begin, begin, end)
	}
	long := header("{}")
	binary.LittleEndian.PutUint64(long, 1<<40)
	good := append(header(`{"a":`+entry(0, 1)+`}`), 1)
	for name, c := range map[string]struct {
		file, index string
		data        []byte
		is          error
		said        string
	}{
		"a way out":                {index: `{"weight_map":{"a":"../../etc/passwd"}}`, is: gotorch.ValueError, said: "beside the index"},
		"an absolute way out":      {index: `{"weight_map":{"a":"/etc/passwd"}}`, is: gotorch.ValueError, said: "beside the index"},
		"a missing shard":          {index: `{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`, is: fs.ErrNotExist, said: "y.safetensors"},
		"a missing tensor":         {index: `{"weight_map":{"b":"x.safetensors"}}`, is: gotorch.KeyError, said: `tensor "b"`},
		"a tensor twice":           {index: `{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}`, is: gotorch.ValueError, said: "there twice"},
		"an index that ends":       {index: `{"weight_map":{"a":`, is: gotorch.ValueError, said: "truncated"},
		"deep JSON":                {index: `{"metadata":` + strings.Repeat("[", 1e6), is: gotorch.ValueError, said: ""},
		"a shard that is an index": {index: `{"weight_map":{"a":"model.safetensors.index.json"}}`, is: gotorch.ValueError, said: ""},
		"a header too long":        {data: long, is: gotorch.ValueError, said: "header"},
		"an empty file":            {data: []byte{}, is: gotorch.ValueError, said: "too short"},
		"data that is not there":   {data: header(`{"a":` + entry(0, 9) + `}`), is: gotorch.ValueError, said: "truncated"},
		"data of nobody":           {data: append(header(`{}`), 1), is: gotorch.ValueError, said: "belongs to no tensor"},
		"tensors that overlap":     {data: append(header(`{"a":`+entry(0, 2)+`,"b":`+entry(1, 2)+`}`), 1, 2), is: gotorch.ValueError, said: "does not start"},
		"a name twice":             {data: append(header(`{"a":`+entry(0, 1)+`,"a":`+entry(1, 2)+`}`), 1, 2), is: gotorch.ValueError, said: "once"},
		"a size that lies":         {data: append(header(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`), 1, 2, 3, 4), is: gotorch.ValueError, said: "does not fit its shape"},
		"a size that overflows":    {data: header(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`), is: gotorch.ValueError, said: "too large"},
		"a pickle":                 {file: "pytorch_model.bin", data: []byte("\x80\x02cos\nsystem\n."), is: gotorch.ValueError, said: ""},
	} {
		dir := t.TempDir()
		switch {
		case c.index != "":
			write(t, dir, "model.safetensors.index.json", []byte(c.index))
			write(t, dir, "x.safetensors", good)
		case c.file != "":
			write(t, dir, c.file, c.data)
		default:
			write(t, dir, "model.safetensors", c.data)
		}
		descriptors := testhelp.Descriptors(t)
		f, err := hub.Open(dir)
		if err == nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s: got %v", name, err)
		}
		var shard *gotorch.ShardError
		if c.index != "" && !errors.As(err, &shard) {
			t.Errorf("%s: %T is no ShardError", name, err)
		}
		if name == "a missing tensor" && (shard.Index != filepath.Join(dir, "model.safetensors.index.json") || shard.Shard != "x.safetensors" || shard.Tensor != "b") {
			t.Errorf("%s: the error is of %+v", name, *shard)
		}
		if f != nil || testhelp.Descriptors(t) != descriptors {
			t.Errorf("%s: something is left open", name)
		}
	}
	for what, path := range testhelp.NoFiles(t) {
		dir := t.TempDir()
		testhelp.Must(t, os.Symlink(path, filepath.Join(dir, "model.safetensors")))
		if _, err := hub.Open(dir, hub.OpenOptions{FollowLinks: true}); err == nil {
			t.Error(what, "is opened")
		}
	}
}

func TestAnIndexThatIsTooLargeIsNotRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors.index.json")
	write(t, dir, filepath.Base(path), []byte(`{"weight_map":{"a":"x.safetensors"}}`))
	testhelp.Must(t, os.Truncate(path, 256<<20+1)) // has no blocks on the disk
	_, err := hub.Open(dir)
	var shard *gotorch.ShardError
	if !errors.As(err, &shard) || !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "268435457 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestADtypeThatThisTorchLacksIsListed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "model.safetensors", append(header(`{"a":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`), 1, 2, 3, 4))
	f := open(t, dir)
	if info, _ := f.Lookup("a"); info.DType != 0 || info.Format != "F6_E3M2" || !slices.Equal(info.Shape, []int64{4}) {
		t.Errorf("%+v", info)
	}
	if _, err := f.Tensor("a"); !errors.Is(err, gotorch.NotImplementedError) || !strings.Contains(err.Error(), "F6_E3M2") {
		t.Error(err)
	}
	if got, err := f.Tensor("b"); err != nil || gotorch.Item[int64](got) != 4 {
		t.Error(err)
	}
}

func TestConfigurations(t *testing.T) {
	c := open(t, sharded(t)).Config()
	if c.ModelType() != "tiny" || !slices.Equal(c.Architectures(), []string{"Tiny"}) || c.DType() != gotorch.Float32 {
		t.Error(c.ModelType(), c.Architectures(), c.DType())
	}
	into := struct {
		HiddenSize int64   `json:"hidden_size"`
		Eps        float64 `json:"eps"`
		Other      int     `json:"other"`
	}{Other: 3}
	if err := c.Decode(&into); err != nil || into.HiddenSize != 4 || into.Eps != 1e-5 || into.Other != 3 {
		t.Error(into, err)
	}
	if n, err := hub.Get[int](c, "hidden_size"); err != nil || n != 4 {
		t.Error(n, err)
	}
	if s, err := hub.Get[string](c, "names", "1"); err != nil || s != "yes" {
		t.Error(s, err)
	}
	if n, err := hub.GetOr(c, 8, "nothing"); err != nil || n != 8 {
		t.Error(n, err)
	}
	for _, path := range [][]string{{"none"}, {"names", "2"}, {"eps", "x"}} {
		if _, err := hub.Get[int](c, path...); !errors.Is(err, gotorch.KeyError) || !strings.Contains(err.Error(), strings.Join(path, ".")) {
			t.Error(path, err)
		}
	}
	for _, path := range [][]string{{"eps"}, {"names"}, {"nothing"}, {"model_type"}} {
		if _, err := hub.Get[int](c, path...); !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), strings.Join(path, ".")) {
			t.Error(path, err)
		}
	}
	var none *hub.Config
	if err := none.Decode(&into); !errors.Is(err, gotorch.KeyError) || none.ModelType() != "" || none.Has("x") {
		t.Error(err)
	}
}

func TestConfigurationsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	for text, said := range map[string]string{
		``: "truncated", `{"a": 1`: "truncated", `[1]`: "no object", `3`: "no object", `null`: "no object",
		`{"a": 1} {}`: "more after", `{"a": 1, "a": 2}`: `"a" is there twice`, `{"b": {"a": 1, "a": 2}}`: `"a" is there twice`,
		`{"b": [{"a": 1, "\u0061": 2}]}`: `"a" is there twice`, "{\"a\xff\": 1}": "not UTF-8", `{a: 1}`: "no JSON", `{"a": NaN}`: "no JSON",
		`{"a": ` + strings.Repeat(`{"a": `, 100): "within one another", strings.Repeat("[", 1<<20): "within one another",
	} {
		write(t, dir, "c.json", []byte(text))
		if c, err := hub.ReadConfig(path); c != nil || !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), said) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	testhelp.Must(t, os.Truncate(path, 1<<40))
	if _, err := hub.ReadConfig(path); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": null}]}`), []byte(`{"weight_map": {"a": "m.safetensors"}}`), append(header(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`), 0, 0, 0, 0, 0, 0, 0, 0))
	f.Add([]byte(`{"a": 1, "a": 2}`), []byte(`{"weight_map": {"a": "../m.safetensors"}}`), header(`{}`))
	f.Add([]byte(`{}`), []byte(`{"weight_map": {}}`), append(header(`{"a":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]},"__metadata__":{"x":"y"}}`), 0, 0))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config, index, shard []byte) {
		write(t, dir, "config.json", config)
		write(t, dir, "model.safetensors.index.json", index)
		write(t, dir, "m.safetensors", shard)
		folder, err := hub.Open(dir)
		if err != nil {
			return
		}
		defer folder.Close()
		if !json.Valid(config) || !json.Valid(index) {
			t.Errorf("%q and %q are taken for JSON", config, index)
		}
		for _, info := range folder.Tensors() {
			for _, opt := range []hub.TensorOptions{{}, {Read: true}} {
				x, err := folder.Tensor(info.Name, opt)
				if err != nil {
					if info.DType != 0 {
						t.Error(err)
					}
					continue
				}
				if !slices.Equal(x.Shape(), info.Shape) || x.DType() != info.DType {
					t.Errorf("%v is no %+v", x, info)
				}
				x.Close()
			}
			if len(info.Shape) > 0 && info.DType != 0 {
				rows, err := folder.Rows(info.Name, info.Shape[0]/2, info.Shape[0])
				if err != nil {
					t.Error(err)
				} else {
					rows.Close()
				}
			}
		}
	})
}
