package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func TestItKnowsWordsByTheirSentence(t *testing.T) {
	out := t.TempDir()
	o := options{out: out, seed: 1, sentences: 2000, epochs: 2, say: []string{"The old watch the rings.", "the watch rings the old", "", "a glorp"}}
	var said bytes.Buffer
	r, err := o.run(t.Context(), &said)
	if err != nil {
		t.Fatal(err)
	}
	// Of eight seeds the worst came to 99.3 %, and word by word the best to 85.4 %.
	if r.accuracy < 0.985 || r.habit > 0.88 {
		t.Errorf("right in %.4f, word by word in %.4f", r.accuracy, r.habit)
	}
	for _, line := range []string{
		"the/DET old/NOUN watch/VERB the/DET rings/NOUN\n",
		"the/DET watch/NOUN rings/VERB the/DET old/NOUN\n",
		"a/DET glorp/",
	} {
		if !strings.Contains(said.String(), line) {
			t.Errorf("%q is not in %s", line, said.String())
		}
	}
	if _, err := os.Stat(filepath.Join(out, "accuracy.png")); err != nil {
		t.Error(err)
	}
}

func TestAPackedBatchHasWordsAndTagsAtTheSamePlaces(t *testing.T) {
	c := newCorpus(grammar{rand.New(rand.NewPCG(7, 0))}, 50, nil)
	all, err := c.Batch([]int{3, 1, 4, 15, 9, 2, 6}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tagsOf := map[int64]map[int64]bool{} // by word
	for _, s := range c.sentences {
		for _, w := range s {
			id := c.words[w.text]
			if tagsOf[id] == nil {
				tagsOf[id] = map[int64]bool{}
			}
			tagsOf[id][numberOf(w.tag)] = true
		}
	}
	words, right := gotorch.ToSlice[int64](all.Words.Data), gotorch.ToSlice[int64](all.Tags.Data)
	for i, w := range words {
		if !tagsOf[w][right[i]] {
			t.Errorf("word %d has the tag %s", w, tags[right[i]])
		}
	}
	one, err := c.At(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := one.Words.Data.Numel(); got != int64(len(c.sentences[0])) {
		t.Errorf("a sentence of %d words has %d", len(c.sentences[0]), got)
	}
	for _, o := range []options{{sentences: 0, epochs: 1}, {sentences: 1, epochs: 0}} {
		if _, err := o.run(t.Context(), io.Discard); err == nil {
			t.Errorf("%+v ran", o)
		}
	}
}
