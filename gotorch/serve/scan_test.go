package serve

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// One look may fall between the two renames that replace a folder.
func TestAModelIsGoneWhenTwoLooksDoNotFindIt(t *testing.T) {
	dir := t.TempDir()
	at, away := filepath.Join(dir, "a"), filepath.Join(dir, ".away")
	modeltest.Write(t, at, 3, false)
	srv := New()
	defer srv.Close(t.Context())
	testhelp.Must(t, srv.AddRepository(t.Context(), dir, RepositoryOptions{Poll: -1}))
	look := func(want bool) {
		t.Helper()
		srv.repositories[0].scan()
		if srv.Ready("a", "") != want {
			t.Errorf("ready is %v", !want)
		}
	}
	for range 2 {
		testhelp.Must(t, os.Rename(at, away))
		look(true)
		testhelp.Must(t, os.Rename(away, at))
		look(true)
	}
	testhelp.Must(t, os.Rename(at, away))
	look(true)
	look(false)
}

// Folders have any names, and errors say paths in any way.
func TestNoFolderOfThisMachineIsInWhatClientsAreTold(t *testing.T) {
	names := []string{"secret", "secret one", "two  secrets", "secret-3.d", "d\u00e9p\u00f4t secret", "(secret)", "secret's", "a:secret", "secret,", "[secret]", "secret\xff\xfe"}
	for i := range 60 {
		pick := func() string { return names[rand.IntN(len(names))] }
		dir := filepath.Join("/", pick(), pick(), "models")
		outside := filepath.Join("/", pick(), pick(), pick(), "my file.so")
		plain := filepath.Join("/srv/secret data", "secret", "the file.so") // by nobody who says that it is a path
		r := &repository{dir: dir}
		at := filepath.Join(dir, "iris", "1")
		for text, err := range map[string]error{
			"iris/1/model.so: no": fmt.Errorf("%s/model.so: no", at),
			"iris/1 has 2 files":  fmt.Errorf("%s has 2 files", at),
			"open my file.so: ":   fmt.Errorf("iris: %w", &os.PathError{Op: "open", Path: outside, Err: os.ErrNotExist}),
			"rename my file.so iris/1/x: ": errors.Join(errors.New("one"),
				&os.LinkError{Op: "rename", Old: outside, New: at + "/x", Err: os.ErrExist}),
			"dlopen: the file.so: bad": fmt.Errorf("dlopen: %s: bad", plain),
			"read \"the file.so\"":     fmt.Errorf("read %q", plain),
			"cannot map x.so":          fmt.Errorf("cannot map %s/gotorch-secret/x.so", os.TempDir()),
		} {
			told := r.tellable(err, at)
			if strings.Contains(told, "secret") && !strings.Contains(told, "gotorch-secret/x.so") || !strings.Contains(strings.ReplaceAll(told, "gotorch-secret/", ""), text) {
				t.Errorf("%d: %v is told as %q", i, err, told)
			}
		}
	}
	r := &repository{dir: "/models"}
	if told := r.tellable(errors.New("open /data/models/iris/x: no")); told != "open x: no" {
		t.Error(told)
	}
	for _, text := range []string{"serve: 3/4 of n/a", "float32[-1 2] / int64", "has neither a nor b and/or c", "a / b / c"} {
		if told := r.tellable(errors.New(text)); told != text {
			t.Errorf("%q is told as %q", text, told)
		}
	}
}

// A request that is too large for what is left never stands in the way of one that is not.
func TestABudgetRefusesNoneThatFits(t *testing.T) {
	b := &budget{limit: 100}
	base := &holding{budget: b}
	if !base.take(50) {
		t.Fatal("half of it")
	}
	stop := make(chan struct{})
	var large sync.WaitGroup
	for range 3 {
		large.Go(func() {
			h := &holding{budget: b}
			for {
				select {
				case <-stop:
					return
				default:
					if h.take(51) {
						t.Error("more than there is")
						return
					}
				}
			}
		})
	}
	small := &holding{budget: b}
	refused := 0
	for range 200_000 {
		if !small.take(40) {
			refused++
			continue
		}
		small.give(40)
	}
	close(stop)
	large.Wait()
	if refused > 0 || b.used.Load() != 50 {
		t.Errorf("%d of those that fit were refused, and %d bytes are taken", refused, b.used.Load())
	}
	huge := &holding{budget: &budget{limit: 1<<63 - 1}}
	if !huge.take(1) || huge.take(1<<63-1) || huge.fits(1<<63-1) || !huge.fits(1) {
		t.Error("near the largest number")
	}
}

// A client that unloads a model is answered though its requests do not end.
func TestAClientThatUnloadsAModelThatHangsIsAnswered(t *testing.T) {
	before := mostUnloading
	mostUnloading = 20 * time.Millisecond
	defer func() { mostUnloading = before }()
	srv := New(Options{Control: true})
	gate, runs := make(chan struct{}), make(chan struct{}, 2)
	for _, name := range []string{"rest", "rpc"} {
		testhelp.Must(t, srv.Add(name, FromModel(func(x gotorch.Tensor) gotorch.Tensor { runs <- struct{}{}; <-gate; return x })))
	}
	var clients sync.WaitGroup
	for _, name := range []string{"rest", "rpc"} {
		clients.Go(func() {
			x := gotorch.Ones([]int64{1})
			if _, err := srv.Infer(t.Context(), InferRequest{Model: name, Inputs: []Value{{Name: "input", Tensor: x}}}); err != nil {
				t.Error(err) // what runs ends as ever
			}
		})
		<-runs
	}
	w := httptest.NewRecorder()
	srv.HTTP().ServeHTTP(w, httptest.NewRequest("POST", "/v2/repository/models/rest/unload", nil))
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	_, dial := listening(t, srv, GRPCLimits{})
	_, err := pb.NewGRPCInferenceServiceClient(dial()).RepositoryModelUnload(t.Context(), &pb.RepositoryModelUnloadRequest{ModelName: "rpc"})
	testhelp.Must(t, err)
	for _, e := range srv.index(false) {
		if e.State != "UNAVAILABLE" || !strings.Contains(e.Reason, "still run") {
			t.Errorf("%+v", e)
		}
	}
	close(gate)
	clients.Wait()
	for _, name := range []string{"rest", "rpc"} {
		testhelp.Must(t, srv.Unload(t.Context(), name, ""))
	}
	for _, e := range srv.index(false) {
		if e.Reason != "it was unloaded" {
			t.Errorf("then %+v", e)
		}
	}
	testhelp.Must(t, srv.Close(t.Context()))
}
