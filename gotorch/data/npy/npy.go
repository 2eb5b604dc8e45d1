// Package npy reads and writes NumPy's files: .npy, which holds one array, and .npz, which holds several by name.
//
//	images, err := npy.Load("images.npy")             // as torch.from_numpy(np.load("images.npy"))
//	err = npy.Save("copy.npy", images)                // the same bytes as np.save writes
//	arrays, err := npy.LoadZip("digits.npz")          // arrays["x_train"], ...
//	err = npy.SaveZip("both.npz", map[string]gotorch.Tensor{"x": x, "y": y})
//
// An array that is larger than memory stays in its file, as a data set of its rows:
//
//	inputs, err := npy.Open("inputs.npy")
//	targets, err := npy.Open("targets.npy")
//	set, err := npy.Pairs(inputs, targets)
//	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 64, Shuffle: true})
//
// All dtypes are read that NumPy and PyTorch both have, in either byte order, and arrays whose first index runs fastest
// (Fortran's order), too. Arrays of Python objects are pickles that would run code, and are refused; so are structures
// and strings. What is wrong with a file is a *data.FileError.
package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// kinds are NumPy's names of dtypes, without the byte order.
var kinds = map[string]gotorch.DType{
	"b1": gotorch.Bool, "i1": gotorch.Int8, "i2": gotorch.Int16, "i4": gotorch.Int32, "i8": gotorch.Int64,
	"u1": gotorch.Uint8, "u2": gotorch.Uint16, "u4": gotorch.Uint32, "u8": gotorch.Uint64,
	"f2": gotorch.Float16, "f4": gotorch.Float32, "f8": gotorch.Float64, "c8": gotorch.Complex64, "c16": gotorch.Complex128,
}

// maxHeader is the longest header that is read; that of an array that PyTorch can hold is a tenth of it.
const maxHeader = 1 << 16

// header is what a file says of its array.
type header struct {
	dtype   gotorch.DType
	swapped bool // big-endian
	fortran bool
	shape   []int64
	size    int64 // bytes of the elements
	length  int64 // bytes before the elements
}

var magic = []byte("\x93NUMPY")

// invalid is why an array cannot be read.
type invalid string

func (e invalid) Error() string { return string(e) }

// readHeader reads up to the first element.
func readHeader(r io.Reader) (h header, err error) {
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return h, early(err, "it ends within its first 8 bytes")
	}
	if !bytes.HasPrefix(start[:], magic) {
		return h, invalid(fmt.Sprintf("it begins with % x, and not as a .npy file", start[:6]))
	}
	var length int64
	switch version := start[6]; version {
	case 1:
		var n [2]byte
		_, err = io.ReadFull(r, n[:])
		length, h.length = int64(binary.LittleEndian.Uint16(n[:])), 10
	case 2, 3:
		var n [4]byte
		_, err = io.ReadFull(r, n[:])
		length, h.length = int64(binary.LittleEndian.Uint32(n[:])), 12
	default:
		return h, invalid(fmt.Sprintf("its format is version %d.%d, and 1, 2 and 3 are known", version, start[7]))
	}
	if err != nil {
		return h, early(err, "it ends within its header")
	}
	if length > maxHeader {
		return h, invalid(fmt.Sprintf("its header should have %d bytes, and that of an array has at most %d", length, maxHeader))
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, early(err, "it ends within its header")
	}
	h.length += length
	return h, h.parse(string(text))
}

// early is the error for a file that ends, or cannot be read.
func early(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid(what)
	}
	return err
}

// parse reads the header's text: a Python dict of 'descr', 'fortran_order' and 'shape'.
func (h *header) parse(text string) error {
	p := parser{text: text}
	var descr string
	seen := map[string]bool{}
	p.need('{')
	for p.err == nil && !p.take('}') {
		key := p.quoted()
		p.need(':')
		if seen[key] && p.err == nil {
			p.fail("%q is there twice", key)
		}
		seen[key] = true
		switch key {
		case "descr":
			p.space()
			if c := p.peek(); c == '[' || c == '(' {
				return invalid("its elements are structures, which no tensor has: save each field as an array of its own")
			}
			descr = p.quoted()
		case "fortran_order":
			h.fortran = p.boolean()
		case "shape":
			h.shape = p.tuple()
		default:
			p.fail("%q is none of its keys", key)
		}
		if !p.take(',') {
			p.need('}')
			break
		}
	}
	p.space()
	switch {
	case p.err != nil:
		return p.err
	case p.at < len(p.text):
		return invalid(fmt.Sprintf("its header goes on with %.20q", p.text[p.at:]))
	case len(seen) < 3:
		return invalid("its header lacks one of 'descr', 'fortran_order' and 'shape'")
	case len(descr) < 2 || !strings.ContainsRune("<>|=", rune(descr[0])):
		return invalid(fmt.Sprintf("its elements are %.20q, which is no dtype", descr))
	}
	known, ok := kinds[descr[1:]]
	if !ok {
		if descr[1] == 'O' {
			return invalid("its elements are Python objects, which are loaded by running code: save numbers")
		}
		return invalid(fmt.Sprintf("its elements are %.20q, and PyTorch has no such dtype", descr))
	}
	h.dtype, h.swapped = known, descr[0] == '>'
	if len(h.shape) > 64 {
		return invalid(fmt.Sprintf("its array has %d dimensions, and NumPy's have at most 64", len(h.shape)))
	}
	h.size = int64(known.Size())
	extent := h.size // with a dimension of zero as one of one, for strides must fit, too
	for _, n := range h.shape {
		if n > 0 && extent > math.MaxInt64/n {
			return invalid(fmt.Sprintf("its shape %v is too large", h.shape))
		}
		extent *= max(n, 1)
		h.size *= n
	}
	return nil
}

// parser reads Python's literals, as far as headers have them.
type parser struct {
	text string
	at   int
	err  error
}

func (p *parser) fail(format string, values ...any) {
	if p.err == nil {
		p.err = invalid("its header is damaged: " + fmt.Sprintf(format, values...))
	}
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) take(c byte) bool {
	p.space()
	if p.err == nil && p.peek() == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) need(c byte) {
	if !p.take(c) {
		p.fail("%q is missing at byte %d", c, p.at)
	}
}

func (p *parser) quoted() string {
	p.space()
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		p.fail("a string is missing at byte %d", p.at)
		return ""
	}
	end := strings.IndexByte(p.text[p.at+1:], quote)
	if end < 0 {
		p.fail("a string does not end")
		return ""
	}
	text := p.text[p.at+1:][:end]
	p.at += end + 2
	return text
}

func (p *parser) word() string {
	p.space()
	from := p.at
	for c := p.peek(); c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'; c = p.peek() {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *parser) boolean() bool {
	switch word := p.word(); word {
	case "True":
		return true
	case "False":
	default:
		p.fail("%.20q is neither True nor False", word)
	}
	return false
}

func (p *parser) tuple() []int64 {
	shape := []int64{}
	p.need('(')
	for p.err == nil && !p.take(')') {
		word := strings.TrimSuffix(p.word(), "L") // as Python 2 writes them
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 {
			p.fail("%.20q is no size", word)
		}
		shape = append(shape, n)
		if !p.take(',') {
			p.need(')')
			break
		}
	}
	return shape
}

// native turns elements into the byte order of this machine, which is little-endian.
func (h *header) native(elements []byte) {
	size := h.dtype.Size()
	if h.dtype.IsComplex() {
		size /= 2
	}
	if !h.swapped || size == 1 {
		return
	}
	for element := range slices.Chunk(elements, size) {
		slices.Reverse(element)
	}
}

// check refuses elements that are none of the dtype.
func (h *header) check(elements []byte) error {
	if h.dtype != gotorch.Bool {
		return nil
	}
	for i, b := range elements {
		if b > 1 {
			return invalid(fmt.Sprintf("element %d is %d, which is no bool", i, b))
		}
	}
	return nil
}

// tensor makes a tensor of elements as the file has them.
func (h *header) tensor(elements []byte) (gotorch.Tensor, error) {
	h.native(elements)
	if err := h.check(elements); err != nil {
		return gotorch.Tensor{}, err
	}
	return gotorch.Try(func() gotorch.Tensor {
		if !h.fortran || len(h.shape) < 2 {
			return gotorch.FromRaw(elements, h.dtype, h.shape...)
		}
		reversed, order := slices.Clone(h.shape), make([]int64, len(h.shape))
		slices.Reverse(reversed)
		for i := range order {
			order[i] = int64(len(order) - 1 - i)
		}
		t := gotorch.FromRaw(elements, h.dtype, reversed...)
		defer t.Close()
		return t.Permute(order)
	})
}

// Read reads an array from r, up to its last byte and no further. It is a CPU tensor, as torch.from_numpy(np.load(...))
// makes it, with the same strides. What is wrong with the array is a *data.FileError whose Path is "input".
func Read(r io.Reader) (gotorch.Tensor, error) {
	t, err := read(r, math.MaxInt64)
	return t, wrap("input", "", err)
}

// Parse is [Read] of all that a file has.
func Parse(content []byte) (gotorch.Tensor, error) {
	r := bytes.NewReader(content)
	t, err := read(r, int64(len(content)))
	if err == nil && r.Len() > 0 {
		t.Close()
		return gotorch.Tensor{}, wrap("input", "", invalid(fmt.Sprintf("%d bytes follow after its last element", r.Len())))
	}
	return t, wrap("input", "", err)
}

// read is Read, of at most so many bytes.
func read(r io.Reader, most int64) (gotorch.Tensor, error) {
	h, err := readHeader(r)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	if h.length+h.size > most {
		return gotorch.Tensor{}, invalid(fmt.Sprintf("its array of shape %v should have %d bytes, and there are at most %d", h.shape, h.size, max(0, most-h.length)))
	}
	// The buffer grows with what arrives, not with what the header promises.
	var elements bytes.Buffer
	if n, err := io.CopyN(&elements, r, h.size); err != nil {
		return gotorch.Tensor{}, early(err, fmt.Sprintf("its array of shape %v should have %d bytes, and there are %d", h.shape, h.size, n))
	}
	return h.tensor(elements.Bytes())
}

// wrap makes a *data.FileError of what is wrong.
func wrap(path, where string, err error) error {
	var reason invalid
	var typed *gotorch.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reason):
		return files.Errorf(path, where, "%s", reason)
	case errors.As(err, &typed):
		return &data.FileError{Path: path, Where: where, Err: err}
	case files.IsPathError(err):
		return err
	}
	return files.Wrap(path, where, err)
}

// Load reads the array of a file. The error is a *data.FileError if it is no valid one, and an *fs.PathError if it cannot
// be read.
func Load(path string) (gotorch.Tensor, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	defer f.Close()
	t, err := loadFile(f, size)
	return t, wrap(path, "", err)
}

func loadFile(f *os.File, size int64) (gotorch.Tensor, error) {
	h, err := headerOf(f, size)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	elements := make([]byte, h.size) // not more than the file has
	if _, err := f.ReadAt(elements, h.length); err != nil {
		return gotorch.Tensor{}, early(err, "it became shorter while it was read")
	}
	return h.tensor(elements)
}

// headerOf reads the header of a file of so many bytes, which must be as many as it says.
func headerOf(f *os.File, size int64) (header, error) {
	h, err := readHeader(io.NewSectionReader(f, 0, size))
	if err != nil {
		return h, err
	}
	if there := size - h.length; there != h.size {
		return h, invalid(fmt.Sprintf("its array of shape %v should have %d bytes, and there are %d", h.shape, h.size, there))
	}
	return h, nil
}

// Save writes a tensor as np.save does, byte for byte. One of another device, or that is lazily conjugated, is written as
// what it is; one whose first index runs fastest is written so. It returns a TypeError for dtypes that NumPy lacks, such
// as BFloat16. A file at path is replaced when the new one is complete, and not before.
func Save(path string, t gotorch.Tensor) error {
	return replace.File(path, func(w io.Writer) error { return Write(w, t) })
}

// Write is [Save] to anywhere. Nothing is written where the dtype is none of NumPy's.
func Write(w io.Writer, t gotorch.Tensor) error {
	type prepared struct {
		head  []byte
		plain gotorch.Tensor
	}
	p, err := gotorch.Try(func() prepared {
		name := nameOf(t.DType())
		if name == "" {
			panic(&gotorch.Error{Op: "npy.Write", Kind: gotorch.TypeError, Msg: fmt.Sprintf("NumPy has no dtype %s: convert the tensor to another", t.DType().Name())})
		}
		shape := t.Shape()
		plain := t.Detach().To(gotorch.CPU).ResolveConj().ResolveNeg()
		fortran := false
		if !plain.IsContiguous() {
			order := make([]int64, len(shape))
			for i := range order {
				order[i] = int64(len(order) - 1 - i)
			}
			if turned := plain.Permute(order); turned.IsContiguous() {
				plain, fortran = turned, true
			} else {
				plain = plain.Contiguous()
			}
		}
		return prepared{headerText(name, fortran, shape), plain}
	})
	if err != nil {
		return err
	}
	defer p.plain.Close()
	if _, err := w.Write(p.head); err != nil {
		return err
	}
	_, err = w.Write(gotorch.RawData(p.plain))
	return err
}

func nameOf(dtype gotorch.DType) string {
	for name, known := range kinds {
		if known == dtype {
			if known.Size() == 1 {
				return "|" + name
			}
			return "<" + name
		}
	}
	return ""
}

// headerText writes a header as NumPy does: with room for the first size to grow, and as long that elements begin at a
// multiple of 64 bytes.
func headerText(name string, fortran bool, shape []int64) []byte {
	sizes := make([]string, len(shape))
	for i, n := range shape {
		sizes[i] = strconv.FormatInt(n, 10)
	}
	tuple := strings.Join(sizes, ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	order := "False"
	if fortran {
		order = "True"
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", name, order, tuple)
	if len(shape) > 0 {
		grows := sizes[0]
		if fortran {
			grows = sizes[len(sizes)-1]
		}
		text += strings.Repeat(" ", 21-len(grows))
	}
	text += strings.Repeat(" ", 64-(10+len(text)+1)%64) + "\n"
	head := append(slices.Clone(magic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	return append(head, text...)
}
