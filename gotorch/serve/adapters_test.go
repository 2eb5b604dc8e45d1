package serve

import (
	"errors"
	"testing"

	"gotorch.dev/gotorch"
)

// Clients see what is wrong with their inputs, and nothing of the graph that has seen it.
func TestErrorsOfCompiledInputsSayNothingOfTheGraph(t *testing.T) {
	for msg, want := range map[string]string{
		"x: dimension 0 must be at most 64, got 100 [node 0 of 3: t0 = CheckSizes{rules=(SizeRule(input=0),), conditions=()}(x)]": "x: dimension 0 must be at most 64, got 100",
		"x: dimension 0 must be at most 64, got 100":       "x: dimension 0 must be at most 64, got 100",
		"x has shape [1]\nmore [node 12 of 30: t = f(\n)]": "x has shape [1]\nmore",
	} {
		err := inputError(&gotorch.Error{Op: "graph.Model.Call", Kind: gotorch.ValueError, Msg: msg})
		var e *Error
		if !errors.As(err, &e) || e.Code != InvalidArgument || e.Msg != want {
			t.Errorf("%q becomes %v", msg, err)
		}
	}
	if err := error(&gotorch.Error{Kind: gotorch.RuntimeError, Msg: "x [node 0 of 3: y]"}); inputError(err) != err {
		t.Error("a failure of the model is not what is wrong with the inputs")
	}
}
