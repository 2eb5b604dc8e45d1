// Package cifar reads CIFAR-10 and CIFAR-100: 60,000 pictures of 32 by 32 pixels in 10 or 100 classes.
//
//	trainSet, testSet, err := cifar.Open("cifar-10-binary.tar.gz")
//	if err != nil {
//		return err
//	}
//	fmt.Println(trainSet.Len(), trainSet.Classes()) // 50000 [airplane automobile ...]
//
//	loader := data.NewLoader(trainSet, data.LoaderOptions{BatchSize: 128, Shuffle: true})
//	for batch, err := range loader.All() {
//		// batch.Input is float32 of shape (128, 3, 32, 32), from 0 to 1, and batch.Target int64 of shape (128)
//	}
//
// Open takes what is distributed: the archives of the binary and of the Python version, and the folders that they unpack
// to. Which of them it is, and whether it is CIFAR-10 or CIFAR-100, the names of the files in it say. Pictures are held in
// memory as bytes, 184 MB for all.
package cifar

import (
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

const (
	side   = 32
	pixels = 3 * side * side
)

// maxFile is the longest file that is read: CIFAR-100's of 50,000 pictures have 154 MB.
const maxFile = 1 << 28

// Set is pictures, with the class of each. It is a data.Dataset[data.Pair], and makes batches itself: an input is float32
// of shape (3, 32, 32), red, green and blue from 0 to 1 as torchvision's ToTensor makes them, and a target a number.
type Set struct {
	pixels  []byte // of each picture all red, all green, all blue
	labels  []byte
	coarse  []byte // nil for CIFAR-10
	classes []string
	groups  []string
}

// Options say which classes of CIFAR-100 are the targets.
type Options struct {
	Coarse bool // the 20 superclasses, rather than the 100 classes
}

// format is a way in which one of the sets is distributed.
type format struct {
	train, test []string
	names       string // the file, or files, with the classes' names
	python      bool
	hundred     bool
}

var formats = []format{
	{train: numbered("data_batch_%d.bin"), test: []string{"test_batch.bin"}, names: "batches.meta.txt"},
	{train: []string{"train.bin"}, test: []string{"test.bin"}, names: "fine_label_names.txt", hundred: true},
	{train: numbered("data_batch_%d"), test: []string{"test_batch"}, names: "batches.meta", python: true},
	{train: []string{"train"}, test: []string{"test"}, names: "meta", python: true, hundred: true},
}

func numbered(name string) []string {
	names := make([]string, 5)
	for i := range names {
		names[i] = fmt.Sprintf(name, i+1)
	}
	return names
}

// Open reads an archive, .tar.gz or .tar, or a folder. It returns an *fs.PathError if a file cannot be read, and a
// *data.FileError if one is not there, or not as it should be.
func Open(path string, opts ...Options) (train, test *Set, err error) {
	opt := args.Option(opts)
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	read := readArchive
	if info.IsDir() {
		read = readFolder
	}
	content, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range formats {
		if _, ok := content[f.train[0]]; ok {
			if train, err = f.set(path, content, f.train, opt); err != nil {
				return nil, nil, err
			}
			if test, err = f.set(path, content, f.test, opt); err != nil {
				return nil, nil, err
			}
			return train, test, nil
		}
	}
	return nil, nil, files.Errorf(path, "", "it has none of the files data_batch_1.bin, train.bin, data_batch_1 and train, which CIFAR begins with")
}

// wanted reports whether a file is one of a set's.
func wanted(name string) bool {
	for _, f := range formats {
		if slices.Contains(f.train, name) || slices.Contains(f.test, name) || name == f.names {
			return true
		}
	}
	return name == "coarse_label_names.txt"
}

func readFolder(dir string) (map[string][]byte, error) {
	content := map[string][]byte{}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, item := range list {
		if !wanted(item.Name()) || item.IsDir() {
			continue
		}
		path := filepath.Join(dir, item.Name())
		f, size, err := regular.Open(path)
		if err != nil {
			return nil, err
		}
		if size > maxFile {
			f.Close()
			return nil, files.Errorf(path, "", "it has %d bytes, and CIFAR's files have less than %d", size, maxFile)
		}
		b := make([]byte, size)
		_, err = io.ReadFull(f, b)
		f.Close()
		if err != nil {
			return nil, files.Wrap(path, "", err)
		}
		content[item.Name()] = b
	}
	return content, nil
}

func readArchive(archive string) (map[string][]byte, error) {
	file, err := files.Open(archive)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content := map[string][]byte{}
	members := files.NewTar(archive, file)
	total := int64(0)
	for head, err := range members.All() {
		if err != nil {
			return nil, err
		}
		name := path.Base(path.Clean(head.Name))
		if !files.IsRegular(head) || !wanted(name) {
			continue
		}
		if _, twice := content[name]; twice {
			return nil, files.Errorf(archive, head.Name, "there are two files of that name")
		}
		if total += max(head.Size, 0); head.Size > maxFile || total > 2*maxFile {
			return nil, files.Errorf(archive, head.Name, "it has %d bytes, and CIFAR's files have less than %d", head.Size, maxFile)
		}
		if content[name], err = members.Content(); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// set joins files to a set.
func (f *format) set(path string, content map[string][]byte, names []string, opt Options) (*Set, error) {
	s := &Set{}
	for _, name := range names {
		b, ok := content[name]
		if !ok {
			return nil, &data.FileError{Path: path, Where: name, Err: &gotorch.Error{Kind: "FileNotFoundError", Msg: "the file is not there"}}
		}
		var err error
		if f.python {
			err = s.addPickle(b, f.hundred)
		} else {
			err = s.addBinary(b, f.hundred)
		}
		if err != nil {
			return nil, files.Errorf(path, name, "%v", err)
		}
	}
	if err := f.readNames(s, content); err != nil {
		return nil, files.Errorf(path, f.names, "%v", err)
	}
	if f.hundred && opt.Coarse {
		s.labels, s.classes = s.coarse, s.groups
	}
	return s, nil
}

// addBinary adds the records of a file of the binary version: a class, in CIFAR-100 a superclass before it, and pixels.
func (s *Set) addBinary(b []byte, hundred bool) error {
	front, classes := 1, byte(10)
	if hundred {
		front, classes = 2, 100
	}
	if len(b) == 0 || len(b)%(front+pixels) != 0 {
		return fmt.Errorf("it has %d bytes, which are no whole number of records of %d", len(b), front+pixels)
	}
	for i := 0; len(b) > 0; i++ {
		label := b[front-1]
		if label >= classes || hundred && b[0] >= 20 {
			return fmt.Errorf("picture %d is of class %d, and there are %d", i, label, classes)
		}
		if hundred {
			s.coarse = append(s.coarse, b[0])
		}
		s.labels = append(s.labels, label)
		s.pixels = append(s.pixels, b[front:front+pixels]...)
		b = b[front+pixels:]
	}
	return nil
}

// readNames reads the names of the classes, where they are there.
func (f *format) readNames(s *Set, content map[string][]byte) error {
	if f.python {
		return s.pickledNames(content[f.names], f.hundred)
	}
	s.classes = strings.Fields(string(content[f.names]))
	s.groups = strings.Fields(string(content["coarse_label_names.txt"]))
	want := 10
	if f.hundred {
		want = 100
	}
	if n := len(s.classes); n != 0 && n != want || f.hundred && len(s.groups) != 0 && len(s.groups) != 20 {
		return fmt.Errorf("it has the names of %d classes, and there are %d", n, want)
	}
	return nil
}

// Len returns the number of pictures.
func (s *Set) Len() int { return len(s.labels) }

// Classes returns the names of the classes, by their numbers; nil where no file has them.
func (s *Set) Classes() []string { return slices.Clone(s.classes) }

// Label returns the number of the i-th picture's class.
func (s *Set) Label(i int) int { return int(s.labels[i]) }

// Image returns a copy of the i-th picture.
func (s *Set) Image(i int) *image.NRGBA {
	from := s.pixels[i*pixels:][:pixels]
	picture := image.NewNRGBA(image.Rect(0, 0, side, side))
	for p := range side * side {
		to := picture.Pix[4*p:][:4]
		to[0], to[1], to[2], to[3] = from[p], from[side*side+p], from[2*side*side+p], 255
	}
	return picture
}

// Tensors returns all pictures, uint8 of shape (n, 3, 32, 32), and their classes, int64 of shape (n).
func (s *Set) Tensors() (pictures, labels gotorch.Tensor) {
	numbers := make([]int64, len(s.labels))
	for i, label := range s.labels {
		numbers[i] = int64(label)
	}
	return gotorch.FromSlice(s.pixels, int64(s.Len()), 3, side, side), gotorch.FromSlice(numbers)
}

// At returns the i-th picture and its class. It returns an IndexError if there is none.
func (s *Set) At(i int) (data.Pair, error) {
	return s.pairs([]int{i}, []int64{3, side, side}, []int64{})
}

// Batch returns the pictures at indices, of shape (n, 3, 32, 32), and their classes.
func (s *Set) Batch(indices []int, _ *rand.Rand) (data.Pair, error) {
	n := int64(len(indices))
	return s.pairs(indices, []int64{n, 3, side, side}, []int64{n})
}

func (s *Set) pairs(indices []int, inputShape, targetShape []int64) (data.Pair, error) {
	inputs, targets := make([]float32, len(indices)*pixels), make([]int64, len(indices))
	for k, i := range indices {
		if i < 0 || i >= s.Len() {
			return data.Pair{}, files.OutOfRange("cifar.Set", "picture", i, s.Len())
		}
		targets[k] = int64(s.labels[i])
		to := inputs[k*pixels:][:pixels]
		for p, b := range s.pixels[i*pixels:][:pixels] {
			to[p] = parts[b]
		}
	}
	return gotorch.Try(func() data.Pair {
		return data.Pair{Input: gotorch.FromBlob(inputs, inputShape...), Target: gotorch.FromBlob(targets, targetShape...)}
	})
}

// parts are the bytes as parts of 255.
var parts = func() (table [256]float32) {
	for i := range table {
		table[i] = float32(i) / 255
	}
	return table
}()
