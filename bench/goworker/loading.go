package main

import (
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/vision/imageio"
)

// What is loaded; bench/loading_worker.py has the same.
const (
	arrays     = 10_000 // of 784 numbers
	arrayBatch = 64
	pictures   = 64 // of 256×256
	jpegBatch  = 8
	side       = 256
)

// loading has cases named by what is loaded and the number of workers: "loader_jpegs_2". An iteration is an epoch.
func loading(folder string) func(name string) func(n int) {
	gotorch.SetNumThreads(1)
	made := map[string]func(n int){}
	return func(name string) func(n int) {
		kind, count, _ := strings.Cut(strings.TrimPrefix(name, "loader_"), "_")
		workers, err := strconv.Atoi(count)
		if err != nil {
			panic(err)
		}
		if made[name] == nil {
			made[name] = epochs(loaderOf(kind, folder, workers))
		}
		return made[name]
	}
}

func loaderOf(kind, folder string, workers int) *data.Loader[data.Pair] {
	o := data.LoaderOptions{BatchSize: arrayBatch, Shuffle: true, Seed: 1, Workers: workers}
	switch kind {
	case "arrays":
		return data.NewLoader(rows(), o)
	case "samples": // a data set of one's own, which has samples and no batches
		o.Scoped = true // samples are freed when they are joined, as in Python
		return data.NewLoader[data.Pair](own{rows()}, o)
	case "jpegs":
		o.BatchSize, o.Scoped = jpegBatch, true
		return data.NewLoader[data.Pair](jpegs(folder), o)
	}
	panic("no loader " + kind)
}

func rows() *data.TensorDataset {
	x := gotorch.Arange(arrays*784, gotorch.TensorOptions{DType: gotorch.Float32}).Reshape([]int64{arrays, 784})
	return data.NewTensorDataset(x, gotorch.Arange(arrays))
}

type own struct{ set *data.TensorDataset }

func (d own) Len() int                    { return d.set.Len() }
func (d own) At(i int) (data.Pair, error) { return d.set.At(i) }

func epochs(loader *data.Loader[data.Pair]) func(n int) {
	return func(n int) {
		for range n {
			for batch, err := range loader.All() {
				if err != nil {
					panic(err)
				}
				batch.Close()
			}
		}
	}
}

// jpegs are pictures of a folder, which are decoded to numbers between 0 and 1: (3, side, side).
type jpegs string

func (d jpegs) Len() int { return pictures }

func (d jpegs) At(i int) (p data.Pair, err error) {
	picture, err := imageio.Read(filepath.Join(string(d), fmt.Sprintf("%d.jpg", i)))
	if err != nil {
		return p, err
	}
	numbers := picture.To(gotorch.Float32).DivScalar_(255)
	picture.Close()
	return data.Pair{Input: numbers, Target: gotorch.FromScalar(i)}, nil
}

// drawPictures writes the pictures that both workers load: waves and noise, always the same.
func drawPictures(folder string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for k := range pictures {
		drawn := image.NewRGBA(image.Rect(0, 0, side, side))
		a, b, c := rng.Float64()*0.1, rng.Float64()*0.1, rng.Float64()*0.1
		wave := func(x, y int, f float64) uint8 {
			return uint8(128 + 90*math.Sin(float64(x)*f+float64(y)*a) + 30*(rng.Float64()-0.5))
		}
		for y := range side {
			for x := range side {
				drawn.SetRGBA(x, y, color.RGBA{wave(x, y, a), wave(x, y, b), wave(x, y, c), 255})
			}
		}
		f, err := os.Create(filepath.Join(folder, fmt.Sprintf("%d.jpg", k)))
		if err != nil {
			return err
		}
		if err := jpeg.Encode(f, drawn, &jpeg.Options{Quality: 85}); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// loaded prints, for each kind, the mean of each batch of the first epoch and the sum of its targets.
func loaded(folder string, kinds []string) {
	for _, kind := range kinds {
		for batch, err := range loaderOf(kind, folder, 2).All() {
			if err != nil {
				panic(err)
			}
			fmt.Printf("%v %v\n", gotorch.Item[float64](batch.Input.Mean()), gotorch.Item[int](batch.Target.Sum()))
		}
	}
}
