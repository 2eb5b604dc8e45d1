package main

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gotorch.dev/gotorch"
)

func TestItLearnsToBalance(t *testing.T) {
	o := options{out: t.TempDir(), seed: 1, rounds: 20, carts: 16}
	r, err := o.run(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// It begins with about 25, and with each of eight seeds came to 500.
	if r.Lengths[0] > 60 || r.Best < 400 {
		t.Errorf("%.1f pushes at first, %.1f at the end", r.Lengths[0], r.Best)
	}
	if _, err := os.Stat(filepath.Join(o.out, "pushes.png")); err != nil {
		t.Error(err)
	}
	if _, err := (options{rounds: 1}).run(io.Discard); err == nil {
		t.Error("it ran without a cart")
	}
}

// The numbers are those of CartPole-v1 in gymnasium 1.4.0, whose state was set to that of the first line's.
func TestTheCartMovesAsThatOfGymnasium(t *testing.T) {
	c := cart{0.03, -0.02, 0.04, 0.01}
	for i, want := range []cart{
		{0.029599999999999998, 0.1745261466416398, 0.0402, -0.2697989554581428},
		{0.033090522932832794, -0.021145731285509284, 0.034804020890837145, 0.03528735016463186},
		{0.032667608307122606, 0.173460283012797, 0.03550976789412978, -0.24621457504394617},
		{0.03613681396737855, 0.368057553092222, 0.03058547639325086, -0.5274887894768286},
		{0.04349796502922299, 0.1725189165403019, 0.020035700603714287, -0.22532728640591154},
		{0.04694834336002903, 0.3673488738169134, 0.015529154875596056, -0.5116234645607594},
		{0.054295320836367296, 0.5622486767990069, 0.005296685584380869, -0.7993725309626334},
		{0.06554029437234743, 0.367054467465325, -0.010690765034871798, -0.5050281057843089},
		{0.07288138372165393, 0.5623254350964396, -0.020791327150557974, -0.801060843940174},
		{0.08412789242358272, 0.7577262833581926, -0.03681254402936145, -1.1002109776071307},
		{0.09928241809074657, 0.563107626779246, -0.05881676358150407, -0.8193012191081575},
		{0.1105445706263315, 0.7589831321967977, -0.07520278796366722, -1.1298885733373312},
		{0.12572423327026744, 0.9550049982985321, -0.09780055943041385, -1.4451791045440963},
		{0.14482433323623808, 0.7612129604858764, -0.12670414152129578, -1.184587697329178},
		{0.16004859244595562, 0.9577300401031998, -0.15039589546787935, -1.514151752245606},
		{0.17920319324801962, 1.1543184649176896, -0.18067893051279146, -1.8497556004537783},
		{0.2022895625463734, 0.961587211894761, -0.21767404252186703, -1.6181957269246872},
	} {
		failed := c.step(i%3 != 1)
		for k, pair := range [][2]float64{{c.X, want.X}, {c.Speed, want.Speed}, {c.Lean, want.Lean}, {c.Spin, want.Spin}} {
			if math.Abs(pair[0]-pair[1]) > 1e-12*max(1, math.Abs(pair[1])) {
				t.Fatalf("push %d: number %d is %v, not %v", i+1, k, pair[0], pair[1])
			}
		}
		if want := i == 16; failed != want {
			t.Errorf("push %d: failed is %v", i+1, failed)
		}
	}
}

func TestAnAttemptIsWorthWhatComesAfterIt(t *testing.T) {
	m := newActorCritic()
	got := m.worth(attempt{pushes: make([]int64, 3)}) // it failed at the third push
	for i, want := range []float64{0.01 + 0.99*0.01, 0.01, 0} {
		if math.Abs(float64(got[i])-want) > 1e-7 {
			t.Errorf("push %d is worth %v, not %v", i+1, got[i], want)
		}
	}
	// One that the limit ended goes on as the critic says.
	a := attempt{pushes: make([]int64, 1), left: true, last: newCart(rand.New(rand.NewPCG(1, 1)))}
	critic := gotorch.Item[float64](m.Critic.Forward(gotorch.FromSlice(numbers(a.last), 1, 4)))
	if got, want := float64(m.worth(a)[0]), 0.01+0.99*critic; math.Abs(got-want) > 1e-6 {
		t.Errorf("it is worth %v, not %v", got, want)
	}
}
