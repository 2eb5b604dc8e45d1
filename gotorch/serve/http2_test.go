package serve_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	"gotorch.dev/gotorch/serve/middleware"
)

// A connection whose request runs is not closed for another one, whatever form the body has: all of it is read, so that who
// counts connections knows that it has come. Over HTTP/2 the end of a body comes after its last byte.
func TestARequestThatRunsKeepsItsConnection(t *testing.T) {
	packed := func(data []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(data)
		z.Close()
		return b.Bytes()
	}
	const head = "Inference-Header-Content-Length"
	large := make([]byte, 128<<10)
	text := []byte(`{"inputs":[{"name":"input","datatype":"FP32","shape":[1],"data":[1]}]}`)
	binary := []byte(`{"inputs":[{"name":"input","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}`)
	for name, c := range map[string]struct {
		body   []byte
		header map[string]string
	}{
		"JSON":          {text, nil},
		"packed JSON":   {packed(text), map[string]string{"Content-Encoding": "gzip"}},
		"JSON alone":    {text, map[string]string{head: strconv.Itoa(len(text))}},
		"binary":        {append(binary[:len(binary):len(binary)], 0, 0, 0, 0), map[string]string{head: strconv.Itoa(len(binary))}},
		"raw":           {large[:4], map[string]string{head: "0"}},
		"large and raw": {large, map[string]string{head: "0"}},
		"packed raw":    {packed(large), map[string]string{head: "0", "Content-Encoding": "gzip"}},
	} {
		for _, http2 := range []bool{true, false} {
			srv := newServer(t)
			runs, gate := make(chan struct{}), make(chan struct{})
			testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { runs <- struct{}{}; <-gate; return x })))
			web := httptest.NewUnstartedServer(srv.HTTP())
			web.EnableHTTP2 = http2
			middleware.LimitConnections(web.Config, 1)
			web.StartTLS()
			done := make(chan struct{})
			go func() {
				defer close(done)
				r, err := http.NewRequest("POST", web.URL+"/v2/models/m/infer", bytes.NewReader(c.body))
				testhelp.Must(t, err)
				for key, value := range c.header {
					r.Header.Set(key, value)
				}
				res, err := web.Client().Do(r)
				if err != nil {
					t.Errorf("%s, HTTP/2 %v: %v", name, http2, err)
					return
				}
				defer res.Body.Close()
				if answer, err := io.ReadAll(res.Body); res.StatusCode != 200 || err != nil {
					t.Errorf("%s, HTTP/2 %v: %s %s %v", name, http2, res.Status, answer, err)
				}
			}()
			<-runs
			other, err := net.Dial("tcp", web.Listener.Addr().String())
			testhelp.Must(t, err)
			other.SetReadDeadline(time.Now().Add(30 * time.Second))
			other.Read(make([]byte, 1)) // it is closed
			other.Close()
			close(gate)
			<-done
			web.Close()
		}
	}
}
