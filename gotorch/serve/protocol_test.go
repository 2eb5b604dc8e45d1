package serve_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

func TestHealthIsToldInObjects(t *testing.T) {
	srv := newServer(t)
	ask := func(path string) string {
		text, code, header := request(t, srv, "GET", path)
		if header.Get("Content-Type") != "application/json" {
			t.Errorf("%s has Content-Type %q", path, header.Get("Content-Type"))
		}
		return fmt.Sprint(code, " ", text)
	}
	check := func(want map[string]string) {
		t.Helper()
		for path, want := range want {
			if got := ask(path); got != want {
				t.Errorf("%s: %s, where %s was expected", path, got, want)
			}
		}
	}
	const ready, notReady = `200 {"live":true,"ready":true}`, `400 {"live":true,"ready":false}`
	check(map[string]string{"/v2/health/live": `200 {"live":true}`, "/v2/health/ready": notReady, "/v2/models": `200 {"models":[]}`})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	testhelp.Must(t, srv.Add("a", serve.FromModel(double), serve.Version("7")))
	check(map[string]string{"/v2/health/ready": ready, "/v2/models": `200 {"models":["a","m"]}`, "/v2/models/m/ready": `200 {"name":"m","ready":true}`,
		"/v2/models/a/versions/7/ready": `200 {"name":"a","ready":true}`,
		"/v2/models/n/ready":            `404 {"error":"serve: NOT_FOUND: there is no model \"n\""}`})
	testhelp.Must(t, srv.Unload(t.Context(), "a", ""))
	check(map[string]string{"/v2/health/ready": ready, "/v2/models": `200 {"models":["m"]}`,
		"/v2/models/a/ready": `400 {"name":"a","ready":false,"error":"serve: model a: UNAVAILABLE: no version of the model is loaded"}`})
	srv.SetReady(false)
	check(map[string]string{"/v2/health/live": `200 {"live":true}`, "/v2/health/ready": notReady, "/v2/models/m/ready": `200 {"name":"m","ready":true}`})
	srv.SetReady(true)
	testhelp.Must(t, srv.Remove(t.Context(), "m", ""))
	testhelp.Must(t, srv.Remove(t.Context(), "a", ""))
	check(map[string]string{"/v2/health/ready": notReady})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	testhelp.Must(t, srv.Close(context.Background()))
	check(map[string]string{"/v2/health/live": `200 {"live":true}`, "/v2/health/ready": notReady})
	if err := srv.CheckReady(); srv.IsReady() || !errors.Is(err, serve.Unavailable) || !strings.Contains(err.Error(), "closing") {
		t.Errorf("a closed server: %v", err)
	}
}

func TestAMethodThatAPathDoesNotHaveIsToldWhichItHas(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	const read = "GET, HEAD"
	for path, allow := range map[string]string{"/v2": read, "/v2/": read, "/v2/health/live": read, "/v2/health/ready": read, "/v2/models": read, "/v2/models/m": read,
		"/v2/openapi.json": read, "/v2/models/m/versions/1/ready": read, "/v2/models/stats": read, "/v2/models/m/infer": "POST", "/v2/models/m/versions/1/infer": "POST",
		"/v2/repository/index": "POST", "/v2/repository/models/m/load": "POST", "/v2/repository/models/m/unload": "POST", "/v2/none": ""} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			w := httptest.NewRecorder()
			srv.HTTP().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("")))
			want := http.StatusMethodNotAllowed
			switch {
			case allow == "":
				want = http.StatusNotFound
			case slices.Contains(strings.Split(allow, ", "), method):
				if w.Code == http.StatusMethodNotAllowed || w.Code == http.StatusNotFound {
					t.Errorf("%s %s: %d", method, path, w.Code)
				}
				continue
			}
			if w.Code != want || w.Header().Get("Allow") != allow {
				t.Errorf("%s %s: %d, Allow %q, where %d, %q was expected", method, path, w.Code, w.Header().Get("Allow"), want, allow)
			}
			protocolError(t, method+" "+path, w.Code, w.Body.String(), want)
		}
	}
	for path, name := range map[string]string{"/v2/models/m/generate": "generate", "/v2/models/m/versions/1/generate_stream": "generate", "/v2/systemsharedmemory/status": "shared memory",
		"/v2/systemsharedmemory/region/r/register": "shared memory", "/v2/cudasharedmemory/unregister": "shared memory", "/v2/trace/setting": "tracing",
		"/v2/models/m/trace/setting": "tracing", "/v2/logging": "logging"} {
		for _, method := range []string{"GET", "POST"} {
			text, code, _ := request(t, srv, method, path)
			if said := protocolError(t, path, code, text, http.StatusNotImplemented); !strings.Contains(said, name) {
				t.Errorf("%s %s: %s", method, path, said)
			}
		}
	}
}

// Fields that are null are as those that are not there, as clients made of data classes send them.
func TestOptionalFieldsMayBeNull(t *testing.T) {
	srv := newServer(t)
	var seen serve.Parameters
	spec := []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1}}}
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.Signature{Inputs: spec, Outputs: spec}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		seen = in.Parameters
		return in.Inputs, nil
	})))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	const want = `{"model_name":"m","model_version":"1","outputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1.0]}]}`
	body := `{"id": null, "parameters": null, "outputs": null, "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": null, "data": [1]}]}`
	if code, text := post(t, web.URL+"/v2/models/m/infer", body); code != 200 || text != want {
		t.Error(code, text)
	}
	plain := body
	body = strings.Replace(body, `"outputs": null`, `"outputs": [{"name": "x", "parameters": null}]`, 1)
	if code, text := post(t, web.URL+"/v2/models/m/infer", body); code != 200 || text != want {
		t.Error(code, text)
	}
	head := `{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4, "binary_data": null}, "data": null}]}`
	if code, text := post(t, web.URL+"/v2/models/m/infer", head+"\x00\x00\x80\x3f", "Inference-Header-Content-Length", fmt.Sprint(len(head))); code != 200 || text != want {
		t.Error(code, text)
	}
	for part, what := range map[string]string{`"name": "x"`: "a string in an input's name", `"shape": [1]`: "'[' in a shape", `"datatype": "FP32"`: "a string in a datatype", `"data": [1]`: "has no data"} {
		key, _, _ := strings.Cut(part, ":")
		code, text := post(t, web.URL+"/v2/models/m/infer", strings.Replace(plain, part, key+": null", 1))
		if said := protocolError(t, part, code, text, 400); !strings.Contains(said, what) {
			t.Errorf("%s is null: %s", key, said)
		}
	}
	if code, text := post(t, web.URL+"/v2/models/m/infer", `{"inputs": null}`); code != 400 {
		t.Error(code, text)
	}

	// Reserved parameters are the server's.
	client := serveGRPC(t, srv)
	for params, want := range map[string]string{
		`{"a": 1, "triton_enable_empty_final_response": true}`: "",
		`{"triton_enable_empty_final_response": "true"}`:       `is the text "true", and must be true or false`,
		`{"triton_final_response": true}`:                      `"triton_final_response": names that begin with triton_ are reserved`,
		`{"triton_": 1}`:                                       "are reserved",
		`{"sequence_start": "true"}`:                           `sequence_start is the text "true", and must be`,
		`{"sequence_end": 1}`:                                  "sequence_end is 1, and must be",
		`{"sequence_id": 1.5}`:                                 "sequence_id is the float 1.5, and must be",
		`{"sequence_id": true}`:                                "sequence_id is true, and must be",
		`{"priority": "1"}`:                                    `priority is the text "1", and must be`,
		`{"timeout": 1.0}`:                                     "timeout is the float 1, and must be",
		`{"timeout": -1}`:                                      "timeout is -1, and must be",
	} {
		code, text := post(t, web.URL+"/v2/models/m/infer", strings.Replace(body, `"parameters": null`, `"parameters": `+params, 1))
		r := zeros("m", "x", 1)
		r.Parameters = map[string]*pb.InferParameter{}
		own := serve.Parameters{}
		var decoded map[string]any
		decoder := json.NewDecoder(strings.NewReader(params))
		decoder.UseNumber()
		testhelp.Must(t, decoder.Decode(&decoded))
		for name, value := range decoded {
			p := &pb.InferParameter{}
			switch v := value.(type) {
			case bool:
				p.ParameterChoice, own[name] = &pb.InferParameter_BoolParam{BoolParam: v}, v
			case string:
				p.ParameterChoice, own[name] = &pb.InferParameter_StringParam{StringParam: v}, v
			case json.Number:
				if n, err := v.Int64(); err == nil {
					p.ParameterChoice, own[name] = &pb.InferParameter_Int64Param{Int64Param: n}, n
				} else {
					f, _ := v.Float64()
					p.ParameterChoice, own[name] = &pb.InferParameter_DoubleParam{DoubleParam: f}, f
				}
			}
			r.Parameters[name] = p
		}
		_, err := client.ModelInfer(t.Context(), r)
		_, direct := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Parameters: own, Inputs: []serve.Value{{Name: "x", Tensor: gotorch.FromSlice([]float32{1})}}})
		if want == "" {
			if code != 200 || err != nil || direct != nil || len(seen) != 1 {
				t.Errorf("%s: %d %s, %v, %v; the model sees %v", params, code, text, err, direct, seen)
			}
			continue
		}
		if !strings.Contains(protocolError(t, params, code, text, 400), want) || status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s; %v", params, text, err)
		}
		if !strings.Contains(params, "priority") && !strings.Contains(params, "timeout") && (direct == nil || !strings.Contains(direct.Error(), want)) {
			t.Errorf("%s, from the program: %v", params, direct)
		}
	}
	code, text := post(t, web.URL+"/v2/models/m/infer", strings.Replace(body, `"parameters": null`, `"parameters": {"a": 18446744073709551616}`, 1))
	if said := protocolError(t, "an integer of 65 bits", code, text, 400); !strings.Contains(said, "neither int64 nor uint64") {
		t.Error(said)
	}
}

// packings are how a body may be packed, and by what name.
var packings = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, "x-gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
}

func packedWith(t *testing.T, name string, parts ...string) string {
	var b bytes.Buffer
	for _, part := range parts {
		w := packings[name](&b)
		_, err := io.WriteString(w, part)
		testhelp.Must(t, err)
		testhelp.Must(t, w.Close())
	}
	return b.String()
}

func TestPackedBodiesAreWhole(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	head := `{"inputs":[{"name":"input","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`
	for _, binary := range []bool{false, true} {
		body, length := strings.Replace(head, `"parameters":{"binary_data_size":8}`, `"data":[1,2]`, 1), ""
		if binary {
			body, length = head+strings.Repeat("\x00\x00\x80\x3f", 2), fmt.Sprint(len(head))
		}
		for name := range packings {
			whole := packedWith(t, name, body)
			cases := map[string]string{whole: "", whole + "x": "after the end", whole + whole[:1]: "after the end", whole + "\x00": "after the end",
				whole[:len(whole)-1]: "the body", whole[:1]: "not packed", "": "not packed", "x" + whole: "not packed"}
			if name != "deflate" {
				cases[packedWith(t, name, body[:20], "", body[20:])] = "" // of several members
				cases[whole+"\x1f\x8b"] = "the body"
				cases[whole+"\x1f\x8bx"] = "the body"
			}
			for sent, want := range cases {
				header := []string{"Content-Encoding", strings.ToUpper(name)}
				if binary {
					header = append(header, "Inference-Header-Content-Length", length)
				}
				code, text := post(t, web.URL+"/v2/models/double/infer", sent, header...)
				if want == "" && code != 200 {
					t.Errorf("%s: %d %s", name, code, text)
				} else if want != "" && !strings.Contains(protocolError(t, name, code, text, 400), want) {
					t.Errorf("%s, %d of %d bytes: %s, where %q was expected", name, len(sent), len(whole), text, want)
				}
			}
		}
	}
	for names, want := range map[string]int{"identity": 200, "": 200, "identity, ": 200, "br": 415, "gzip, gzip": 415, "identity, gzip": 400, "x-compress": 415} {
		code, text := post(t, web.URL+"/v2/models/double/infer", strings.Replace(head, `"parameters":{"binary_data_size":8}`, `"data":[1,2]`, 1), "Content-Encoding", names)
		if code != want {
			t.Errorf("Content-Encoding %q: %d %s", names, code, text)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v2/models/double/infer", strings.NewReader(head))
	r.Header.Set("Content-Encoding", "br")
	if srv.HTTP().ServeHTTP(w, r); w.Header().Get("Accept-Encoding") != "gzip, deflate" {
		t.Errorf("a packing that is not known: %v", w.Header())
	}
}

// What a header or the JSON announces, and is not in the body, is a wrong request; it is not one that is too large.
func TestWhatABodyAnnouncesAndLacksIsWrong(t *testing.T) {
	srv := newServer(t, serve.Options{MaxRequestBytes: 1 << 16})
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	url := web.URL + "/v2/models/double/infer"
	for _, size := range []int64{9, 100, 1 << 16, 1<<16 + 1, 1 << 20, 1 << 40, math.MaxInt64 - 3} {
		for _, n := range []int64{2, size / 4} {
			head := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}`, n, size)
			for _, c := range []struct{ length, body string }{
				{fmt.Sprint(len(head)), head + "12345678"},
				{fmt.Sprint(int64(len(head)) + size), head},
			} {
				for _, known := range []bool{true, false} {
					body := io.Reader(strings.NewReader(c.body))
					if !known {
						body = struct{ io.Reader }{body} // in pieces, of no known length
					}
					code, text := postReader(t, url, body, "Inference-Header-Content-Length", c.length)
					// Where the length is not known, an input that is larger than all the body may be is too large before it is read.
					if !known && code == 413 && size > 1<<15 && c.length == fmt.Sprint(len(head)) {
						continue
					}
					if code == 400 {
						continue
					}
					t.Errorf("%d bytes announced, length %s, known %v: %d %s", size, c.length, known, code, text)
				}
			}
		}
	}
	if code, text := post(t, url, strings.Repeat(" ", 1<<16+1), "Inference-Header-Content-Length", "9"); code != 413 {
		t.Error(code, text)
	}
}

// A body that comes too slowly is 408, and what is told of it has no addresses.
func TestASlowBodyIsATimeout(t *testing.T) {
	srv := newServer(t, serve.Options{Control: true})
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	web := &http.Server{Handler: srv.HTTP(), ReadTimeout: 200 * time.Millisecond}
	go web.Serve(listener)
	defer web.Close()
	for _, c := range []struct{ path, header, body string }{
		{"/v2/models/double/infer", "", one[:20]},
		{"/v2/models/double/infer", "", ""},
		{"/v2/models/double/infer", "Content-Encoding: gzip\r\n", ""},
		{"/v2/models/double/infer", "Content-Encoding: gzip\r\n", "\x1f\x8b"},
		{"/v2/models/double/infer", "Content-Encoding: gzip\r\n", packedWith(t, "gzip", one)[:30]},
		{"/v2/models/double/infer", "Content-Encoding: gzip\r\n", packedWith(t, "gzip", one)},
		{"/v2/models/double/infer", "Content-Encoding: deflate\r\n", "x"},
		{"/v2/models/double/infer", "Inference-Header-Content-Length: 0\r\n", "abcd"},
		{"/v2/models/double/infer", "Inference-Header-Content-Length: 99\r\n", "{"},
		{"/v2/repository/index", "", "{"},
		{"/v2/repository/models/double/load", "", "{"},
	} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		testhelp.Must(t, err)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: 1000\r\n\r\n%s", c.path, c.header, c.body)
		testhelp.Must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		answer, err := io.ReadAll(conn) // the server closes the connection
		testhelp.Must(t, err)
		conn.Close()
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 408 ") || !strings.Contains(head, "\r\nConnection: close") {
			t.Errorf("%v: %s", c, head)
		}
		if said := protocolError(t, c.path, 408, body, 408); strings.Contains(said, "127.0.0.1") || !strings.Contains(said, "time") {
			t.Errorf("%v: %s", c, said)
		} else if want := fmt.Sprintf("after %d bytes", len(c.body)); c.body == "" && !strings.Contains(said, "before its first byte") ||
			c.body != "" && !strings.Contains(said, want) {
			t.Errorf("%v: %s, where %q was expected", c, said, want)
		}
	}
	// One that is cut off is not: whose side it was on is not known, and nobody reads the answer but logs.
	r := httptest.NewRequest("POST", "/v2/models/double/infer", readerFunc(func([]byte) (int, error) {
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: listener.Addr(), Addr: listener.Addr(), Err: errors.New("connection reset by peer")}
	}))
	w := httptest.NewRecorder()
	srv.HTTP().ServeHTTP(w, r)
	if said := protocolError(t, "a connection that is reset", w.Code, w.Body.String(), 400); strings.Contains(said, "127.0.0.1") || !strings.Contains(said, "reset by peer") {
		t.Error(said)
	}
}

// A body without JSON is the data of the model's input, whose one open size is what the data says.
func TestABodyMayBeTheInputAlone(t *testing.T) {
	srv := newServer(t)
	random := rand.New(rand.NewPCG(5, 6))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	types := []serve.DataType{serve.BOOL, serve.UINT8, serve.INT16, serve.BF16, serve.FP32, serve.INT64, serve.FP64}
	for i := range 120 {
		typ := types[random.IntN(len(types))]
		spec := serve.Spec{Name: "x", Type: typ}
		shape := []int64{}
		open, batched := -1, random.IntN(3) == 0
		for d := range random.IntN(4) {
			shape = append(shape, int64(random.IntN(4))+1)
			spec.Shape = append(spec.Shape, shape[d])
		}
		if len(shape) > 0 && random.IntN(3) > 0 {
			open = random.IntN(len(shape))
			spec.Shape[open] = -1
			if i%10 == 0 {
				shape[open] = 1 + int64(random.IntN(200_000)) // large data goes another way
			}
		}
		if spec.Shape == nil && random.IntN(2) == 0 {
			spec.Shape = []int64{} // a scalar; else nothing is known of the shape
		} else if spec.Shape == nil {
			shape = []int64{int64(random.IntN(5))}
		}
		var options []serve.ModelOption
		if batched && len(spec.Shape) > 0 {
			options = []serve.ModelOption{serve.Batching{Max: 1 << 20}}
			if spec.Shape[0] != -1 {
				spec.Shape[0] = -1
				shape[0] = 1
				if open < 0 {
					shape[0] = int64(random.IntN(3)) // the rows are all that is open
				}
			}
		}
		name := fmt.Sprint("m", i)
		testhelp.Must(t, srv.Add(name, echoing([]serve.Spec{spec}, []serve.Spec{{Name: "x", Type: typ}}), options...))
		n := typ.Size()
		for _, size := range shape {
			n *= int(size)
		}
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(random.Uint32())
			if typ == serve.BOOL {
				data[i] &= 1
			}
		}
		for _, packing := range []string{"", "gzip"} {
			header := []string{"Inference-Header-Content-Length", "0", "Accept-Encoding", "identity"}
			body := string(data)
			if packing != "" {
				body, header = packedWith(t, packing, body), append(header, "Content-Encoding", packing)
			}
			code, text := post(t, web.URL+"/v2/models/"+name+"/infer", body, header...)
			text, rest := text[:max(0, len(text)-n)], text[max(0, len(text)-n):]
			want := strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
			if code != 200 || rest != string(data) || !strings.Contains(text, `"shape":`+want+`,"parameters":{"binary_data_size":`+fmt.Sprint(n)) {
				t.Fatalf("%v (batched %v) of shape %v, packed %q: %d %.200s", spec, options, shape, packing, code, text+rest)
			}
		}
		if n > 1 && typ.Size() > 1 {
			code, text := post(t, web.URL+"/v2/models/"+name+"/infer", string(data[1:]), "Inference-Header-Content-Length", "0")
			protocolError(t, "a byte too few", code, text, 400)
		}
	}
	for what, c := range map[string]struct {
		inputs []serve.Spec
		want   string
	}{
		"two inputs": {[]serve.Spec{{Name: "a", Type: serve.FP32}, {Name: "b", Type: serve.FP32}}, "one input, and this one has 2"},
		"two sizes":  {[]serve.Spec{{Name: "a", Type: serve.FP32, Shape: []int64{-1, -1}}}, "more than one"},
		"many texts": {[]serve.Spec{{Name: "a", Type: serve.BYTES, Shape: []int64{2}}}, "has one text"},
		"no rows":    {[]serve.Spec{{Name: "a", Type: serve.FP32, Shape: []int64{-1, 0}}}, "multiple of 0"},
	} {
		testhelp.Must(t, srv.Add("wrong", echoing(c.inputs, c.inputs[:1])))
		code, text := post(t, web.URL+"/v2/models/wrong/infer", "abcd", "Inference-Header-Content-Length", "0")
		if said := protocolError(t, what, code, text, 400); !strings.Contains(said, c.want) {
			t.Errorf("%s: %s", what, said)
		}
	}
	for _, shape := range [][]int64{nil, {1}, {-1}, {-1, 1}, {}} {
		spec := []serve.Spec{{Name: "t", Type: serve.BYTES, Shape: shape}}
		testhelp.Must(t, srv.Add("text", echoing(spec, spec)))
		for _, sent := range []string{"", "ä\x00\xff", strings.Repeat("long", 1<<15)} {
			code, text := post(t, web.URL+"/v2/models/text/infer", sent, "Inference-Header-Content-Length", "0", "Accept-Encoding", "identity")
			if code != 200 || !strings.HasSuffix(text, string(binary.LittleEndian.AppendUint32(nil, uint32(len(sent))))+sent) {
				t.Errorf("%v: %d bytes: %d %.200q", shape, len(sent), code, text)
			}
		}
	}
}

// gRPC's other clients pack messages with deflate, too.
func TestMessagesArePackedWithDeflate(t *testing.T) {
	srv := newServer(t, serve.Options{MaxRequestBytes: 1 << 20})
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	client := serveGRPC(t, srv)
	ask := func(n int64) (*pb.ModelInferResponse, error) {
		return client.ModelInfer(t.Context(), zeros("double", "input", n), grpc.UseCompressor("deflate"))
	}
	for range 20 {
		if out, err := ask(1000); err != nil || len(out.RawOutputContents[0]) != 4000 {
			t.Fatal(err)
		}
	}
	// Few bytes that unpack to many are refused.
	if _, err := ask(1 << 20); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestEachResponseOfAStreamIsTheFinalOne(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	client := serveGRPC(t, srv)
	stream, err := client.ModelStreamInfer(t.Context())
	testhelp.Must(t, err)
	for i, model := range []string{"double", "none", "double"} {
		r := zeros(model, "input", 1)
		r.Id = fmt.Sprint(i)
		r.Parameters = map[string]*pb.InferParameter{"triton_enable_empty_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}
		testhelp.Must(t, stream.Send(r))
		answer, err := stream.Recv()
		testhelp.Must(t, err)
		final := answer.InferResponse.Parameters["triton_final_response"]
		if answer.InferResponse.Id != r.Id || !final.GetBoolParam() || (answer.ErrorMessage != "") != (model == "none") {
			t.Errorf("request %d: %v", i, answer)
		}
		one, err := client.ModelInfer(t.Context(), r)
		if model == "double" && (err != nil || len(one.Parameters) != 0) {
			t.Errorf("alone: %v, %v", one, err)
		}
	}
	testhelp.Must(t, stream.CloseSend())
}
