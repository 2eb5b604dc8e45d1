package gotorch

import "iter"

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

// Get returns the value of a key, which must be a string, number or bool of the very type that is in
// the dict: integers are int64, floats float64. It is nil if there is none.
func (d Dict) Get(key any) any {
	for _, item := range d {
		if item.Key == key {
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
