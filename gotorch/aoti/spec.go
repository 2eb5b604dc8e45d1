package aoti

import (
	"encoding/json"
	"strconv"
)

// treeSpec is a TreeSpec of torch.utils._pytree: how a Python value is made of its leaves.
type treeSpec struct {
	Type     *string    `json:"type"` // nil for a leaf
	Context  string     `json:"context"`
	Children []treeSpec `json:"children_spec"`
}

// leaves returns the paths of the n leaves of a TreeSpec in JSON, which is preceded by the number of its
// format. Arguments are a tuple of the positional ones and a dict of the others. If the spec is none
// that is known here, or its names come to far more than it is long, leaves are numbered.
func leaves(text string, n int, arguments bool) []string {
	names := walker{left: 4096 + 64*len(text)}
	var version int
	var spec treeSpec
	if json.Unmarshal([]byte(text), &[]any{&version, &spec}) == nil {
		if arguments && len(spec.Children) == 2 {
			names.walk(spec.Children[0], "")
			names.walk(spec.Children[1], "")
		} else {
			names.walk(spec, "")
		}
	}
	paths := names.paths
	if len(paths) != n || names.left < 0 {
		paths = nil
		for i := range n {
			paths = append(paths, strconv.Itoa(i))
		}
	}
	return paths
}

// walker gathers the paths of leaves.
type walker struct {
	paths []string
	left  int // how long they may still be, and those that lead to them
}

func (w *walker) walk(s treeSpec, path string) {
	if w.left -= len(path); w.left < 0 {
		return
	}
	if s.Type == nil {
		w.paths = append(w.paths, path)
		return
	}
	// The context of a dict is a list of its keys.
	var keys []any
	if json.Unmarshal([]byte(s.Context), &keys) != nil || len(keys) != len(s.Children) {
		keys = nil
	}
	for i, child := range s.Children {
		name := strconv.Itoa(i)
		if keys != nil {
			if key, ok := keys[i].(string); ok {
				name = key
			}
		}
		if path != "" {
			name = path + "." + name
		}
		w.walk(child, name)
	}
}
