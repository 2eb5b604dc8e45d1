package serve_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
)

// A model whose rows are independent, as export_model has proved it, is batched unless its configuration says otherwise.
func TestRequestsAreJoinedWhereRowsAreIndependent(t *testing.T) {
	bound := []any{map[string]any{"input": "x", "dim": 0, "symbol": "n", "scale": 1, "offset": 0, "max": 4}}
	for what, c := range map[string]struct {
		independent, stateful bool
		sizes                 []any
		config                string
		want                  int
	}{
		"no proof":              {false, false, nil, "", 0},
		"a proof":               {true, false, nil, "", 32},
		"a bound":               {true, false, bound, "", 4},
		"a configuration":       {true, false, nil, `{"instances": 2, "queue": {"max": 99}}`, 32},
		"its own batching":      {true, false, nil, `{"batching": {"max": 3}}`, 3},
		"batching switched off": {true, false, nil, `{"batching": {"max": 0}}`, 0},
		"sequences":             {true, false, nil, `{"sequences": {}}`, 0},
		"state":                 {false, true, nil, "", 0},
	} {
		dir := t.TempDir()
		m := modeltest.Write(t, filepath.Join(dir, "m"), 3, c.stateful)
		m["independent_rows"] = c.independent
		if c.sizes != nil {
			m["sizes"] = c.sizes
		}
		modeltest.Manifest(t, filepath.Join(dir, "m"), m)
		if c.config != "" {
			config(t, dir, "m", c.config)
		}
		srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
		var found struct {
			Max int `json:"max_batch_size"`
		}
		text, code, _ := request(t, srv, "GET", "/v2/models/m/config")
		testhelp.Must(t, json.Unmarshal([]byte(text), &found))
		if code != 200 || found.Max != c.want {
			t.Errorf("%s: %d %s, where batches of %d were expected", what, code, text, c.want)
			continue
		}
		if c.stateful || strings.Contains(c.config, "sequences") {
			continue
		}
		// Requests of any number of rows are answered, together or alone.
		var all sync.WaitGroup
		for i := range 64 {
			rows := int64(i%5 + 1)
			if rows == 5 {
				rows = 100
			}
			all.Go(func() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					x := gotorch.Full([]int64{rows, 2}, float32(i))
					out, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "x", Tensor: x}}})
					if c.want == 3 && rows > 3 { // who asks for batching has said what is too large
						if err == nil {
							t.Errorf("%s: %d rows are taken", what, rows)
						}
						return
					}
					if err != nil || !gotorch.Equal(out[0].Tensor, x.MulScalar(3)) {
						t.Errorf("%s: request %d: %v", what, i, err)
					}
				})
			})
		}
		all.Wait()
		stats, err := srv.Statistics("m", "")
		testhelp.Must(t, err)
		if joined := stats[0].Executions < stats[0].Success.Count; joined && c.want == 0 {
			t.Errorf("%s: requests were joined", what)
		}
	}

	// A client chooses how many rows a request has, and statistics are kept of so many sizes.
	dir := t.TempDir()
	m := modeltest.Write(t, filepath.Join(dir, "m"), 3, false)
	m["independent_rows"] = true
	modeltest.Manifest(t, filepath.Join(dir, "m"), m)
	srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
	for n := range int64(300) {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			_, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "x", Tensor: gotorch.Ones([]int64{n + 1, 2})}}})
			testhelp.Must(t, err)
		})
	}
	stats, err := srv.Statistics("m", "")
	testhelp.Must(t, err)
	if s := stats[0]; len(s.Batches) != 256 || s.Executions != 300 || s.Inferences != 300*301/2 {
		t.Errorf("%d sizes, %d batches, %d rows", len(s.Batches), s.Executions, s.Inferences)
	}

	// A manifest that contradicts itself is damaged.
	dir = t.TempDir()
	for _, stateful := range []bool{false, true} {
		m := modeltest.Write(t, filepath.Join(dir, "m"), 3, stateful)
		m["independent_rows"] = true
		if !stateful {
			m["outputs"] = []any{map[string]any{"name": "y", "dtype": "float32", "shape": []int64{2}}}
		}
		modeltest.Manifest(t, filepath.Join(dir, "m"), m)
		srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
		if why := index(t, srv)["m/1"].Reason; !strings.Contains(why, "rows are independent") {
			t.Errorf("stateful %v: %q", stateful, why)
		}
	}
}
