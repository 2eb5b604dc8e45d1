package gotorch

import (
	"iter"
	"reflect"
	"slices"
)

// Tuple is a Python tuple, among the results of [Operator.Call] and in files of [Load].
type Tuple []any

// Dict is a Python dict, among the results of [Operator.Call] and in files of [Load]: pairs of key and
// value in the order in which they were added.
type Dict []DictItem

// Counter is a Dict that [Save] writes as a Python collections.Counter, which counts its keys; [Load] returns it as
// a Dict. The state of lrscheduler.MultiStepLR has one.
type Counter Dict

// DictItem is a pair in a [Dict].
type DictItem struct {
	Key, Value any
}

// Get returns the value of a key, which must be of the very type that is in the dict: integers are int64, floats
// float64, tuples Tuple. It is nil if there is none.
func (d Dict) Get(key any) any {
	comparable := key == nil || reflect.TypeOf(key).Comparable()
	for _, item := range d {
		if comparable && item.Key == key || !comparable && reflect.DeepEqual(item.Key, key) {
			return item.Value
		}
	}
	return nil
}

// All iterates over the pairs.
func (d Dict) All() iter.Seq2[any, any] {
	return func(yield func(key, value any) bool) {
		for _, item := range d {
			if !yield(item.Key, item.Value) {
				return
			}
		}
	}
}

// PickledObject is a Python object in a file of [Load] that has no type in Go: an argparse.Namespace, a path, an
// enum, a datetime, an object of a class of the user's own. Nothing of it was run or imported; it is what the file
// says of it. [Save] does not take it.
type PickledObject struct {
	// Class is the object's class, or the function that Python would call to make it: "argparse.Namespace". Without
	// Call, it is the class or function itself.
	Class string
	// Call is whether Python would call Class to make the object.
	Call bool
	// Args are the arguments of that call. Named ones are a Dict at the end.
	Args Tuple
	// State is what is set then; of most classes it is a [Dict] of the object's attributes, which Attr returns.
	State any
	Items []any // the elements that are added, as to a list
	Pairs Dict  // the pairs that are added, as to a dict
}

// String returns "<argparse.Namespace object>", or "<class torch.nn.ReLU>" for the class or function itself.
func (o *PickledObject) String() string {
	if o.Call {
		return "<" + o.Class + " object>"
	}
	return "<class " + o.Class + ">"
}

// Attr returns an attribute of the object, or nil if the file has none of that name.
func (o *PickledObject) Attr(name string) any {
	attributes, _ := o.attributes()
	return attributes.Get(name)
}

// attributes returns the object's attributes, if its state is nothing else: a dict, or one of the object and one of its slots.
func (o *PickledObject) attributes() (Dict, bool) {
	if d, ok := o.State.(Dict); ok {
		return d, true
	}
	t, _ := o.State.(Tuple)
	if len(t) != 2 {
		return nil, false
	}
	d1, ok1 := t[0].(Dict)
	d2, ok2 := t[1].(Dict)
	return slices.Concat(d1, d2), (ok1 || t[0] == nil) && (ok2 || t[1] == nil)
}

// isModule reports whether o is a torch.nn.Module.
func (o *PickledObject) isModule() bool {
	_, ok1 := o.Attr("_modules").(Dict)
	_, ok2 := o.Attr("_parameters").(Dict)
	return ok1 && ok2
}

// wayOut says what an object is that somebody wanted to be data, and what to do.
func (o *PickledObject) wayOut() string {
	switch {
	case o.isModule():
		return "a pickled module of the class " + o.Class + ", which only Python can run: in Python save its weights, " +
			"torch.save(model.state_dict(), path), and read them with nn.Load; or write the model in Go with pytorch_bridge.export_model or export_go"
	case o.Class == dtensorClass:
		return "one rank's part of a DTensor: in Python save the whole, tensor.full_tensor(), or all parts with torch.distributed.checkpoint, which gotorch/distributed/checkpoint reads"
	case o.Call:
		return "an object of the Python class " + o.Class
	}
	return "the Python class or function " + o.Class
}
