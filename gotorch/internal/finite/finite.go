// Package finite looks for numbers that are infinite or NaN.
package finite

import "gotorch.dev/gotorch"

// All reports whether all numbers of t are neither infinite nor NaN.
func All(t gotorch.Tensor) bool {
	if !t.Defined() || t.Numel() == 0 {
		return true
	}
	if d := t.DType(); !d.IsFloatingPoint() && !d.IsComplex() || t.Device().Type() == gotorch.DeviceTypeMeta {
		return true
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) bool {
		t := t.Detach()
		if t.Layout() == gotorch.SparseCOO {
			t = t.Coalesce().Values()
		}
		if t.Numel() == 0 {
			return true
		}
		return gotorch.Item[bool](t.IsFinite().All())
	})
}
