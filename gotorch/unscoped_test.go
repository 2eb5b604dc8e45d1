package gotorch_test

import (
	"testing"

	"gotorch.dev/gotorch"
)

func TestUnscopedTensorsOutliveTheScope(t *testing.T) {
	var cache, temporary gotorch.Tensor
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		gotorch.Unscoped(func() { cache = gotorch.Ones([]int64{2}) })
		temporary = gotorch.Ones([]int64{2})
	})
	if got := gotorch.Item[float64](cache.Sum()); got != 2 {
		t.Errorf("the tensor made in Unscoped sums to %v, want 2", got)
	}
	if _, err := gotorch.Try(func() gotorch.Tensor { return temporary.Sum() }); err == nil {
		t.Error("a tensor made after Unscoped, back in the scope, outlived it")
	}
}

func TestUnscopedRestoresTheScopeOnPanic(t *testing.T) {
	var temporary gotorch.Tensor
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		_, _ = gotorch.Try(func() gotorch.Tensor {
			gotorch.Unscoped(func() { gotorch.MM(gotorch.Tensor{}, gotorch.Tensor{}) })
			return gotorch.Tensor{}
		})
		temporary = gotorch.Ones([]int64{2})
	})
	if _, err := gotorch.Try(func() gotorch.Tensor { return temporary.Sum() }); err == nil {
		t.Error("the scope was not restored: a tensor made in it outlived it")
	}
}
