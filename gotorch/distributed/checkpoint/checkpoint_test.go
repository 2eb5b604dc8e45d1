package checkpoint_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/checkpoint"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
)

func TestValuesOfAllKinds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "checkpoint")
	net := nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
	opt := optim.SGD(net.Parameters(), optim.SGDOptions{LR: 0.1}) // which remembers nothing
	steps := lrscheduler.MultiStepLR(opt, []int64{1, 3}, lrscheduler.MultiStepLROptions{Gamma: 0.5})
	opt.Step()
	steps.Step()
	row := gotorch.Arange(12).Reshape([]int64{3, 4}).Select(1, 2) // a view
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{
		"model": net, "optim": checkpoint.Optimizer(net, opt), "plain": opt, "steps": steps, "epoch": 3, "loss": 0.25,
		"note": gotorch.Dict{{Key: "names", Value: []any{"a", "b"}}, {Key: 7, Value: nil}}, "rows": []any{row, gotorch.Ones([]int64{0, 2})},
		"one": gotorch.Full([]int64{}, 2.5, gotorch.TensorOptions{DType: gotorch.Float64}),
	}))

	other := nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
	opt2 := optim.SGD(other.Parameters(), optim.SGDOptions{LR: 0.9, Momentum: 0.5})
	plain := optim.SGD(other.Parameters(), optim.SGDOptions{LR: 0.9})
	steps2 := lrscheduler.MultiStepLR(optim.SGD(other.Parameters()), []int64{9})
	var epoch int8
	var loss float64
	var note map[string]any
	row2, empty := gotorch.Zeros([]int64{3}, gotorch.TensorOptions{DType: gotorch.Int64}), gotorch.Zeros([]int64{0, 2})
	one := gotorch.Zeros([]int64{}, gotorch.TensorOptions{DType: gotorch.Float64})
	testhelp.Must(t, checkpoint.Load(dir, checkpoint.State{
		"model": other, "optim": checkpoint.Optimizer(other, opt2), "plain": plain, "steps": steps2, "epoch": &epoch, "loss": &loss,
		"note": &note, "rows": []any{row2, empty}, "one": one,
	}))
	for name, want := range net.StateDict() {
		gotorchtest.AssertEqual(t, other.StateDict()[name], want)
	}
	if epoch != 3 || loss != 0.25 || fmt.Sprint(note) != "map[7:<nil> names:[a b]]" {
		t.Errorf("epoch %v, loss %v, note %v", epoch, loss, note)
	}
	gotorchtest.AssertEqual(t, row2, row)
	if *opt2.LRs()[0] != 0.05 || *plain.LRs()[0] != 0.05 || steps2.StateDict().Get("last_epoch") != int64(1) {
		t.Errorf("learning rates %v and %v, %v", *opt2.LRs()[0], *plain.LRs()[0], steps2.StateDict())
	}
	if one.Item() != 2.5 {
		t.Errorf("%v", one)
	}
	read, err := checkpoint.Read(dir)
	testhelp.Must(t, err)
	rows := read.Get("rows").([]any)
	gotorchtest.AssertEqual(t, rows[0].(gotorch.Tensor), row)
	if got := read.Get("model").(gotorch.Dict).Get("0.weight").(gotorch.Tensor); !gotorch.Equal(got, net.StateDict()["0.weight"]) {
		t.Error("the weight differs")
	}
	// A view is saved without what it is a view of.
	files, err := filepath.Glob(filepath.Join(dir, "__0_*.distcp"))
	testhelp.Must(t, err)
	if len(files) != 1 {
		t.Errorf("%v", files)
	}
}

// sharded is a state of random tensors, of which each rank has random boxes.
type sharded struct {
	shape []int64
	dtype gotorch.DType
}

func randomTensor(r *rand.Rand, s sharded, seed int64) gotorch.Tensor {
	g := gotorch.NewGenerator(gotorch.CPU)
	g.ManualSeed(uint64(seed))
	return gotorch.RandnGenerator(s.shape, g).Mul(gotorch.Full([]int64{}, 100)).To(s.dtype)
}

// divide cuts a box in pieces, at random: every element is in one of them.
func divide(r *rand.Rand, at, size []int64, depth int) (boxes [][2][]int64) {
	if depth == 0 || r.Intn(4) == 0 {
		return [][2][]int64{{at, size}}
	}
	if len(size) == 0 {
		return [][2][]int64{{at, size}}
	}
	d := r.Intn(len(size))
	cut := int64(0)
	if size[d] > 0 {
		cut = r.Int63n(size[d] + 1)
	}
	first, second := slices.Clone(size), slices.Clone(size)
	first[d], second[d] = cut, size[d]-cut
	from := slices.Clone(at)
	from[d] += cut
	return append(divide(r, at, first, depth-1), divide(r, from, second, depth-1)...)
}

func narrow(t gotorch.Tensor, at, size []int64) gotorch.Tensor {
	for d := range at {
		t = t.Narrow(int64(d), at[d], size[d])
	}
	return t
}

// Any rank may have any box of a tensor when it is saved, and want any when it is loaded.
func TestBoxesOfAnyShape(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for round := range testhelp.Rounds(30) {
		dir := t.TempDir()
		var of []sharded
		for range 6 {
			s := sharded{dtype: []gotorch.DType{gotorch.Float32, gotorch.Float64, gotorch.BFloat16, gotorch.Int64, gotorch.Uint8}[r.Intn(5)]}
			for range r.Intn(4) {
				s.shape = append(s.shape, r.Int63n(6))
			}
			of = append(of, s)
		}
		ranks := 1 + r.Intn(3)
		saved := make([]checkpoint.State, ranks)
		for i := range saved {
			saved[i] = checkpoint.State{}
		}
		// A rank has one box of a name, so a tensor is in at most as many as there are ranks.
		for i, s := range of {
			whole := randomTensor(r, s, int64(round*100+i))
			boxes := divide(r, make([]int64, len(s.shape)), s.shape, 3)
			for len(boxes) > ranks {
				boxes = divide(r, make([]int64, len(s.shape)), s.shape, ranks-1)
			}
			for j, box := range boxes {
				part := narrow(whole, box[0], box[1])
				if r.Intn(2) == 0 {
					part = part.Clone()
				}
				saved[(j+i)%ranks][fmt.Sprint("t", i)] = distributed.Shard{Local: part, Shape: s.shape, Offsets: box[0]}
			}
		}
		rankstest.Run(t, ranks, distributed.Options{}, func(g *distributed.Group) {
			if err := checkpoint.Save(dir, saved[g.Rank()], checkpoint.SaveOptions{Group: g}); err != nil {
				t.Error(err)
			}
		})
		loaded := make([]checkpoint.State, 1+r.Intn(3))
		want := make([]map[string]gotorch.Tensor, len(loaded))
		for rank := range loaded {
			loaded[rank], want[rank] = checkpoint.State{}, map[string]gotorch.Tensor{}
			for i, s := range of {
				boxes := divide(r, make([]int64, len(s.shape)), s.shape, 4)
				box := boxes[r.Intn(len(boxes))]
				name := fmt.Sprint("t", i)
				loaded[rank][name] = distributed.Shard{Local: gotorch.Zeros(box[1], gotorch.TensorOptions{DType: s.dtype}), Shape: s.shape, Offsets: box[0]}
				want[rank][name] = narrow(randomTensor(r, s, int64(round*100+i)), box[0], box[1])
			}
		}
		rankstest.Run(t, len(loaded), distributed.Options{}, func(g *distributed.Group) {
			if err := checkpoint.Load(dir, loaded[g.Rank()], checkpoint.LoadOptions{Group: g}); err != nil {
				t.Error(err)
			}
		})
		for rank := range loaded {
			for name, w := range want[rank] {
				if got := loaded[rank][name].(distributed.Shard).Local; !gotorch.Equal(got, w) {
					t.Fatalf("round %d, rank %d, %s: %v, and want %v", round, rank, name, got, w)
				}
			}
		}
	}
}

func model(seed uint64) (*nn.SequentialModule, []nn.Modular) {
	gotorch.ManualSeed(seed)
	first, last := nn.Linear(5, 7), nn.Linear(7, 2)
	return nn.Sequential(first, nn.BatchNorm1d(7), nn.ReLU(), last), []nn.Modular{first, last}
}

// A job goes on with other numbers of ranks, and without any sharding.
func TestAShardedModelGoesOnWithOtherRanks(t *testing.T) {
	before := gotorch.NumThreads()
	gotorch.SetNumThreads(1)
	defer gotorch.SetNumThreads(before)
	dir := t.TempDir()
	whole := make([]nn.StateDict, 3)
	optims := make([]gotorch.Dict, 3)
	train := func(t *testing.T, g *distributed.Group, from, to string, seed uint64) (nn.StateDict, gotorch.Dict) {
		net, units := model(seed)
		m := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: units})
		opt := optim.AdamW(m.Parameters(), optim.AdamWOptions{LR: float64(seed) / 10})
		epoch := 0
		if from != "" {
			state := checkpoint.State{"model": m, "optim": checkpoint.Optimizer(m, opt), "epoch": &epoch}
			if err := checkpoint.Load(from, state, checkpoint.LoadOptions{Group: g}); err != nil {
				t.Error(err)
			}
			if epoch != 5 || *opt.LRs()[0] != 0.1 {
				t.Errorf("epoch %d, learning rate %v", epoch, *opt.LRs()[0])
			}
		} else {
			for range 2 {
				m.Forward(gotorch.Ones([]int64{4, 5}).MulScalar(g.Rank() + 1)).Pow(2).Mean().Backward()
				opt.Step()
				opt.ZeroGrad()
			}
		}
		if to != "" {
			state := checkpoint.State{"model": m, "optim": checkpoint.Optimizer(m, opt), "epoch": 5}
			if err := checkpoint.Save(to, state, checkpoint.SaveOptions{Group: g}); err != nil {
				t.Error(err)
			}
		}
		return m.FullStateDict(), m.FullOptimStateDict(opt)
	}
	gotorch.ManualSeed(1) // of all ranks' goroutines, which draw in any order: rank 0's weights are copied
	for i, ranks := range []int{2, 3, 1} {
		rankstest.Run(t, ranks, distributed.Options{}, func(g *distributed.Group) {
			from, to := "", filepath.Join(dir, fmt.Sprint(i))
			if i > 0 {
				from = filepath.Join(dir, fmt.Sprint(i-1))
			}
			state, of := train(t, g, from, to, uint64(i+1))
			if g.Rank() == 0 { // whose buffers are saved
				whole[i], optims[i] = state, of
			}
		})
	}
	for i := range whole[1:] {
		for name, want := range whole[0] {
			gotorchtest.AssertEqual(t, whole[i+1][name], want)
		}
		a, b := optims[0].Get("state").(gotorch.Dict), optims[i+1].Get("state").(gotorch.Dict)
		if len(a) != len(b) || len(a) == 0 {
			t.Fatalf("%d and %d states", len(a), len(b))
		}
		for j := range a {
			for k, item := range a[j].Value.(gotorch.Dict) {
				gotorchtest.AssertEqual(t, b[j].Value.(gotorch.Dict)[k].Value.(gotorch.Tensor), item.Value.(gotorch.Tensor))
			}
		}
	}
	// And into a model that nobody shares.
	net, _ := model(9)
	opt := optim.AdamW(net.Parameters())
	testhelp.Must(t, checkpoint.Load(filepath.Join(dir, "1"), checkpoint.State{"model": net, "optim": checkpoint.Optimizer(net, opt)}))
	for name, want := range whole[0] {
		gotorchtest.AssertEqual(t, net.StateDict()[name], want)
	}
	gotorchtest.AssertEqual(t, opt.StateDict().Get("state").(gotorch.Dict)[0].Value.(gotorch.Dict).Get("exp_avg").(gotorch.Tensor),
		optims[0].Get("state").(gotorch.Dict)[0].Value.(gotorch.Dict).Get("exp_avg").(gotorch.Tensor))
}

func TestWhatDoesNotFitChangesNothing(t *testing.T) {
	dir := t.TempDir()
	net := nn.Linear(3, 2)
	opt := optim.Adam(net.Parameters())
	net.Forward(gotorch.Ones([]int64{1, 3})).Sum().Backward()
	opt.Step()
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"a": gotorch.Ones([]int64{2}), "model": net, "optim": checkpoint.Optimizer(net, opt), "n": 300}))
	a := gotorch.Zeros([]int64{2})
	other := nn.Linear(2, 3)
	var small int8
	for name, c := range map[string]struct {
		state checkpoint.State
		kind  error
		says  string
	}{
		"no such name":          {checkpoint.State{"a": a, "b": &small}, gotorch.KeyError, `there is no "b" in`},
		"another shape":         {checkpoint.State{"a": gotorch.Zeros([]int64{3})}, gotorch.ValueError, "of shape [2]"},
		"another dtype":         {checkpoint.State{"a": gotorch.Zeros([]int64{2}, gotorch.TensorOptions{DType: gotorch.Int64})}, gotorch.ValueError, "should be of torch.int64"},
		"another module":        {checkpoint.State{"a": a, "model": other}, gotorch.ValueError, `"model.bias" is of shape [2]`},
		"too large":             {checkpoint.State{"a": a, "n": &small}, gotorch.ValueError, `"n"`},
		"a tensor for a number": {checkpoint.State{"a": a, "n": gotorch.Zeros([]int64{})}, gotorch.ValueError, `"n" is no tensor`},
		"no pointer":            {checkpoint.State{"n": 3}, gotorch.TypeError, "it must be a tensor, a module, an optimiser or a pointer"},
		"nil":                   {checkpoint.State{"n": nil}, gotorch.TypeError, `"n"`},
		"no optimiser":          {checkpoint.State{"a": a, "model": checkpoint.Optimizer(net, opt)}, gotorch.KeyError, `"weight" is in no group`},
		"a box outside":         {checkpoint.State{"a": distributed.Shard{Local: a, Shape: []int64{2}, Offsets: []int64{1}}}, gotorch.ValueError, "is no part of a tensor of [2]"},
		"other parameters":      {checkpoint.State{"a": a, "optim": checkpoint.Optimizer(nn.Sequential(net), opt)}, gotorch.KeyError, `"0.weight" is in no group`},
	} {
		err := checkpoint.Load(dir, c.state)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if a.Sum().Item() != 0.0 {
			t.Fatalf("%s: half is loaded", name)
		}
	}
	if err := checkpoint.Load(filepath.Join(dir, "none"), checkpoint.State{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := checkpoint.Save(dir, checkpoint.State{"a": make(chan int)}); !errors.Is(err, gotorch.TypeError) {
		t.Error(err)
	}
	if err := checkpoint.Save(dir, checkpoint.State{"a.b": 1, "a": checkpoint.State{"b": 2}}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if err := checkpoint.Save(dir, checkpoint.State{"a": 1}, checkpoint.SaveOptions{NoOverwrite: true}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	half := distributed.Shard{Local: a, Shape: []int64{4}, Offsets: []int64{0}}
	if err := checkpoint.Save(dir, checkpoint.State{"a": half}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	// After all these the checkpoint is what it was, and nothing is beside it.
	testhelp.Must(t, checkpoint.Load(dir, checkpoint.State{"a": a}))
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if len(entries) != 2 || a.Sum().Item() != 2.0 {
		t.Errorf("%v, %v", entries, a)
	}
}

// A new checkpoint takes the place of an older one when it is complete, and leaves nothing of it.
func TestAnOlderCheckpointIsReplaced(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			part := distributed.Shard{Local: gotorch.Full([]int64{2}, round), Shape: []int64{4}, Offsets: []int64{int64(2 * g.Rank())}}
			if err := checkpoint.Save(dir, checkpoint.State{"x": part}, checkpoint.SaveOptions{Group: g}); err != nil {
				t.Error(err)
			}
		})
		read, err := checkpoint.Read(dir)
		testhelp.Must(t, err)
		gotorchtest.AssertEqual(t, read.Get("x").(gotorch.Tensor), gotorch.Full([]int64{4}, round))
		entries, err := os.ReadDir(dir)
		testhelp.Must(t, err)
		if len(entries) != 3 {
			t.Errorf("%v", entries)
		}
	}
}

// Where one rank fails all do, and none waits.
func TestAllRanksFailWhereOneDoes(t *testing.T) {
	dir := t.TempDir()
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		part := distributed.Shard{Local: gotorch.Ones([]int64{1}), Shape: []int64{3}, Offsets: []int64{int64(g.Rank())}}
		state := checkpoint.State{"x": part}
		if g.Rank() == 1 {
			part.Shape = []int64{4}
			state["x"] = part
		}
		if err := checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g}); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "on rank 1") {
			t.Errorf("rank %d: %v", g.Rank(), err)
		}
		part.Shape = []int64{3}
		if err := checkpoint.Save(dir, checkpoint.State{"x": part}, checkpoint.SaveOptions{Group: g}); err != nil {
			t.Error(err)
		}
		to := gotorch.Zeros([]int64{3})
		if g.Rank() == 2 {
			to = gotorch.Zeros([]int64{2})
		}
		err := checkpoint.Load(dir, checkpoint.State{"x": to}, checkpoint.LoadOptions{Group: g})
		if err == nil || to.Sum().Item() != 0.0 || (g.Rank() != 2 && !strings.Contains(err.Error(), "rank 2 failed")) {
			t.Errorf("rank %d: %v, %v", g.Rank(), err, to)
		}
	})
}

// Ranks that have the same part are copies of each other: it is saved once.
func TestCopiesAreSavedOnce(t *testing.T) {
	dir := t.TempDir()
	rankstest.Run(t, 4, distributed.Options{}, func(g *distributed.Group) {
		at := int64(g.Rank() % 2)
		part := distributed.Shard{Local: gotorch.Full([]int64{1, 4096}, at), Shape: []int64{2, 4096}, Offsets: []int64{at, 0}}
		if err := checkpoint.Save(dir, checkpoint.State{"x": part}, checkpoint.SaveOptions{Group: g}); err != nil {
			t.Error(err)
		}
	})
	sizes := map[string]int64{}
	for rank := range 4 {
		info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("__%d_0.distcp", rank)))
		if err == nil {
			sizes[fmt.Sprint(rank)] = info.Size()
		}
	}
	if sizes["0"] < 4*4096 || sizes["2"] > 4096 {
		t.Errorf("%v", sizes)
	}
}

// What is hostile or damaged is a typed error: no crash, no file outside, nothing changed, no handle left.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, checkpoint.Save(dir, checkpoint.State{"x": gotorch.Arange(100), "s": gotorch.Dict{{Key: "k", Value: "v"}}}))
	names := []string{".metadata", "__0_0.distcp"}
	good := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		testhelp.Must(t, err)
		good[name] = b
	}
	r := rand.New(rand.NewSource(3))
	before := gotorch.MemoryStats().LiveHandles
	failed := 0
	for range testhelp.Rounds(2000) {
		name := names[r.Intn(2)]
		b := slices.Clone(good[name])
		switch r.Intn(3) {
		case 0:
			b = b[:r.Intn(len(b))]
		case 1:
			for range 1 + r.Intn(3) {
				b[r.Intn(len(b))] = byte(r.Intn(256))
			}
		case 2:
			at := r.Intn(len(b))
			b = append(b[:at:at], b[min(len(b), at+1+r.Intn(8)):]...)
		}
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		x, s := gotorch.Full([]int64{100}, -1, gotorch.TensorOptions{DType: gotorch.Int64}), ""
		err := checkpoint.Load(dir, checkpoint.State{"x": x, "s": checkpoint.State{"k": &s}})
		if err != nil {
			failed++
			if x.Sum().Item() != int64(-100) || s != "" {
				t.Fatalf("half is loaded: %v", err)
			}
		}
		x.Close()
		if dict, err := checkpoint.Read(dir); err == nil {
			for _, pair := range dict {
				if v, is := pair.Value.(gotorch.Tensor); is {
					v.Close()
				}
			}
		}
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, name), good[name], 0o600))
	}
	if failed == 0 {
		t.Error("no damage was noticed")
	}
	left := int64(0)
	for range 100 { // what failed half-way the collector takes
		runtime.GC()
		if left = gotorch.MemoryStats().LiveHandles - before; left <= 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d tensors are left", left)
}

// Where this is set, the test saves into the folder that it names, for ever.
const saving = "GOTORCH_TEST_SAVER"

// A job that is killed leaves the last checkpoint that was complete, and the next one removes what else it left.
func TestKilledAtAnyMoment(t *testing.T) {
	save := func(dir string, first int) {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			for round := first; ; round++ {
				state := checkpoint.State{"round": round}
				for i := range 8 {
					at := int64(i+g.Rank()) % 2
					state[fmt.Sprint(i)] = distributed.Shard{Local: gotorch.Full([]int64{1, 5000}, round), Shape: []int64{2, 5000}, Offsets: []int64{at, 0}}
				}
				if err := checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g}); err != nil {
					t.Error(err)
				}
				if os.Getenv(saving) == "" {
					return
				}
				if g.Rank() == 0 {
					fmt.Println("saved")
				}
			}
		})
	}
	if dir := os.Getenv(saving); dir != "" {
		save(dir, 0)
	}
	dir := t.TempDir()
	amid := 0
	for range testhelp.Rounds(20) {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledAtAnyMoment$")
		child.Env = append(os.Environ(), saving+"="+dir)
		output, err := child.StdoutPipe()
		testhelp.Must(t, err)
		testhelp.Must(t, child.Start())
		lines := bufio.NewReader(output)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, lines)
		time.Sleep(time.Duration(rand.Intn(30_000)) * time.Microsecond)
		testhelp.Must(t, child.Process.Kill())
		_ = child.Wait()
		read, err := checkpoint.Read(dir)
		testhelp.Must(t, err)
		round := read.Get("round").(int64)
		for i := range 8 {
			gotorchtest.AssertEqual(t, read.Get(fmt.Sprint(i)).(gotorch.Tensor), gotorch.Full([]int64{2, 5000}, round))
		}
		entries, err := os.ReadDir(dir)
		testhelp.Must(t, err)
		if len(entries) > 3 {
			amid++
		}
	}
	t.Log("killed in the middle:", amid)
	save(dir, 9)
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if len(entries) != 3 {
		t.Error("left behind:", entries)
	}
}

// What a folder says is held to be a checkpoint before anything of it is believed.
func FuzzMetadata(f *testing.F) {
	dir := f.TempDir()
	testhelp.Must(f, checkpoint.Save(dir, checkpoint.State{"x": gotorch.Arange(4), "s": "v"}))
	good, err := os.ReadFile(filepath.Join(dir, ".metadata"))
	testhelp.Must(f, err)
	f.Add(good)
	python, err := os.ReadFile("testdata/python.metadata") // of two ranks with fully_shard, and AdamW
	testhelp.Must(f, err)
	f.Add(python)
	f.Fuzz(func(t *testing.T, data []byte) {
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, ".metadata"), data, 0o600))
		x := gotorch.Zeros([]int64{4}, gotorch.TensorOptions{DType: gotorch.Int64})
		defer x.Close()
		if err := checkpoint.Load(dir, checkpoint.State{"x": x}); err == nil && x.Sum().Item() != int64(6) {
			t.Errorf("%v", x)
		}
	})
}
