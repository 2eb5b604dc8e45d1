package serve_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
)

// notReady fails if a server is ready, or says something else.
func notReady(t *testing.T, srv *serve.Server, what string, reasons ...string) {
	t.Helper()
	err := srv.CheckReady()
	if !errors.Is(err, serve.Unavailable) || srv.IsReady() {
		t.Fatalf("%s: %v", what, err)
	}
	for _, reason := range reasons {
		if !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, where %q was expected", what, err, reason)
		}
	}
}

func TestAServerWithoutAllItsModelsIsNotReady(t *testing.T) {
	damage := func(dir, model string) {
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, model, "weights.safetensors"), []byte("no weights"), 0o666))
	}
	folder := func(dir, name string) { testhelp.Must(t, os.MkdirAll(filepath.Join(dir, name), 0o777)) }
	for what, c := range map[string]struct {
		make    func(dir string)
		only    []string
		mend    func(dir string)
		reasons []string // nil: it is ready at once
	}{
		"no model":        {func(string) {}, nil, func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false) }, []string{"no model in the folder"}},
		"a damaged model": {func(dir string) { modeltest.Write(t, filepath.Join(dir, "b"), 3, false); damage(dir, "b") }, nil, func(dir string) { modeltest.Write(t, filepath.Join(dir, "b"), 3, false) }, []string{"model b, version 1", "weights.safetensors"}},
		"a damaged version": {func(dir string) {
			modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
			modeltest.Write(t, filepath.Join(dir, "a/2"), 3, false)
			damage(dir, "a/2")
		}, nil, func(dir string) { os.RemoveAll(filepath.Join(dir, "a/2")) }, []string{"model a, version 2"}},
		"one of two": {func(dir string) {
			modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
			modeltest.Write(t, filepath.Join(dir, "b"), 3, false)
			damage(dir, "b")
		}, nil, func(dir string) { os.RemoveAll(filepath.Join(dir, "b")) }, []string{"model b"}},
		"a wrong config.json": {func(dir string) {
			modeltest.Write(t, filepath.Join(dir, "a"), 3, false)
			config(t, dir, "a", `{"batchin": {}}`)
		}, nil, func(dir string) { config(t, dir, "a", `{}`) }, []string{"batchin"}},
		"an empty model":   {func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false); folder(dir, "c") }, nil, func(dir string) { modeltest.Write(t, filepath.Join(dir, "c/1"), 3, false) }, []string{"model c", "no version"}},
		"an empty version": {func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false); folder(dir, "c/1") }, nil, func(dir string) { modeltest.Write(t, filepath.Join(dir, "c/1"), 3, false) }, []string{"model c, version 1"}},
		"a missing name":   {func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false) }, []string{"a", "z"}, func(dir string) { modeltest.Write(t, filepath.Join(dir, "z/1"), 3, false) }, []string{"model z is not in the folder"}},
		"a damaged name":   {func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false); damage(dir, "a/1") }, []string{"a"}, func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false) }, []string{"model a, version 1"}},
		"others are damaged": {func(dir string) {
			modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
			modeltest.Write(t, filepath.Join(dir, "b"), 3, false)
			damage(dir, "b")
		}, []string{"a"}, nil, nil},
		"what is no model": {func(dir string) {
			modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
			folder(dir, "lost+found")
			folder(dir, ".git")
			testhelp.Must(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o666))
		}, nil, nil, nil},
	} {
		dir := t.TempDir()
		c.make(dir)
		srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: 5 * time.Millisecond, Only: c.only})
		if c.reasons == nil {
			if err := srv.CheckReady(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		notReady(t, srv, what, c.reasons...)
		if text, code, _ := request(t, srv, "GET", "/v2/health/ready"); code != 400 || !strings.Contains(text, "false") || strings.Contains(text, dir) {
			t.Errorf("%s: %d %s", what, code, text)
		}
		if err := srv.CheckReady(); strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v has the folder", what, err)
		}
		c.mend(dir)
		soon(t, what+" is mended", srv.IsReady)

		// From now on what is in service stays, and so does the answer.
		modeltest.Write(t, filepath.Join(dir, "new"), 3, false)
		damage(dir, "new")
		folder(dir, "new/empty")
		if c.only == nil {
			soon(t, "the damaged one is looked at", func() bool { return index(t, srv)["new/1"].Reason != "" })
		}
		if err := srv.CheckReady(); err != nil {
			t.Errorf("%s, and a model later: %v", what, err)
		}
		if c.only != nil {
			testhelp.Must(t, os.RemoveAll(filepath.Join(dir, "a")))
			soon(t, "model a is gone", func() bool { return !srv.IsReady() })
			notReady(t, srv, what, "model a is not in the folder")
		}
	}
}

func TestAModelThatAClientUnloadsLeavesTheServerReady(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
	srv, _ := repository(t, dir, serve.Options{Control: true})
	testhelp.Must(t, srv.Unload(t.Context(), "a", ""))
	if err := srv.CheckReady(); err != nil || srv.Ready("a", "") {
		t.Error(err)
	}
	// The folder is taken away: then nothing is left.
	testhelp.Must(t, os.RemoveAll(filepath.Join(dir, "a")))
	soon(t, "the model is gone", func() bool { return !srv.IsReady() })
	notReady(t, srv, "an empty folder", "no model in the folder")
}
