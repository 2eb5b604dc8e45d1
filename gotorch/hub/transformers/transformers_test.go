package transformers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/hub/transformers"
	"gotorch.dev/gotorch/internal/testhelp"
)

// Folders that Python's transformers has written, and beside them what it computed, on another machine. Those of
// GOTORCH_HUB_FOLDERS, which tests/conformance/test_hub_models.py writes, have results of the same run.
func folders(t *testing.T) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/config.json")
	testhelp.Must(t, err)
	if more := os.Getenv("GOTORCH_HUB_FOLDERS"); more != "" {
		found, err := filepath.Glob(filepath.Join(more, "*/config.json"))
		testhelp.Must(t, err)
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		t.Fatal("there are no folders")
	}
	for i := range paths {
		paths[i] = filepath.Dir(paths[i])
	}
	return paths
}

func open(t testing.TB, dir string) (*hub.Folder, map[string]gotorch.Tensor) {
	t.Helper()
	f, err := hub.Open(dir)
	testhelp.Must(t, err)
	t.Cleanup(func() { f.Close() })
	want, err := gotorch.LoadTensors(filepath.Join(dir, "expected.safetensors"))
	testhelp.Must(t, err)
	return f, want
}

// same compares results with Python's: to the last bit if exact, otherwise by the tolerances of torch.testing for the
// dtype. Those are for other orders of sums: the last bits of a product belong to a processor.
func same(t *testing.T, what string, got, want gotorch.Tensor, exact bool) {
	t.Helper()
	opt := gotorchtest.Options{RTol: 0, ATol: 0}
	if !exact {
		opt = gotorchtest.Options{}
	}
	if diff := gotorchtest.Diff(got.Detach(), want, opt); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func TestModelsComputeWhatTransformersDoes(t *testing.T) {
	for _, dir := range folders(t) {
		for _, mapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s mapped=%v", filepath.Base(dir), mapped), func(t *testing.T) {
				f, want := open(t, dir)
				exact := filepath.Dir(dir) != "testdata" // results of the same run
				opt := transformers.LoadOptions{Map: mapped}
				ids := want["input_ids"]
				switch kind := f.Config().ModelType(); kind {
				case "gpt2":
					// A transposed weight takes other kernels than Python's, with another order of sums.
					model, report, err := transformers.LoadGPT2(f, opt)
					testhelp.Must(t, err)
					compareLM(t, model, want, false)
					checkReport(t, report)
				case "llama":
					model, report, err := transformers.LoadLlama(f, opt)
					testhelp.Must(t, err)
					compareLM(t, model, want, exact)
					checkReport(t, report)
				case "bert":
					model, report, err := transformers.LoadBertClassifier(f, opt)
					testhelp.Must(t, err)
					checkReport(t, report)
					gotorch.NoGrad(func() {
						with := transformers.BertOptions{TokenTypeIDs: want["token_type_ids"]}
						same(t, "logits", model.ForwardWith(ids, with), want["logits"], exact)
						with.AttentionMask = want["attention_mask"]
						same(t, "masked", model.ForwardWith(ids, with), want["masked"], exact)
					})
					base, _, err := transformers.LoadBert(f, transformers.LoadOptions{Map: mapped, Partial: true})
					testhelp.Must(t, err)
					gotorch.NoGrad(func() {
						hidden, _ := base.ForwardWith(ids, transformers.BertOptions{TokenTypeIDs: want["token_type_ids"]})
						same(t, "hidden", hidden, want["hidden"], exact)
					})
				default:
					t.Fatalf("a model of type %q", kind)
				}
			})
		}
	}
}

func compareLM(t *testing.T, model transformers.CausalLM, want map[string]gotorch.Tensor, exact bool) {
	t.Helper()
	ids := want["input_ids"]
	gotorch.NoGrad(func() {
		same(t, "logits", model.Forward(ids), want["logits"], exact)
		// What is said of tokens that do not count has no meaning.
		masked := model.ForwardWith(ids, transformers.ForwardOptions{AttentionMask: want["attention_mask"]})
		counts := want["attention_mask"].NeScalar(0)
		same(t, "masked", masked.Index(counts), want["masked"].Index(counts), exact)
	})
	if want["logits"].DType() == gotorch.Float32 { // in others there are ties among the best
		got := transformers.Generate(model, ids, transformers.GenerateOptions{MaxNewTokens: 8, EOS: []int64{2}, Pad: 0})
		same(t, "greedy", got, want["greedy"], true)
		got = transformers.Generate(model, ids, transformers.GenerateOptions{MaxNewTokens: 8})
		same(t, "ended", got, want["ended"], true)
	}
}

func checkReport(t *testing.T, r *hub.Report) {
	t.Helper()
	if len(r.Missing)+len(r.Unexpected)+len(r.Mismatched)+len(r.Incomplete)+len(r.Converted) > 0 || len(r.Loaded) == 0 || r.Bytes == 0 {
		t.Errorf("the report has more than what fits:\n%v", r)
	}
}

// A cache must not change what is computed, however the tokens come.
func TestACacheGivesTheSameLogits(t *testing.T) {
	for _, kind := range []string{"gpt2", "llama"} {
		f, want := open(t, filepath.Join("testdata", kind))
		var model transformers.CausalLM
		var err error
		if kind == "gpt2" {
			model, _, err = transformers.LoadGPT2(f)
		} else {
			model, _, err = transformers.LoadLlama(f)
		}
		testhelp.Must(t, err)
		ids := want["input_ids"]
		gotorch.NoGrad(func() {
			for _, cuts := range [][]int64{{1, 1, 1, 1, 1, 1, 1}, {3, 4}, {1, 5, 1}, {7}} {
				cache := &transformers.Cache{}
				var parts []gotorch.Tensor
				at := int64(0)
				for _, n := range cuts {
					parts = append(parts, model.ForwardWith(ids.Narrow(1, at, n), transformers.ForwardOptions{Cache: cache}))
					at += n
				}
				if cache.Len() != 7 {
					t.Errorf("%s: the cache has %d tokens", kind, cache.Len())
				}
				same(t, fmt.Sprint(kind, cuts), gotorch.Cat(parts, gotorch.CatOptions{Dim: 1}), want["logits"], false)
				cache.Close()
			}
		})
	}
}

func TestGenerateLeavesNothing(t *testing.T) {
	f, want := open(t, "testdata/llama")
	model, _, err := transformers.LoadLlama(f)
	testhelp.Must(t, err)
	run := func() {
		transformers.Generate(model, want["input_ids"], transformers.GenerateOptions{MaxNewTokens: 5, Sample: true, TopK: 5, TopP: 0.9}).Close()
	}
	run()
	before := gotorch.MemoryStats().LiveHandles
	for range 3 {
		run()
	}
	if after := gotorch.MemoryStats().LiveHandles; after > before {
		t.Errorf("%d handles are left", after-before)
	}
}

// Nothing masks what a prompt was padded with.
func TestAPaddedPromptIsRefused(t *testing.T) {
	f, _ := open(t, "testdata/llama")
	model, _, err := transformers.LoadLlama(f)
	testhelp.Must(t, err)
	type options = transformers.GenerateOptions
	draw := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		rows, length, pad := 1+draw.IntN(4), 1+draw.IntN(6), int64(draw.IntN(13))
		opt := []options{{Pad: pad}, {EOS: []int64{pad, (pad + 1) % 13}}, {EOS: []int64{(pad + 1) % 13}, Pad: pad}, {EOS: []int64{pad}, Pad: (pad + 1) % 13}, {}}[draw.IntN(5)]
		opt.MaxNewTokens = draw.IntN(2)
		ids := make([]int64, rows*length)
		padded := -1
		for i := range ids {
			if ids[i] = int64(draw.IntN(13)); draw.IntN(4) > 0 { // mostly others than the one before the padding token
				ids[i] = (pad + 2 + int64(draw.IntN(11))) % 13
			}
			counts := opt.Pad == pad || opt.Pad == nil && len(opt.EOS) > 0
			if counts && padded < 0 && (i%length == 0 || i%length == length-1) && ids[i] == pad {
				padded = i / length
			}
			if opt.Pad != nil && opt.Pad != pad && (i%length == 0 || i%length == length-1) && ids[i] == opt.Pad {
				ids[i] = (pad + 2) % 13
			}
		}
		given := gotorch.FromSlice(ids, int64(rows), int64(length))
		if draw.IntN(3) == 0 {
			given = given.To(gotorch.Int32)
		}
		err := gotorch.Try0(func() { transformers.Generate(model, given, opt).Close() })
		if padded < 0 && err != nil {
			t.Errorf("%v, %+v: %v", ids, opt, err)
		}
		if padded >= 0 && (!errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), fmt.Sprintf("row %d begins or ends with the padding token %d", padded, pad))) {
			t.Errorf("%v in %d rows, %+v, of which row %d is padded: %v", ids, rows, opt, padded, err)
		}
	}
}

func TestSamplingKeepsToTheBest(t *testing.T) {
	f, want := open(t, "testdata/gpt2")
	model, _, err := transformers.LoadGPT2(f)
	testhelp.Must(t, err)
	ids := want["input_ids"]
	greedy := transformers.Generate(model, ids, transformers.GenerateOptions{MaxNewTokens: 6})
	for _, opt := range []transformers.GenerateOptions{{TopK: 1}, {TopP: 1e-6}, {Temperature: 1e-4}} {
		opt.MaxNewTokens, opt.Sample = 6, true
		same(t, fmt.Sprintf("%+v", opt), transformers.Generate(model, ids, opt), greedy, true)
	}
	n := 0
	transformers.Generate(model, ids, transformers.GenerateOptions{MaxNewTokens: 6, OnToken: func(tokens gotorch.Tensor) bool { n++; return n < 3 }})
	if n != 3 {
		t.Errorf("there were %d steps after OnToken said to end at 3", n)
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	f, want := open(t, "testdata/gpt2")
	if _, _, err := transformers.LoadLlama(f); err == nil || !strings.Contains(err.Error(), `a model of type "gpt2"`) {
		t.Error(err)
	}
	model, _, err := transformers.LoadGPT2(f)
	testhelp.Must(t, err)
	for said, fn := range map[string]func(){
		"expected tokens":   func() { model.Forward(gotorch.Ones([]int64{2, 3})) },
		"has places for 32": func() { model.Forward(gotorch.Ones([]int64{1, 33}, gotorch.TensorOptions{DType: gotorch.Int64})) },
		"AttentionMask must": func() {
			model.ForwardWith(want["input_ids"], transformers.ForwardOptions{AttentionMask: gotorch.Ones([]int64{2, 3})})
		},
		"more than the 32": func() {
			transformers.Generate(model, want["input_ids"], transformers.GenerateOptions{MaxNewTokens: 30})
		},
		"9223372036854775807 new ones": func() {
			transformers.Generate(model, want["input_ids"], transformers.GenerateOptions{MaxNewTokens: int64(math.MaxInt64)})
		},
		"Temperature positive":   func() { transformers.Generate(model, want["input_ids"], transformers.GenerateOptions{Temperature: 0}) },
		"split into 5 heads":     func() { c := model.Config; c.NHead = 5; transformers.NewGPT2(c) },
		"NHead must be positive": func() { c := model.Config; c.NHead = 0; transformers.NewGPT2(c) },
		`"mish" is none of`:      func() { c := model.Config; c.ActivationFunction = "mish"; transformers.NewGPT2(c) },
		`"yarn" is none of`: func() {
			c := transformers.DefaultLlamaConfig()
			c.RopeScaling = &transformers.Rope{Type: "yarn", Factor: 2}
			transformers.NewLlama(c, transformers.Options{Device: gotorch.Meta})
		},
	} {
		if err := gotorch.Try0(fn); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
}

// What a configuration says costs nothing before it is held to what there is.
func TestAConfigurationThatLiesIsRefused(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, os.CopyFS(dir, os.DirFS("testdata/gpt2")))
	for config, said := range map[string]string{
		`{"model_type": "gpt2", "n_layer": 1000000000}`:                                     "1000000000 layers",
		`{"model_type": "gpt2", "n_layer": 1, "vocab_size": 2000000000, "n_embd": 1200000}`: "does not fit",
		`{"model_type": "gpt2", "n_layer": 1, "n_embd": 1e30}`:                              "is a JSON number",
		`{"model_type": "gpt2", "n_layer": -1}`:                                             "does not fit",
		`{"model_type": "gpt2", "n_layer": 1, "n_head": -4}`:                                "NHead must be positive",
	} {
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666))
		f, err := hub.Open(dir)
		testhelp.Must(t, err)
		if _, _, err := transformers.LoadGPT2(f); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %q is not in %v", config, said, err)
		}
		f.Close()
	}
}

// Their weights fit, and what they compute would be wrong.
func TestABertOfAnotherKindIsRefused(t *testing.T) {
	raw, err := os.ReadFile("testdata/bert/config.json")
	testhelp.Must(t, err)
	for key, said := range map[string]string{
		`"is_decoder": true`:                        "is_decoder",
		`"position_embedding_type": "relative_key"`: "relative_key",
		`"is_decoder": false`:                       "",
		`"position_embedding_type": "absolute"`:     "",
		`"position_embedding_type": null`:           "",
	} {
		dir := t.TempDir()
		testhelp.Must(t, os.CopyFS(dir, os.DirFS("testdata/bert")))
		var config map[string]any
		testhelp.Must(t, json.Unmarshal(raw, &config))
		testhelp.Must(t, json.Unmarshal([]byte("{"+key+"}"), &config))
		changed, err := json.Marshal(config)
		testhelp.Must(t, err)
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, "config.json"), changed, 0o666))
		f, err := hub.Open(dir)
		testhelp.Must(t, err)
		_, _, first := transformers.LoadBert(f, transformers.LoadOptions{Partial: true})
		_, _, second := transformers.LoadBertClassifier(f)
		for _, err := range []error{first, second} {
			if said == "" && err != nil || said != "" && (!errors.Is(err, gotorch.NotImplementedError) || !strings.Contains(err.Error(), said)) {
				t.Errorf("%s: %v", key, err)
			}
		}
		f.Close()
	}
}

func TestSavedModelsComeBack(t *testing.T) {
	for _, kind := range []string{"gpt2", "llama", "bert"} {
		f, _ := open(t, filepath.Join("testdata", kind))
		dir := t.TempDir()
		if kept := os.Getenv("GOTORCH_HUB_SAVE"); kept != "" { // for Python to read
			dir = filepath.Join(kept, kind)
		}
		save := hub.SaveOptions{Config: f.Config(), MaxShardBytes: 4000}
		switch kind {
		case "gpt2":
			m, _, err := transformers.LoadGPT2(f)
			testhelp.Must(t, err)
			save.Mapping = transformers.GPT2Mapping()
			testhelp.Must(t, hub.SaveModel(dir, m, save))
		case "llama":
			m, _, err := transformers.LoadLlama(f)
			testhelp.Must(t, err)
			save.Mapping = transformers.LlamaMapping()
			testhelp.Must(t, hub.SaveModel(dir, m, save))
		case "bert":
			m, _, err := transformers.LoadBertClassifier(f)
			testhelp.Must(t, err)
			save.Mapping = transformers.BertClassifierMapping()
			testhelp.Must(t, hub.SaveModel(dir, m, save))
		}
		again, err := hub.Open(dir)
		testhelp.Must(t, err)
		if !slices.Equal(again.Names(), f.Names()) {
			t.Errorf("%s: the names are %v, and were %v", kind, again.Names(), f.Names())
		}
		for _, name := range f.Names() {
			a, err := f.Tensor(name)
			testhelp.Must(t, err)
			b, err := again.Tensor(name)
			testhelp.Must(t, err)
			gotorchtest.AssertEqual(t, b, a)
		}
		again.Close()
	}
}
