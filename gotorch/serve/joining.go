package serve

import "gotorch.dev/gotorch/graph"

// joinedRows is how many rows a batch has where nobody has said it.
const joinedRows = 32

// unasked is the batching of a model whose configuration says nothing of it: at most so many rows, in what has come while
// the model was busy.
type unasked int

func (n unasked) set(o *modelOptions) {
	if n > 1 {
		o.batching, o.unasked = Batching{Max: int(n)}, true
	}
}

// joining is how requests for a model are joined, which they may be if its rows are independent.
func joining(sizes []graph.SizeRule, independent bool) unasked {
	if !independent {
		return 0
	}
	most := int64(joinedRows)
	for _, rule := range sizes {
		if rule.Dim == 0 {
			most = min(most, rule.Max)
		}
	}
	return unasked(most)
}
