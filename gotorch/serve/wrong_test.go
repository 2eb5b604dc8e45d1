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
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// What clients send that is wrong, and what they are told.

// echo takes and returns one input of each of some types.
func echo(t *testing.T, srv *serve.Server) {
	t.Helper()
	for _, typ := range []serve.DataType{serve.FP32, serve.INT64, serve.UINT8, serve.BOOL, serve.BYTES} {
		spec := []serve.Spec{{Name: string(typ), Type: typ, Shape: []int64{-1}}}
		testhelp.Must(t, srv.Add(string(typ), echoing(spec, spec)))
	}
}

// protocolError fails if an answer is not {"error": "..."} of a status, and returns the text.
func protocolError(t *testing.T, what string, code int, body string, want int) string {
	t.Helper()
	var said map[string]string
	if err := json.Unmarshal([]byte(body), &said); err != nil || code != want || len(said) != 1 || said["error"] == "" {
		t.Errorf("%s: %d %.300s (%v)", what, code, body, err)
	}
	return said["error"]
}

func TestWrongRequestsAreRefusedOverREST(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{Metrics: registry, MaxRequestBytes: 1 << 20})
	echo(t, srv)
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	in := func(typ, shape, data string) string {
		return fmt.Sprintf(`{"inputs":[{"name":"%s","shape":%s,"datatype":"%[1]s","data":%[3]s}]}`, typ, shape, data)
	}
	binaryIn := func(typ, shape string, size any) string {
		return fmt.Sprintf(`{"inputs":[{"name":"%s","shape":%s,"datatype":"%[1]s","parameters":{"binary_data_size":%[3]v}}],"parameters":{"binary_data_output":true}}`, typ, shape, size)
	}
	text := func(n uint32, of string) string { return string(binary.LittleEndian.AppendUint32(nil, n)) + of }
	handles := gotorch.MemoryStats().LiveHandles
	const ok = ""
	for _, c := range []struct {
		json, data string
		head       string // of Inference-Header-Content-Length, where it is not the JSON's length; "-": none
		want       string // of the error
	}{
		{in("FP32", "[3]", "[NaN,Infinity,-Infinity]"), "", "-", ok},
		{in("FP32", "[1]", "[1e999]"), "", "-", "out of the range of FP32"},
		{in("FP32", "[1]", "[-3.5e38]"), "", "-", "out of the range of FP32"},
		{in("FP32", "[1]", "[nan]"), "", "-", "expected a number"},
		{in("FP32", "[1]", "[+1]"), "", "-", "expected a number"},
		{in("FP32", "[1]", "[01]"), "", "-", "expected ','"},
		{in("INT64", "[1]", "[NaN]"), "", "-", "is no INT64"},
		{in("INT64", "[2]", "[9223372036854775807,-9223372036854775808]"), "", "-", ok},
		{in("INT64", "[1]", "[9223372036854775808]"), "", "-", "is no INT64"},
		{in("INT64", "[1]", "[1.0]"), "", "-", "is no INT64"},
		{in("UINT8", "[1]", "[-1]"), "", "-", "is no UINT8"},
		{in("UINT8", "[1]", "[256]"), "", "-", "is no UINT8"},
		{in("BOOL", "[1]", "[2]"), "", "-", "is no BOOL"},
		{in("BYTES", "[1]", "[1]"), "", "-", "expected a string"},
		{in("FP32", "[-1]", "[1]"), "", "-", "which no tensor can have"},
		{in("FP32", "[4294967296,4294967296]", "[]"), "", "-", "which no tensor can have"},
		{in("FP32", "[4611686018427387904]", "[]"), "", "-", "which no tensor can have"},
		{in("FP32", "[9223372036854775808]", "[]"), "", "-", "no int64"},
		{in("FP32", "[1e1]", "[1]"), "", "-", "no int64"},
		{in("FP32", "null", "[1]"), "", "-", "expected '[' in a shape"},
		{in("FP32", "[2]", "[1]"), "", "-", "has 1 elements of data"},
		{in("FP32", "[1]", "[1,2]"), "", "-", "more elements of data"},
		{`{"inputs":[]}`, "", "-", "is missing"},
		{`{}`, "", "-", "no inputs"},
		{`{"inputs":[]} {}`, "", "-", "something follows"},
		{`{"inputs":[],"inputs":[]}`, "", "-", "is there twice"},
		{strings.Replace(in("FP32", "[1]", "[1]"), "]}]", `]},{"name":"FP32","shape":[1],"datatype":"FP32","data":[2]}]`, 1), "", "-", `input "FP32" is there twice`},
		{strings.Replace(in("FP32", "[1]", "[1]"), `{"inputs"`, `{"outputs":[{"name":"FP32"},{"name":"FP32"}],"inputs"`, 1), "", "-", "asked for twice"},
		{strings.Replace(in("FP32", "[1]", "[1]"), `{"inputs"`, `{"outputs":[{"name":""}],"inputs"`, 1), "", "-", "has no name"},
		{strings.Replace(in("FP32", "[1]", "[1]"), `"data"`, `"parameters":{"shared_memory_region":"r"},"data"`, 1), "", "-", "shared memory is not supported"},
		{strings.Replace(in("FP32", "[1]", "[1]"), `"data"`, `"parameters":{"binary_data_size":4},"data"`, 1), "", "-", "has data, and"},

		{binaryIn("FP32", "[1]", 4), "abcd", "", ok},
		{binaryIn("FP32", "[1]", 4), "", "-", "no header Inference-Header-Content-Length"},
		{binaryIn("FP32", "[1]", 4), "abc", "", "has 3 more: the body ends after"},
		{binaryIn("FP32", "[1]", 4), "abcde", "", "the body goes on after"},
		{binaryIn("FP32", "[1]", 5), "abcde", "", "has 5 bytes of data, where FP32 of shape [1] has 4"},
		{binaryIn("FP32", "[1]", -4), "abcd", "", "binary_data_size is -4, and must be"},
		{binaryIn("FP32", "[1]", "18446744073709551612"), "abcd", "", "binary_data_size is 18446744073709551612, and must be"},
		{binaryIn("FP32", "[1]", `"4"`), "abcd", "", `binary_data_size is the text "4", and must be`},
		{binaryIn("FP32", "[1]", 1<<40), "abcd", "", "has 1099511627776 bytes, and the body has 4 more"},
		{binaryIn("FP32", "[-1]", 4), "abcd", "", "which no tensor can have"},
		{binaryIn("FP32", "[20000]", 80000), "abcd", "", "the body ends after"},
		{binaryIn("BOOL", "[2]", 2), "\x01\x02", "", "element 1 of input \"BOOL\" is the byte 2"},
		{binaryIn("BYTES", "[2]", 9), text(1, "a") + text(0, ""), "", ok},
		{binaryIn("BYTES", "[1]", 5), text(2, "a"), "", "says that it has 2 bytes, and 1 are left"},
		{binaryIn("BYTES", "[1]", 6), text(1, "ab"), "", "1 bytes are left"},
		{binaryIn("BYTES", "[2]", 5), text(1, "a"), "", "5 bytes are too few for 2 texts"},
		{binaryIn("BYTES", "[1]", 3), "abc", "", "too few"},
		{binaryIn("BYTES", "[1]", 5), text(1<<32-1, "a"), "", "are left"},
		{binaryIn("FP32", "[1]", 4), "abcd", "100000", "the body ends after"},
		{binaryIn("FP32", "[1]", 4), "abcd", "1000000000000", "the body ends after"},
		{binaryIn("FP32", "[1]", 4), "abcd", "-1", "which is no length"},
		{binaryIn("FP32", "[1]", 4), "abcd", "9223372036854775808", "which is no length"},
		{binaryIn("FP32", "[1]", 4), "abcd", "5", "JSON, at byte 5"},
	} {
		var header []string
		switch c.head {
		case "-":
		case "":
			header = []string{"Inference-Header-Content-Length", fmt.Sprint(len(c.json))}
		default:
			header = []string{"Inference-Header-Content-Length", c.head}
		}
		model := "FP32"
		for _, name := range []string{"INT64", "UINT8", "BOOL", "BYTES"} {
			if strings.Contains(c.json, name) {
				model = name
			}
		}
		what := fmt.Sprintf("%s, %d bytes after it, head %q", c.json, len(c.data), c.head)
		code, answer := post(t, web.URL+"/v2/models/"+model+"/infer", c.json+c.data, header...)
		if c.want == ok {
			if code != 200 {
				t.Errorf("%s: %d %s", what, code, answer)
			}
			continue
		}
		want := 400
		if strings.Contains(c.want, "larger than the server") {
			want = 413
		}
		if said := protocolError(t, what, code, answer, want); !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, where %q was expected", what, said, c.want)
		}
	}
	if after := gotorch.MemoryStats().LiveHandles; after > handles {
		t.Errorf("%d tensors live, where %d did", after, handles)
	}
	testhelp.Must(t, testutil.GatherAndCompare(registry, strings.NewReader("# HELP gotorch_serve_request_bytes Memory of request bodies that are read and run.\n"+
		"# TYPE gotorch_serve_request_bytes gauge\ngotorch_serve_request_bytes 0\n"), "gotorch_serve_request_bytes"))
}

func TestWrongRequestsAreRefusedOverGRPC(t *testing.T) {
	srv := newServer(t)
	echo(t, srv)
	client := serveGRPC(t, srv)
	type tensor = pb.ModelInferRequest_InferInputTensor
	type wanted = pb.ModelInferRequest_InferRequestedOutputTensor
	four := []byte{0, 0, 0, 0}
	fp := func(shape ...int64) *tensor { return &tensor{Name: "FP32", Datatype: "FP32", Shape: shape} }
	contents := func(in *tensor, c *pb.InferTensorContents) *tensor { in.Contents = c; return in }
	ints := &pb.InferTensorContents{Fp32Contents: []float32{1}}
	handles := gotorch.MemoryStats().LiveHandles
	for _, c := range []struct {
		r    *pb.ModelInferRequest
		want string
	}{
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1)}, RawInputContents: [][]byte{four}}, ""},
		{&pb.ModelInferRequest{Inputs: []*tensor{contents(fp(1), ints)}}, ""},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1)}, RawInputContents: [][]byte{four, four}}, "2 raw_input_contents for 1 inputs"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1), fp(1)}, RawInputContents: [][]byte{four}}, "1 raw_input_contents for 2 inputs"},
		{&pb.ModelInferRequest{RawInputContents: [][]byte{four}}, "1 raw_input_contents for 0 inputs"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1), fp(1)}, RawInputContents: [][]byte{four, four}}, "is there twice"},
		{&pb.ModelInferRequest{Inputs: []*tensor{contents(fp(1), ints)}, RawInputContents: [][]byte{four}}, "has contents, and there are"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1)}}, "has 0 elements in the contents"},
		{&pb.ModelInferRequest{Inputs: []*tensor{contents(fp(2), ints)}}, "has 1 elements in the contents"},
		{&pb.ModelInferRequest{Inputs: []*tensor{contents(fp(1), &pb.InferTensorContents{IntContents: []int32{1}})}}, "has 0 elements in the contents"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(2)}, RawInputContents: [][]byte{four}}, "has 4 bytes of data, where 2 elements of FP32 are 8"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(-1)}, RawInputContents: [][]byte{four}}, "which no tensor can have"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1<<32, 1<<32)}, RawInputContents: [][]byte{nil}}, "which no tensor can have"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(make([]int64, 65)...)}, RawInputContents: [][]byte{nil}}, "more than 64 dimensions"},
		{&pb.ModelInferRequest{Inputs: []*tensor{{Name: "FP32", Datatype: "fp32", Shape: []int64{1}}}, RawInputContents: [][]byte{four}}, "which is none"},
		{&pb.ModelInferRequest{Inputs: []*tensor{{Datatype: "FP32", Shape: []int64{1}}}, RawInputContents: [][]byte{four}}, "has no name"},
		{&pb.ModelInferRequest{Inputs: []*tensor{{Name: "FP32", Datatype: "BYTES", Shape: []int64{1}}}, RawInputContents: [][]byte{{9, 0, 0, 0}}}, "says that it has 9 bytes"},
		{&pb.ModelInferRequest{Inputs: []*tensor{{Name: "FP32", Datatype: "BOOL", Shape: []int64{1}}}, RawInputContents: [][]byte{{9}}}, "is the byte 9"},
		{&pb.ModelInferRequest{}, "is missing"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1)}, RawInputContents: [][]byte{four}, Outputs: []*wanted{{Name: "FP32"}, {Name: "FP32"}}}, "asked for twice"},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1)}, RawInputContents: [][]byte{four}, Outputs: []*wanted{{}}}, `no output ""`},
		{&pb.ModelInferRequest{Inputs: []*tensor{fp(1)}, RawInputContents: [][]byte{four}, Parameters: map[string]*pb.InferParameter{"a": {}}}, "has no value"},
	} {
		c.r.ModelName = "FP32"
		_, err := client.ModelInfer(t.Context(), c.r)
		if c.want == "" {
			testhelp.Must(t, err)
		} else if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, where %q was expected", c.r, err, c.want)
		}
	}
	if after := gotorch.MemoryStats().LiveHandles; after > handles {
		t.Errorf("%d tensors live, where %d did", after, handles)
	}
}

func TestOddNamesAndEndpointsThatAreNotThereAreErrors(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{Metrics: registry})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	long := strings.Repeat("long", 20000)
	var paths []string
	for _, name := range []string{"n", "M", "m%20", "%2e%2e", "m%2Fversions%2F1", "..%2Fm", "%00", "%0a", "%ff%fe", "%F0%9F%98%80", long, "%25"} {
		for _, end := range []string{"", "/ready", "/config", "/stats", "/infer"} {
			paths = append(paths, "/v2/models/"+name+end, "/v2/models/"+name+"/versions/1"+end)
		}
	}
	for _, version := range []string{"01", "+1", "-1", "1.0", "1e0", "%201", "latest", "%00", long} {
		for _, end := range []string{"", "/ready", "/config", "/stats", "/infer"} {
			paths = append(paths, "/v2/models/m/versions/"+version+end)
		}
	}
	paths = append(paths, "/", "/v1", "/v2/", "/v2/models/", "/v2/models/m/versions", "/v2/models/m/infer/x", "/v2/repository/models/m", "/metrics")
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if path == "/v2/" && method == "GET" {
				continue
			}
			r, err := http.NewRequest(method, web.URL+path, strings.NewReader(one))
			testhelp.Must(t, err)
			res, err := client.Do(r)
			testhelp.Must(t, err)
			text, err := io.ReadAll(res.Body)
			testhelp.Must(t, err)
			res.Body.Close()
			if strings.Contains(path, "%2e%2e") && res.StatusCode/100 == 3 { // net/http goes to the path without it
				continue
			}
			what := fmt.Sprintf("%s %.80s", method, path)
			want := 404
			if allow := res.Header.Get("Allow"); allow != "" { // whatever the names in the path are
				want = 405
				if strings.Contains(allow, method) {
					t.Errorf("%s is not allowed, and %s are", what, allow)
				}
			}
			protocolError(t, what, res.StatusCode, string(text), want)
			if len(text) > 10000 {
				t.Errorf("%s: the error has %d bytes", what, len(text))
			}
		}
	}

	rpc := serveGRPC(t, srv)
	for _, name := range []string{"", "M", "..", "a/b", "m\n", "\u2028", strings.Repeat("x", 1<<20)} {
		_, err := rpc.ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: name})
		if status.Code(err) != codes.NotFound || len(err.Error()) > 10000 {
			t.Errorf("%.20q: %.100v of %d bytes", name, err, len(err.Error()))
		}
		if _, err := rpc.ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: "m", ModelVersion: name + " "}); status.Code(err) != codes.NotFound || len(err.Error()) > 10000 {
			t.Errorf("version %.20q: %.100v of %d bytes", name, err, len(err.Error()))
		}
		if _, err := rpc.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: name}); status.Code(err) != codes.NotFound {
			t.Errorf("%.20q: %.100v", name, err)
		}
	}
	// None of the names is a label.
	if n, err := testutil.GatherAndCount(registry, "gotorch_serve_requests_total"); err != nil || n != 1 {
		t.Errorf("%d series of requests, %v", n, err)
	}
}

func TestCallsOfGRPCThatAreNotThereAreUnimplemented(t *testing.T) {
	srv := newServer(t)
	connection := dialGRPC(t, srv)
	for _, method := range []string{"SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "CudaSharedMemoryUnregister", "TraceSetting", "LogSettings", "None"} {
		err := connection.Invoke(t.Context(), "/inference.GRPCInferenceService/"+method, &pb.ServerLiveRequest{}, &pb.ServerLiveResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// What a client sends may be in its error, which is bounded and text all the same: over gRPC it is in headers.
func TestErrorsAreBoundedAndText(t *testing.T) {
	srv := newServer(t)
	echo(t, srv)
	testhelp.Must(t, srv.Add("fails", serve.FromModel(func(gotorch.Tensor) (gotorch.Tensor, error) {
		return gotorch.Tensor{}, errors.New("\xff is no text, " + strings.Repeat("\u00e9", 100000))
	})))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	huge := strings.Repeat("\x01", 1<<20)
	head, err := json.Marshal(huge)
	testhelp.Must(t, err)
	for _, body := range []string{
		fmt.Sprintf(`{"inputs":[{"name":%s,"shape":[1],"datatype":"FP32","data":[1]}]}`, head),
		fmt.Sprintf(`{"parameters":{"priority":%s},"inputs":[]}`, head),
		fmt.Sprintf(`{"parameters":{"sequence_start":%s},"inputs":[]}`, head),
		fmt.Sprintf(`{"outputs":[{"name":%s}],"inputs":[{"name":"FP32","shape":[1],"datatype":"FP32","data":[1]}]}`, head),
	} {
		code, text := post(t, web.URL+"/v2/models/FP32/infer", body)
		protocolError(t, fmt.Sprintf("%.60s", body), code, text, 400)
		if len(text) > 6*5000 {
			t.Errorf("%.60s: the error has %d bytes", body, len(text))
		}
	}
	client := serveGRPC(t, srv)
	r := func(model, name string) *pb.ModelInferRequest { return zeros(model, name, 1) }
	if _, err := client.ModelInfer(t.Context(), r("FP32", huge)); status.Code(err) != codes.InvalidArgument || len(status.Convert(err).Message()) > 5000 {
		t.Errorf("%.200v", err)
	}
	if _, err := client.ModelInfer(t.Context(), r("fails", "input")); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "\uFFFD is no text") || len(err.Error()) > 5000 {
		t.Errorf("%.200v", err)
	}
	// A stream goes on after it.
	stream, err := client.ModelStreamInfer(t.Context())
	testhelp.Must(t, err)
	for range 2 {
		testhelp.Must(t, stream.Send(r("fails", "input")))
		answer, err := stream.Recv()
		testhelp.Must(t, err)
		if text := answer.ErrorMessage; !strings.Contains(text, "\uFFFD is no text") || len(text) > 5000 || !strings.HasSuffix(text, "\u00e9...") {
			t.Errorf("%.200s", text)
		}
	}
	testhelp.Must(t, stream.CloseSend())
}

func TestPackedBodiesAreBoundedToo(t *testing.T) {
	srv := newServer(t, serve.Options{MaxRequestBytes: 1 << 16})
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	pack := func(encoding, text string) string {
		var b bytes.Buffer
		var w io.WriteCloser = gzip.NewWriter(&b)
		if encoding == "deflate" {
			w = zlib.NewWriter(&b)
		}
		io.WriteString(w, text)
		w.Close()
		return b.String()
	}
	// send sends a body in chunks, so that no header says how long it is.
	send := func(encoding string, body io.Reader) (int, string) {
		r, err := http.NewRequest("POST", web.URL+"/v2/models/double/infer", body)
		testhelp.Must(t, err)
		r.Header.Set("Content-Encoding", encoding)
		res, err := http.DefaultClient.Do(r)
		testhelp.Must(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		testhelp.Must(t, err)
		return res.StatusCode, string(text)
	}
	for _, encoding := range []string{"gzip", "deflate"} {
		whole := pack(encoding, one)
		if code, text := send(encoding, strings.NewReader(whole)); code != 200 || !strings.Contains(text, "[2.0]") {
			t.Errorf("%s: %d %s", encoding, code, text)
		}
		code, text := send(encoding, strings.NewReader(pack(encoding, strings.Repeat(" ", 1<<20)+one)))
		protocolError(t, encoding+" of a megabyte", code, text, 413)
		for what, body := range map[string]string{"cut": whole[:len(whole)-1], "with more after it": whole + "more", "nothing": "", "not packed": one,
			"damaged": strings.Replace(whole, whole[len(whole)-4:], "abcd", 1)} {
			code, text := send(encoding, strings.NewReader(body))
			protocolError(t, encoding+", "+what, code, text, 400)
		}
	}
	// Many packed pieces of nothing unpack to nothing, and no limit of what is unpacked is ever reached.
	nothing := pack("gzip", "")
	read := 0
	code, text := send("gzip", readerFunc(func(p []byte) (int, error) {
		n := 0
		for n+len(nothing) <= len(p) {
			n += copy(p[n:], nothing)
		}
		if read += n; read > 64<<20 {
			return 0, errors.New("64 MB were read")
		}
		return n, nil
	}))
	protocolError(t, "pieces of nothing", code, text, 413)
	code, text = post(t, web.URL+"/v2/models/double/infer", one, "Content-Encoding", "br")
	protocolError(t, "br", code, text, 415)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Whatever is refused, and wherever, is counted.
func TestRequestsThatAreRefusedBeforeTheyWaitAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{Metrics: registry, MaxRequestBytes: 1 << 16})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	post(t, web.URL+"/v2/models/m/infer", "{")
	post(t, web.URL+"/v2/models/m/infer", strings.Repeat(" ", 1<<17))
	for i := range 5 {
		post(t, fmt.Sprintf("%s/v2/models/none-%d/infer", web.URL, i), one)
	}
	client := serveGRPC(t, srv)
	client.ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: "none"})
	client.ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{nil}})
	testhelp.Must(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP gotorch_serve_requests_total Requests that have ended, by the code of their answer.
# TYPE gotorch_serve_requests_total counter
gotorch_serve_requests_total{code="INVALID_ARGUMENT",model="m",version="1"} 2
gotorch_serve_requests_total{code="NOT_FOUND",model="",version=""} 6
gotorch_serve_requests_total{code="RESOURCE_EXHAUSTED",model="m",version="1"} 1
`), "gotorch_serve_requests_total"))
	stats, err := srv.Statistics("m", "")
	testhelp.Must(t, err)
	if stats[0].Fail.Count != 3 {
		t.Errorf("%d requests have failed", stats[0].Fail.Count)
	}
}

// A client that asks for another model than the one in the folder must not be told that it was loaded.
func TestLoadingSomethingElseThanWhatIsThereIsRefused(t *testing.T) {
	srv := newServer(t, serve.Options{Control: true})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	load := func(body string) (int, string) { return post(t, web.URL+"/v2/repository/models/m/load", body) }
	for _, body := range []string{"", " {} ", `{"parameters":{}}`, `{"parameters":{"other":1}}`} {
		if code, text := load(body); code != 200 {
			t.Errorf("%q: %d %s", body, code, text)
		}
	}
	for body, want := range map[string]int{`{"parameters":{"config":"{}"}}`: 501, `{"parameters":{"file:1/model.so":"AA=="}}`: 501, `{`: 400, `[]`: 400,
		`{"parameters":{"file:1/model.so":"` + strings.Repeat("A", 2<<20) + `"}}`: 413} {
		code, text := load(body)
		protocolError(t, fmt.Sprintf("%.50q", body), code, text, want)
	}
	client := serveGRPC(t, srv)
	config := map[string]*pb.ModelRepositoryParameter{"config": {ParameterChoice: &pb.ModelRepositoryParameter_StringParam{StringParam: "{}"}}}
	if _, err := client.RepositoryModelLoad(t.Context(), &pb.RepositoryModelLoadRequest{ModelName: "m", Parameters: config}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	_, err := client.RepositoryModelLoad(t.Context(), &pb.RepositoryModelLoadRequest{ModelName: "m"})
	testhelp.Must(t, err)
	code, text := post(t, web.URL+"/v2/repository/models/m/unload", `{"parameters":{"unload_dependents":false}}`)
	if code != 200 || srv.Ready("m", "") {
		t.Errorf("%d %s", code, text)
	}
}

func TestTheHighestVersionIsTheOneOfTheHighestNumber(t *testing.T) {
	srv := newServer(t)
	// Each is higher than those before it.
	for _, id := range []string{"+9", "-1", "0009", "9a", "v10", "\uff19", "0", "9", "10", "18446744073709551615", "18446744073709551616", "20261127033251123456"} {
		testhelp.Must(t, srv.Add("m", serve.FromModel(double), serve.Version(id)))
		if w, _, _ := request(t, srv, "GET", "/v2/models/m"); !strings.Contains(w, `"`+id+`"],"platform"`) {
			t.Errorf("%s is not the last of %s", id, w)
		}
		out := httptest.NewRecorder()
		srv.HTTP().ServeHTTP(out, httptest.NewRequest("POST", "/v2/models/m/infer", strings.NewReader(one)))
		if !strings.Contains(out.Body.String(), `"model_version":"`+id+`"`) {
			t.Errorf("version %s is not the one that answers: %s", id, out.Body)
		}
	}
}

// request asks a server's handler.
func request(t *testing.T, srv *serve.Server, method, path string) (body string, code int, header http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	srv.HTTP().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Body.String(), w.Code, w.Header()
}

// An exporter sends spans many at a time as protobuf, which takes no text that is not UTF-8.
func TestSpansHaveOnlyText(t *testing.T) {
	srv, spans := traced(t, sdk.AlwaysSample())
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(gotorch.Tensor) (gotorch.Tensor, error) { return gotorch.Tensor{}, errors.New("\xff") })))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	post(t, web.URL+"/v2/models/"+strings.Repeat("%ff", 300)+"/versions/"+strings.Repeat("%C3%A9", 300)+"/infer", one)
	post(t, web.URL+"/v2/models/"+strings.Repeat("a", 255)+"%C3%A9/infer", one)
	post(t, web.URL+"/v2/models/m/infer", one)
	n := 0
	for _, span := range spans.Ended() {
		n++
		for _, a := range span.Attributes() {
			if text := a.Value.String(); !utf8.ValidString(text) || len(text) > 300 {
				t.Errorf("%s of span %q is %q", a.Key, span.Name(), text)
			}
		}
		if text := span.Status().Description; !utf8.ValidString(text) || !utf8.ValidString(span.Name()) {
			t.Errorf("span %q says %q", span.Name(), text)
		}
	}
	if n < 4 {
		t.Errorf("%d spans", n)
	}
}

// A request without rows has no data, whatever length it says. Others are not padded to that.
func TestARequestWithoutRowsMakesNoPadding(t *testing.T) {
	var joined atomic.Int64
	srv := newServer(t)
	testhelp.Must(t, srv.Add("m", masked(&joined), serve.Batching{Max: 16, Delay: time.Minute, Preferred: []int{2}, FailTogether: true},
		serve.Ragged{Input: "ids", Dim: 1, Value: 9, Cut: []serve.Cut{{Output: "each", Dim: 1}, {Output: "t", Dim: 2}}},
		serve.Ragged{Input: "mask", Dim: 1}))
	var clients sync.WaitGroup
	for _, shape := range [][]int64{{0, 1 << 50}, {1, 3}} {
		clients.Go(func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				out, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{
					{Name: "ids", Tensor: gotorch.Ones(shape, gotorch.TensorOptions{DType: gotorch.Int64})},
					{Name: "mask", Tensor: gotorch.Ones(shape, gotorch.TensorOptions{DType: gotorch.Bool})}}})
				if err != nil {
					t.Errorf("%v: %v", shape, err)
					return
				}
				want := fmt.Sprint([]int64{shape[0], shape[1], 2}, []int64{shape[0], 2, shape[1]}, []int64{shape[0], 2})
				if got := fmt.Sprint(out[0].Tensor.Shape(), out[1].Tensor.Shape(), out[2].Tensor.Shape()); got != want {
					t.Errorf("%s, where %s was expected", got, want)
				}
			})
		})
	}
	clients.Wait()
	if joined.Load() != 1 {
		t.Errorf("they were joined %d times", joined.Load())
	}
}

// What a text becomes in memory counts, and not only its own bytes.
func TestMemoryOfWhatIsReadIsBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{MaxBytes: 1 << 20, Metrics: registry})
	echo(t, srv)
	testhelp.Must(t, srv.Add("FP64", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.Sum() },
		serve.Signature{Inputs: []serve.Spec{{Name: "FP64", Type: serve.FP64, Shape: []int64{-1}}}, Outputs: []serve.Spec{{Name: "y", Type: serve.FP64}}})))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	send := func(typ, element string, n int) int {
		data := strings.TrimSuffix(strings.Repeat(element+",", n), ",")
		code, _ := post(t, web.URL+"/v2/models/"+typ+"/infer", fmt.Sprintf(`{"inputs":[{"name":"%s","shape":[%d],"datatype":"%[1]s","data":[%[3]s]}]}`, typ, n, data))
		return code
	}
	sendBinary := func(n int) int {
		head := fmt.Sprintf(`{"inputs":[{"name":"BYTES","shape":[%d],"datatype":"BYTES","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, n, 4*n)
		code, _ := post(t, web.URL+"/v2/models/BYTES/infer", head+strings.Repeat("\x00", 4*n), "Inference-Header-Content-Length", fmt.Sprint(len(head)))
		return code
	}
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"80 000 doubles, of 160 and 640 KB", send("FP64", "0", 80_000), 200},
		{"120 000 doubles, of 240 and 960 KB", send("FP64", "0", 120_000), 429},
		{"30 000 texts, of 90 and 720 KB", send("BYTES", `""`, 30_000), 200},
		{"45 000 texts, of 135 and 1080 KB", send("BYTES", `""`, 45_000), 429},
		{"30 000 packed texts, of 120 and 720 KB", sendBinary(30_000), 200},
		{"45 000 packed texts, of 180 and 1080 KB", sendBinary(45_000), 429},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, where %d was expected", c.what, c.got, c.want)
		}
	}
	// A shape alone takes nothing.
	code, text := post(t, web.URL+"/v2/models/FP64/infer", `{"inputs":[{"name":"FP64","shape":[288230376151711744],"datatype":"FP64","data":[0]}]}`)
	protocolError(t, "a long shape", code, text, 400)
	testhelp.Must(t, testutil.GatherAndCompare(registry, strings.NewReader("# HELP gotorch_serve_request_bytes Memory of request bodies that are read and run.\n"+
		"# TYPE gotorch_serve_request_bytes gauge\ngotorch_serve_request_bytes 0\n"), "gotorch_serve_request_bytes"))
}

// Who is refused for the moment is told to come again; and an answer is packed as its client takes it.
func TestHeadersOfAnswers(t *testing.T) {
	srv := newServer(t, serve.Options{MaxQueue: 1, MaxRequestBytes: 1 << 20})
	gate := make(chan struct{})
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { <-gate; return x })))
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	h := srv.HTTP()
	send := func(model, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/v2/models/"+model+"/infer", strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var clients sync.WaitGroup
	for i := range 2 {
		clients.Go(func() { send("m", one) })
		if i == 0 {
			untilRunning(t, srv)
		} else {
			untilWaiting(t, srv, 1)
		}
	}
	for body, again := range map[string]string{one: "1", strings.Repeat(" ", 1<<20+1): "", "{": ""} {
		if w := send("m", body); w.Code < 400 || w.Header().Get("Retry-After") != again {
			t.Errorf("%.10q: %d with Retry-After %q", body, w.Code, w.Header().Get("Retry-After"))
		}
	}
	close(gate)
	clients.Wait()
	many := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[1000],"datatype":"FP32","data":[%s]}]}`, strings.TrimSuffix(strings.Repeat("1,", 1000), ","))
	plain := send("double", many).Body.String()
	for accept, want := range map[string]string{"": "", "gzip": "gzip", "deflate": "deflate", "br, deflate;q=0.5, gzip": "deflate", "gzip;q=0": "", "gzip; q=0.0, deflate": "deflate",
		"GZIP": "gzip", "gzip;q=x": "", "*": "", "identity": "", "xgzip": ""} {
		w := send("double", many, "Accept-Encoding", accept)
		var body io.Reader = w.Body
		var err error
		switch want {
		case "gzip":
			body, err = gzip.NewReader(w.Body)
		case "deflate":
			body, err = zlib.NewReader(w.Body)
		}
		testhelp.Must(t, err)
		text, err := io.ReadAll(body)
		testhelp.Must(t, err)
		if w.Header().Get("Content-Encoding") != want || string(text) != plain || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("who accepts %q gets %v, %d bytes", accept, w.Header(), len(text))
		}
	}
}

// Each code has its own status over either protocol.
func TestCodesHaveTheirStatuses(t *testing.T) {
	srv := newServer(t)
	var fails error
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(gotorch.Tensor) (gotorch.Tensor, error) { return gotorch.Tensor{}, fails })))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	client := serveGRPC(t, srv)
	for _, c := range []struct {
		code serve.Code
		rest int
		rpc  codes.Code
	}{
		{serve.Internal, 500, codes.Internal}, {serve.InvalidArgument, 400, codes.InvalidArgument}, {serve.NotFound, 404, codes.NotFound},
		{serve.PermissionDenied, 403, codes.PermissionDenied}, {serve.ResourceExhausted, 429, codes.ResourceExhausted},
		{serve.DeadlineExceeded, 504, codes.DeadlineExceeded}, {serve.Canceled, 499, codes.Canceled}, {serve.Unavailable, 503, codes.Unavailable},
		{serve.Unimplemented, 501, codes.Unimplemented}, {200, 500, codes.Internal},
	} {
		fails = &serve.Error{Code: c.code, Msg: "as told"}
		code, text := post(t, web.URL+"/v2/models/m/infer", one)
		if said := protocolError(t, c.code.String(), code, text, c.rest); said != "serve: model m, version 1: "+c.code.String()+": as told" {
			t.Error(said)
		}
		_, err := client.ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{make([]byte, 4)},
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: []int64{1}}}})
		if status.Code(err) != c.rpc {
			t.Errorf("%v over gRPC: %v", c.code, err)
		}
	}
}

type errorOf struct{ text string }

func (e *errorOf) Error() string { return e.text }

type unwrapPanics struct{ error }

func (unwrapPanics) Unwrap() error { panic("no") }

type asPanics struct{ error }

func (asPanics) As(any) bool { panic("no") }

// Whatever a model returns as an error, or panics with, its client is answered and nothing else happens. The nil pointer of a type
// is what a function returns that declares its error with that type.
func TestErrorsWhoseMethodsPanicEndNothing(t *testing.T) {
	var none *errorOf
	var noError *serve.Error
	var noTorchError *gotorch.Error
	bad := errors.New("bad")
	for i, err := range []error{none, noError, noTorchError, unwrapPanics{bad}, asPanics{bad}, fmt.Errorf("around: %w", none),
		fmt.Errorf("around: %w", unwrapPanics{bad}), errors.Join(bad, noError), fmt.Errorf("around: %w", noTorchError)} {
		for _, panics := range []bool{false, true} {
			srv := newServer(t, serve.Options{})
			run := func(context.Context, *serve.Request) ([]serve.Value, error) {
				if panics {
					panic(err)
				}
				return nil, err
			}
			signature := serve.Signature{Inputs: []serve.Spec{{Name: "input", Type: serve.FP32}}, Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}}
			testhelp.Must(t, srv.Add("m", serve.NewModel(signature, run), serve.Batching{Max: 4}))
			var clients sync.WaitGroup
			for range 3 {
				clients.Go(func() {
					_, got := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "input", Tensor: gotorch.Ones([]int64{1})}}})
					if !errors.Is(got, serve.Internal) {
						t.Errorf("%d, panics %v: %v", i, panics, got)
					}
				})
			}
			clients.Wait()
		}
	}
}

// What a model returns is sent as its elements are, whatever it is a view of; what has none is an error that says so.
func TestOutputsOfEveryKind(t *testing.T) {
	srv := newServer(t, serve.Options{})
	x := gotorch.Randn([]int64{4})
	pair := func() gotorch.Tensor { return gotorch.Complex(x, x.Neg()).Conj() }
	closed := gotorch.Ones([]int64{1})
	closed.Close()
	for name, c := range map[string]struct {
		is   func() gotorch.Tensor
		says string
	}{
		"negated by a flag":      {func() gotorch.Tensor { return gotorch.Imag(pair()) }, ""},
		"one negated by a flag":  {func() gotorch.Tensor { return gotorch.Imag(pair()).Narrow(0, 1, 1) }, ""},
		"a view with steps":      {func() gotorch.Tensor { return gotorch.Real(pair()) }, ""},
		"expanded":               {func() gotorch.Tensor { return x.Unsqueeze(1).Expand([]int64{4, 3}) }, ""},
		"transposed":             {func() gotorch.Tensor { return x.Reshape([]int64{2, 2}).Transpose(0, 1) }, ""},
		"nothing":                {func() gotorch.Tensor { return gotorch.Zeros([]int64{0, 3}) }, ""},
		"the zero Tensor":        {func() gotorch.Tensor { return gotorch.Tensor{} }, "zero Tensor"},
		"closed":                 {func() gotorch.Tensor { return closed }, "zero Tensor, or was closed"},
		"sparse":                 {func() gotorch.Tensor { return x.ToSparse() }, "contiguous"},
		"without memory":         {func() gotorch.Tensor { return x.To(gotorch.Meta) }, "meta"},
		"of another type":        {pair, "complex64"},
		"more than there can be": {func() gotorch.Tensor { return gotorch.Ones([]int64{1}).Expand([]int64{1 << 50}) }, "memory"},
	} {
		testhelp.Must(t, srv.Add("m", serve.FromModel(func([]gotorch.Tensor) gotorch.Tensor { return c.is() },
			serve.Signature{Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}})))
		out, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m"})
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || !out[0].Tensor.Equal(c.is()):
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	// The same of inputs.
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	out, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "input", Tensor: gotorch.Imag(pair()).Narrow(0, 1, 1)}}})
	if err != nil || !out[0].Tensor.Equal(gotorch.Imag(pair()).Narrow(0, 1, 1).MulScalar(2)) {
		t.Errorf("an input: %v, %v", out, err)
	}
}
