package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// short is a run of about a second.
func short(t *testing.T) options {
	return options{
		text: "opticks.txt", out: t.TempDir(), seed: 1, sizes: sizes{Context: 32, Width: 64, Layers: 1},
		batch: 16, steps: 150, saves: 50, prompt: "The Rays", length: 40, temperature: 0.7,
	}
}

func TestItLearnsMoreThanHowOftenCharactersAre(t *testing.T) {
	o := short(t)
	history, err := o.train(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// Who knows only how often characters are comes to 3.13. Of eight seeds the worst came to 2.43.
	if loss := history.Last("val_loss"); !(loss < 2.6) {
		t.Errorf("the test loss is %.3f", loss)
	}
	again, err := o.train(t.Context(), io.Discard)
	if err != nil || !slices.Equal(again.Losses, history.Losses) {
		t.Errorf("the same command finds something left to do: %d losses, %v", len(again.Losses), err)
	}

	var text bytes.Buffer
	if err := o.sample(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.HasPrefix(got, o.prompt) || len(got) != len(o.prompt)+o.length+1 {
		t.Errorf("it wrote %q", got)
	}
	for _, file := range []string{"model.safetensors", "loss.png", "run/step-00000150.pt"} {
		if _, err := os.Stat(filepath.Join(o.out, file)); err != nil {
			t.Error(err)
		}
	}
}

// brief is a context that is cancelled after so many looks at it.
type brief struct {
	context.Context
	looks int
}

func (b *brief) Err() error {
	if b.looks--; b.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestAStoppedTrainingGoesOn(t *testing.T) {
	o := short(t)
	o.steps, o.saves = 6, 100
	whole, err := o.train(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.out = t.TempDir()
	if _, err := o.train(&brief{context.Background(), 7}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// Where it was stopped is saved, though it was not a step to save after.
	if saved, err := filepath.Glob(filepath.Join(o.out, "run/step-0000000[1-5].pt")); len(saved) != 1 {
		t.Fatalf("saved are %v, %v", saved, err)
	}
	parts, err := o.train(t.Context(), io.Discard)
	if err != nil || !slices.Equal(parts.Losses, whole.Losses) {
		t.Errorf("%v: %v, not %v", err, parts.Losses, whole.Losses)
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	few := filepath.Join(t.TempDir(), "few.txt")
	if err := os.WriteFile(few, []byte("too little"), 0o666); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.txt")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for said, change := range map[string]func(o *options){
		"with -text what to learn from": func(o *options) { o.text = "nowhere.txt" },
		"too few for a context of 32":   func(o *options) { o.text = few },
		"has 0 characters":              func(o *options) { o.text = empty },
		"multiple of 32":                func(o *options) { o.sizes.Width = 33 },
		"-batch or -steps":              func(o *options) { o.batch = 0 },
		"temperature":                   func(o *options) { o.temperature = math.NaN() },
		"between saves must not":        func(o *options) { o.saves = -1 },
	} {
		o := short(t)
		change(&o)
		_, err := o.train(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
	o := short(t)
	if err := o.sample(io.Discard); err == nil || !strings.Contains(err.Error(), "`chargpt train` makes the model") {
		t.Errorf("without a model: %v", err)
	}
}
