package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/checkpoint"
	"gotorch.dev/gotorch/distributed/parallel"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/replace"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// has is an object with a state, which does what a test wants of it.
type has struct {
	state gotorch.Dict
	saved func()
	load  func() error
}

func (h *has) StateDict() gotorch.Dict {
	if h.saved != nil {
		h.saved()
	}
	return h.state
}

func (h *has) LoadStateDict(dict gotorch.Dict) error {
	if h.load != nil {
		if err := h.load(); err != nil {
			return err
		}
	}
	h.state = dict
	return nil
}

// Whatever refuses its value: nothing else has got one then.
func TestWhereOneRefusesNothingIsLoaded(t *testing.T) {
	inference := gotorch.Tensor{}
	gotorch.InferenceMode(func() { inference = gotorch.Zeros([]int64{3}) })
	matrix := gotorch.Ones([]int64{3, 3})
	net := nn.Linear(2, 2)
	expanded := nn.Linear(2, 2)
	expanded.Bias = nn.Parameter(gotorch.Zeros([]int64{1}).Expand([]int64{2}))
	opt := optim.Adam(nn.Linear(1, 1).Parameters())
	dir := t.TempDir()
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{
		"a": gotorch.Ones([]int64{2}), "m": nn.Linear(2, 2), "n": 7, "s": gotorch.Dict{{Key: "at", Value: 7}},
		"x": gotorch.Ones([]int64{3}), "xx": matrix, "y": nn.Linear(2, 2), "z": gotorch.Dict{{Key: "at", Value: 1}},
	}))
	refuses := &has{load: func() error { return errors.New("not I") }}
	for name, c := range map[string]struct {
		key   string
		value any
		is    error
		says  string
	}{
		"expanded":             {"x", gotorch.Zeros([]int64{1}).Expand([]int64{3}), gotorch.ValueError, "at one place in memory"},
		"one over the other":   {"xx", gotorch.Zeros([]int64{5}).AsStrided([]int64{3, 3}, []int64{1, 1}), gotorch.ValueError, "at one place in memory"},
		"of inference":         {"x", inference, gotorch.RuntimeError, "inference mode"},
		"sparse":               {"xx", gotorch.Eye(3).ToSparse(), gotorch.NotImplementedError, "sparse"},
		"without memory":       {"x", gotorch.Zeros([]int64{3}, gotorch.TensorOptions{Device: gotorch.Meta}), gotorch.ValueError, "meta device"},
		"expanded in a module": {"y", expanded, gotorch.ValueError, `"y.bias" goes into a tensor`},
		"a state":              {"z", refuses, nil, "not I"},
		"an optimiser":         {"z", opt, gotorch.ValueError, "param_groups"},
	} {
		a, n, s := gotorch.Zeros([]int64{2}), 0, &has{state: gotorch.Dict{{Key: "at", Value: int64(0)}}}
		weight := net.Weight.Clone()
		err := checkpoint.Load(dir, checkpoint.State{"a": a, "m": net, "n": &n, "s": s, c.key: c.value})
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if a.Sum().Item() != 0.0 || n != 0 || s.state.Get("at") != int64(0) || !gotorch.Equal(weight, net.Weight) {
			t.Errorf("%s: half is loaded: %v, %v, %v", name, a, n, s.state)
		}
	}
	for _, ends := range []func(){runtime.Goexit, func() { panic("of a program") }} {
		s := &has{state: gotorch.Dict{{Key: "at", Value: int64(0)}}}
		var done sync.WaitGroup
		done.Go(func() {
			defer func() { _ = recover() }()
			err := checkpoint.Load(dir, checkpoint.State{"s": s, "z": &has{load: func() error { ends(); return nil }}})
			t.Errorf("it goes on: %v", err)
		})
		if done.Wait(); s.state.Get("at") != int64(0) {
			t.Errorf("half is loaded: %v", s.state)
		}
	}
	// What needs gradients and what is a view can be loaded.
	leaf := gotorch.Zeros([]int64{3}).RequiresGrad_()
	wide := gotorch.Zeros([]int64{3, 6})
	testhelp.Must(t, checkpoint.Load(dir, checkpoint.State{"x": leaf, "xx": wide.AsStrided([]int64{3, 3}, []int64{6, 2}).Transpose(0, 1)}))
	if leaf.Sum().Item() != 3.0 || !leaf.RequiresGrad() || wide.Sum().Item() != 9.0 {
		t.Errorf("%v, %v", leaf, wide)
	}
	gotorch.InferenceMode(func() { testhelp.Must(t, checkpoint.Load(dir, checkpoint.State{"x": inference})) })
	if inference.Sum().Item() != 3.0 {
		t.Errorf("%v", inference)
	}
}

// Where a state of one rank refuses, no rank has changed.
func TestWhereARankRefusesNoRankHasChanged(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"a": gotorch.Ones([]int64{2}), "s": gotorch.Dict{{Key: "at", Value: 7}}}))
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		a, s := gotorch.Zeros([]int64{2}), &has{state: gotorch.Dict{{Key: "at", Value: int64(0)}}}
		if g.Rank() == 1 {
			s.load = func() error { return errors.New("not I") }
		}
		err := checkpoint.Load(dir, checkpoint.State{"a": a, "s": s}, checkpoint.LoadOptions{Group: g})
		if err == nil || !strings.Contains(err.Error(), "not I") || a.Sum().Item() != 0.0 || s.state.Get("at") != int64(0) {
			t.Errorf("rank %d: %v, %v, %v", g.Rank(), err, a, s.state)
		}
	})
}

// An optimiser whose state is sharded gets back what it had.
func TestAnOptimiserGetsBackWhatItHad(t *testing.T) {
	dir := t.TempDir()
	for _, begun := range []bool{true, false} {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			net, units := model(3)
			m := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: units})
			opt := optim.AdamW(m.Parameters(), optim.AdamWOptions{LR: 0.5})
			step := func() {
				m.Forward(gotorch.Ones([]int64{4, 5})).Pow(2).Mean().Backward()
				opt.Step()
				opt.ZeroGrad()
			}
			step()
			state := checkpoint.State{"optim": checkpoint.Optimizer(m, opt), "z": &has{state: gotorch.Dict{{Key: "a", Value: 1}}}}
			if err := checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g}); err != nil {
				t.Error(err)
			}
			if opt = optim.AdamW(m.Parameters(), optim.AdamWOptions{LR: 0.25}); begun {
				step()
				step()
			}
			was := opt.StateDict()
			state = checkpoint.State{"optim": checkpoint.Optimizer(m, opt), "z": &has{state: gotorch.Dict{}, load: func() error { return errors.New("not I") }}}
			if err := checkpoint.Load(dir, state, checkpoint.LoadOptions{Group: g}); err == nil || !strings.HasSuffix(err.Error(), "not I") {
				t.Error(err)
			}
			if *opt.LRs()[0] != 0.25 || fmt.Sprint(opt.StateDict()) != fmt.Sprint(was) {
				t.Errorf("rank %d: %v, and it was %v", g.Rank(), opt.StateDict(), was)
			}
		})
	}
}

// What only one of the ranks has is saved, too, as in PyTorch.
func TestARankMayHaveMore(t *testing.T) {
	dir := t.TempDir()
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		rank := g.Rank()
		state := checkpoint.State{"all": gotorch.Ones([]int64{2}), "n": 3, fmt.Sprint("t", rank): gotorch.Full([]int64{int64(rank) + 1}, rank), fmt.Sprint("n", rank): rank}
		if err := checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g}); err != nil {
			t.Error(err)
		}
		n, mine := -1, gotorch.Full([]int64{int64(rank) + 1}, -1)
		err := checkpoint.Load(dir, checkpoint.State{fmt.Sprint("t", rank): mine, fmt.Sprint("n", rank): &n}, checkpoint.LoadOptions{Group: g})
		if err != nil || n != rank || !gotorch.Equal(mine, gotorch.Full([]int64{int64(rank) + 1}, rank)) {
			t.Errorf("rank %d: %v, %d, %v", rank, err, n, mine)
		}
		// The same name for different things is an error.
		err = checkpoint.Save(dir, checkpoint.State{"x": gotorch.Ones([]int64{int64(rank)})}, checkpoint.SaveOptions{Group: g})
		if !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	})
	read, err := checkpoint.Read(dir)
	testhelp.Must(t, err)
	if len(read) != 8 {
		t.Errorf("%v", read)
	}
}

// Each rank saves what it has of an optimiser that is shared out, and loads what it will have.
func TestAnOptimiserThatIsSharedOut(t *testing.T) {
	dir := t.TempDir()
	make := func(g *distributed.Group) (*nn.SequentialModule, optim.Optimizer) {
		net, _ := model(3)
		return net, distributed.ZeroRedundancyOptimizer(g, optim.AdamW(net.Parameters()))
	}
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net, opt := make(g)
		for _, p := range net.Parameters() {
			p.SetGrad(gotorch.OnesLike(p))
		}
		opt.Step()
		state := checkpoint.State{"model": net, "optim": checkpoint.Optimizer(net, opt), "plain": opt}
		if err := checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g}); err != nil {
			t.Error(err)
		}
	})
	alone, _ := model(4)
	whole := optim.AdamW(alone.Parameters())
	testhelp.Must(t, checkpoint.Load(dir, checkpoint.State{"model": alone, "optim": checkpoint.Optimizer(alone, whole)}))
	states := whole.StateDict().Get("state").(gotorch.Dict)
	if len(states) != len(alone.Parameters()) {
		t.Fatalf("%d states of %d parameters", len(states), len(alone.Parameters()))
	}
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		net, opt := make(g)
		if err := checkpoint.Load(dir, checkpoint.State{"model": net, "optim": checkpoint.Optimizer(net, opt)}, checkpoint.LoadOptions{Group: g}); err != nil {
			t.Error(err)
			return
		}
		mine := opt.(*distributed.ZeroRedundancy).LocalStateDict().Get("state").(gotorch.Dict)
		_, plain := make(g)
		if err := checkpoint.Load(dir, checkpoint.State{"plain": plain}, checkpoint.LoadOptions{Group: g}); err != nil {
			t.Error(err)
		}
		if numbered := plain.(*distributed.ZeroRedundancy).LocalStateDict().Get("state"); fmt.Sprint(numbered) != fmt.Sprint(mine) {
			t.Errorf("rank %d: %v, and by names %v", g.Rank(), numbered, mine)
		}
		if len(mine) == 0 || len(mine) == len(states) {
			t.Errorf("rank %d has %d states", g.Rank(), len(mine))
		}
		for _, item := range mine {
			gotorchtest.AssertEqual(t, item.Value.(gotorch.Dict).Get("exp_avg").(gotorch.Tensor), states.Get(item.Key).(gotorch.Dict).Get("exp_avg").(gotorch.Tensor))
		}
	})
}

// Layers of which each rank has a part are saved as the whole.
func TestALayerThatRanksShareOut(t *testing.T) {
	dir := t.TempDir()
	type layers struct {
		nn.Module
		Words *parallel.VocabParallelEmbeddingModule
		Up    *parallel.ColumnParallelLinearModule
		Down  *parallel.RowParallelLinearModule
	}
	whole := func(seed uint64) (*nn.SequentialModule, []string) {
		gotorch.ManualSeed(seed)
		return nn.Sequential(nn.Embedding(12, 6), nn.Linear(6, 12), nn.Linear(12, 6)), []string{"words", "up", "down"}
	}
	shared := func(g *distributed.Group, of *nn.SequentialModule) *layers {
		return nn.Init(&layers{
			Words: parallel.VocabParallelEmbedding(g, of.Layers[0].(*nn.EmbeddingModule)),
			Up:    parallel.ColumnParallelLinear(g, of.Layers[1].(*nn.LinearModule)), Down: parallel.RowParallelLinear(g, of.Layers[2].(*nn.LinearModule)),
		})
	}
	want, names := whole(1)
	other, _ := whole(2)
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		m := shared(g, want)
		opt := optim.AdamW(m.Parameters())
		for _, p := range m.Parameters() {
			p.SetGrad(p.Detach().Clone())
		}
		opt.Step()
		for _, p := range m.Parameters() { // as it was, with an average of a tenth of it
			gotorch.NoGrad(func() { p.Copy_(p.Grad()) })
		}
		if err := checkpoint.Save(dir, checkpoint.State{"model": m, "optim": checkpoint.Optimizer(m, opt)}, checkpoint.SaveOptions{Group: g}); err != nil {
			t.Error(err)
		}
	})
	read, err := checkpoint.Read(dir)
	testhelp.Must(t, err)
	states := read.Get("optim").(gotorch.Dict).Get("state").(gotorch.Dict)
	for i, name := range names {
		for kind, p := range want.Layers[i].(nn.Modular).NamedParameters() {
			name := name + "." + kind
			gotorchtest.AssertEqual(t, read.Get("model").(gotorch.Dict).Get(name).(gotorch.Tensor), p.Detach())
			average := states.Get(name).(gotorch.Dict).Get("exp_avg").(gotorch.Tensor)
			if !gotorch.AllClose(average, p.Detach().MulScalar(0.1)) {
				t.Errorf("%s: %v of %v", name, average, p)
			}
		}
	}
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		m, like := shared(g, other), shared(g, want)
		opt := optim.AdamW(m.Parameters())
		if err := checkpoint.Load(dir, checkpoint.State{"model": m, "optim": checkpoint.Optimizer(m, opt)}, checkpoint.LoadOptions{Group: g}); err != nil {
			t.Error(err)
			return
		}
		for name, p := range like.NamedParameters() {
			gotorchtest.AssertEqual(t, m.StateDict()[name], p.Detach())
		}
		if n := len(opt.StateDict().Get("state").(gotorch.Dict)); n != 5 {
			t.Errorf("%d states", n)
		}
		twice := distributed.FullyShard(shared(g, want), distributed.FullyShardOptions{Group: g})
		if err := checkpoint.Save(dir, checkpoint.State{"model": twice}, checkpoint.SaveOptions{Group: g}); !errors.Is(err, gotorch.NotImplementedError) {
			t.Error(err)
		}
	})
}

// A state that is in itself is an error, and does not end the program.
func TestAStateThatIsInItself(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"s": checkpoint.State{"s": 1}}))
	state := checkpoint.State{}
	state["s"], state["t"] = state, state
	list := []any{nil, nil}
	list[0], list[1] = list, list
	lists := checkpoint.State{"s": list}
	for _, s := range []checkpoint.State{state, lists} {
		if err := checkpoint.Save(dir, s); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "in itself") {
			t.Error(err)
		}
		if err := checkpoint.Load(dir, s); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "in itself") {
			t.Error(err)
		}
	}
}

// Maps and slices of any types are divided as those of interfaces are, as PyTorch divides dicts and lists.
func TestMapsAndSlicesOfAllTypes(t *testing.T) {
	dir := t.TempDir()
	whole := func(fill float64) distributed.Shard {
		return distributed.Shard{Local: gotorch.Full([]int64{2}, fill), Shape: []int64{2}, Offsets: []int64{0}}
	}
	make := func(fill float64) checkpoint.State {
		return checkpoint.State{
			"tensors": []gotorch.Tensor{gotorch.Full([]int64{2}, fill)}, "shards": map[string]distributed.Shard{"a": whole(fill)},
			"list": []distributed.Shard{whole(fill)}, "modules": []nn.Modular{nn.Linear(1, 1)}, "numbered": map[int]gotorch.Tensor{7: gotorch.Full([]int64{1}, fill)},
			"deep": map[string][]gotorch.Tensor{"a": {gotorch.Full([]int64{1}, fill)}},
		}
	}
	saved, loaded := make(3), make(0)
	saved["numbers"], saved["table"] = []float64{1, 2}, map[string]int{"a": 1}
	testhelp.Must(t, checkpoint.Save(dir, saved))
	var table map[string]int
	var numbers []float64
	loaded["table"], loaded["numbers"] = &table, &numbers
	testhelp.Must(t, checkpoint.Load(dir, loaded))
	sum := 0.0
	for _, x := range []gotorch.Tensor{
		loaded["tensors"].([]gotorch.Tensor)[0], loaded["shards"].(map[string]distributed.Shard)["a"].Local, loaded["list"].([]distributed.Shard)[0].Local,
		loaded["numbered"].(map[int]gotorch.Tensor)[7], loaded["deep"].(map[string][]gotorch.Tensor)["a"][0],
	} {
		sum += gotorch.Item[float64](x.Mean())
	}
	if sum != 15 || table["a"] != 1 || !slices.Equal(numbers, []float64{1, 2}) {
		t.Errorf("%v, %v, %v", loaded, table, numbers)
	}
	if !gotorch.Equal(saved["modules"].([]nn.Modular)[0].StateDict()["weight"], loaded["modules"].([]nn.Modular)[0].StateDict()["weight"]) {
		t.Error("the module differs")
	}
	err := checkpoint.Save(dir, checkpoint.State{"\xff": 1})
	if !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

// A checkpoint that takes another's place while that is read is not mixed with it, though its files have the same names.
func TestACheckpointThatIsReplacedWhileItIsLoaded(t *testing.T) {
	dir := t.TempDir()
	save := func(n float64) {
		testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"a": gotorch.Full([]int64{2}, n), "s": gotorch.Dict{{Key: "n", Value: n}}, "z": gotorch.Full([]int64{2}, n)}))
	}
	for times := range 4 { // after two the first one's names are used again, and .metadata is the same to the byte
		save(1)
		a, z := gotorch.Zeros([]int64{2}), gotorch.Zeros([]int64{2})
		state := checkpoint.State{"a": a, "z": z, "s": &has{saved: func() {
			for n := range times {
				save(float64(2 + n))
			}
		}}}
		err := checkpoint.Load(dir, state)
		if times == 0 {
			if err != nil || z.Sum().Item() != 2.0 {
				t.Errorf("%v, %v", err, z)
			}
			continue
		}
		if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "replaced") || a.Sum().Item() != 0.0 || z.Sum().Item() != 0.0 {
			t.Errorf("%d times: %v, %v, %v", times, err, a, z)
		}
	}
	other := t.TempDir()
	testhelp.Must(t, checkpoint.Save(other, checkpoint.State{"x": 1}))
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"x": 2}))
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		x := 0
		err := checkpoint.Load([]string{dir, other}[g.Rank()], checkpoint.State{"x": &x}, checkpoint.LoadOptions{Group: g})
		if !errors.Is(err, gotorch.RuntimeError) || x != 0 {
			t.Errorf("%v, %d", err, x)
		}
	})
}

// Of jobs that save into one folder at the same time one succeeds, or the other does after it: what is there is whole.
func TestSeveralJobsSaveIntoOneFolder(t *testing.T) {
	dir := t.TempDir()
	folder, err := os.Open(dir)
	testhelp.Must(t, err)
	defer folder.Close()
	testhelp.Must(t, replace.Lock(folder))
	if err := checkpoint.Save(dir, checkpoint.State{"x": 1}); !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "another job") {
		t.Error(err)
	}
	testhelp.Must(t, folder.Close())
	var jobs sync.WaitGroup
	for job := range 3 {
		jobs.Go(func() {
			saved := 0
			for round := 0; round < testhelp.Rounds(10) || saved == 0; round++ {
				rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
					part := distributed.Shard{Local: gotorch.Full([]int64{1, 500}, 100*job+round), Shape: []int64{2, 500}, Offsets: []int64{int64(g.Rank()), 0}}
					switch err := checkpoint.Save(dir, checkpoint.State{"x": part}, checkpoint.SaveOptions{Group: g}); {
					case err == nil && g.Rank() == 0:
						saved++
					case err != nil && !strings.Contains(err.Error(), "another job"):
						t.Error(err)
					}
				})
			}
		})
	}
	done := make(chan bool)
	go func() { jobs.Wait(); close(done) }()
	read := 0
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		dict, err := checkpoint.Read(dir)
		if err != nil {
			if finished || !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "replaced") {
				t.Fatal(err)
			}
			continue
		}
		read++
		x := dict.Get("x").(gotorch.Tensor)
		if gotorch.Item[float64](x.Max()) != gotorch.Item[float64](x.Min()) {
			t.Fatal("two checkpoints are mixed")
		}
	}
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if read == 0 || len(entries) != 3 {
		t.Errorf("%d, %v", read, entries)
	}
}

// A rank that ends, panics or does not come has the others fail in their time.
func TestARankThatIsMissing(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"s": gotorch.Dict{{Key: "a", Value: 1}}}))
	for name, missing := range map[string]func(){
		"ends":   runtime.Goexit,
		"panics": func() { panic("of a program") },
	} {
		for _, load := range []bool{false, true} {
			rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
				s := &has{}
				g.Barrier()
				if g.Rank() == 1 {
					defer func() { _ = recover() }()
					s.saved = missing
				} else {
					testhelp.Must(t, g.SetTimeout(time.Second))
				}
				var err error
				if load {
					err = checkpoint.Load(dir, checkpoint.State{"s": s}, checkpoint.LoadOptions{Group: g})
				} else {
					err = checkpoint.Save(dir, checkpoint.State{"s": s}, checkpoint.SaveOptions{Group: g})
				}
				if !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.NetworkError) {
					t.Errorf("%s, %v: %v", name, load, err)
				}
				if s.state != nil {
					t.Errorf("%s: it is loaded", name)
				}
			})
		}
	}
	if dict, err := checkpoint.Read(dir); err != nil || len(dict) != 1 {
		t.Errorf("%v, %v", dict, err)
	}
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if len(entries) != 2 {
		t.Errorf("%v", entries)
	}
}

// Tensors that were read, and files, are closed where something fails, and those that were copied where nothing does.
func TestWhatWasReadIsClosed(t *testing.T) {
	dir := t.TempDir()
	parts := checkpoint.State{"n": 1, "s": gotorch.Dict{{Key: "x", Value: gotorch.Ones([]int64{2})}}, "list": gotorch.Dict{{Key: "t", Value: gotorch.Tuple{gotorch.Ones([]int64{1})}}}}
	for i := range 4 {
		parts[fmt.Sprint("x", i)] = gotorch.Ones([]int64{4})
	}
	testhelp.Must(t, checkpoint.Save(dir, parts))
	content, err := os.ReadFile(filepath.Join(dir, "__0_0.distcp"))
	testhelp.Must(t, err)
	to := checkpoint.State{"s": &has{}, "z": new(int)}
	var list any
	for i := range 4 {
		to[fmt.Sprint("x", i)] = gotorch.Zeros([]int64{4})
	}
	to["list"] = &list
	for name, try := range map[string]func() error{
		"a name that is not there": func() error { return checkpoint.Load(dir, to) },
		"a file that is cut off":   func() error { _, err := checkpoint.Read(dir); return err },
		"nothing": func() error {
			if err := checkpoint.Load(dir, checkpoint.State{"x0": to["x0"], "x1": to["x1"]}); err != nil {
				t.Error(err)
			}
			return errors.New("nothing")
		},
	} {
		if name == "a file that is cut off" {
			testhelp.Must(t, os.WriteFile(filepath.Join(dir, "__0_0.distcp"), content[:len(content)-100], 0o600))
		}
		files := testhelp.Descriptors(t)
		runtime.GC()
		before := gotorch.MemoryStats().LiveHandles
		failed := try()
		if failed == nil {
			t.Errorf("%s: no error", name)
		}
		if left := gotorch.MemoryStats().LiveHandles - before; left > 0 {
			t.Errorf("%s: %d tensors are left (%v)", name, left, failed)
		}
		if left := testhelp.Descriptors(t) - files; left > 0 {
			t.Errorf("%s: %d files are open", name, left)
		}
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, "__0_0.distcp"), content, 0o600))
	}
}

// Where rank 0 cannot write .metadata, no rank's file is left.
func TestWhereThereIsNoRoomForTheLastFile(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, os.Mkdir(filepath.Join(dir, ".metadata"), 0o700))
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		part := distributed.Shard{Local: gotorch.Ones([]int64{1}), Shape: []int64{2}, Offsets: []int64{int64(g.Rank())}}
		err := checkpoint.Save(dir, checkpoint.State{"x": part}, checkpoint.SaveOptions{Group: g})
		if err == nil || !strings.Contains(err.Error(), "is a directory") {
			t.Error(err)
		}
	})
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

// What is no file, and what leads out of the folder, is an error at once.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".metadata", "__0_0.distcp"} {
		for what, put := range map[string]func(path string) error{
			"pipe":       func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"folder":     func(path string) error { return os.Mkdir(path, 0o700) },
			"device":     func(path string) error { return os.Symlink("/dev/zero", path) },
			"a way out":  func(path string) error { return os.Symlink("/etc/passwd", path) },
			"loop":       func(path string) error { return os.Symlink(path, path) },
			"not there":  func(string) error { return nil },
			"empty":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
			"safetensor": func(path string) error { return gotorch.SaveTensors(filepath.Join(dir, "a.safetensors"), nil) },
		} {
			testhelp.Must(t, os.RemoveAll(dir))
			testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"x": gotorch.Ones([]int64{3})}))
			path := filepath.Join(dir, name)
			testhelp.Must(t, os.Remove(path))
			testhelp.Must(t, put(path))
			_, err := checkpoint.Read(dir)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s is %s: %v", name, what, err)
			}
			if what == "safetensor" && name == ".metadata" && !strings.Contains(fmt.Sprint(err), "LoadTensors") {
				t.Error(err)
			}
		}
	}
}

// Parts that zstd has packed, as PyTorch's extension does. testdata/zstd is of PyTorch 2.15.
func TestPackedParts(t *testing.T) {
	x, zeros := gotorch.Zeros([]int64{10, 100}), gotorch.Ones([]int64{100000})
	var n int
	testhelp.Must(t, checkpoint.Load("testdata/zstd", checkpoint.State{"x": x, "zeros": zeros, "note": checkpoint.State{"n": &n}}))
	if !gotorch.Equal(x, gotorch.Arange(1000).To(gotorch.Float32).Reshape([]int64{10, 100})) || zeros.Sum().Item() != 0.0 || n != 3 {
		t.Errorf("%v, %v, %d", x, zeros, n)
	}
	meta, err := os.ReadFile("testdata/zstd/.metadata")
	testhelp.Must(t, err)
	content, err := os.ReadFile("testdata/zstd/__0_0.distcp")
	testhelp.Must(t, err)
	for says, change := range map[string]func(){
		`extension "stream.zst2/1"`: func() { meta = bytes.ReplaceAll(meta, []byte("stream.zstd/1"), []byte("stream.zst2/1")) },
		"cannot be unpacked":        func() { content[len(content)-100] ^= 1 },
	} {
		m, c := slices.Clone(meta), slices.Clone(content)
		change()
		dir := t.TempDir()
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, ".metadata"), meta, 0o600))
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, "__0_0.distcp"), content, 0o600))
		if _, err := checkpoint.Read(dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		meta, content = m, c
	}
}

// Where this is set, the test saves into the folder that it names, in which there is no room.
const full = "GOTORCH_TEST_FULL"

// A disk that is full is an error, and the older checkpoint is there.
func TestAFullDisk(t *testing.T) {
	if dir := os.Getenv(full); dir != "" {
		testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"x": gotorch.Ones([]int64{1000})}))
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			part := distributed.Shard{Local: gotorch.Zeros([]int64{1, 10}), Shape: []int64{2, 10}, Offsets: []int64{int64(g.Rank()), 0}}
			state := checkpoint.State{"y": part}
			if g.Rank() == 1 {
				state["x"] = gotorch.Zeros([]int64{1 << 20})
			}
			err := checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g})
			if g.Rank() == 1 && !errors.Is(err, syscall.ENOSPC) || err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("rank %d: %v", g.Rank(), err)
			}
		})
		read, err := checkpoint.Read(dir)
		testhelp.Must(t, err)
		gotorchtest.AssertEqual(t, read.Get("x").(gotorch.Tensor), gotorch.Ones([]int64{1000}))
		entries, err := os.ReadDir(dir)
		testhelp.Must(t, err)
		if len(entries) != 2 {
			t.Errorf("%v", entries)
		}
		return
	}
	dir := t.TempDir()
	inside := exec.Command("unshare", "-Urm", "sh", "-c", `mount -t tmpfs -o size=256k tmpfs "$1" && exec "$0" "-test.run=^TestAFullDisk$"`, os.Args[0], dir)
	if exec.Command("unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", dir).Run() != nil {
		t.Skip("this system lets nobody mount a file system of their own")
	}
	inside.Env = append(os.Environ(), full+"="+dir)
	if said, err := inside.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}
