// Package imagefolder is pictures in folders that are named by what is on them:
//
//	pets/cat/1.jpg
//	pets/cat/kittens/7.png
//	pets/dog/1.jpg
//
//	set, err := imagefolder.Open("pets")
//	if err != nil {
//		return err
//	}
//	fmt.Println(set.Classes()) // [cat dog]
//
// A sample is a picture, decoded when it is asked for, and the number of its class. data.Transform makes of it what a
// model takes:
//
//	pairs := data.Transform(set, func(s imagefolder.Sample, _ *rand.Rand) (data.Pair, error) {
//		return data.Pair{Input: imageio.FromImage(s.Image, imageio.RGB), Target: gotorch.FromScalar(int64(s.Class))}, nil
//	})
//	loader := data.NewLoader(pairs, data.LoaderOptions{BatchSize: 32, Shuffle: true, Workers: 4})
//
// Classes, samples and their order are those of torchvision.datasets.ImageFolder. [OpenTar] reads the same out of an
// archive, without unpacking it. A .tar.gz, which can only be read from its beginning, is for [NewStream].
//
// A picture that cannot be decoded is a *data.FileError with its path, for that sample alone.
package imagefolder

import (
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/vision/imageio"
)

// extensions are the endings of the names of pictures, where the options name no others: torchvision's.
var extensions = []string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}

// maxBytes is what images.Options.MaxBytes is by default.
const maxBytes = 1 << 28

// Options say which files are pictures, and how they are decoded.
type Options struct {
	Extensions []string              // endings of names, whatever their case; default: those of torchvision, which lack ".gif"
	Classes    []string              // the classes, by their numbers; default: the names of all folders, sorted
	AllowEmpty bool                  // take folders without a picture as classes, rather than as an error
	Root       string                // of an archive: the folder in it that has the classes' folders; default: what a picture is in is its class
	Image      imageio.DecodeOptions // how pictures are decoded
}

func (o Options) isPicture(name string) bool {
	name = strings.ToLower(name)
	ends := func(ending string) bool { return strings.HasSuffix(name, strings.ToLower(ending)) }
	if o.Extensions == nil {
		return slices.ContainsFunc(extensions, ends)
	}
	return slices.ContainsFunc(o.Extensions, ends)
}

// numbers gives the classes of the options, or those found, their numbers.
func (o Options) numbers(path string, found map[string]bool) (classes []string, numbers map[string]int, err error) {
	classes = slices.Clone(o.Classes)
	if o.Classes == nil {
		for name := range found {
			classes = append(classes, name)
		}
		slices.Sort(classes)
	}
	if len(classes) == 0 {
		return nil, nil, files.Errorf(path, "", "it has no folders, which would be the classes")
	}
	numbers = map[string]int{}
	for i, name := range classes {
		if _, twice := numbers[name]; twice {
			return nil, nil, files.Errorf(path, "", "the class %q is there twice", name)
		}
		numbers[name] = i
	}
	return classes, numbers, nil
}

// Sample is a picture and what is on it.
type Sample struct {
	Image image.Image
	Class int    // its number in Classes
	Path  string // of the file; in an archive, its name there
}

// Folder is pictures that can be read in any order. It is a data.Dataset[Sample]. All methods may be called from several
// goroutines.
type Folder struct {
	classes []string
	entries []entry
	options imageio.DecodeOptions

	archive string // the path of the archive; "" for files
	most    int64  // bytes of a picture in it
	mutex   sync.RWMutex
	file    *os.File // of the archive; nil where there is none, or it is closed
}

// entry is where a picture is: a file, or a part of the archive.
type entry struct {
	path         string
	class        int
	offset, size int64
}

// Open looks through a folder, and opens no picture yet. It follows links, as torchvision does, but not in a circle. It
// returns an *fs.PathError where a folder cannot be read, and a *data.FileError where there are no classes, one of them has no
// picture, or links lead to one folder in more than a hundred ways.
func Open(dir string, opts ...Options) (*Folder, error) {
	opt := args.Option(opts)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, item := range list {
		// Behind a link, too.
		if info, err := os.Stat(filepath.Join(dir, item.Name())); err == nil && info.IsDir() {
			found[item.Name()] = true
		}
	}
	classes, _, err := opt.numbers(dir, found)
	if err != nil {
		return nil, err
	}
	f := &Folder{classes: classes, options: opt.Image}
	var empty []string
	for class, name := range classes {
		before := len(f.entries)
		if found[name] {
			if err := f.look(filepath.Join(dir, name), class, opt); err != nil {
				return nil, err
			}
		}
		if len(f.entries) == before {
			empty = append(empty, name)
		}
	}
	if len(empty) > 0 && !opt.AllowEmpty {
		return nil, noPictures(dir, empty, opt)
	}
	return f, nil
}

func noPictures(path string, empty []string, opt Options) error {
	endings := opt.Extensions
	if endings == nil {
		endings = extensions
	}
	more := ""
	if n := len(empty); n > 5 {
		empty, more = empty[:5], fmt.Sprintf(" and %d more", n-5)
	}
	return files.Errorf(path, "", "there is no picture of the classes %s%s: their names should end in %s, or set AllowEmpty", strings.Join(empty, ", "), more, strings.Join(endings, ", "))
}

// maxWays is how often a folder behind links is gone through for a class. Folders that have links to each other can be
// reached in more ways than anybody can wait for.
const maxWays = 100

// look adds the pictures below a folder, in the order of Python's sorted(os.walk(folder)).
func (f *Folder) look(top string, class int, opt Options) error {
	type folder struct {
		path  string
		names []string
	}
	var folders []folder
	ways := map[string]int{} // to folders behind links
	var walk func(dir string, linked bool, above []fs.FileInfo) error
	walk = func(dir string, linked bool, above []fs.FileInfo) error {
		here, err := os.Stat(dir)
		if err != nil {
			return err
		}
		for _, parent := range above {
			if os.SameFile(here, parent) {
				return nil // a link has led back
			}
		}
		if linked {
			behind, err := filepath.EvalSymlinks(dir)
			if err != nil {
				return err
			}
			if ways[behind]++; ways[behind] > maxWays {
				return files.Errorf(dir, "", "links lead to the folder %s in more than %d ways", behind, maxWays)
			}
		}
		list, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		above = append(above, here)
		found := folder{path: dir}
		for _, item := range list { // sorted by name
			path := filepath.Join(dir, item.Name())
			is, link := item.IsDir(), item.Type()&fs.ModeSymlink != 0
			if link {
				info, err := os.Stat(path)
				is = err == nil && info.IsDir()
			}
			if !is {
				if opt.isPicture(item.Name()) {
					found.names = append(found.names, item.Name())
				}
			} else if err := walk(path, linked || link, above); err != nil {
				return err
			}
		}
		folders = append(folders, found)
		return nil
	}
	if err := walk(top, false, nil); err != nil {
		return err
	}
	slices.SortFunc(folders, func(a, b folder) int { return strings.Compare(a.path, b.path) })
	for _, folder := range folders {
		for _, name := range folder.names {
			f.entries = append(f.entries, entry{path: filepath.Join(folder.path, name), class: class})
		}
	}
	return nil
}

// OpenTar looks through a .tar archive and opens it, as [Open] does a folder: a picture's class is the name of the folder
// that it is in, or with Root that of the folder below Root. Pictures are in the archive's order. Nothing is unpacked: a
// picture is read from where it lies in the archive. One that is packed by gzip is for [NewStream].
//
// It returns an *fs.PathError if the file cannot be read, and a *data.FileError if it is no archive, says of a picture that
// it is longer than the archive, or is packed.
func OpenTar(path string, opts ...Options) (*Folder, error) {
	opt := args.Option(opts)
	file, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	f := &Folder{options: opt.Image, archive: path, file: file, most: args.Int("imagefolder.OpenTar", "MaxBytes", opt.Image.MaxBytes, maxBytes)}
	if err := f.lookTar(size, opt); err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the archive that [OpenTar] has opened; At returns an error then. For a folder it does nothing.
func (f *Folder) Close() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// Classes returns the names of the classes, by their numbers.
func (f *Folder) Classes() []string { return slices.Clone(f.classes) }

// Len returns the number of pictures.
func (f *Folder) Len() int { return len(f.entries) }

// Class returns the number of the i-th picture's class, without reading the picture.
func (f *Folder) Class(i int) int { return f.entries[i].class }

// Path returns the path of the i-th picture; in an archive, its name there.
func (f *Folder) Path(i int) string { return f.entries[i].path }

// At decodes the i-th picture. The error is a *data.FileError if it is none, or damaged.
func (f *Folder) At(i int) (Sample, error) {
	if i < 0 || i >= len(f.entries) {
		return Sample{}, files.OutOfRange("imagefolder.Folder", "picture", i, len(f.entries))
	}
	e := f.entries[i]
	if f.archive == "" {
		picture, err := imageio.ReadImage(e.path, f.options)
		if err != nil {
			return Sample{}, files.Wrap(e.path, "", err)
		}
		return Sample{picture, e.class, e.path}, nil
	}
	f.mutex.RLock()
	defer f.mutex.RUnlock()
	if f.file == nil {
		return Sample{}, files.Closed(f.archive)
	}
	if e.size > f.most { // an archive with a hole in it has as many, and costs nothing
		return Sample{}, tooLong(f.archive, e.path, e.size, f.most)
	}
	encoded := make([]byte, e.size) // the archive has as many
	if _, err := io.ReadFull(io.NewSectionReader(f.file, e.offset, e.size), encoded); err != nil {
		return Sample{}, files.Wrap(f.archive, e.path, err)
	}
	return decode(f.archive, e.path, e.class, encoded, f.options)
}

// tooLong is the error for a member of an archive that is longer than the options allow.
func tooLong(archive, name string, size, most int64) error {
	return files.Errorf(archive, name, "it has %d bytes, more than the %d that MaxBytes allows", size, most)
}

// decode makes a sample of a member of an archive.
func decode(archive, name string, class int, encoded []byte, options imageio.DecodeOptions) (Sample, error) {
	picture, err := imageio.DecodeImage(encoded, options)
	if err != nil {
		var broken *data.FileError
		if errors.As(err, &broken) {
			err = broken.Err
		}
		return Sample{}, &data.FileError{Path: archive, Where: name, Err: err}
	}
	return Sample{picture, class, name}, nil
}
