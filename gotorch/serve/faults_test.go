package serve_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
)

const one = `{"inputs":[{"name":"input","shape":[1],"datatype":"FP32","data":[1]}]}`

// served fails if a model does not answer.
func served(t *testing.T, url string) {
	t.Helper()
	if code, text := post(t, url+"/v2/models/double/infer", one); code != 200 || !strings.Contains(text, "[2.0]") {
		t.Error(code, text)
	}
}

func TestBodiesOfAGigabyteAreRefusedBeforeTheyTakeMemory(t *testing.T) {
	srv := newServer(t, serve.Options{MaxRequestBytes: 1 << 20})
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	for how, head := range map[string]string{
		"announced":   "Content-Length: 1073741824\r\n\r\n",
		"in chunks":   "Transfer-Encoding: chunked\r\n\r\n",
		"of binaries": "Content-Length: 1073741824\r\nInference-Header-Content-Length: 1073741000\r\n\r\n",
	} {
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		testhelp.Must(t, err)
		c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\n%s", head)
		var sent sync.WaitGroup
		if how == "in chunks" {
			sent.Go(func() { // until the server has had enough
				chunk := "10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n"
				for range 1 << 14 {
					if _, err := io.WriteString(c, chunk); err != nil {
						return
					}
				}
				t.Error("a gigabyte was read")
			})
		}
		if line, _ := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "413") {
			t.Errorf("%s: answered with %q", how, line)
		}
		c.Close()
		sent.Wait()
		served(t, web.URL)
	}
}

func TestThousandSlowClientsDoNotKeepOthersFromTheirAnswers(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	srv := serve.New()
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewUnstartedServer(srv.HTTP())
	web.Config.ReadTimeout = 3 * time.Second
	web.Config.IdleTimeout = time.Minute // else that of reading, whose end may meet the next request
	web.Start()
	served(t, web.URL)
	http.DefaultClient.CloseIdleConnections()
	files := testhelp.Descriptors(t)
	slow := make([]net.Conn, 1000)
	for i := range slow {
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		testhelp.Must(t, err)
		slow[i] = c
		whole := fmt.Sprintf("POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(one), one)
		io.WriteString(c, whole[:i%len(whole)]) // and no more
	}
	served(t, web.URL)
	// Each is closed by the server, which may say why before.
	for _, c := range slow {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Error(err)
			break
		}
	}
	for _, c := range slow {
		c.Close()
	}
	served(t, web.URL)
	web.Close()
	testhelp.Must(t, srv.Close(t.Context()))
	http.DefaultClient.CloseIdleConnections()
	testhelp.NoMoreGoroutines(t, goroutines)
	if after := testhelp.Descriptors(t); after > files {
		t.Errorf("%d files are open, where %d were", after, files)
	}
}

func TestAModelThatRunsOutOfMemoryRefusesAndServesOn(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("double", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
		if gotorch.Item[float32](x) > 1 {
			gotorch.Empty([]int64{1 << 46})
		}
		return double(x)
	})))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	served(t, web.URL)
	handles := gotorch.MemoryStats().LiveHandles
	for range 10 {
		if code, text := post(t, web.URL+"/v2/models/double/infer", strings.Replace(one, "[1]}", "[2]}", 1)); code != 429 || !strings.Contains(text, "RESOURCE_EXHAUSTED") {
			t.Fatal(code, text)
		}
	}
	served(t, web.URL)
	// A client may have its answer before the server has closed what it was made of.
	soon(t, "no more tensors than before", func() bool { return gotorch.MemoryStats().LiveHandles <= handles })
}

// What a program does when it gets SIGTERM, while clients ask on.
func TestAServerThatEndsUnderLoadAnswersWhatItHasTaken(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	srv := serve.New()
	testhelp.Must(t, srv.Add("double", serve.FromModel(double), serve.Batching{Max: 8}))
	var done atomic.Int64
	web := httptest.NewServer(srv.HTTP())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for {
				res, err := client.Post(web.URL+"/v2/models/double/infer", "application/json", strings.NewReader(one))
				if err != nil { // no connection, or one that was closed before it was used
					return
				}
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				switch {
				case err != nil:
					t.Errorf("an answer ends in the middle: %v", err)
				case res.StatusCode == 200 && strings.Contains(string(text), "[2.0]"):
					done.Add(1)
				case res.StatusCode != 503:
					t.Errorf("answered with %d: %s", res.StatusCode, text)
				}
			}
		})
	}
	for done.Load() < 200 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var closing sync.WaitGroup
	closing.Go(func() {
		if err := srv.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	testhelp.Must(t, web.Config.Shutdown(ctx))
	closing.Wait()
	clients.Wait()
	web.Close()
	client.CloseIdleConnections()
	testhelp.NoMoreGoroutines(t, goroutines)
}

// resident returns what the process holds of memory, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	testhelp.Must(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	testhelp.Must(t, err)
	return pages * int64(os.Getpagesize())
}

// TestMemoryIsFlat sends a few thousand requests, and with SOAK a million. What the process holds may grow by 32 MB when it
// has warmed up, to which Go's heap and the stacks of threads come; a leak of 100 bytes for each request would be 90 with
// SOAK. The race detector has memory of its own, which grows.
func TestMemoryIsFlat(t *testing.T) {
	warm, requests := 2000, 2000
	if os.Getenv("SOAK") != "" {
		warm, requests = 100_000, 900_000
	}
	srv := newServer(t)
	f, s := direct()
	testhelp.Must(t, srv.Add("m", serve.FromModel(f, s), serve.Batching{Max: 64}))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	head := `{"inputs":[{"name":"x","shape":[1,784],"datatype":"FP32","parameters":{"binary_data_size":3136}}],"parameters":{"binary_data_output":true}}`
	text := fmt.Sprintf("POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s%s",
		len(head), len(head)+3136, head, make([]byte, 3136))
	send := func(n int) {
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() {
				c, err := net.Dial("tcp", web.Listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				answers := bufio.NewReader(c)
				for range n / 16 {
					io.WriteString(c, text)
					res, err := http.ReadResponse(answers, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if n, _ := io.Copy(io.Discard, res.Body); n == 0 || res.StatusCode != 200 {
						t.Error(res.Status)
						return
					}
				}
			})
		}
		clients.Wait()
	}
	send(warm)
	runtime.GC()
	before, handles := resident(t), gotorch.MemoryStats().LiveHandles
	send(requests)
	runtime.GC()
	after := resident(t)
	t.Logf("%d requests: %d bytes, and then %d", requests, before, after)
	if after > before+32<<20 && !raceEnabled {
		t.Errorf("the process holds %d bytes, where it held %d", after, before)
	}
	for end := time.Now().Add(time.Minute); gotorch.MemoryStats().LiveHandles > handles; { // the collector takes its time
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", gotorch.MemoryStats().LiveHandles, handles)
		}
		time.Sleep(10 * time.Millisecond)
		runtime.GC()
	}
}
