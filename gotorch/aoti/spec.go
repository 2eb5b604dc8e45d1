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
// that is known here, leaves are numbered.
func leaves(text string, n int, arguments bool) []string {
	var paths []string
	var version int
	var spec treeSpec
	if json.Unmarshal([]byte(text), &[]any{&version, &spec}) == nil {
		if arguments && len(spec.Children) == 2 {
			paths = spec.Children[0].walk("", paths)
			paths = spec.Children[1].walk("", paths)
		} else {
			paths = spec.walk("", paths)
		}
	}
	if len(paths) != n {
		paths = nil
		for i := range n {
			paths = append(paths, strconv.Itoa(i))
		}
	}
	return paths
}

func (s treeSpec) walk(path string, paths []string) []string {
	if s.Type == nil {
		return append(paths, path)
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
		paths = child.walk(name, paths)
	}
	return paths
}
