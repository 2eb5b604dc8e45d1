package serve_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/jit"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// soon waits until something is so.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// ask runs a model of modeltest on a 2, in a scope.
func ask(srv *serve.Server, model, version string, params serve.Parameters, values ...float32) (y float32, err error) {
	if values == nil {
		values = []float32{2}
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		x := gotorch.Full([]int64{1, 2}, values[0])
		var out []serve.Value
		out, err = srv.Infer(context.Background(), serve.InferRequest{Model: model, Version: version, Parameters: params,
			Inputs: []serve.Value{{Name: "x", Tensor: x}}})
		if err == nil {
			y = gotorch.ToSlice[float32](out[0].Tensor)[0]
		}
	})
	return y, err
}

func says(t *testing.T, srv *serve.Server, model, version string, want float32) {
	t.Helper()
	if got, err := ask(srv, model, version, nil); err != nil || got != want {
		t.Errorf("model %s %s says %v, %v, not %v", model, version, got, err, want)
	}
}

// lockedBuffer is a log that may be read.
type lockedBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) count(what string) int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return strings.Count(b.text.String(), what)
}

func repository(t *testing.T, dir string, options serve.Options, opts ...serve.RepositoryOptions) (*serve.Server, *lockedBuffer) {
	t.Helper()
	log := &lockedBuffer{}
	options.Log = slog.New(slog.NewTextHandler(log, nil))
	srv := serve.New(options)
	t.Cleanup(func() { srv.Close(context.Background()) })
	if opts == nil {
		opts = []serve.RepositoryOptions{{Poll: 5 * time.Millisecond}}
	}
	testhelp.Must(t, srv.AddRepository(t.Context(), dir, opts...))
	return srv, log
}

type indexEntry struct{ Name, Version, State, Reason string }

func index(t *testing.T, srv *serve.Server) map[string]indexEntry {
	t.Helper()
	w := httptest.NewRecorder()
	srv.HTTP().ServeHTTP(w, httptest.NewRequest("POST", "/v2/repository/index", nil))
	var all []indexEntry
	testhelp.Must(t, json.Unmarshal(w.Body.Bytes(), &all))
	found := map[string]indexEntry{}
	for _, e := range all {
		found[e.Name+"/"+e.Version] = e
	}
	return found
}

func TestAFolderOfModelsIsServedAndFollowed(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
	modeltest.Write(t, filepath.Join(dir, "b"), 5, false)
	testhelp.Must(t, os.MkdirAll(filepath.Join(dir, ".hidden/1"), 0o777))
	srv, _ := repository(t, dir, serve.Options{})
	says(t, srv, "a", "", 6)
	says(t, srv, "b", "1", 10)

	// A version that appears takes over.
	modeltest.Write(t, filepath.Join(dir, "a/2"), 4, false)
	soon(t, "version 2", func() bool { return srv.Ready("a", "2") })
	says(t, srv, "a", "", 8)
	says(t, srv, "a", "1", 6)

	// A content that is replaced by renaming is loaded, and one that is gone is unloaded.
	modeltest.Write(t, filepath.Join(dir, ".new"), 7, false)
	testhelp.Must(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, ".old")))
	testhelp.Must(t, os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "b")))
	soon(t, "the new b", func() bool { y, err := ask(srv, "b", "", nil); return err == nil && y == 14 })
	testhelp.Must(t, os.RemoveAll(filepath.Join(dir, "a/2")))
	soon(t, "version 2 to go", func() bool { return !srv.Ready("a", "2") })
	says(t, srv, "a", "", 6)
	testhelp.Must(t, os.RemoveAll(filepath.Join(dir, "a")))
	soon(t, "a to go", func() bool { _, err := ask(srv, "a", "", nil); return errors.Is(err, serve.NotFound) })
}

func TestADamagedFolderLeavesTheOldInServiceAndIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a/1")
	modeltest.Write(t, at, 3, false)
	srv, log := repository(t, dir, serve.Options{})
	good, err := os.ReadFile(filepath.Join(at, "model.so"))
	testhelp.Must(t, err)

	// As by cp: another manifest first, then the library, bit by bit.
	modeltest.Write(t, filepath.Join(dir, ".new"), 4, false)
	for _, name := range []string{"manifest.json", "weights.safetensors"} {
		data, err := os.ReadFile(filepath.Join(dir, ".new", name))
		testhelp.Must(t, err)
		testhelp.Must(t, os.WriteFile(filepath.Join(at, name), data, 0o666))
	}
	f, err := os.Create(filepath.Join(at, "model.so"))
	testhelp.Must(t, err)
	for i := range 10 {
		_, err := f.Write(good[len(good)*i/10 : len(good)*(i+1)/11])
		testhelp.Must(t, err)
		time.Sleep(10 * time.Millisecond)
		says(t, srv, "a", "", 6)
	}
	soon(t, "a reason in the index", func() bool {
		e := index(t, srv)["a/1"]
		return e.State == "READY" && strings.Contains(e.Reason, "not yet complete")
	})
	if n := log.count("is not loaded"); n == 0 || n > 4 { // one for each way in which it was not complete
		t.Errorf("it is in the log %d times", n)
	}
	testhelp.Must(t, os.WriteFile(filepath.Join(at, "model.so"), good, 0o666))
	f.Close()
	defer func() { // what is in service is damaged on the disk alone
		testhelp.Must(t, os.WriteFile(filepath.Join(at, "model.so"), good[:100], 0o666))
		soon(t, "that the index says so", func() bool { return strings.Contains(index(t, srv)["a/1"].Reason, "100 bytes") })
		says(t, srv, "a", "", 8)
	}()
	soon(t, "the whole folder", func() bool { y, err := ask(srv, "a", "", nil); return err == nil && y == 8 })
	if e := index(t, srv)["a/1"]; e.Reason != "" {
		t.Errorf("then the index says %q", e.Reason)
	}
}

func TestWhatNeverLoadedIsInTheIndexWithTheReason(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "good"), 3, false)
	m := modeltest.Write(t, filepath.Join(dir, "old"), 3, false)
	m["abi"] = "ABI0"
	modeltest.Manifest(t, filepath.Join(dir, "old"), m)
	testhelp.Must(t, os.MkdirAll(filepath.Join(dir, "empty/1"), 0o777))
	modeltest.Write(t, filepath.Join(dir, "wrong"), 3, false)
	config(t, dir, "wrong", `{"batchin": {}}`)
	srv, _ := repository(t, dir, serve.Options{Control: true}, serve.RepositoryOptions{Poll: -1})
	says(t, srv, "good", "", 6)
	found := index(t, srv)
	for key, want := range map[string]string{"old/1": "export the model again", "empty/1": "has no model: neither", "wrong/1": "batchin"} {
		if e := found[key]; e.State != "UNAVAILABLE" || !strings.Contains(e.Reason, want) {
			t.Errorf("%s is %+v", key, e)
		}
	}
	if err := srv.Load(t.Context(), "old", ""); !errors.Is(err, serve.Unavailable) || !strings.Contains(err.Error(), "export the model again") {
		t.Errorf("load says %v", err)
	}
	// It is mended, and a client loads it.
	modeltest.Write(t, filepath.Join(dir, "old"), 4, false)
	testhelp.Must(t, srv.Load(t.Context(), "old", ""))
	says(t, srv, "old", "", 8)
}

func TestAClientUnloadsAndLoadsWhatIsInTheFolder(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
	srv, _ := repository(t, dir, serve.Options{Control: true})
	testhelp.Must(t, srv.Unload(t.Context(), "a", ""))
	modeltest.Write(t, filepath.Join(dir, "a/1"), 4, false)
	time.Sleep(50 * time.Millisecond)
	if srv.Ready("a", "") {
		t.Error("it is in service again, where nobody has loaded it")
	}
	testhelp.Must(t, srv.Load(t.Context(), "a", ""))
	says(t, srv, "a", "", 8)
}

func config(t *testing.T, dir, model, text string) {
	t.Helper()
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, model, "config.json"), []byte(text), 0o666))
}

func TestConfigurationsAreCheckedAsOptionsAre(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "a"), 3, false)
	srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
	for text, want := range map[string]string{
		`{"batching": {"max": -1}}`:                            "Batching.Max is -1",
		`{"batching": {"delay": "2ms"}}`:                       "no Max",
		`{"batching": {"max": 2, "delay": 2}}`:                 "no duration",
		`{"queue": {"max": 0}}`:                                "Queue.Max is 0",
		`{"queue": {"levels": 2, "default_level": 3}}`:         "DefaultLevel",
		`{"instances": 0}`:                                     "Instances is 0",
		`{"threads": 0}`:                                       "Threads is 0",
		`{"sequences": {"max": 0}}`:                            "Sequences.Max is 0",
		`{"ragged": [{"input": "x", "dim": 1}]}`:               "Ragged is for models with Batching",
		`{"batching": {"max": 2}, "ragged": [{"input": "q"}]}`: "input \"q\"",
		`{"versions": -1}`:                                     "versions is -1",
		`{"warmup": [{"x": [1, 3]}]}`:                          "warm-up",
		`{"warmup": [{"z": [1, 2]}]}`:                          "warm-up",
		`{"outputs": [{"name": "y", "type": "FP32"}]}`:         "AOTInductor",
		`{} {}`:                             "after the configuration",
		`[]`:                                "config.json",
		`{"instances": 1e99}`:               "config.json",
		`{"batching": {"max": 2, "Max": 3}`: "config.json",
		strings.Repeat(" ", 1<<20) + `{}`:   "bytes",
		`{"batching": {"max": 2, "preferred": [1, 2, 3]}}`:      "Preferred",
		`{"batching": {"max": 2}, "queue": {"timeout": "-1s"}}`: "Timeout",
	} {
		config(t, dir, "a", text)
		err := srv.Load(t.Context(), "a", "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", text, err)
		}
		says(t, srv, "a", "", 6)
	}
	config(t, dir, "a", `{"batching": {"max": 8, "delay": "1ms", "preferred": [4]}, "queue": {"max": 9, "timeout": "1s", "levels": 2},
		"instances": 2, "threads": 1, "warmup": [{"x": [4, 2]}, {}], "versions": 1}`)
	testhelp.Must(t, srv.Load(t.Context(), "a", ""))
	says(t, srv, "a", "", 6)
}

func TestOnlyTheHighestVersionsAreServedIfTheConfigurationSaysSo(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		modeltest.Write(t, filepath.Join(dir, "a", fmt.Sprint(9+i)), float32(i), false)
	}
	config(t, dir, "a", `{"versions": 2}`)
	srv, _ := repository(t, dir, serve.Options{})
	if srv.Ready("a", "9") || !srv.Ready("a", "10") || !srv.Ready("a", "11") {
		t.Error("not 10 and 11")
	}
	says(t, srv, "a", "", 4)
	modeltest.Write(t, filepath.Join(dir, "a/12"), 5, false)
	soon(t, "12 instead of 10", func() bool { return srv.Ready("a", "12") && !srv.Ready("a", "10") })
}

func TestADamagedNewVersionTakesNoneOfTheHighestOutOfService(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		modeltest.Write(t, filepath.Join(dir, "a", version), 3, false)
	}
	config(t, dir, "a", `{"versions": 1}`)
	srv, _ := repository(t, dir, serve.Options{Control: true}, serve.RepositoryOptions{Poll: -1})
	if srv.Ready("a", "1") || !srv.Ready("a", "2") {
		t.Error("not 2 alone")
	}

	modeltest.Write(t, filepath.Join(dir, "a/3"), 4, false)
	library := filepath.Join(dir, "a/3/model.so")
	good, err := os.ReadFile(library)
	testhelp.Must(t, err)
	testhelp.Must(t, os.WriteFile(library, good[:100], 0o666))
	for range 3 {
		if err := srv.Load(t.Context(), "a", ""); !errors.Is(err, serve.Unavailable) || !strings.Contains(err.Error(), "100 bytes") {
			t.Errorf("load says %v", err)
		}
		says(t, srv, "a", "", 6)
	}
	if e := index(t, srv)["a/3"]; e.State != "UNAVAILABLE" {
		t.Errorf("the index says %+v", e)
	}

	// A server that starts with such a folder serves the one that loads, too.
	other, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
	says(t, other, "a", "", 6)
	if other.Ready("a", "1") {
		t.Error("1 is in service beside 2")
	}

	testhelp.Must(t, os.WriteFile(library, good, 0o666))
	testhelp.Must(t, srv.Load(t.Context(), "a", ""))
	says(t, srv, "a", "", 8)
	if found := index(t, srv); len(found) != 1 || found["a/3"].State != "READY" {
		t.Errorf("then there are %v", found)
	}
	// A client that unloads the model gets no lower version in its place.
	other, _ = repository(t, dir, serve.Options{})
	testhelp.Must(t, other.Unload(t.Context(), "a", ""))
	time.Sleep(40 * time.Millisecond)
	if other.Ready("a", "") {
		t.Error("a lower version took the place of one that was unloaded")
	}
}

func TestAFolderThatCannotBeReadTakesNoModelOutOfService(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
	modeltest.Write(t, filepath.Join(dir, "b/1"), 5, false)
	modeltest.Write(t, filepath.Join(dir, "b/2"), 7, false)
	srv, log := repository(t, dir, serve.Options{})
	// A link to itself stands for a disk with errors: stat fails, but not because there is nothing.
	broken := func(name string) (mend func()) {
		at, kept := filepath.Join(dir, name), filepath.Join(dir, ".kept-"+filepath.Base(name))
		testhelp.Must(t, os.Rename(at, kept))
		testhelp.Must(t, os.Symlink(filepath.Base(name), at))
		return func() {
			testhelp.Must(t, os.Remove(at))
			testhelp.Must(t, os.Rename(kept, at))
		}
	}
	model, version := broken("a"), broken("b/2")
	testhelp.Must(t, os.Symlink("c", filepath.Join(dir, "c")))
	reason := func(key string) string { return index(t, srv)[key].Reason }
	for _, key := range []string{"a/1", "b/2", "c/"} {
		soon(t, key+" in the index", func() bool { return strings.Contains(reason(key), "symbolic links") })
	}
	if e := index(t, srv)["c/"]; e.State != "UNAVAILABLE" {
		t.Errorf("c is %+v", e)
	}
	if err := srv.Load(t.Context(), "c", "1"); !errors.Is(err, serve.Unavailable) || !strings.Contains(err.Error(), "symbolic links") {
		t.Errorf("to load c says %v", err)
	}
	time.Sleep(50 * time.Millisecond) // some looks
	says(t, srv, "a", "", 6)
	says(t, srv, "b", "", 14)
	if n := log.count("too many levels"); n != 3 {
		t.Errorf("it is in the log %d times, not once for each", n)
	}

	model()
	version()
	testhelp.Must(t, os.Remove(filepath.Join(dir, "c")))
	soon(t, "no reason in the index", func() bool { return reason("a/1") == "" && reason("b/2") == "" && reason("c/") == "" })
	says(t, srv, "a", "", 6)
	says(t, srv, "b", "", 14)
	// What is gone, not unreadable, is taken out of service as ever.
	testhelp.Must(t, os.RemoveAll(filepath.Join(dir, "a")))
	soon(t, "a to go", func() bool { return !srv.Ready("a", "") })
}

func TestNoRequestIsDroppedWhileVersionsAreReplaced(t *testing.T) {
	dir := t.TempDir()
	place := filepath.Join(dir, "a/1")
	modeltest.Write(t, place, 1, false)
	config(t, dir, "a", `{"batching": {"max": 8}, "warmup": [{"x": [8, 2]}]}`)
	goroutines := runtime.NumGoroutine()
	srv, _ := repository(t, dir, serve.Options{})
	var stop atomic.Bool
	var asked atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			last := float32(0)
			for !stop.Load() {
				y, err := ask(srv, "a", "", nil)
				if err != nil || y < last {
					t.Errorf("got %v after %v, %v", y, last, err)
					return
				}
				last = y
				asked.Add(1)
			}
		})
	}
	for i := range 20 {
		before := asked.Load()
		modeltest.Write(t, filepath.Join(dir, ".new"), float32(i+2), false)
		testhelp.Must(t, os.Rename(place, filepath.Join(dir, ".old")))
		testhelp.Must(t, os.Rename(filepath.Join(dir, ".new"), place))
		testhelp.Must(t, os.RemoveAll(filepath.Join(dir, ".old")))
		soon(t, "the new version", func() bool { y, err := ask(srv, "a", "", nil); return err == nil && y == float32(2*(i+2)) })
		if asked.Load() == before {
			soon(t, "requests", func() bool { return asked.Load() > before })
		}
	}
	stop.Store(true)
	clients.Wait()
	testhelp.Must(t, srv.Close(t.Context()))
	testhelp.NoMoreGoroutines(t, goroutines)
	text, err := os.ReadFile("/proc/self/maps")
	testhelp.Must(t, err)
	if n := strings.Count(string(text), "gotorch-model"); n > 0 {
		t.Errorf("%d parts of libraries are still mapped", n)
	}
}

func TestTheProgramsOwnModelsAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	log := &lockedBuffer{}
	srv := serve.New(serve.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	t.Cleanup(func() { srv.Close(context.Background()) })
	own := serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(100) }, serve.Signature{
		Inputs: []serve.Spec{{Name: "x", Type: serve.FP32}}, Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}})
	testhelp.Must(t, srv.Add("a", own))
	modeltest.Write(t, filepath.Join(dir, "a"), 3, false)
	testhelp.Must(t, srv.AddRepository(t.Context(), dir, serve.RepositoryOptions{Poll: 5 * time.Millisecond}))
	says(t, srv, "a", "", 200)
	if !strings.Contains(index(t, srv)["a/1"].Reason, "itself") {
		t.Errorf("the index is %v", index(t, srv))
	}
	testhelp.Must(t, os.RemoveAll(filepath.Join(dir, "a")))
	time.Sleep(40 * time.Millisecond)
	says(t, srv, "a", "", 200)
}

func TestWatchingEndsWithTheContextAndWithTheServer(t *testing.T) {
	dir := t.TempDir()
	goroutines := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	srv := serve.New()
	testhelp.Must(t, srv.AddRepository(ctx, dir, serve.RepositoryOptions{Poll: time.Millisecond}))
	cancel()
	testhelp.NoMoreGoroutines(t, goroutines)
	testhelp.Must(t, srv.AddRepository(t.Context(), dir, serve.RepositoryOptions{Poll: time.Millisecond, Only: []string{"a"}}))
	modeltest.Write(t, filepath.Join(dir, "a"), 3, false)
	modeltest.Write(t, filepath.Join(dir, "b"), 3, false)
	soon(t, "a", func() bool { return srv.Ready("a", "") })
	if srv.Ready("b", "") {
		t.Error("b is served, which is none of Only")
	}
	testhelp.Must(t, srv.Close(t.Context()))
	testhelp.NoMoreGoroutines(t, goroutines)
	if err := srv.AddRepository(t.Context(), dir); !errors.Is(err, serve.Unavailable) {
		t.Errorf("after Close: %v", err)
	}
	var e *os.PathError
	if err := serve.New().AddRepository(t.Context(), filepath.Join(dir, "none")); !errors.As(err, &e) {
		t.Errorf("no folder: %v", err)
	}
}

func TestClientsAreNotToldWhereTheFolderIs(t *testing.T) {
	real, dir := t.TempDir(), filepath.Join(t.TempDir(), "link")
	testhelp.Must(t, os.Symlink(real, dir))
	testhelp.Must(t, os.MkdirAll(filepath.Join(real, "empty/1"), 0o777))
	for _, name := range []string{"config", "large", "library", "weights", "manifest", "files"} {
		modeltest.Write(t, filepath.Join(real, name), 3, false)
	}
	testhelp.Must(t, os.Mkdir(filepath.Join(real, "config/config.json"), 0o777))
	config(t, real, "large", strings.Repeat(" ", 1<<20+1))
	testhelp.Must(t, os.WriteFile(filepath.Join(real, "library/model.so"), []byte("no library"), 0o666))
	testhelp.Must(t, os.Remove(filepath.Join(real, "weights/weights.safetensors")))
	testhelp.Must(t, os.WriteFile(filepath.Join(real, "manifest/manifest.json"), []byte("{\xff"), 0o666))
	testhelp.Must(t, os.Remove(filepath.Join(real, "files/manifest.json")))
	testhelp.Must(t, os.Symlink("nowhere", filepath.Join(real, "files/manifest.json")))
	testhelp.Must(t, os.WriteFile(filepath.Join(real, "files/a.pt2"), []byte("no package"), 0o666))
	testhelp.Must(t, os.MkdirAll(filepath.Join(real, "package/1"), 0o777))
	testhelp.Must(t, os.WriteFile(filepath.Join(real, "package/1/a.pt2"), []byte("no package"), 0o666))
	testhelp.Must(t, os.Symlink("loop", filepath.Join(real, "loop"))) // which cannot be read
	srv, log := repository(t, dir, serve.Options{Control: true}, serve.RepositoryOptions{Poll: -1})
	found := index(t, srv)
	if len(found) != 9 {
		t.Errorf("the index has %d entries", len(found))
	}
	for key, e := range found {
		err := srv.Load(t.Context(), e.Name, "")
		if err == nil || e.Reason == "" {
			t.Fatalf("%s is loaded: %+v", key, e)
		}
		for _, text := range []string{e.Reason, err.Error()} {
			if strings.Contains(text, real) || strings.Contains(text, dir) || strings.Contains(text, os.TempDir()) {
				t.Errorf("%s: %s", key, text)
			}
		}
	}
	if log.count(dir+"/empty/1") == 0 {
		t.Error("and the log does not say it either")
	}
}

func TestTheIndexOfWhatIsReadyHasNothingElse(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "good"), 3, false)
	modeltest.Write(t, filepath.Join(dir, "away"), 3, false)
	testhelp.Must(t, os.MkdirAll(filepath.Join(dir, "empty/1"), 0o777))
	srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
	testhelp.Must(t, srv.Unload(t.Context(), "away", ""))
	client := serveGRPC(t, srv)
	for body, want := range map[string]string{`{"ready":true}`: "[good]", `{"ready":false}`: "[away empty good]", "": "[away empty good]"} {
		w := httptest.NewRecorder()
		srv.HTTP().ServeHTTP(w, httptest.NewRequest("POST", "/v2/repository/index", strings.NewReader(body)))
		var all []indexEntry
		testhelp.Must(t, json.Unmarshal(w.Body.Bytes(), &all))
		var names, rpcNames []string
		for _, e := range all {
			names = append(names, e.Name)
			if ready := e.State == "READY"; ready != (e.Name == "good") || ready != (e.Reason == "") {
				t.Errorf("%+v", e)
			}
		}
		res, err := client.RepositoryIndex(t.Context(), &pb.RepositoryIndexRequest{Ready: strings.Contains(body, "true")})
		testhelp.Must(t, err)
		for _, e := range res.Models {
			rpcNames = append(rpcNames, e.Name)
		}
		if fmt.Sprint(names) != want || fmt.Sprint(rpcNames) != want {
			t.Errorf("%q: %v, and over gRPC %v, where %s was expected", body, names, rpcNames, want)
		}
	}
	for _, body := range []string{"{", "[]", `{"ready":1}`} {
		w := httptest.NewRecorder()
		srv.HTTP().ServeHTTP(w, httptest.NewRequest("POST", "/v2/repository/index", strings.NewReader(body)))
		protocolError(t, body, w.Code, w.Body.String(), 400)
	}
}

// A run for warm-up that does not return holds up neither other models, nor who loads, unloads and lists them.
func TestAModelThatHangsInItsWarmUpHoldsUpNoOther(t *testing.T) {
	dir, gates := t.TempDir(), t.TempDir()
	gate := func(name string) string {
		path := filepath.Join(gates, name)
		testhelp.Must(t, os.WriteFile(path, nil, 0o666))
		return path
	}
	first := gate("first")
	modeltest.Hanging(t, filepath.Join(dir, "a"), 3, first)
	config(t, dir, "a", `{"warmup": [{}]}`)
	modeltest.Write(t, filepath.Join(dir, "b"), 5, false)
	log := &lockedBuffer{}
	srv := serve.New(serve.Options{Control: true, Log: slog.New(slog.NewTextHandler(log, nil))})
	goroutines := runtime.NumGoroutine()
	all := make(chan error, 1)
	go func() {
		all <- srv.AddRepository(t.Context(), dir, serve.RepositoryOptions{Poll: 5 * time.Millisecond})
	}()
	defer func() {
		testhelp.Must(t, srv.Close(context.Background()))
		testhelp.NoMoreGoroutines(t, goroutines)
	}()
	defer os.RemoveAll(gates) // before Close
	within := func(d time.Duration, f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return f(ctx)
	}
	load := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return srv.Load(ctx, name, "") }
	}

	soon(t, "b beside a", func() bool { return srv.Ready("b", "") })
	for range 3 {
		testhelp.Must(t, within(20*time.Second, func(ctx context.Context) error { return srv.Unload(ctx, "b", "") }))
		testhelp.Must(t, within(20*time.Second, load("b")))
	}
	modeltest.Write(t, filepath.Join(dir, "c"), 7, false)
	soon(t, "c, which came later", func() bool { return srv.Ready("c", "") })
	if e := index(t, srv)["a/1"]; e.State != "LOADING" {
		t.Errorf("the index says %+v", e)
	}
	if err := srv.CheckReady(); err == nil || !strings.Contains(err.Error(), "model a") {
		t.Errorf("ready: %v", err)
	}
	if err := within(20*time.Millisecond, load("a")); !errors.Is(err, serve.DeadlineExceeded) || !strings.Contains(err.Error(), "still being loaded") {
		t.Errorf("a client that loads a: %v", err)
	}
	select {
	case err := <-all:
		t.Errorf("not all was loaded, and AddRepository returned %v", err)
	default:
	}
	testhelp.Must(t, os.Remove(first))
	testhelp.Must(t, <-all)
	testhelp.Must(t, srv.CheckReady())
	says(t, srv, "a", "", 6)

	// It may take as long as a run. Then what was in service stays, and it is not tried again while it still runs.
	second := gate("second")
	modeltest.Hanging(t, filepath.Join(dir, "a"), 4, second)
	config(t, dir, "a", `{"warmup": [{}, {"x": [4, 2]}], "run_timeout": "30ms"}`)
	soon(t, "the reason in the index", func() bool { return strings.Contains(index(t, srv)["a/1"].Reason, "longer than 30ms") })
	says(t, srv, "a", "", 6)
	for range 3 {
		if err := within(20*time.Second, load("a")); !errors.Is(err, serve.Unavailable) || !strings.Contains(err.Error(), "longer than 30ms") {
			t.Errorf("a client that loads a: %v", err)
		}
	}
	// Another content is.
	modeltest.Write(t, filepath.Join(dir, "a"), 9, false)
	config(t, dir, "a", `{"warmup": [{}]}`)
	soon(t, "the mended a", func() bool { y, err := ask(srv, "a", "", nil); return err == nil && y == 18 })
	const returned = "took longer than it may has returned"
	if n := log.count(returned); n != 0 {
		t.Errorf("%d have returned", n)
	}
	testhelp.Must(t, os.Remove(second))
	soon(t, "the run to return", func() bool { return log.count(returned) > 0 })
	says(t, srv, "a", "", 18)
}

// A file of TorchScript is a model as others are.
func TestTorchScriptInAFolderIsServed(t *testing.T) {
	dir := t.TempDir()
	put := func(file, at string) {
		data, err := os.ReadFile(filepath.Join("../jit/testdata", file))
		testhelp.Must(t, err)
		testhelp.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, at)), 0o777))
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, at), data, 0o666))
	}
	put("net.pt", "plain/1/model.pt")
	config(t, dir, "plain", `{"inputs": [{"name": "x", "type": "FP32"}]}`)
	put("net.pt", "untyped/a.pt")
	put("net.pt", "said/net.pt")
	config(t, dir, "said", `{"inputs": [{"name": "x", "type": "FP32", "shape": [-1, 3]}], "outputs": [{"name": "logits", "type": "FP32", "shape": [-1, 2]}],
		"batching": {"max": 8}, "warmup": [{"x": [8, 3]}]}`)
	put("net.pt", "two/1/a.pt")
	put("net.pt", "two/1/b.pt2")
	put("net.pt", "wrong/a.pt")
	config(t, dir, "wrong", `{"inputs": [{"name": "y", "type": "FP32"}]}`)
	put("net.pt", "mapped/a.pt")
	config(t, dir, "mapped", `{"map_weights": true}`)
	put("served.pt", "dict/a.pt") // forward returns a dict, and takes texts
	testhelp.Must(t, os.MkdirAll(filepath.Join(dir, "saved"), 0o777))
	saved := gotorch.Ones([]int64{2})
	testhelp.Must(t, gotorch.Save(filepath.Join(dir, "saved/a.pt"), saved))
	modeltest.Write(t, filepath.Join(dir, "graph"), 3, false)
	config(t, dir, "graph", `{"inputs": [{"name": "x", "type": "FP32"}]}`)
	srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})

	m, err := jit.Load("../jit/testdata/net.pt")
	testhelp.Must(t, err)
	defer m.Close()
	m.Eval()
	x := gotorch.Randn([]int64{5, 3})
	for model, output := range map[string]string{"plain": "output", "said": "logits"} {
		out, err := srv.Infer(t.Context(), serve.InferRequest{Model: model, Inputs: []serve.Value{{Name: "x", Tensor: x}}})
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		if want := m.Forward(x); out[0].Name != output || !out[0].Tensor.Equal(want) {
			t.Errorf("%s says %v, not %v", model, out, want)
		}
	}
	if _, err := srv.Infer(t.Context(), serve.InferRequest{Model: "said", Inputs: []serve.Value{{Name: "x", Tensor: gotorch.Ones([]int64{1, 4})}}}); !errors.Is(err, serve.InvalidArgument) {
		t.Error(err)
	}
	for at, want := range map[string]string{"/v2/models/plain": `"outputs":[{"name":"output","datatype":"","shape":[-1]}]`,
		"/v2/models/plain/config": `"output":[{"name":"output","data_type":"TYPE_INVALID","dims":[-1]}]`} {
		w := httptest.NewRecorder()
		srv.HTTP().ServeHTTP(w, httptest.NewRequest("GET", at, nil))
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s", at, w.Body)
		}
	}
	found := index(t, srv)
	for model, want := range map[string]string{"two": "has 2 files", "wrong": `no argument "y"`, "mapped": "export_model alone",
		"dict": "give a Signature", "untyped": `"x" of forward is Tensor and has no default`, "saved": "written by torch.save", "graph": "inputs are for TorchScript"} {
		if e := found[model+"/1"]; e.State != "UNAVAILABLE" || !strings.Contains(e.Reason, want) {
			t.Errorf("%s: %+v", model, e)
		}
	}
}

// Folders that change, models that hang, and clients who load, unload, list and ask: at once, for a second, or for GOTORCH_SERVE_CHAOS.
func TestFoldersAndClientsAtOnce(t *testing.T) {
	dir, gates := t.TempDir(), t.TempDir()
	goroutines, handles := runtime.NumGoroutine(), gotorch.MemoryStats().LiveHandles
	gate := filepath.Join(gates, "g")
	script, err := os.ReadFile("../jit/testdata/net.pt")
	testhelp.Must(t, err)
	srv := serve.New(serve.Options{Control: true, RunTimeout: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	for i := range 6 {
		modeltest.Write(t, filepath.Join(dir, fmt.Sprint("m", i), "1"), float32(i), false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go srv.AddRepository(ctx, dir, serve.RepositoryOptions{Poll: time.Millisecond})
	stop := make(chan struct{})
	var all sync.WaitGroup
	loop := func(f func()) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	name := func() string { return fmt.Sprint("m", rand.IntN(8)) }
	short := func(f func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30))*time.Millisecond)
		defer cancel()
		f(ctx)
	}
	var disk sync.Mutex
	loop(func() { // disk
		disk.Lock()
		defer disk.Unlock()
		n := name()
		at := filepath.Join(dir, n, fmt.Sprint(1+rand.IntN(2)))
		switch rand.IntN(8) {
		case 0:
			os.RemoveAll(filepath.Join(dir, n))
		case 1:
			os.RemoveAll(at)
		case 2:
			os.WriteFile(gate, nil, 0o666)
			modeltest.Hanging(t, at, 3, gate)
			config(t, dir, n, `{"warmup":[{}]}`)
		case 3:
			os.Remove(gate)
		case 4:
			os.RemoveAll(at)
			os.MkdirAll(at, 0o777)
			os.WriteFile(filepath.Join(at, "x.pt"), script[:len(script)-rand.IntN(2)*100], 0o666)
			config(t, dir, n, `{"inputs": [{"name": "x", "type": "FP32"}]}`)
		case 5:
			os.MkdirAll(at, 0o777)
			os.WriteFile(filepath.Join(at, "manifest.json"), []byte("{"), 0o666)
		default:
			os.Remove(filepath.Join(dir, n, "config.json"))
			modeltest.Write(t, at, rand.Float32(), false)
		}
	})
	for range 2 {
		loop(func() { short(func(ctx context.Context) { srv.Load(ctx, name(), "") }) })
		loop(func() { short(func(ctx context.Context) { srv.Unload(ctx, name(), "") }) })
		loop(func() {
			srv.CheckReady()
			srv.Statistics("", "")
			w := httptest.NewRecorder()
			srv.HTTP().ServeHTTP(w, httptest.NewRequest("POST", "/v2/repository/index", nil))
		})
		loop(func() { ask(srv, name(), "", nil) })
	}
	loop(func() {
		short(func(ctx context.Context) { srv.Remove(ctx, name(), "") })
		time.Sleep(10 * time.Millisecond)
	})
	long, err := time.ParseDuration(cmp.Or(os.Getenv("GOTORCH_SERVE_CHAOS"), "1s"))
	testhelp.Must(t, err)
	time.Sleep(long)
	close(stop)
	all.Wait()
	os.Remove(gate)
	if rand.IntN(2) == 0 {
		cancel()
	}
	testhelp.Must(t, srv.Close(context.Background()))
	cancel()
	testhelp.NoMoreGoroutines(t, goroutines)
	soon(t, "no more handles", func() bool { runtime.GC(); return gotorch.MemoryStats().LiveHandles <= handles })
	text, err := os.ReadFile("/proc/self/maps")
	testhelp.Must(t, err)
	if n := strings.Count(string(text), "gotorch-model"); n > 0 {
		t.Errorf("%d parts of libraries are still mapped", n)
	}
}

// What a server reads is a file: anything else in a folder is an error, and nothing waits for it.
func TestWhatIsNoFileInAFolderIsAnError(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{}
	for _, file := range []string{"manifest.json", "model.so", "weights.safetensors", "config.json", "a.pt", "a.pt2"} {
		for kind, put := range map[string]func(path string) error{
			"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o666) },
			"folder": func(path string) error { return os.Mkdir(path, 0o777) },
			"zeros":  func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			model := file + "-" + kind
			at := filepath.Join(dir, model, "1")
			if strings.HasSuffix(file, ".pt") || strings.HasSuffix(file, ".pt2") {
				testhelp.Must(t, os.MkdirAll(at, 0o777))
			} else {
				modeltest.Write(t, at, 3, false)
			}
			if file == "config.json" {
				at = filepath.Dir(at)
			}
			os.Remove(filepath.Join(at, file))
			testhelp.Must(t, put(filepath.Join(at, file)))
			want[model+"/1"] = true
		}
	}
	for model, text := range map[string]string{"instances": `{"instances": 1000000000}`, "deep": strings.Repeat("[", 1<<19),
		"large": `{"warmup": [{"x": [4611686018427387904, 2]}]}`, "negative": `{"warmup": [{"x": [-5, 2]}]}`} {
		modeltest.Write(t, filepath.Join(dir, model), 3, false)
		config(t, dir, model, text)
		want[model+"/1"] = true
	}
	srv, _ := repository(t, dir, serve.Options{}, serve.RepositoryOptions{Poll: -1})
	found := index(t, srv)
	for model := range want {
		if e := found[model]; e.State != "UNAVAILABLE" || e.Reason == "" {
			t.Errorf("%s: %+v", model, e)
		}
	}
}
