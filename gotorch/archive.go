package gotorch

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"os"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/counting"
	"gotorch.dev/gotorch/internal/ctorch"
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
		of[d] = name
	}
	return of
}()

// Writing -------------------------------------------------------------------------------------------------

// Encode writes what [Save] would write to a file. name is that of the folder in the archive, which
// Python takes from the file's name.
func Encode(w io.Writer, name string, value any) (err error) {
	defer catch(&err)
	a := &archiveWriter{name: name, pickle: pickle.NewEncoder(), keys: map[int64]savedStorage{}}
	if err := a.value(value, 0); err != nil {
		return err
	}
	return a.write(w)
}

type archiveWriter struct {
	name     string
	pickle   *pickle.Encoder
	keys     map[int64]savedStorage // by the identities of storages
	storages []Tensor               // each all of a storage, as bytes; while it is alive its identity is unique
}

// savedStorage is a storage that has a record. Python gives each one dtype: one that is seen as another, too, is then
// referred to as bytes.
type savedStorage struct {
	number int
	dtype  DType // 0 where it is bytes
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
		if !pickle.ValidText(v) { // two names could become one
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
		return a.dict(v, depth)
	case Layout:
		if v == 0 {
			return saveError(TypeError, "a value is the zero Layout")
		}
		a.layout(v)
	case *Storage:
		if v == nil {
			p.None()
			return nil
		}
		return a.bareStorage(v)
	case *PickledObject:
		return unsaved(v)
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
		dict := make(Dict, 0, r.Len())
		for i := r.MapRange(); i.Next(); { // for NaN as a key is not found again
			dict = append(dict, DictItem{i.Key().Interface(), i.Value().Interface()})
		}
		slices.SortStableFunc(dict, func(x, y DictItem) int { return compareKeys(reflect.ValueOf(x.Key), reflect.ValueOf(y.Key)) })
		return a.dict(dict, depth)
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

// unsaved is the error for what Load reads and Save does not write.
func unsaved(o *PickledObject) *Error {
	return saveError(TypeError, "a value is %s, which Save does not write: leave it out", o.wayOut())
}

// dict writes a dict. In Python its keys are hashable, and those that are equal are one.
func (a *archiveWriter) dict(d Dict, depth int) error {
	if depth > maxDepth {
		return saveError(ValueError, "the value is nested too deeply, or contains itself")
	}
	seen := make(map[any]bool, len(d))
	a.pickle.Dict()
	for _, item := range d {
		key, pickled, err := asKey(item.Key, 0)
		if err != nil {
			return err
		}
		same, err := pickle.Key(pickled)
		if err != nil {
			return saveError(ValueError, "%v", err)
		}
		if seen[same] {
			return saveError(ValueError, "two keys of a dict are one in Python, where integers, floats and bools of the same value are: %v", item.Key)
		}
		seen[same] = true
		if err := a.value(key, depth+1); err != nil {
			return err
		}
		if err := a.value(item.Value, depth+1); err != nil {
			return err
		}
	}
	a.pickle.SetAll()
	return nil
}

// asKey returns a key as it is written, in which arrays are tuples, and as package pickle has it.
func asKey(key any, depth int) (written, pickled any, err error) {
	if depth > maxDepth {
		return nil, nil, saveError(ValueError, "a key is nested too deeply, or contains itself")
	}
	switch k := key.(type) {
	case nil, DType, Device, Layout, []byte, *big.Int, Tensor, *Storage:
		return k, k, nil
	case *PickledObject:
		return nil, nil, unsaved(k)
	}
	r := reflect.ValueOf(key)
	switch {
	case r.Kind() == reflect.Bool:
		return key, r.Bool(), nil
	case r.CanInt():
		return key, r.Int(), nil
	case r.CanUint():
		return key, new(big.Int).SetUint64(r.Uint()), nil
	case r.CanFloat():
		return key, r.Float(), nil
	case r.CanComplex():
		return key, r.Complex(), nil
	case r.Kind() == reflect.String:
		return key, r.String(), nil
	case r.Kind() == reflect.Array || r.Type() == reflect.TypeFor[Tuple]():
		tuple, of := make(Tuple, r.Len()), &pickle.Tuple{Items: make([]any, r.Len())}
		for i := range tuple {
			if tuple[i], of.Items[i], err = asKey(r.Index(i).Interface(), depth+1); err != nil {
				return nil, nil, err
			}
		}
		return tuple, of, nil
	}
	return nil, nil, saveError(TypeError, "a dict has a key of type %T, which cannot be one in Python", key)
}

// compareKeys orders the keys of a map, so that equal maps make equal files. nil is an invalid Value, and comes first.
func compareKeys(x, y reflect.Value) int {
	switch {
	case !x.IsValid() || !y.IsValid():
		return cmp.Compare(boolInt(x.IsValid()), boolInt(y.IsValid()))
	case x.Type() != y.Type():
		return cmp.Compare(x.Type().String(), y.Type().String())
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
	case i.Flags&ctorch.TensorHasStorage == 0 && t.isTransformed():
		return saveError(RuntimeError, "inside of a function that is transformed a tensor cannot be saved: return it, and save the result")
	case i.Ndim > maxDims:
		return saveError(NotImplementedError, "a tensor has %d dimensions, and Load takes no more than %d", i.Ndim, maxDims)
	case i.Flags&ctorch.TensorNested != 0:
		return saveError(NotImplementedError, "nested tensors cannot be saved: save their parts")
	}
	dtype, layout := DType(i.Dtype+1), Layout(i.Layout+1)
	defer runtime.KeepAlive(t.T)
	switch {
	case t.Device().Type() == DeviceTypeMeta && layout == Strided:
		a.pickle.Global("torch._utils", "_rebuild_meta_tensor_no_storage")
		a.pickle.Mark()
		a.pickle.Global("torch", dtype.Name())
		a.ints(i.copySizes())
		a.ints(i.copyStrides())
		a.pickle.Bool(i.Flags&ctorch.TensorRequiresGrad != 0)
		a.pickle.Tuple()
		a.pickle.Call()
		return nil
	case slices.Contains([]Layout{SparseCOO, SparseCSR, SparseCSC, SparseBSR, SparseBSC}, layout):
		return a.sparse(t.Detach(), layout)
	case layout != Strided, i.Flags&ctorch.TensorHasStorage == 0:
		return saveError(NotImplementedError, "a tensor of layout %s without memory of its own cannot be saved", layout)
	}

	p := a.pickle
	saved := a.saved(i.StorageId, t.Storage(), dtype, i.StorageNbytes)
	untyped := saved.dtype != dtype && !dtype.IsQuantized()
	rebuild := "_rebuild_tensor_v2"
	switch {
	case i.Flags&ctorch.TensorQuantized != 0:
		rebuild = "_rebuild_qtensor"
	case untyped:
		rebuild = "_rebuild_tensor_v3"
	}
	p.Global("torch._utils", rebuild)
	p.Mark()
	if untyped {
		a.reference(saved, 0, i.StorageNbytes)
	} else {
		a.reference(saved, dtype, i.StorageNbytes)
	}
	p.Int(i.StorageOffset)
	a.ints(i.copySizes())
	a.ints(i.copyStrides())
	if i.Flags&ctorch.TensorQuantized != 0 {
		if err := a.quantizer(t); err != nil {
			return err
		}
	}
	p.Bool(i.Flags&ctorch.TensorRequiresGrad != 0)
	p.Global("collections", "OrderedDict") // of hooks, which are not saved
	p.Mark()
	p.Tuple()
	p.Call()
	if untyped {
		p.Global("torch", dtype.Name())
	}
	if i.Flags&(ctorch.TensorConj|ctorch.TensorNeg) != 0 { // what is pending, for the elements are those of the storage
		p.Dict()
		if i.Flags&ctorch.TensorConj != 0 {
			p.String("conj")
			p.Bool(true)
		}
		if i.Flags&ctorch.TensorNeg != 0 {
			p.String("neg")
			p.Bool(true)
		}
		p.SetAll()
	}
	p.Tuple()
	p.Call()
	return nil
}

func (a *archiveWriter) layout(l Layout) {
	a.pickle.Global("torch.serialization", "_get_layout")
	a.pickle.Mark()
	a.pickle.String(l.String())
	a.pickle.Tuple()
	a.pickle.Call()
}

// sparse writes a sparse tensor: its layout, and a tuple of what it consists of.
func (a *archiveWriter) sparse(t Tensor, layout Layout) error {
	if t.Device().Type() == DeviceTypeMeta {
		return saveError(NotImplementedError, "sparse tensors on the meta device cannot be saved")
	}
	var parts []Tensor
	switch layout {
	case SparseCOO:
		parts = []Tensor{Call("aten::_indices", "", t)[0].(Tensor), Call("aten::_values", "", t)[0].(Tensor)}
	case SparseCSR, SparseBSR:
		parts = []Tensor{t.CrowIndices(), t.ColIndices(), t.Values()}
	default:
		parts = []Tensor{t.CcolIndices(), t.RowIndices(), t.Values()}
	}
	p := a.pickle
	p.Global("torch._utils", "_rebuild_sparse_tensor")
	p.Mark()
	a.layout(layout)
	p.Mark()
	for _, part := range parts {
		if err := a.tensor(part); err != nil {
			return err
		}
	}
	p.Global("torch", "Size")
	p.Mark()
	a.ints(t.Shape())
	p.Tuple()
	p.Call()
	if layout == SparseCOO {
		p.Bool(t.IsCoalesced())
	}
	p.Tuple()
	p.Tuple()
	p.Call()
	return nil
}

// quantizer writes how a tensor is quantised.
func (a *archiveWriter) quantizer(t Tensor) error {
	p := a.pickle
	p.Mark()
	switch t.QSchemeOf() {
	case 0:
		p.Global("torch", "per_tensor_affine")
		p.Float(t.QScale())
		p.Int(t.QZeroPoint())
	case 1, 4: // which PyTorch tells by the dtype of the scales
		p.Global("torch", "per_channel_affine")
		if err := errors.Join(a.tensor(t.QPerChannelScales()), a.tensor(t.QPerChannelZeroPoints())); err != nil {
			return err
		}
		p.Int(t.QPerChannelAxis())
	default:
		return saveError(NotImplementedError, "a tensor is quantised in a way that cannot be saved")
	}
	p.Tuple()
	return nil
}

func (a *archiveWriter) ints(ns []int64) {
	a.pickle.Mark()
	for _, n := range ns {
		a.pickle.Int(n)
	}
	a.pickle.Tuple()
}

// bareStorage writes a storage that stands for itself.
func (a *archiveWriter) bareStorage(s *Storage) error {
	n := s.Bytes()
	of := tensorOn(s, Uint8, 0, []int64{n}, []int64{1})
	if of.Device().Type() == DeviceTypeMeta {
		return saveError(NotImplementedError, "a storage on the meta device cannot be saved")
	}
	i := of.info("Save")
	a.reference(a.saved(i.StorageId, s, 0, n), 0, n)
	runtime.KeepAlive(of.T)
	return nil
}

// saved returns the record of a storage of n bytes, in which all of it is. A new one is of dtype, if it can be.
func (a *archiveWriter) saved(id int64, s *Storage, dtype DType, n int64) savedStorage {
	saved, ok := a.keys[id]
	if !ok {
		saved.number = len(a.storages)
		if storageTypeOf[dtype] != "" && n%int64(dtype.Size()) == 0 {
			saved.dtype = dtype
		}
		a.keys[id] = saved
		a.storages = append(a.storages, tensorOn(s, Uint8, 0, []int64{n}, []int64{1}))
	}
	return saved
}

// reference writes a reference to a storage of n bytes, as one of a dtype, or 0 for bytes.
func (a *archiveWriter) reference(saved savedStorage, dtype DType, n int64) {
	p := a.pickle
	p.Mark()
	p.String("storage")
	if dtype == 0 {
		p.Global("torch.storage", "UntypedStorage")
	} else {
		p.Global("torch", storageTypeOf[dtype])
		n /= int64(dtype.Size())
	}
	p.String(fmt.Sprint(saved.number))
	p.String("cpu")
	p.Int(n)
	p.Tuple()
	p.Persistent()
}

// tensorOn makes a tensor on a storage. It panics with a ValueError if it would reach outside.
func tensorOn(s *Storage, dtype DType, offset int64, shape, strides []int64) Tensor {
	var h ctorch.Tensor
	err := ctorch.TensorFromStorage(ctorch.Storage(s.c.H), int32(dtype)-1, offset, unsafe.SliceData(shape),
		unsafe.SliceData(strides), int64(len(shape)), &h)
	runtime.KeepAlive(s)
	if err != nil {
		panicC("Load", unsafe.Pointer(err))
	}
	return wrapHandle(h)
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

// archive is the records of a file, by their names in its folder.
type archive struct {
	file            *os.File // nil where there is none
	ignoreChecksums bool
	files           map[string]*zip.File
}

// decodeArchive reads a file of torch.save.
func decodeArchive(file *os.File, r io.ReaderAt, size int64, opt LoadOptions) (any, error) {
	a, err := openArchive(file, r, size, opt)
	if err != nil {
		return nil, err
	}
	u := &unpickler{opt: opt, records: a, left: size, work: 4 * size}
	if f := a.files["byteorder"]; f != nil {
		order, err := a.whole(f)
		if err != nil {
			return nil, err
		}
		switch string(order) {
		case "little":
		case "big":
			u.bigEndian = true
			u.left *= 4 // a storage is there once for each order that its bytes are read in
		default:
			return nil, loadError(ValueError, "the file was written in the unknown byte order %.20q", order)
		}
	}
	if f := a.files[".storage_alignment"]; f != nil { // nothing depends on it, but torch.load wants a number
		text, err := a.whole(f)
		if err != nil {
			return nil, err
		}
		if _, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return nil, loadError(ValueError, "the file has the alignment %.20q, which is no number", text)
		}
	}
	data, err := a.whole(a.files["data.pkl"])
	if err != nil {
		return nil, err
	}
	return u.decode(data)
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
	a := &archive{file: file, ignoreChecksums: opt.IgnoreChecksums, files: map[string]*zip.File{}}
	folder := ""
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/data.pkl") && strings.Count(f.Name, "/") == 1 {
			folder = strings.TrimSuffix(f.Name, "data.pkl")
			break
		}
	}
	if err := otherArchive(z.File, folder); err != nil {
		return nil, err
	}
	for _, f := range z.File {
		name, inside := strings.CutPrefix(f.Name, folder)
		if !inside {
			return nil, loadError(ValueError, "the file has its records in two folders: %.100q is not in %.100q", f.Name, folder)
		}
		if strings.HasSuffix(f.Name, "/") && f.UncompressedSize64 == 0 {
			continue // the folder itself, which some programs write
		}
		if a.files[name] != nil {
			return nil, loadError(ValueError, "the file has two records %q", f.Name)
		}
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
			return nil, loadError(NotImplementedError, "record %q is compressed, which torch.save never does: load and save the file once in Python", f.Name)
		}
		if f.UncompressedSize64 > uint64(size) {
			return nil, loadError(ValueError, "record %q is truncated", f.Name)
		}
		a.files[name] = f
	}
	return a, a.checkVersion()
}

// otherArchive says what a zip archive is that torch.save has not written.
func otherArchive(files []*zip.File, folder string) error {
	has := func(match func(name string) bool) bool {
		return slices.ContainsFunc(files, func(f *zip.File) bool { return match(f.Name) })
	}
	switch {
	case folder != "" && has(func(name string) bool { return name == folder+"constants.pkl" }):
		return loadError(NotImplementedError, "the file is a TorchScript program, not only data: read it with jit.Load of gotorch/jit, or in Python save the model's state_dict()")
	case has(func(name string) bool { return strings.Contains(name, "/data/aotinductor/") }):
		return loadError(NotImplementedError, "the file is a package of AOTInductor (.pt2), not only data: run it with gotorch/aoti")
	case has(func(name string) bool {
		return path.Base(name) == "archive_format" || path.Base(name) == "serialized_exported_program.json" || strings.HasPrefix(path.Base(name), "model") && strings.HasSuffix(name, ".json")
	}):
		return loadError(NotImplementedError, "the file is a program of torch.export (.pt2), not only data: in Python write it as a Go package with pytorch_bridge.export_go or export_model, or save the weights, torch.save(model.state_dict(), path)")
	case folder == "":
		return loadError(ValueError, "the file is a zip archive, but none of torch.save's")
	}
	return nil
}

// The versions of the format that there are.
const oldestVersion, newestVersion = 1, 10

// checkVersion looks at the version of the format, which torch.load wants to be there.
func (a *archive) checkVersion() error {
	f := a.files[".data/version"]
	if f == nil {
		f = a.files["version"]
	}
	if f == nil {
		return loadError(ValueError, "the file has no record \"version\"")
	}
	text, err := a.whole(f)
	if err != nil {
		return err
	}
	version, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || version < oldestVersion {
		return loadError(ValueError, "the file's record \"version\" is %.20q: it must be a number, %d at least", text, oldestVersion)
	}
	if version > newestVersion {
		return loadError(NotImplementedError, "the file has version %d of the format, and those up to %d are known", version, newestVersion)
	}
	return nil
}

// whole returns the content of a record.
func (a *archive) whole(f *zip.File) ([]byte, error) {
	b := make([]byte, f.UncompressedSize64)
	return b, a.fill(f, b)
}

// fill fills b with a record, which must have that length.
func (a *archive) fill(f *zip.File, b []byte) error {
	var r io.Reader
	var err error
	if a.ignoreChecksums {
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

// size is part of records.
func (a *archive) size(key string) (int64, bool) {
	f := a.files["data/"+key]
	if f == nil {
		return 0, false
	}
	return int64(f.UncompressedSize64), true
}

// read is part of records.
func (a *archive) read(key string, b []byte) error { return a.fill(a.files["data/"+key], b) }

// mapped is part of records. It returns nil where the bytes lie in a way that no tensor may.
func (a *archive) mapped(key string) (*Storage, error) {
	f := a.files["data/"+key]
	offset, err := f.DataOffset()
	if err != nil {
		return nil, loadError(ValueError, "record %q is damaged: %v", f.Name, err)
	}
	if offset%16 != 0 {
		return nil, nil
	}
	return mapOpen(a.file, offset, int64(f.UncompressedSize64))
}

// mapOpen maps a part of a file.
func mapOpen(file *os.File, offset, n int64) (*Storage, error) {
	cPath := ctorch.CString(file.Name())
	defer ctorch.CFree(unsafe.Pointer(cPath))
	var h ctorch.Storage
	if err := ctorch.MapOpenFile(int32(file.Fd()), cPath, offset, n, &h); err != nil {
		return nil, takeError("Load", unsafe.Pointer(err))
	}
	return newStorage(h), nil
}

// emptyBytes makes a tensor of n bytes, which are not set.
func emptyBytes(n int64) (Tensor, error) {
	var h ctorch.Tensor
	shape := n
	if err := ctorch.TensorFromData(nil, shape, &shape, 1, int32(Uint8-1), &h); err != nil {
		return Tensor{}, takeError("Load", unsafe.Pointer(err))
	}
	return wrapHandle(h), nil
}
