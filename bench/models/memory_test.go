package models

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// slack is how many handles may be alive at one time and not at another, for no reason: those of small tensors
// are freed together with their neighbours.
const slack = 32

// `make soak` trains for 10,000 steps, and looks at the process's memory too: SOAK=1 go test ./bench/models.
func TestMemoryDoesNotGrowWhileModelsTrain(t *testing.T) {
	steps, soak := 100, os.Getenv("SOAK") != ""
	if soak {
		steps = 10_000
	}
	for _, name := range []string{"transformer_1_foreach", "lstm_1_foreach", "encoder_1_foreach"} {
		g := Train(Step(name), steps, residentMB)
		t.Logf("%s, %d steps: %d handles and %.0f MB more than after a tenth of them, at most %.0f MB", name, steps, g.Handles, g.Resident, g.Peak)
		if g.Handles > slack {
			t.Errorf("%s: %d handles more are alive", name, g.Handles)
		}
		if soak && (g.Resident > 20 || g.Peak > 150) {
			t.Errorf("%s: the process has grown by %.0f MB, at most %.0f MB", name, g.Resident, g.Peak)
		}
	}
}

func TestAStepThatKeepsATensorIsFound(t *testing.T) {
	step := Step("mlp_1_sgd")
	var kept []gotorch.Tensor
	g := Train(func() gotorch.Tensor {
		loss := step()
		kept = append(kept, loss.Detach())
		return loss
	}, 100, residentMB)
	runtime.KeepAlive(kept)
	if g.Handles <= slack {
		t.Errorf("90 tensors were kept, and %d handles found", g.Handles)
	}
}

func TestModulesAllocateNoMoreThanTheirFunctions(t *testing.T) {
	x := gotorch.Randn([]int64{2, 2})
	linear, relu := nn.Linear(2, 2), nn.ReLU()
	count := func(fn func() gotorch.Tensor) float64 {
		return testing.AllocsPerRun(100, func() { fn().Close() })
	}
	for name, both := range map[string][2]func() gotorch.Tensor{
		"Linear": {
			func() gotorch.Tensor { return linear.Forward(x) },
			func() gotorch.Tensor {
				return gotorch.Linear(x, linear.Weight, gotorch.LinearOptions{Bias: linear.Bias})
			},
		},
		"ReLU": {func() gotorch.Tensor { return relu.Forward(x) }, func() gotorch.Tensor { return F.ReLU(x) }},
	} {
		gotorch.NoGrad(func() {
			if module, function := count(both[0]), count(both[1]); module > function {
				t.Errorf("%s allocates %v times, its function %v times", name, module, function)
			}
		})
	}
}

func residentMB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0 // not Linux
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		panic(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
