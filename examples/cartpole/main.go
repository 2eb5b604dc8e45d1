// Cartpole learns to balance a pole on a cart by trying, with policy gradients.
//
//	go run ./examples/cartpole
//
// A cart on rails carries a pole on a hinge. Fifty times a second it is pushed to the left or to the right. It has failed
// when the pole leans by 12 degrees or the cart leaves the middle by 2.4 m, and it does well when neither happens for 500
// pushes. Nobody says which push was the right one; the model finds out from how long its attempts last.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train/plot"
)

type options struct {
	out           string
	seed          uint64
	rounds, carts int
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "build/cartpole", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.rounds, "rounds", 60, "how often the model is changed")
	flag.IntVar(&o.carts, "carts", 16, "attempts in a round, at the same time")
	flag.Parse()
	if _, err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cartpole:", err)
		os.Exit(1)
	}
}

// The cart -----------------------------------------------------------------------------------------

// cart is where a cart is, and how it moves.
type cart struct {
	X, Speed float64 // metres from the middle, metres in a second
	Lean     float64 // of the pole to the right, in radians
	Spin     float64 // how fast that grows, in radians in a second
}

// newCart is one near the middle with a pole that is nearly upright.
func newCart(rng *rand.Rand) cart {
	near := func() float64 { return 0.1*rng.Float64() - 0.05 }
	return cart{near(), near(), near(), near()}
}

// step pushes the cart for a fiftieth of a second, and reports whether it has failed then. The equations of motion are
// those of Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems"
// (1983), without friction.
func (c *cart) step(right bool) (failed bool) {
	const (
		gravity = 9.8
		force   = 10.0
		pole    = 0.1 // kg
		total   = 1.1 // kg, of cart and pole
		half    = 0.5 // half of the pole's length, m
		tick    = 0.02
	)
	push := -force
	if right {
		push = force
	}
	sin, cos := math.Sincos(c.Lean)
	pull := (push + pole*half*c.Spin*c.Spin*sin) / total
	twist := (gravity*sin - cos*pull) / (half * (4.0/3 - pole*cos*cos/total))
	haste := pull - pole*half*twist*cos/total
	c.X += tick * c.Speed
	c.Speed += tick * haste
	c.Lean += tick * c.Spin
	c.Spin += tick * twist
	return math.Abs(c.X) > 2.4 || math.Abs(c.Lean) > 12*math.Pi/180
}

// longest is how many pushes an attempt has at most.
const longest = 500

// Trying -------------------------------------------------------------------------------------------

// actorCritic is two networks that see (N, 4): where carts are and how they move.
type actorCritic struct {
	nn.Module
	Actor  *nn.SequentialModule // scores of left and right: (N, 2)
	Critic *nn.SequentialModule // how much longer it will go on, as a part of what is possible: (N, 1)
}

func newActorCritic() *actorCritic {
	network := func(outputs int64) *nn.SequentialModule {
		return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, outputs))
	}
	return nn.Init(&actorCritic{Actor: network(2), Critic: network(1)})
}

// discount is by how much a reward in the next step counts less than one now.
const discount = 0.99

// attempt is what one cart has gone through.
type attempt struct {
	states []float32 // four of each push
	pushes []int64   // 0 to the left, 1 to the right
	left   bool      // it ended only because of the limit
	last   cart
}

func numbers(c cart) []float32 {
	return []float32{float32(c.X), float32(c.Speed), 5 * float32(c.Lean), float32(c.Spin)} // about equally large
}

// try lets n carts run until each has failed or come to the end. best takes the likelier push rather than drawing one.
func (m *actorCritic) try(n int, rng *rand.Rand, best bool) []attempt {
	attempts := make([]attempt, n)
	carts := make([]cart, n)
	running := make([]int, n)
	for i := range carts {
		carts[i], running[i] = newCart(rng), i
	}
	for push := 1; len(running) > 0; push++ {
		var states []float32
		for _, i := range running {
			states = append(states, numbers(carts[i])...)
		}
		pushes := m.choose(states, best)
		still := running[:0]
		for k, i := range running {
			a := &attempts[i]
			a.states, a.pushes = append(a.states, states[4*k:4*k+4]...), append(a.pushes, pushes[k])
			failed := carts[i].step(pushes[k] == 1)
			a.last, a.left = carts[i], !failed
			if !failed && push < longest {
				still = append(still, i)
			}
		}
		running = still
	}
	return attempts
}

// choose returns a push for each state.
func (m *actorCritic) choose(states []float32, best bool) (pushes []int64) {
	gotorch.InferenceMode(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			scores := m.Actor.Forward(gotorch.FromSlice(states, int64(len(states)/4), 4))
			if best {
				pushes = gotorch.ToSlice[int64](scores.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))}))
			} else {
				pushes = gotorch.ToSlice[int64](distributions.Categorical(distributions.CategoricalOptions{Logits: scores}).Sample())
			}
		})
	})
	return pushes
}

// Learning -----------------------------------------------------------------------------------------

// learn changes the networks by what a round of attempts has shown.
func (m *actorCritic) learn(opt optim.Optimizer, attempts []attempt) {
	var states, worth []float32
	var pushes []int64
	for _, a := range attempts {
		states, pushes = append(states, a.states...), append(pushes, a.pushes...)
		worth = append(worth, m.worth(a)...)
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		s := gotorch.FromSlice(states, int64(len(pushes)), 4)
		w := gotorch.FromSlice(worth)
		expected := m.Critic.Forward(s).SqueezeDim(1)
		// What went better than the critic expected is to become likelier, what went worse less likely.
		advantage := w.Sub(expected.Detach())
		advantage = advantage.Sub(advantage.Mean()).Div(advantage.Std().AddScalar(1e-6))
		policy := distributions.Categorical(distributions.CategoricalOptions{Logits: m.Actor.Forward(s)})
		actor := policy.LogProb(gotorch.FromSlice(pushes)).Mul(advantage).Mean().Neg()
		critic := F.MSELoss(expected, w)
		curiosity := policy.Entropy().Mean().MulScalar(0.01) // who is never in doubt finds nothing new
		opt.ZeroGrad()
		actor.Add(critic).Sub(curiosity).Backward()
		utils.ClipGradNorm_(m.Parameters(), 1)
		opt.Step()
	})
}

// worth returns, for each push of an attempt, how long it went on afterwards, later pushes counting less and less, as a
// part of the most that this can be.
func (m *actorCritic) worth(a attempt) []float32 {
	later := 0.0
	if a.left { // the critic tells what would have come
		gotorch.InferenceMode(func() {
			later = gotorch.Item[float64](m.Critic.Forward(gotorch.FromSlice(numbers(a.last), 1, 4)))
		})
	}
	worth := make([]float32, len(a.pushes))
	for i := len(worth) - 1; i >= 0; i-- {
		reward := 1 - discount
		if i == len(worth)-1 && !a.left {
			reward = 0
		}
		later = reward + discount*later
		worth[i] = float32(later)
	}
	return worth
}

// --------------------------------------------------------------------------------------------------

// result is what a run has come to.
type result struct {
	Lengths []float64 // of the attempts of each round, in the mean
	Best    float64   // of 20 attempts with the likelier push each time, in the mean
}

func (o options) run(w io.Writer) (r result, err error) {
	if o.rounds < 1 || o.carts < 1 {
		return r, errors.New("there must be a round, and a cart")
	}
	gotorch.ManualSeed(o.seed)
	rng := rand.New(rand.NewPCG(o.seed, 0))
	model := newActorCritic()
	opt := optim.Adam(model.Parameters(), optim.AdamOptions{LR: 0.01})
	for round := range o.rounds {
		attempts := model.try(o.carts, rng, false)
		model.learn(opt, attempts)
		r.Lengths = append(r.Lengths, meanLength(attempts))
		if (round+1)%10 == 0 {
			fmt.Fprintf(w, "round %3d  %5.1f pushes\n", round+1, r.Lengths[round])
		}
	}
	r.Best = meanLength(model.try(20, rng, true))
	fmt.Fprintf(w, "without chance: %.1f pushes of %d\n", r.Best, longest)

	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	curve := filepath.Join(o.out, "pushes.png")
	err = plot.Lines(curve, []plot.Series{
		{Name: "mean of a round", Y: r.Lengths},
		{Name: "at most", X: []float64{1, float64(o.rounds)}, Y: []float64{longest, longest}, Dashed: true},
	}, plot.LinesOptions{XLabel: "round", YLabel: "pushes until it fails", FromZero: true})
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "saved %s\n", curve)
	return r, nil
}

func meanLength(attempts []attempt) float64 {
	sum := 0
	for _, a := range attempts {
		sum += len(a.pushes)
	}
	return float64(sum) / float64(len(attempts))
}
