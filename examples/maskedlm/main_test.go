package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func short(t *testing.T) options {
	return options{text: "../chargpt/opticks.txt", out: t.TempDir(), seed: 2, context: 32, width: 64, layers: 1, batch: 32, epochs: 1, stride: 16,
		fill: []string{"The R_ys of L_ght", "", "no gap", "é" + strings.Repeat("_", 40)}}
}

func TestItTellsMoreThanTheCommonestCharacter(t *testing.T) {
	o := short(t)
	var said bytes.Buffer
	r, err := o.run(t.Context(), &said)
	if err != nil {
		t.Fatal(err)
	}
	// The commonest is right in 15.4 %. Of eight seeds the worst came to 22.4 %.
	if r.accuracy < 0.2 || r.commonest > 0.16 {
		t.Errorf("it tells %.3f, and the commonest is %.3f", r.accuracy, r.commonest)
	}
	filled := strings.Split(said.String(), "The R_ys of L_ght\n")[1]
	if first, _, _ := strings.Cut(filled, "\n"); len(first) != 17 || strings.Contains(first, "_") || !strings.HasPrefix(first, "The R") {
		t.Errorf("it filled in %q", first)
	}
	if _, err := os.Stat(filepath.Join(o.out, "accuracy.png")); err != nil {
		t.Error(err)
	}
}

func TestCharactersAreHiddenAsBERTHidesThem(t *testing.T) {
	gotorch.ManualSeed(1)
	const n, characters = 200_000, 77
	x := gotorch.Randint(characters-1, []int64{n}).AddScalar(1)
	seen, asked := hide(x, characters, nil)
	part := func(where gotorch.Tensor) float64 { return gotorch.Item[float64](where.Sum()) / n }
	chosen := asked.GeScalar(0)
	hidden, same := seen.EqScalar(0), seen.Eq(x)
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"chosen", part(chosen), 0.15},
		{"chosen and hidden", part(chosen.LogicalAnd(hidden)), 0.15 * 0.8},
		{"chosen and left", part(chosen.LogicalAnd(same)), 0.15 * (0.1 + 0.1/(characters-1))},
		{"not chosen and changed", part(chosen.LogicalOr(same).LogicalNot()), 0},
		{"asked for something else", part(chosen.LogicalAnd(asked.Ne(x))), 0},
		{"outside of the characters", part(seen.LtScalar(0).LogicalOr(seen.GeScalar(characters))), 0},
	} {
		if math.Abs(c.got-c.want) > 0.005*math.Ceil(c.want) {
			t.Errorf("%s: %.4f, not %.4f", c.what, c.got, c.want)
		}
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	for said, change := range map[string]func(o *options){
		"with -text what to learn from":  func(o *options) { o.text = "nowhere.txt" },
		"too few for a context of 20000": func(o *options) { o.context = 20000 },
		"multiple of 32":                 func(o *options) { o.width = 48 },
	} {
		o := short(t)
		change(&o)
		if _, err := o.run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
}
