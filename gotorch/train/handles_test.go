package train_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// What the packages on top of gotorch make goes with the Go values: each use here is repeated, and then as
// many tensors are alive as before.
func TestEveryUseGivesItsTensorsBack(t *testing.T) {
	dir := t.TempDir()
	randn := func(shape ...int64) gotorch.Tensor { return gotorch.Randn(shape) }
	net := func() *nn.SequentialModule {
		return nn.Sequential(nn.Conv2d(1, 2, 3, nn.Conv2dOptions{PaddingMode: F.PadReflect, Padding: []int64{1}}), nn.BatchNorm2d(2), nn.ReLU(),
			nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 2))
	}
	learn := func(m *nn.SequentialModule, opt optim.Optimizer) {
		F.CrossEntropy(m.Forward(randn(3, 1, 4, 4)), gotorch.FromSlice([]int64{0, 1, 1})).Backward()
		opt.Step()
	}
	optimisers := map[string]func(p []gotorch.Tensor) optim.Optimizer{
		"SGD":   func(p []gotorch.Tensor) optim.Optimizer { return optim.SGD(p, optim.SGDOptions{Momentum: 0.9}) },
		"Adam":  func(p []gotorch.Tensor) optim.Optimizer { return optim.Adam(p, optim.AdamOptions{AMSGrad: true}) },
		"AdamW": func(p []gotorch.Tensor) optim.Optimizer { return optim.AdamW(p, optim.AdamWOptions{Fused: true}) },
	}
	uses := map[string]func(){
		"state": func() {
			m := net()
			dict := m.StateDict()
			testhelp.Must(t, net().LoadStateDict(dict))
			dict["6.bias"] = randn(7)
			if m.LoadStateDict(dict) == nil {
				t.Error("a wrong shape was loaded")
			}
		},
		"To": func() {
			m := net()
			learn(m, optim.SGD(m.Parameters()))
			m.To(gotorch.Float64)
			m.To(gotorch.Meta)
		},
		"files": func() {
			for _, name := range []string{"a.pt", "a.safetensors"} {
				path := filepath.Join(dir, name)
				testhelp.Must(t, nn.Save(net(), path))
				testhelp.Must(t, nn.Load(net(), path))
				if nn.Load(nn.Linear(1, 1), path) == nil {
					t.Error("another model was loaded")
				}
			}
		},
		"init": func() {
			w := randn(4, 4)
			nninit.TruncNormal_(w)
			nninit.TruncNormal_(w, nninit.TruncNormalOptions{A: 3, B: 4})
			nninit.Orthogonal_(w)
			nninit.Sparse_(w, 0.5)
			nninit.Eye_(w)
			nninit.XavierNormal_(w)
			nninit.KaimingUniform_(w, nninit.KaimingOptions{Generator: gotorch.NewGenerator(gotorch.CPU)})
			nninit.Dirac_(randn(2, 2, 3))
		},
		"losses": func() {
			x := randn(3, 2).RequiresGrad_()
			F.MSELoss(x, randn(3, 2), F.MSELossOptions{Weight: gotorch.Ones([]int64{3, 2})}).Backward()
			F.NLLLoss(F.LogSoftmax(x, 1), gotorch.FromSlice([]int64{0, 1, 1})).Backward()
			_ = gotorch.Try0(func() { F.CrossEntropy(x, gotorch.FromSlice([]int64{0, 1, 5})) })
		},
		"scaler": func() {
			p := gotorch.Ones([]int64{1}).RequiresGrad_()
			opt, scaler := optim.SGD([]gotorch.Tensor{p}), optim.NewGradScaler()
			scaler.Scale(p.Sum()).Backward()
			scaler.Unscale(opt)
			scaler.Step(opt)
			scaler.Update()
			testhelp.Must(t, optim.NewGradScaler().LoadStateDict(scaler.StateDict()))
		},
		"hooks": func() {
			x := randn(2).RequiresGrad_()
			defer x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.MulScalar(2) }).Remove()
			x.RegisterPostAccumulateGradHook(func(leaf gotorch.Tensor) { leaf.Grad() })
			x.Sum().Backward()
			gotorch.Grad([]gotorch.Tensor{x.Pow(2).Sum()}, []gotorch.Tensor{x}, gotorch.GradOptions{CreateGraph: true})
		},
		"modes": func() {
			x := randn(2, 2).RequiresGrad_()
			gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, func() { gotorch.MM(x, x).Sum().Backward() })
			gotorch.DetectAnomaly(func() { x.Log().Sum() }, gotorch.AnomalyOptions{IgnoreNaN: true})
			gotorch.InferenceMode(func() { x.Add(x) })
		},
		"encoding": func() {
			var b bytes.Buffer
			testhelp.Must(t, gotorch.Encode(&b, "value", []any{randn(2), gotorch.Dict{{Key: "a", Value: randn(3)}}}))
			_, err := gotorch.Decode(bytes.NewReader(b.Bytes()), int64(b.Len()))
			testhelp.Must(t, err)
			if _, err := gotorch.Decode(bytes.NewReader(b.Bytes()), int64(b.Len()-100)); err == nil {
				t.Error("a part of a file was decoded")
			}
		},
		"data": func() {
			set := data.Subset(data.NewTensorDataset(randn(9, 2), randn(9)), []int{1, 3, 5, 7})
			_, err := set.At(2)
			testhelp.Must(t, err)
			for range data.NewLoader(set, data.LoaderOptions{BatchSize: 3, Shuffle: true, Seed: 1, Workers: 2}).All() {
				break
			}
			next, stop := data.NewLoader(set).Pull()
			_, err, _ = next()
			testhelp.Must(t, err)
			stop()
		},
		"training": func() {
			loop, _, _ := newLoop(0.1)
			loop.OnEpoch(train.Validate(points(4), train.Accuracy))
			loop.OnBackward(func(s *train.Step) error {
				if s.Number == 3 {
					return errors.New("enough")
				}
				return nil
			})
			if _, err := loop.Run(t.Context(), loader(20), train.Epochs(2)); err == nil {
				t.Error("no error")
			}
		},
	}
	for name, make := range optimisers {
		uses[name] = func() {
			m := net()
			opt := make(m.Parameters())
			learn(m, opt)
			path := filepath.Join(dir, "checkpoint.pt")
			testhelp.Must(t, train.SaveCheckpoint(path, m, opt))
			testhelp.Must(t, train.LoadCheckpoint(path, m, opt))
			if train.LoadCheckpoint(path, nn.Linear(8, 2), opt) == nil {
				t.Error("another model was loaded")
			}
			m.ZeroGrad()
		}
	}
	live := func() int64 {
		finalize.Dead()
		return gotorch.MemoryStats().LiveHandles
	}
	left := func(use func()) int64 {
		use()
		before := live()
		for now := live(); now < before; now = live() {
			before = now
		}
		for range 3 {
			use()
		}
		now := live()
		for range 100 {
			if now <= before {
				break
			}
			now = live()
		}
		return now - before
	}
	if left(func() {
		for _, use := range uses {
			use()
		}
	}) <= 0 {
		return
	}
	for name, use := range uses {
		t.Errorf("%s: %d tensors are left of three times", name, left(use))
	}
}
