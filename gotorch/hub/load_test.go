package hub_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
)

func TestMappings(t *testing.T) {
	m := hub.Mapping{
		hub.Prefix("model.", ""), hub.Prefix("model.lm.", "head."),
		hub.Name("h.*.attn.w", "blocks.*.qkv").Transposed(), hub.Name("h.0.attn.w", "first.qkv"),
		hub.Split("h.*.kv", 0, "blocks.*.k", "blocks.*.v"), hub.Join("blocks.*.gate_up", 0, "h.*.gate", "h.*.up"),
		hub.Name("**.gamma", "**.weight"), hub.Drop("h.*.mask"),
	}
	names := []string{"model.h.0.attn.w", "h.1.attn.w", "h.0.kv", "h.3.gate", "model.h.3.up", "a.b.gamma", "h.0.mask", "model.lm.weight", "other", "h.4.gate"}
	got, err := m.Check(names)
	testhelp.Must(t, err)
	want := map[string][]string{
		"model.h.0.attn.w": {"first.qkv"}, "h.1.attn.w": {"blocks.1.qkv"}, "h.0.kv": {"blocks.0.k", "blocks.0.v"},
		"h.3.gate": {"blocks.3.gate_up"}, "model.h.3.up": {"blocks.3.gate_up"}, "a.b.gamma": {"a.b.weight"},
		"model.lm.weight": {"head.weight"}, "other": {"other"},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v is not %v", got, want)
	}
}

func TestMappingsThatAreAmbiguousOrWrong(t *testing.T) {
	name := hub.Name
	for said, c := range map[string]struct {
		m     hub.Mapping
		names []string
	}{
		`"h.0.w" is ambiguous`:                  {hub.Mapping{name("h.*.w", "a.*"), name("*.0.w", "b.*")}, []string{"h.0.w"}},
		`"a" and "b" both become "c"`:           {hub.Mapping{name("a", "c"), name("b", "c")}, []string{"a", "b"}},
		`are both for "a"`:                      {hub.Mapping{name("a", "c"), hub.Drop("a")}, nil},
		`are for the same names`:                {hub.Mapping{hub.Prefix("a.", ""), hub.Prefix("a.", "b.")}, nil},
		`other wildcards`:                       {hub.Mapping{name("a.*", "c")}, nil},
		`"a.*" and "c.**" have other wildcards`: {hub.Mapping{name("a.*", "c.**")}, nil},
		`** twice`:                              {hub.Mapping{name("**.a.**", "**.b.**")}, nil},
		`no wildcard`:                           {hub.Mapping{name("***", "***")}, nil},
		`empty name`:                            {hub.Mapping{name("", "c")}, nil},
		`has no names`:                          {hub.Mapping{hub.Split("a", 0)}, nil},
		`has sizes for 3 parts`:                 {hub.Mapping{hub.Split("a", 0, "b", "c").Sizes(1, 2, 3)}, nil},
		`Join("c", 0, "a", "a")`:                {hub.Mapping{hub.Join("c", 0, "a", "a")}, nil},
		`"p.a" and "a" both become "c"`:         {hub.Mapping{hub.Prefix("p.", ""), name("a", "c"), name("p.a", "x")}, []string{"a", "p.a"}},
	} {
		_, err := c.m.Check(c.names)
		if !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: got %v", said, err)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, said) && !(strings.Contains(said, "both become") && strings.Contains(text, "both become")) {
			t.Errorf("%q is not in %v", said, text)
		}
	}
}

type net struct {
	nn.Module
	Embedding *nn.EmbeddingModule
	Layers    []*nn.LinearModule
	Head      *nn.LinearModule
	tie       bool
}

// newNet has an embedding (5, 3) and two layers (3, 3); its head has the embedding's weight if it is tied.
func newNet(tie bool, device gotorch.Device) *net {
	linear := func(in, out int64) *nn.LinearModule {
		return nn.Linear(in, out, nn.LinearOptions{NoBias: true, Device: device})
	}
	m := &net{Embedding: nn.Embedding(5, 3, nn.EmbeddingOptions{Device: device}), Layers: []*nn.LinearModule{linear(3, 3), linear(3, 3)}, Head: linear(3, 5), tie: tie}
	m = nn.Init(m)
	m.TieWeights()
	return m
}

func (m *net) TieWeights() {
	if m.tie {
		m.Head.Weight = m.Embedding.Weight
	}
}

func folderOf(t testing.TB, tensors map[string]gotorch.Tensor) *hub.Folder {
	t.Helper()
	dir := t.TempDir()
	save(t, dir, "model.safetensors", tensors)
	return open(t, dir)
}

func weights() map[string]gotorch.Tensor {
	return map[string]gotorch.Tensor{"embedding.weight": count(15).View([]int64{5, 3}), "layers.0.weight": count(9).View([]int64{3, 3}),
		"layers.1.weight": count(9).View([]int64{3, 3}).AddScalar(10), "head.weight": count(15).View([]int64{5, 3}).AddScalar(20)}
}

func state(m nn.Modular) map[string]gotorch.Tensor {
	copied := map[string]gotorch.Tensor{}
	for name, x := range m.StateDict() {
		copied[name] = x.Clone()
	}
	return copied
}

func equal(t *testing.T, got, want map[string]gotorch.Tensor) {
	t.Helper()
	for name := range want {
		if !gotorchtest.AssertEqual(t, got[name].Detach(), want[name]) {
			t.Error(name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tensors, not %d", len(got), len(want))
	}
}

func TestLoadInto(t *testing.T) {
	for _, opt := range []hub.LoadOptions{{}, {Map: true}, {Assign: true}, {Assign: true, Map: true}} {
		for _, device := range []gotorch.Device{gotorch.CPU, gotorch.Meta} {
			if device == gotorch.Meta && !opt.Assign {
				continue
			}
			m := newNet(false, device)
			report, err := hub.LoadInto(m, folderOf(t, weights()), opt)
			testhelp.Must(t, err)
			equal(t, m.StateDict(), weights())
			if len(report.Loaded) != 4 || report.Bytes != (15+9+9+15)*4 {
				t.Errorf("%+v", report)
			}
			for _, p := range m.Parameters() {
				if !p.RequiresGrad() || !p.IsLeaf() {
					t.Error("a parameter does not learn any more")
				}
			}
			frozen := newNet(false, device)
			for _, p := range frozen.Parameters() {
				p.RequiresGrad_(false)
			}
			_, err = hub.LoadInto(frozen, folderOf(t, weights()), opt)
			testhelp.Must(t, err)
			for name, p := range frozen.NamedParameters() {
				if p.RequiresGrad() {
					t.Errorf("%s learns, and was frozen", name)
				}
			}
		}
	}
}

func TestWhatDoesNotFitIsReportedAndChangesNothing(t *testing.T) {
	held := weights()
	delete(held, "layers.1.weight")
	held["layers.0.weight"] = count(12).View([]int64{4, 3})
	held["layers.7.bias"], held["layers.8.bias"], held["layers.9.bias"] = count(3), count(3), count(3)
	f := folderOf(t, held)
	for _, opt := range []hub.LoadOptions{{}, {Map: true}, {Assign: true}, {Partial: true}, {SkipMismatched: true}} {
		m := newNet(false, gotorch.CPU)
		before := state(m)
		report, err := hub.LoadInto(m, f, opt)
		var fit *hub.FitError
		if !errors.As(err, &fit) || fit.Report != report {
			t.Fatal(err)
		}
		equal(t, m.StateDict(), before)
		want := fmt.Sprintf(`net from %s: 2 tensors fit
missing      layers.1.weight  [3 3]
unexpected   layers.{7..9}.bias  [3]
mismatched   layers.0.weight  the model has [3 3], the folder [4 3]`, f.Dir())
		if got := report.String(); got != want {
			t.Errorf("the report is\n%s\nnot\n%s", got, want)
		}
	}
	m := newNet(false, gotorch.CPU)
	before := state(m)
	report, err := hub.LoadInto(m, f, hub.LoadOptions{Partial: true, SkipMismatched: true})
	testhelp.Must(t, err)
	if len(report.Loaded) != 2 || report.Bytes != 2*15*4 {
		t.Errorf("%+v", report)
	}
	before["embedding.weight"], before["head.weight"] = weights()["embedding.weight"], weights()["head.weight"]
	equal(t, m.StateDict(), before)
}

func TestReadingThatFailsChangesNothing(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, "model.safetensors", weights())
	f := open(t, dir)
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	testhelp.Must(t, err)
	testhelp.Must(t, os.Truncate(filepath.Join(dir, "model.safetensors"), info.Size()-8))
	for _, opt := range []hub.LoadOptions{{}, {Assign: true}, {Map: true}} {
		m := newNet(false, gotorch.CPU)
		before := state(m)
		if _, err := hub.LoadInto(m, f, opt); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "shorter") {
			t.Error(err)
		}
		equal(t, m.StateDict(), before)
	}
}

func TestLoadIntoThroughAMapping(t *testing.T) {
	w := weights()
	held := map[string]gotorch.Tensor{
		"m.wte":    w["embedding.weight"].Transpose(0, 1).Contiguous(),
		"m.layers": gotorch.Cat([]gotorch.Tensor{w["layers.0.weight"], w["layers.1.weight"]}),
		"m.head.0": w["head.weight"].Narrow(0, 0, 2), "m.head.1": w["head.weight"].Narrow(0, 2, 3), "mask": count(4),
	}
	mapping := hub.Mapping{hub.Prefix("m.", ""), hub.Name("wte", "embedding.weight").Transposed(), hub.Drop("mask"), hub.Name("none.*", "nothing.*"),
		hub.Split("layers", 0, "layers.0.weight", "layers.1.weight"), hub.Join("head.weight", 0, "head.0", "head.1").Sizes(2, 3)}
	for _, opt := range []hub.LoadOptions{{}, {Map: true}, {Assign: true}, {Assign: true, Map: true}} {
		opt.Mapping = mapping
		m := newNet(false, gotorch.CPU)
		report, err := hub.LoadInto(m, folderOf(t, held), opt)
		testhelp.Must(t, err)
		equal(t, m.StateDict(), w)
		if !slices.Equal(report.Dropped, []string{"mask"}) || !slices.Equal(report.Idle, []string{`Name("none.*", "nothing.*")`}) {
			t.Errorf("%+v", report)
		}
		dir := t.TempDir()
		testhelp.Must(t, hub.SaveModel(dir, m, hub.SaveOptions{Mapping: slices.Concat(mapping, hub.Mapping{hub.Prefix("x.", "y.")})}))
		again := open(t, dir)
		for _, name := range again.Names() {
			got, err := again.Tensor(name)
			testhelp.Must(t, err)
			short := name
			if _, ok := held[name]; !ok {
				short = "m." + name
			}
			gotorchtest.AssertEqual(t, got, held[short])
		}
		if len(again.Names()) != 4 {
			t.Error(again.Names())
		}
	}
	delete(held, "m.head.1")
	_, err := hub.LoadInto(newNet(false, gotorch.CPU), folderOf(t, held), hub.LoadOptions{Mapping: mapping})
	if err == nil || !strings.Contains(err.Error(), "incomplete   m.head.0 without head.1") {
		t.Error(err)
	}
	held["m.head.1"] = count(4) // which cannot be joined
	if _, err := hub.LoadInto(newNet(false, gotorch.CPU), folderOf(t, held), hub.LoadOptions{Mapping: mapping}); err == nil || !strings.Contains(err.Error(), "cat") {
		t.Error(err)
	}
}

func TestTiedWeights(t *testing.T) {
	held := weights()
	delete(held, "head.weight")
	for _, opt := range []hub.LoadOptions{{}, {Assign: true}, {Assign: true, Map: true}} {
		m := newNet(true, gotorch.CPU)
		report, err := hub.LoadInto(m, folderOf(t, held), opt)
		testhelp.Must(t, err)
		if len(report.Tied) != 1 || report.Tied[0] != (hub.Tie{Name: "head.weight", With: "embedding.weight"}) || !strings.Contains(report.String(), "tied         head.weight is embedding.weight") {
			t.Errorf("%+v", report)
		}
		gotorchtest.AssertEqual(t, m.Head.Weight.Detach(), held["embedding.weight"])
		if len(m.Parameters()) != 3 {
			t.Error("they are not tied any more")
		}
		dir := t.TempDir()
		testhelp.Must(t, hub.SaveModel(dir, m))
		if names := open(t, dir).Names(); !slices.Equal(names, []string{"embedding.weight", "layers.0.weight", "layers.1.weight"}) {
			t.Error(names)
		}
	}
	// A model that cannot tie them again.
	untold := nn.Sequential(nn.Linear(3, 3, nn.LinearOptions{NoBias: true}), nn.Linear(3, 3, nn.LinearOptions{NoBias: true}))
	untold.Layers[1].(*nn.LinearModule).Weight = untold.Layers[0].(*nn.LinearModule).Weight
	f := folderOf(t, map[string]gotorch.Tensor{"0.weight": count(9).View([]int64{3, 3})})
	if _, err := hub.LoadInto(untold, f, hub.LoadOptions{Assign: true}); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "TieWeights") {
		t.Error(err)
	}
	_, err := hub.LoadInto(untold, f)
	testhelp.Must(t, err)
}

func TestDtypesOfALoad(t *testing.T) {
	f := folderOf(t, weights())
	m := newNet(false, gotorch.Meta)
	report, err := hub.LoadInto(m, f, hub.LoadOptions{Assign: true, DType: gotorch.BFloat16})
	testhelp.Must(t, err)
	if len(report.Converted) != 4 || !strings.Contains(report.String(), "converted    4 tensors from torch.float32 to torch.bfloat16") {
		t.Errorf("%v", report)
	}
	gotorchtest.AssertEqual(t, m.Head.Weight.Detach(), weights()["head.weight"].To(gotorch.BFloat16))
	m = newNet(false, gotorch.CPU)
	m.Double()
	report, err = hub.LoadInto(m, f)
	testhelp.Must(t, err)
	if len(report.Converted) != 4 || m.Head.Weight.DType() != gotorch.Float64 {
		t.Errorf("%v", report)
	}
	if _, err := hub.LoadInto(m, f, hub.LoadOptions{DType: gotorch.Float32}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

func TestLoadIntoLeavesNothing(t *testing.T) {
	f := folderOf(t, weights())
	m := newNet(false, gotorch.CPU)
	run := func(opt hub.LoadOptions) {
		if _, err := hub.LoadInto(m, f, opt); err != nil {
			t.Fatal(err)
		}
	}
	run(hub.LoadOptions{})
	before := gotorch.MemoryStats().LiveHandles
	for range 5 {
		run(hub.LoadOptions{})
		run(hub.LoadOptions{Map: true})
	}
	if after := gotorch.MemoryStats().LiveHandles; after > before {
		t.Errorf("%d handles are left", after-before)
	}
}

func TestSaveReplacesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "tokenizer.json", []byte("{}"))
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		testhelp.Must(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for _, c := range []struct {
		most  int64
		files []string
	}{
		{100, []string{"config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json", "tokenizer.json"}},
		{1000, []string{"config.json", "model.safetensors", "tokenizer.json"}},
		{140, []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json"}},
		{1, []string{"config.json", "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", "model.safetensors.index.json", "tokenizer.json"}},
	} {
		testhelp.Must(t, hub.Save(dir, weights(), hub.SaveOptions{MaxShardBytes: c.most, Config: map[string]any{"model_type": "net"}}))
		if got := files(); !slices.Equal(got, c.files) {
			t.Errorf("with %d: %v, not %v", c.most, got, c.files)
		}
		f := open(t, dir)
		got := map[string]gotorch.Tensor{}
		for _, name := range f.Names() {
			x, err := f.Tensor(name)
			testhelp.Must(t, err)
			got[name] = x
		}
		equal(t, got, weights())
		if f.Metadata()["format"] != "pt" || f.Config().ModelType() != "net" {
			t.Error(f.Metadata(), f.Config().ModelType())
		}
	}
	before := files()
	for _, opt := range []hub.SaveOptions{{MaxShardBytes: 0}, {MaxShardBytes: -1}, {DType: gotorch.Int64}, {Config: 3}, {Config: func() {}}} {
		if err := hub.Save(dir, weights(), opt); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
	if err := hub.Save(dir, nn.StateDict{"x": count(3).ToSparse()}); !errors.Is(err, gotorch.NotImplementedError) {
		t.Error(err)
	}
	if err := hub.Save(dir, nn.StateDict{"x": {}}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	inTheWay := filepath.Join(dir, "model.safetensors", "deep")
	testhelp.Must(t, os.MkdirAll(inTheWay, 0o777))
	for _, most := range []int64{100, 1000} {
		if err := hub.Save(dir, weights(), hub.SaveOptions{MaxShardBytes: most}); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("where a folder is in the way: %v", err)
		}
	}
	testhelp.Must(t, os.RemoveAll(filepath.Dir(inTheWay)))
	if _, err := open(t, dir).File("."); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("the folder itself: %v", err)
	}
	if after := files(); !slices.Equal(before, after) {
		t.Errorf("a Save that fails has left %v", after)
	}
	testhelp.Must(t, hub.Save(dir, weights(), hub.SaveOptions{DType: gotorch.Float16}))
	if info, _ := open(t, dir).Lookup("head.weight"); info.DType != gotorch.Float16 {
		t.Errorf("%+v", info)
	}
}

func TestWhatAKilledSaveHasLeftGoesADayLater(t *testing.T) {
	dir := t.TempDir()
	leave := func(name string, age time.Duration) {
		path := filepath.Join(dir, name)
		testhelp.Must(t, os.Mkdir(path, 0o777))
		write(t, path, "model.safetensors", nil)
		at := time.Now().Add(-age)
		testhelp.Must(t, os.Chtimes(path, at, at))
	}
	leave(".gotorch-1.part", 25*time.Hour)
	leave(".gotorch-2.part", 23*time.Hour) // another process may be writing it
	leave("other-1.part", 25*time.Hour)
	file := filepath.Join(dir, ".gotorch-4.part") // which is somebody else's
	write(t, dir, filepath.Base(file), nil)
	testhelp.Must(t, os.Chtimes(file, time.Time{}, time.Now().Add(-25*time.Hour)))
	outside := t.TempDir()
	testhelp.Must(t, os.Symlink(outside, filepath.Join(dir, ".gotorch-3.part")))
	testhelp.Must(t, hub.Save(dir, nn.StateDict{"a": count(3)}))
	var names []string
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".gotorch-2.part", ".gotorch-3.part", ".gotorch-4.part", "model.safetensors", "other-1.part"}; !slices.Equal(names, want) {
		t.Errorf("there are %v, not %v", names, want)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

func ExampleLoadInto() {
	dir, err := os.MkdirTemp("", "hub")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	// What another program may have saved, under other names.
	err = hub.Save(dir, nn.StateDict{"net.fc1.weight": gotorch.Ones([]int64{4, 3}), "net.fc1.bias": gotorch.Zeros([]int64{4}), "net.steps": gotorch.Ones([]int64{})})
	if err != nil {
		panic(err)
	}
	folder, err := hub.Open(dir)
	if err != nil {
		panic(err)
	}
	defer folder.Close()

	model := nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
	mapping := hub.Mapping{hub.Prefix("net.", ""), hub.Name("fc1.*", "0.*")}
	report, err := hub.LoadInto(model, folder, hub.LoadOptions{Mapping: mapping, Partial: true})
	if err != nil {
		panic(err)
	}
	report.Folder = "a folder"
	fmt.Println(report)
	// Output:
	// Sequential from a folder: 2 tensors fit, 64 bytes
	// missing      2.bias  [2]
	//              2.weight  [2 4]
	// unexpected   net.steps as steps  []
}
