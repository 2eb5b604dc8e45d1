package aoti

import (
	"encoding/json"
	"testing"
)

// FuzzLeaves looks for a description of arguments that gives another number of names than there are
// leaves.
func FuzzLeaves(f *testing.F) {
	f.Add(`[1, {"type":"builtins.tuple","context":"null","children_spec":[`+
		`{"type":"builtins.tuple","context":"null","children_spec":[{"type":null,"context":null,"children_spec":[]}]},`+
		`{"type":"builtins.dict","context":"[\"mask\"]","children_spec":[{"type":null,"context":null,"children_spec":[]}]}]}]`, 2, true)
	f.Add(`[1, {"type":null,"context":null,"children_spec":[]}]`, 1, false)
	f.Add(`[1]`, 3, true)
	f.Fuzz(func(t *testing.T, text string, n int, arguments bool) {
		n &= 0xff
		found := leaves(text, n, arguments)
		if len(found) != n {
			t.Fatalf("%d names for %d leaves", len(found), n)
		}
		size := 0
		for _, name := range found {
			size += len(name)
		}
		if json.Valid([]byte(text)) && size > 4096+64*len(text) {
			t.Fatalf("%d bytes of names from %d", size, len(text))
		}
	})
}
