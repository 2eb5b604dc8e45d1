package nn_test

import (
	"errors"
	"fmt"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// Names are those of Python's Sequential(OrderedDict(...)), and a module that is no layer is called by a function.
func ExampleNamedSequential() {
	net := nn.NamedSequential().
		Set("embed", nn.Embedding(100, 16)).
		SetFunc("lstm", nn.LSTM(16, 32), func(m nn.Modular, x gotorch.Tensor) gotorch.Tensor {
			y, _, _ := m.(*nn.LSTMModule).Forward(x)
			return y
		}).
		Set("head", nn.Linear(32, 2))
	fmt.Println(net)
	fmt.Println(net.Forward(gotorch.Zeros([]int64{5, 1}, gotorch.TensorOptions{DType: gotorch.Int64})).Shape())
	// Output:
	// Sequential(
	//   (embed): Embedding(100, 16)
	//   (lstm): LSTM(16, 32)
	//   (head): Linear(in_features=32, out_features=2, bias=True)
	// )
	// [5 1 2]
}

func TestANamedSequentialIsAModule(t *testing.T) {
	lstm := func(m nn.Modular, x gotorch.Tensor) gotorch.Tensor {
		y, _, _ := m.(*nn.LSTMModule).Forward(x)
		return y
	}
	net := nn.NamedSequential().Set("0", nn.Linear(3, 4)).SetFunc("1", nn.LSTM(4, 5), lstm).Set("2", nn.ReLU()).Set("last", nn.Linear(5, 2))
	want := []string{"0.weight", "0.bias", "1.weight_ih_l0", "1.weight_hh_l0", "1.bias_ih_l0", "1.bias_hh_l0", "last.weight", "last.bias"}
	expect(t, "parameters", names(net), want)
	x := gotorch.Randn([]int64{6, 1, 3})
	y := net.Forward(x)
	calls := 0
	handle := net.Get("1").(*nn.LSTMModule).RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor {
		calls++
		return nil
	})
	// A clone calls its own modules, and has functions of its own.
	clone := nn.Clone(net)
	if !gotorch.Equal(clone.Forward(x), y) {
		t.Error("the clone computes something else")
	}
	gotorch.NoGrad(func() {
		for _, p := range clone.Get("1").(*nn.LSTMModule).Parameters() {
			p.Zero_()
		}
	})
	clone.Set("2", nn.Tanh())
	if !gotorch.Equal(net.Forward(x), y) || gotorch.Equal(clone.Forward(x), y) {
		t.Error("the clone and its original share a module")
	}
	if calls != 3 { // hooks are cloned, too
		t.Errorf("the hook of the LSTM is called %d times", calls)
	}
	handle.Remove()
	net.Set("1", nn.Linear(4, 5)) // in place of the LSTM and its function
	if got := net.Forward(x).Shape(); fmt.Sprint(got) != "[6 1 2]" {
		t.Error(got)
	}
	net.Delete("last")
	if got := net.Forward(x).Shape(); fmt.Sprint(got) != "[6 1 5]" {
		t.Error(got)
	}
	net.ModuleDictModule.Set("x", nn.LSTM(5, 5))
	for kind, bad := range map[gotorch.ErrorKind][]func(){
		gotorch.TypeError: {
			func() { net.Forward(x) }, func() { net.Set("y", nil) }, func() { net.SetFunc("y", nn.ReLU(), nil) }, func() { net.SetFunc("y", nil, lstm) },
			func() { nn.Init[*nn.LinearModule](nil) }, func() { nn.Init[nn.Modular](nil) },
		},
		gotorch.ValueError: {
			func() { net.Set("a.b", nn.ReLU()) }, func() { net.To(gotorch.Float64, gotorch.Float32) },
			func() { net.To(gotorch.ToOptions{DType: gotorch.Float64}, gotorch.Float16) },
		},
		gotorch.KeyError: {func() { net.Delete("unknown") }, func() { nn.ModuleDict().Delete("x") }, func() { nn.ParameterDict().Delete("x") }},
	} {
		for i, call := range bad {
			if err := gotorch.Try0(call); !errors.Is(err, kind) {
				t.Errorf("%v %d: got %v", kind, i, err)
			}
		}
	}
}
