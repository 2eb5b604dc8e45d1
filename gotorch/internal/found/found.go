// Package found says with whom a gradient scaler shares what it has found: a part of a sharded parameter's gradient may be finite
// where another rank's is not, and all ranks must leave the step out, or none.
package found

import (
	"slices"
	"sync"

	"gotorch.dev/gotorch"
)

// A Group is the ranks that have parts of one parameter.
type Group interface {
	// MaxOverRanks makes t the largest of the ranks' in each element.
	MaxOverRanks(t gotorch.Tensor)
}

// An Owner is a module that parts belong to.
type Owner struct{ group func() Group }

// NewOwner makes one. group returns nil when the module is not sharded any more.
func NewOwner(group func() Group) *Owner { return &Owner{group} }

// owners are those of parts, by the parts' handles.
var owners sync.Map // of uintptr to *Owner

// Has says that a part, by its handle, belongs to o, and Forget that it does not any more.
func (o *Owner) Has(handle uintptr) { owners.Store(handle, o) }

// Forget undoes [Owner.Has].
func (o *Owner) Forget(handle uintptr) { owners.CompareAndDelete(handle, o) }

// Together makes what a gradient scaler has found in this rank's gradients what was found in those of all ranks, where parameters
// are parts of sharded ones.
func Together(parameters []gotorch.Tensor, found gotorch.Tensor) {
	var groups []Group
	for _, p := range parameters {
		if of, is := owners.Load(uintptr(*p.T)); is {
			if g := of.(*Owner).group(); g != nil && !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
	}
	for _, g := range groups {
		g.MaxOverRanks(found)
	}
}
