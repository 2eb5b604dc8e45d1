package cifar

import (
	"errors"
	"fmt"

	"gotorch.dev/gotorch/internal/pickle"
)

// The Python version is pickles of dicts, with an array of NumPy's in each. What such an array is made of is known here;
// nothing of a file is run.

// array is an array of NumPy's under construction.
type array struct {
	shape []int64
	bytes []byte
}

// dtype is a dtype of NumPy's, by its name.
type dtype struct{ name string }

// known are the classes and functions that arrays are made by.
type known string

const (
	reconstruct known = "_reconstruct"
	ndarray     known = "ndarray"
	newDType    known = "dtype"
	encode      known = "encode"
)

type host struct{}

func (host) Global(module, name string) (any, error) {
	switch module + "." + name {
	case "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct":
		return reconstruct, nil
	case "numpy.ndarray":
		return ndarray, nil
	case "numpy.dtype":
		return newDType, nil
	case "_codecs.encode": // how Python 3 writes bytes for Python 2
		return encode, nil
	}
	return nil, fmt.Errorf("it asks for %.60q of %.60q, which no array of numbers is made by", name, module)
}

func (host) Reduce(callable any, args *pickle.Tuple) (any, error) {
	switch callable {
	case reconstruct:
		return &array{}, nil
	case newDType:
		if len(args.Items) > 0 {
			if name, ok := text(args.Items[0]); ok {
				return &dtype{name}, nil
			}
		}
	case encode:
		if len(args.Items) == 2 {
			s, ok1 := text(args.Items[0])
			codec, ok2 := text(args.Items[1])
			if ok1 && ok2 && codec == "latin1" {
				b := make([]byte, 0, len(s))
				for _, r := range s {
					if r > 255 {
						return nil, errors.New("a string of bytes has other characters")
					}
					b = append(b, byte(r))
				}
				return b, nil
			}
		}
	}
	return nil, errors.New("an array is made in a way that is not known")
}

func (host) Build(object, state any) error {
	t, ok := state.(*pickle.Tuple)
	if !ok {
		return errors.New("the state of an array is no tuple")
	}
	a, ok := object.(*array)
	if !ok {
		return nil // the state of a dtype says its byte order, which a byte has not
	}
	if len(t.Items) != 5 {
		return errors.New("the state of an array has not five parts")
	}
	shape, ok1 := t.Items[1].(*pickle.Tuple)
	kind, ok2 := t.Items[2].(*dtype)
	fortran, ok3 := t.Items[3].(bool)
	b, ok4 := t.Items[4].([]byte)
	if s, is := t.Items[4].(string); is {
		b, ok4 = []byte(s), true
	}
	if !ok1 || !ok2 || !ok3 || !ok4 || fortran || kind.name != "u1" && kind.name != "uint8" {
		return errors.New("an array is not one of bytes, row by row")
	}
	for _, item := range shape.Items {
		n, ok := item.(int64)
		if !ok {
			return errors.New("the shape of an array is not of numbers")
		}
		a.shape = append(a.shape, n)
	}
	a.bytes = b
	return nil
}

func (host) Persistent(any) (any, error) {
	return nil, errors.New("it keeps values outside of itself")
}

// ByteString takes the pixels, which Python 2 has written as a string.
func (host) ByteString(b []byte) any { return append([]byte{}, b...) }

// text returns a string, whatever Python has written it.
func text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case []byte:
		return string(s), true
	}
	return "", false
}

// unpickle reads a dict.
func unpickle(b []byte) (map[string]any, error) {
	v, err := pickle.Decode(b, dictHost{}, pickle.NewBudget(len(b)))
	if err != nil {
		return nil, err
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, errors.New("it holds no dict")
	}
	fields := map[string]any{}
	for _, item := range d.Items {
		if key, ok := text(item.Key); ok {
			fields[key] = item.Value
		}
	}
	return fields, nil
}

// dictHost is host for a whole file: short strings, such as keys, are text.
type dictHost struct{ host }

func (dictHost) ByteString(b []byte) any {
	if len(b) < 256 {
		return string(b)
	}
	return append([]byte{}, b...)
}

// addPickle adds the pictures of a file of the Python version.
func (s *Set) addPickle(b []byte, hundred bool) error {
	d, err := unpickle(b)
	if err != nil {
		return err
	}
	a, ok := d["data"].(*array)
	if !ok {
		return errors.New("it has no array \"data\"")
	}
	if len(a.shape) != 2 || a.shape[1] != pixels || a.shape[0] <= 0 || int64(len(a.bytes))/pixels != a.shape[0] || len(a.bytes)%pixels != 0 {
		return fmt.Errorf("the array \"data\" has shape %v and %d bytes, and should be of rows of %d", a.shape, len(a.bytes), pixels)
	}
	n := int(a.shape[0])
	if !hundred {
		s.labels, err = labels(s.labels, d["labels"], n, 10)
	} else if s.labels, err = labels(s.labels, d["fine_labels"], n, 100); err == nil {
		s.coarse, err = labels(s.coarse, d["coarse_labels"], n, 20)
	}
	if err != nil {
		return err
	}
	s.pixels = append(s.pixels, a.bytes...)
	return nil
}

func labels(to []byte, v any, n, classes int) ([]byte, error) {
	list, ok := v.(*pickle.List)
	if !ok || len(list.Items) != n {
		return nil, fmt.Errorf("it has no list of the classes of %d pictures", n)
	}
	for i, item := range list.Items {
		label, ok := item.(int64)
		if !ok || label < 0 || label >= int64(classes) {
			return nil, fmt.Errorf("picture %d is of class %v, and there are %d", i, item, classes)
		}
		to = append(to, byte(label))
	}
	return to, nil
}

// pickledNames reads the names of the classes; b is nil where there is no file with them.
func (s *Set) pickledNames(b []byte, hundred bool) error {
	if b == nil {
		return nil
	}
	d, err := unpickle(b)
	if err != nil {
		return err
	}
	if !hundred {
		s.classes, err = pickledList(d["label_names"], 10)
		return err
	}
	if s.classes, err = pickledList(d["fine_label_names"], 100); err == nil {
		s.groups, err = pickledList(d["coarse_label_names"], 20)
	}
	return err
}

func pickledList(v any, n int) ([]string, error) {
	list, ok := v.(*pickle.List)
	if !ok || len(list.Items) != n {
		return nil, fmt.Errorf("it has no list of the names of %d classes", n)
	}
	names := make([]string, n)
	for i, item := range list.Items {
		if names[i], ok = text(item); !ok {
			return nil, fmt.Errorf("the name of class %d is no string", i)
		}
	}
	return names, nil
}
