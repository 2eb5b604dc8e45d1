package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

const sample = "../../.venv/share/digits/mnist_5k.csv.gz"

// tests/test_distributed.py runs it under torchrun.
func TestAJobOfOneLearns(t *testing.T) {
	out := t.TempDir()
	if err := run(sample, out, 1, false); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(out, "log.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	last := rows[len(rows)-1]
	accuracy, err := strconv.ParseFloat(last[len(last)-1], 64)
	if err != nil || accuracy < 0.9 {
		t.Errorf("after an epoch the accuracy is %v: %v", last, err)
	}
	if _, err := os.Stat(filepath.Join(out, "loss.png")); err != nil {
		t.Error(err)
	}
}
