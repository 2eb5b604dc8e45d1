package gotorch

/*
#include <files.h>
#include <stdlib.h>
*/
import "C"

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/big"
	"os"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"gotorch.dev/gotorch/internal/counting"
	"gotorch.dev/gotorch/internal/pickle"
)

// The format of torch.save: a zip archive with one folder. In it data.pkl is a pickle of the value, in
// which a tensor is a call of a function that rebuilds it on a storage, and a storage is a reference to
// a file data/0, data/1 ... with its bytes. Nothing is compressed, and the bytes are aligned, so that
// the file can be mapped.

const storageAlignment = 64

// storageTypes are the names of the classes that typed storages had. Other dtypes use UntypedStorage.
var storageTypes = map[string]DType{
	"DoubleStorage": Float64, "FloatStorage": Float32, "HalfStorage": Float16, "BFloat16Storage": BFloat16,
	"LongStorage": Int64, "IntStorage": Int32, "ShortStorage": Int16, "CharStorage": Int8,
	"ByteStorage": Uint8, "BoolStorage": Bool, "ComplexDoubleStorage": Complex128, "ComplexFloatStorage": Complex64,
	"QInt8Storage": QInt8, "QUInt8Storage": QUint8, "QInt32Storage": QInt32, "QUInt4x2Storage": QUint4x2,
	"QUInt2x4Storage": QUint2x4,
}

var storageTypeOf = func() map[DType]string {
	of := map[DType]string{}
	for name, d := range storageTypes {
		if !d.IsQuantized() {
			of[d] = name
		}
	}
	return of
}()

// Writing -------------------------------------------------------------------------------------------------

// Encode writes what [Save] would write to a file. name is that of the folder in the archive, which
// Python takes from the file's name.
func Encode(w io.Writer, name string, value any) (err error) {
	defer catch(&err)
	a := &archiveWriter{name: name, pickle: pickle.NewEncoder(), keys: map[storageKey]int{}, bases: map[C.int64_t]Tensor{}}
	if err := a.value(value, 0); err != nil {
		return err
	}
	return a.write(w)
}

type archiveWriter struct {
	name     string
	pickle   *pickle.Encoder
	keys     map[storageKey]int
	storages []Tensor             // by key: CPU tensors that cover a storage
	bases    map[C.int64_t]Tensor // CPU copies of storages elsewhere
}

// storageKey tells storages apart. One that is seen as several dtypes becomes several files, because
// Python gives each storage one dtype.
type storageKey struct {
	id    C.int64_t
	dtype DType
}

// Deeper values are taken for ones that contain themselves.
const maxDepth = 1000

func saveError(kind ErrorKind, format string, args ...any) *Error {
	return newError("Save", kind, fmt.Sprintf(format, args...))
}

func (a *archiveWriter) value(v any, depth int) error {
	p := a.pickle
	if depth > maxDepth {
		return saveError(ValueError, "the value is nested too deeply, or contains itself")
	}
	switch v := v.(type) {
	case nil:
		p.None()
	case Tensor:
		return a.tensor(v)
	case bool:
		p.Bool(v)
	case string:
		if !utf8.ValidString(v) { // two names could become one
			return saveError(ValueError, "the string %q is not UTF-8, as Python's are: save a []byte", v)
		}
		if !p.String(v) {
			return saveError(ValueError, "a string is longer than 4 GB")
		}
	case []byte:
		if !p.Bytes(v) {
			return saveError(ValueError, "a byte slice is longer than 4 GB")
		}
	case *big.Int:
		if !p.BigInt(v) {
			return saveError(ValueError, "an integer has more than 2000 bits")
		}
	case DType:
		if !v.known() {
			return saveError(TypeError, "a value is the zero DType")
		}
		p.Global("torch", v.Name())
	case Device:
		if v == 0 {
			return saveError(TypeError, "a value is the zero Device")
		}
		p.Global("torch", "device")
		p.Mark()
		p.String(v.Type().String())
		if v.Index() >= 0 {
			p.Int(int64(v.Index()))
		}
		p.Tuple()
		p.Call()
	case Tuple:
		p.Mark()
		for _, item := range v {
			if err := a.value(item, depth+1); err != nil {
				return err
			}
		}
		p.Tuple()
	case Counter:
		p.Global("collections", "Counter")
		p.Mark()
		if err := a.value(Dict(v), depth+1); err != nil {
			return err
		}
		p.Tuple()
		p.Call()
	case Dict:
		p.Dict()
		for _, item := range v {
			if err := errors.Join(a.value(item.Key, depth+1), a.value(item.Value, depth+1)); err != nil {
				return err
			}
		}
		p.SetAll()
	default:
		return a.reflected(v, depth)
	}
	return nil
}

func (a *archiveWriter) reflected(v any, depth int) error {
	p := a.pickle
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Bool:
		p.Bool(r.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.Int(r.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		p.Uint(r.Uint())
	case reflect.Float32, reflect.Float64:
		p.Float(r.Float())
	case reflect.Complex64, reflect.Complex128:
		p.Global("__builtin__", "complex") // so it was called in the days of protocol 2
		p.Mark()
		p.Float(real(r.Complex()))
		p.Float(imag(r.Complex()))
		p.Tuple()
		p.Call()
	case reflect.String:
		return a.value(r.String(), depth)
	case reflect.Slice, reflect.Array:
		p.List()
		for i := range r.Len() {
			if err := a.value(r.Index(i).Interface(), depth+1); err != nil {
				return err
			}
		}
		p.AppendAll()
	case reflect.Map:
		keys := r.MapKeys()
		slices.SortFunc(keys, compareKeys)
		p.Dict()
		for _, key := range keys {
			if err := errors.Join(a.value(key.Interface(), depth+1), a.value(r.MapIndex(key).Interface(), depth+1)); err != nil {
				return err
			}
		}
		p.SetAll()
	case reflect.Pointer, reflect.Interface:
		if r.IsNil() {
			p.None()
			return nil
		}
		fallthrough
	default:
		return saveError(TypeError, "a value of type %T cannot be saved", v)
	}
	return nil
}

// compareKeys orders the keys of a map, so that equal maps make equal files.
func compareKeys(x, y reflect.Value) int {
	switch {
	case x.CanInt() && y.CanInt():
		return cmp.Compare(x.Int(), y.Int())
	case x.CanUint() && y.CanUint():
		return cmp.Compare(x.Uint(), y.Uint())
	case x.CanFloat() && y.CanFloat():
		return cmp.Compare(x.Float(), y.Float())
	}
	return cmp.Compare(fmt.Sprint(x), fmt.Sprint(y))
}

func (a *archiveWriter) tensor(t Tensor) error {
	if t.T == nil {
		a.pickle.None()
		return nil
	}
	i := t.info("Save")
	switch {
	case i.flags&C.TensorHasStorage == 0 && t.isTransformed():
		return saveError(RuntimeError, "inside of a function that is transformed a tensor cannot be saved: return it, and save the result")
	case Layout(i.layout+1) != Strided, i.flags&(C.TensorQuantized|C.TensorNested) != 0, i.flags&C.TensorHasStorage == 0,
		t.Device().Type() == DeviceTypeMeta:
		return saveError(NotImplementedError, "sparse, quantised, nested and meta tensors cannot be saved")
	case i.ndim > maxDims:
		return saveError(NotImplementedError, "a tensor has %d dimensions, and Load takes no more than %d", i.ndim, maxDims)
	case i.flags&(C.TensorConj|C.TensorNeg) != 0:
		t = t.Detach().ResolveConj().ResolveNeg()
		i = t.info("Save")
	}
	dtype := DType(i.dtype + 1)
	key, err := a.storage(t, storageKey{i.storage_id, dtype})
	if err != nil {
		return err
	}
	class, untyped := storageTypeOf[dtype], false
	if class == "" {
		untyped = true
	}

	p := a.pickle
	rebuild := "_rebuild_tensor_v2"
	if untyped {
		rebuild = "_rebuild_tensor_v3"
	}
	p.Global("torch._utils", rebuild)
	p.Mark()
	p.Mark()
	p.String("storage")
	if untyped {
		p.Global("torch.storage", "UntypedStorage")
	} else {
		p.Global("torch", class)
	}
	p.String(fmt.Sprint(key))
	p.String("cpu")
	if untyped {
		p.Int(int64(i.storage_nbytes))
	} else {
		p.Int(int64(i.storage_nbytes / i.itemsize))
	}
	p.Tuple()
	p.Persistent()
	p.Int(int64(i.storage_offset))
	a.ints(i.copySizes())
	a.ints(i.copyStrides())
	p.Bool(i.flags&C.TensorRequiresGrad != 0)
	p.Global("collections", "OrderedDict") // of hooks, which are not saved
	p.Mark()
	p.Tuple()
	p.Call()
	if untyped {
		p.Global("torch", dtype.Name())
	}
	p.Tuple()
	p.Call()
	runtime.KeepAlive(t.T)
	return nil
}

func (a *archiveWriter) ints(ns []int64) {
	a.pickle.Mark()
	for _, n := range ns {
		a.pickle.Int(n)
	}
	a.pickle.Tuple()
}

// storage returns the number of the file with t's storage.
func (a *archiveWriter) storage(t Tensor, key storageKey) (int, error) {
	if n, ok := a.keys[key]; ok {
		return n, nil
	}
	base, ok := a.bases[key.id]
	if !ok {
		// All of the storage as bytes. It is alive as long as base is, so its identity is unique.
		s := t.Storage()
		base = tensorOn(s, Uint8, 0, []int64{s.Bytes()}, []int64{1})
		a.bases[key.id] = base
	}
	n := len(a.storages)
	a.keys[key] = n
	a.storages = append(a.storages, base)
	return n, nil
}

// tensorOn makes a tensor on a storage. It panics with a ValueError if it would reach outside.
func tensorOn(s *Storage, dtype DType, offset int64, shape, strides []int64) Tensor {
	var h C.Tensor
	err := C.TensorFromStorage(C.Storage(s.c.h), C.ScalarType(dtype)-1, C.int64_t(offset), (*C.int64_t)(unsafe.SliceData(shape)),
		(*C.int64_t)(unsafe.SliceData(strides)), C.int64_t(len(shape)), &h)
	runtime.KeepAlive(s)
	if err != nil {
		panicC("Load", unsafe.Pointer(err))
	}
	return wrapHandle(unsafe.Pointer(h))
}

func (a *archiveWriter) write(w io.Writer) error {
	out := &counting.Writer{W: w}
	z := zip.NewWriter(out)
	put := func(name string, data []byte) error {
		// The length of the extra field places the data. Its own header takes four bytes.
		if err := z.Flush(); err != nil {
			return err
		}
		full := path.Join(a.name, name)
		start := out.N + 30 + int64(len(full)) + 4
		pad := (storageAlignment - start%storageAlignment) % storageAlignment
		extra := append([]byte{'F', 'B', byte(pad), 0}, make([]byte, pad)...)
		f, err := z.CreateRaw(&zip.FileHeader{
			Name: full, Method: zip.Store, Extra: extra, CRC32: crc32.ChecksumIEEE(data),
			CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(len(data)),
		})
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	}
	records := []struct {
		name string
		data []byte
	}{
		{"data.pkl", a.pickle.Finish()},
		{".format_version", []byte("1")},
		{".storage_alignment", fmt.Append(nil, storageAlignment)},
		{"byteorder", []byte("little")},
	}
	for _, r := range records {
		if err := put(r.name, r.data); err != nil {
			return err
		}
	}
	for i, base := range a.storages {
		t := base.To(CPU)
		err := put(fmt.Sprint("data/", i), RawData(t))
		runtime.KeepAlive(t.T)
		if err != nil {
			return err
		}
	}
	if err := put("version", []byte("3\n")); err != nil {
		return err
	}
	return z.Close()
}

// Reading -------------------------------------------------------------------------------------------------

type archive struct {
	file     *os.File // nil where there is none
	opt      LoadOptions
	files    map[string]*zip.File
	storages map[string]*loadedStorage
	left     int64 // bytes that storages may still take
	budget   *pickle.Budget
}

type loadedStorage struct {
	storage *Storage
	nbytes  int64
}

func loadError(kind ErrorKind, format string, args ...any) *Error {
	return newError("Load", kind, fmt.Sprintf(format, args...))
}

func openArchive(file *os.File, r io.ReaderAt, size int64, opt LoadOptions) (*archive, error) {
	// What the archive says of places may lead outside: that is the end of the file, not an error of r.
	z, err := zip.NewReader(io.NewSectionReader(r, 0, size), size)
	if err != nil {
		if errors.Is(err, zip.ErrFormat) {
			return nil, loadError(ValueError, "%s", foreign(r, size))
		}
		return nil, loadError(ValueError, "the file is damaged: %v", err)
	}
	a := &archive{file: file, opt: opt, files: map[string]*zip.File{}, storages: map[string]*loadedStorage{}, left: size}
	folder := ""
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/data.pkl") && strings.Count(f.Name, "/") == 1 {
			folder = strings.TrimSuffix(f.Name, "data.pkl")
		}
	}
	if folder == "" {
		return nil, loadError(ValueError, "the file is a zip archive, but none of torch.save's")
	}
	if slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == folder+"constants.pkl" }) {
		return nil, loadError(NotImplementedError, "the file is a TorchScript program, not only data")
	}
	for _, f := range z.File {
		name, inside := strings.CutPrefix(f.Name, folder)
		if !inside {
			continue
		}
		if a.files[name] != nil {
			return nil, loadError(ValueError, "the file has two records %q", f.Name)
		}
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
			return nil, loadError(NotImplementedError, "record %q is compressed, which torch.save never does", f.Name)
		}
		if f.UncompressedSize64 > uint64(size) {
			return nil, loadError(ValueError, "record %q is truncated", f.Name)
		}
		a.files[name] = f
	}
	if f := a.files["byteorder"]; f != nil {
		order := make([]byte, f.UncompressedSize64)
		if err := a.read(f, order); err != nil {
			return nil, err
		}
		if string(order) != "little" {
			return nil, loadError(NotImplementedError, "the file was written in byte order %q", order)
		}
	}
	return a, nil
}

// read fills b with a record, which must have that length.
func (a *archive) read(f *zip.File, b []byte) error {
	var r io.Reader
	var err error
	if a.opt.IgnoreChecksums {
		r, err = f.OpenRaw()
	} else {
		r, err = f.Open()
	}
	if err == nil {
		_, err = io.ReadFull(r, b)
	}
	if err == nil {
		// The checksum is compared at the end.
		var extra [1]byte
		if _, end := io.ReadFull(r, extra[:]); end != io.EOF {
			err = end
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zip.ErrChecksum):
		return loadError(ValueError, "record %q is damaged: its checksum is wrong", f.Name)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, zip.ErrFormat):
		return loadError(ValueError, "record %q is truncated", f.Name)
	}
	return err
}

func (a *archive) decode() (any, error) {
	f := a.files["data.pkl"]
	data := make([]byte, f.UncompressedSize64)
	if err := a.read(f, data); err != nil {
		return nil, err
	}
	a.budget = pickle.NewBudget(len(data))
	v, err := pickle.Decode(data, a, a.budget)
	if err == nil {
		f := &flattener{done: map[any]flat{}}
		v, err = f.flatten(v)
		// In a hostile file a value may be in 2^50 places. Whoever prints it, saves it or compares it
		// comes to each of them.
		if err == nil && pickle.NewBudget(len(data)).Take(f.places) != nil {
			err = loadError(UnpicklingError, "its values are in so many places at once that it would be far larger if it were written out")
		}
	}
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, loadError(UnpicklingError, "%v", err)
	}
	return v, nil
}

// flattener turns what the pickle package makes into this package's types. A value that occurs in
// several places is turned once.
type flattener struct {
	done   map[any]flat
	depth  int
	places int // what has been turned comes to, were it written out: about the bytes of its text
}

// flat is a value that was turned; one that is under way has no places.
type flat struct {
	value  any
	places int
}

// add counts places, and stays where it is once there are too many to count.
func (f *flattener) add(places int) { f.places = min(f.places+places, math.MaxInt/2) }

func (f *flattener) flatten(v any) (any, error) {
	if f.depth > maxDepth {
		return nil, loadError(UnpicklingError, "the value is nested too deeply")
	}
	f.add(16)
	var items []any
	switch v := v.(type) {
	case *pickle.List:
		items = v.Items
	case *pickle.Tuple:
		items = v.Items
	case *pickle.Set:
		items = v.Items
	case *pickle.Dict:
	case global:
		return v.value()
	case typedStorage:
		return nil, loadError(NotImplementedError, "the file holds a storage that belongs to no tensor")
	case string:
		f.add(len(v))
		return v, nil
	case []byte:
		f.add(len(v))
		return v, nil
	case *big.Int:
		f.add(v.BitLen())
		return v, nil
	case Tensor:
		f.add(512)
		return v, nil
	default:
		return v, nil
	}
	if done, ok := f.done[v]; ok {
		if done.places == 0 {
			return nil, loadError(UnpicklingError, "the value contains itself")
		}
		f.add(done.places)
		return done.value, nil
	}
	f.done[v] = flat{}
	before := f.places
	f.places = 1
	f.depth++
	result, err := f.container(v, items)
	if err != nil {
		return nil, err
	}
	f.depth--
	f.done[v] = flat{result, f.places}
	f.add(before)
	return result, nil
}

// container turns a dict, or another container with these items.
func (f *flattener) container(v any, items []any) (any, error) {
	if d, ok := v.(*pickle.Dict); ok {
		dict := make(Dict, len(d.Items))
		for i, item := range d.Items {
			key, err := f.flatten(item.Key)
			if err != nil {
				return nil, err
			}
			value, err := f.flatten(item.Value)
			if err != nil {
				return nil, err
			}
			dict[i] = DictItem{key, value}
		}
		return dict, nil
	}
	list := make([]any, len(items))
	for i, item := range items {
		value, err := f.flatten(item)
		if err != nil {
			return nil, err
		}
		list[i] = value
	}
	if _, ok := v.(*pickle.Tuple); ok {
		return Tuple(list), nil
	}
	return list, nil
}

// global is a class or function that a file names.
type global string

// value returns what a global is that stands for itself.
func (g global) value() (any, error) {
	if name, ok := strings.CutPrefix(string(g), "torch."); ok {
		if d, err := ParseDType(name); err == nil {
			return d, nil
		}
	}
	return nil, loadError(UnpicklingError, "the file holds the Python object %s, which is no data", g)
}

func (g global) dtype() (DType, bool) {
	v, err := g.value()
	d, ok := v.(DType)
	return d, err == nil && ok
}

// The names that a file may mention, besides dtypes and storage classes.
var globals = map[global]bool{
	"collections.OrderedDict": true, "collections.defaultdict": true, "collections.Counter": true,
	"builtins.set": true, "builtins.frozenset": true, "builtins.complex": true, "builtins.bytearray": true,
	"builtins.dict": true, "builtins.int": true, "builtins.float": true, "builtins.list": true, "_codecs.encode": true,
	"torch.Size": true, "torch.device": true, "torch.storage.UntypedStorage": true,
	"torch.Tensor": true, "torch.nn.parameter.Parameter": true,
	"torch._utils._rebuild_tensor": true, "torch._utils._rebuild_tensor_v2": true, "torch._utils._rebuild_tensor_v3": true,
	"torch._utils._rebuild_parameter": true, "torch._utils._rebuild_parameter_with_state": true,
	"torch._tensor._rebuild_from_type_v2": true,
}

// Global is part of pickle.Host.
func (a *archive) Global(module, name string) (any, error) {
	if module == "__builtin__" {
		module = "builtins"
	}
	if module == "torch.tensor" {
		module = "torch._tensor"
	}
	g := global(module + "." + name)
	if globals[g] {
		return g, nil
	}
	if class, ok := strings.CutPrefix(string(g), "torch."); ok {
		if _, ok := storageTypes[class]; ok {
			return g, nil
		}
	}
	if _, ok := g.dtype(); ok {
		return g, nil
	}
	if strings.HasPrefix(string(g), "torch._utils._rebuild_") {
		return nil, loadError(NotImplementedError, "the file holds a tensor of a kind that cannot be loaded (%s)", name)
	}
	return nil, loadError(UnpicklingError, "the file asks for the Python object %s, which is no data", g)
}

// Persistent is part of pickle.Host: it returns a storage.
func (a *archive) Persistent(id any) (any, error) {
	t, _ := id.(*pickle.Tuple)
	if t == nil || len(t.Items) != 5 || t.Items[0] != "storage" {
		return nil, loadError(UnpicklingError, "the file refers to something that is no storage")
	}
	class, ok1 := t.Items[1].(global)
	key, ok2 := t.Items[2].(string)
	numel, ok3 := t.Items[4].(int64)
	if !ok1 || !ok2 || !ok3 {
		return nil, loadError(UnpicklingError, "a reference to a storage is malformed")
	}
	s := typedStorage{dtype: Uint8}
	if class != "torch.storage.UntypedStorage" {
		if s.dtype = storageTypes[strings.TrimPrefix(string(class), "torch.")]; s.dtype == 0 {
			return nil, loadError(UnpicklingError, "a storage has the type %s", class)
		}
	}
	if s.dtype.IsQuantized() {
		return nil, loadError(NotImplementedError, "the file holds a quantised tensor")
	}
	if err := a.budget.Take(len(key)); err != nil { // to look it up
		return nil, err
	}
	loaded := a.storages[key]
	if loaded == nil {
		var err error
		if loaded, err = a.loadStorage(key, numel == 0); err != nil {
			return nil, err
		}
		a.storages[key] = loaded
	}
	if numel < 0 || numel > loaded.nbytes/int64(s.dtype.Size()) {
		return nil, loadError(ValueError, "storage %q is truncated", key)
	}
	s.storage = loaded.storage
	return s, nil
}

type typedStorage struct {
	storage *Storage
	dtype   DType
}

func (a *archive) loadStorage(key string, empty bool) (*loadedStorage, error) {
	f := a.files["data/"+key]
	if f == nil {
		if !empty {
			return nil, loadError(ValueError, "storage %q is missing", key)
		}
		f = &zip.File{}
	}
	n := int64(f.UncompressedSize64)
	// Records may overlap, so that a small file could ask for much memory.
	if a.left -= n; a.left < 0 {
		return nil, loadError(ValueError, "the file holds more data than it is long")
	}
	if a.opt.Map && n > 0 {
		if s, err := a.mapStorage(f, n); s != nil || err != nil {
			return &loadedStorage{s, n}, err
		}
	}
	var h C.Tensor
	shape := C.int64_t(n)
	if err := C.TensorFromData(nil, shape, &shape, 1, C.ScalarType(Uint8-1), &h); err != nil {
		return nil, takeError("Load", unsafe.Pointer(err))
	}
	t := wrapHandle(unsafe.Pointer(h))
	if n > 0 {
		if err := a.read(f, RawData(t)); err != nil {
			t.Close()
			return nil, err
		}
	}
	s := a.toDevice(t)
	return &loadedStorage{s, n}, nil
}

func (a *archive) toDevice(t Tensor) *Storage {
	if a.opt.Device == 0 {
		return t.Storage()
	}
	return t.To(a.opt.Device).Storage()
}

// mapStorage returns nil where the bytes lie in a way that no tensor may.
func (a *archive) mapStorage(f *zip.File, n int64) (*Storage, error) {
	offset, err := f.DataOffset()
	if err != nil {
		return nil, loadError(ValueError, "record %q is damaged: %v", f.Name, err)
	}
	if offset%16 != 0 {
		return nil, nil
	}
	cPath := C.CString(a.file.Name())
	defer C.free(unsafe.Pointer(cPath))
	var h C.Storage
	if err := C.cgotorch_map_open_file(C.int(a.file.Fd()), cPath, C.int64_t(offset), C.int64_t(n), &h); err != nil {
		return nil, takeError("Load", unsafe.Pointer(err))
	}
	s := newStorage(h)
	if a.opt.Device != 0 && a.opt.Device.Type() != DeviceTypeCPU {
		return a.toDevice(tensorOn(s, Uint8, 0, []int64{n}, []int64{1})), nil
	}
	return s, nil
}

// Build is part of pickle.Host. The state of what is data otherwise, like the _metadata of a state
// dict, are attributes that only Python has a use for.
func (a *archive) Build(object, _ any) error {
	switch object.(type) {
	case *pickle.Dict, Tensor:
		return nil
	}
	return loadError(UnpicklingError, "the file sets the state of a %T", object)
}

// Reduce is part of pickle.Host.
func (a *archive) Reduce(callable any, args *pickle.Tuple) (any, error) {
	g, ok := callable.(global)
	if !ok {
		return nil, loadError(UnpicklingError, "the file calls a %T", callable)
	}
	bad := func() error { return loadError(UnpicklingError, "%s is called with the wrong arguments", g) }
	in := args.Items
	arg := func(i int) any {
		if i < len(in) {
			return in[i]
		}
		return nil
	}
	switch g {
	case "collections.OrderedDict", "collections.Counter", "builtins.dict":
		return a.dictOf(arg(0), bad)
	case "collections.defaultdict":
		return &pickle.Dict{}, nil // the first argument is a class, the rest follows as items
	case "builtins.set", "builtins.frozenset":
		if arg(0) == nil {
			return &pickle.Set{}, nil
		}
		if items, ok := itemsOf(arg(0)); ok {
			items, err := a.copied(items)
			return &pickle.Set{Items: items}, err
		}
	case "builtins.complex":
		re, ok1 := arg(0).(float64)
		im, ok2 := arg(1).(float64)
		if ok1 && ok2 {
			return complex(re, im), nil
		}
	case "_codecs.encode", "builtins.bytearray":
		if b, ok := arg(0).([]byte); ok {
			return b, nil
		}
		s, ok := arg(0).(string)
		if ok && arg(1) == "latin1" {
			if err := a.budget.Take(len(s)); err != nil {
				return nil, err
			}
			b := make([]byte, 0, len(s))
			for _, r := range s {
				if r > 0xff {
					return nil, bad()
				}
				b = append(b, byte(r))
			}
			return b, nil
		}
		if ok && s == "" || len(in) == 0 {
			return []byte{}, nil
		}
	case "torch.Size":
		if dims, ok := itemsOf(arg(0)); ok {
			dims, err := a.copied(dims)
			return &pickle.Tuple{Items: dims}, err
		}
	case "torch.device":
		if name, ok := arg(0).(string); ok {
			if err := a.budget.Take(len(name)); err != nil {
				return nil, err
			}
			if i, ok := arg(1).(int64); ok {
				name += ":" + fmt.Sprint(i)
			}
			return ParseDevice(name)
		}
	case "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3":
		return a.rebuild(g, arg, bad)
	case "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter":
		t, ok1 := arg(0).(Tensor)
		requiresGrad, ok2 := arg(1).(bool)
		if ok1 && ok2 {
			return t.RequiresGrad_(requiresGrad), nil
		}
	case "torch._tensor._rebuild_from_type_v2":
		// A tensor with attributes, or of a subclass: function, class, arguments, attributes.
		inner, ok := arg(2).(*pickle.Tuple)
		class, _ := arg(1).(global)
		if f, isGlobal := arg(0).(global); ok && isGlobal && f != g && (class == "torch.Tensor" || class == "torch.nn.parameter.Parameter") {
			return a.Reduce(f, inner)
		}
	}
	return nil, bad()
}

func itemsOf(v any) ([]any, bool) {
	switch v := v.(type) {
	case *pickle.Tuple:
		return v.Items, true
	case *pickle.List:
		return v.Items, true
	}
	return nil, false
}

// copied returns a copy of items: what is added to the one container must not show in the other.
func (a *archive) copied(items []any) ([]any, error) {
	if err := a.budget.Take(16 * len(items)); err != nil {
		return nil, err
	}
	return slices.Clone(items), nil
}

func (a *archive) dictOf(pairs any, bad func() error) (any, error) {
	d := &pickle.Dict{}
	switch pairs := pairs.(type) {
	case nil:
	case *pickle.Dict:
		return pairs.Copy(a.budget)
	case *pickle.List:
		for _, pair := range pairs.Items {
			items, _ := itemsOf(pair)
			if len(items) != 2 {
				return nil, bad()
			}
			if err := d.Set(items[0], items[1], a.budget); err != nil {
				return nil, err
			}
		}
	default:
		return nil, bad()
	}
	return d, nil
}

// rebuild makes a tensor: of a storage, an offset, sizes and strides; whether it requires grad; hooks,
// which are none; a dtype, where the storage has none; and which lazy operations are pending.
func (a *archive) rebuild(g global, arg func(int) any, bad func() error) (any, error) {
	// About what libtorch and Go keep of a tensor.
	if err := a.budget.Take(1024); err != nil {
		return nil, err
	}
	s, ok1 := arg(0).(typedStorage)
	offset, ok2 := arg(1).(int64)
	sizes, ok3 := dimsOf(arg(2))
	strides, ok4 := dimsOf(arg(3))
	if !ok1 || !ok2 || !ok3 || !ok4 || len(sizes) != len(strides) {
		return nil, bad()
	}
	dtype, pending := s.dtype, arg(6)
	if g == "torch._utils._rebuild_tensor_v3" {
		of, ok := arg(6).(global)
		if !ok {
			return nil, bad()
		}
		if dtype, ok = of.dtype(); !ok || dtype.Size() == 0 {
			return nil, bad()
		}
		pending = arg(7)
	}
	var t Tensor
	if err := Try0(func() { t = tensorOn(s.storage, dtype, offset, sizes, strides) }); err != nil {
		return nil, err
	}
	if bits, ok := pending.(*pickle.Dict); ok {
		if err := a.budget.Take(16 * len(bits.Items)); err != nil { // to look through them
			return nil, err
		}
		if on, _ := bits.Get("conj"); on == true {
			t = t.Conj().Detach()
		}
		if on, _ := bits.Get("neg"); on == true {
			t = Call("aten::_neg_view", "", t)[0].(Tensor).Detach()
		}
	}
	if requiresGrad, _ := arg(4).(bool); requiresGrad {
		if err := Try0(func() { t.RequiresGrad_() }); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// maxDims is more dimensions than any operator takes.
const maxDims = 64

// dimsOf returns sizes or strides.
func dimsOf(v any) ([]int64, bool) {
	items, ok := itemsOf(v)
	if !ok || len(items) > maxDims {
		return nil, false
	}
	ns := make([]int64, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok {
			return nil, false
		}
		ns[i] = n
	}
	return ns, true
}
