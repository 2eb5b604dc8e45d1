package serve

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// whole fails if what a decoder has taken is no tensor.
func whole(t *testing.T, inputs []input) {
	t.Helper()
	for _, in := range inputs {
		n, ok := elements(in.shape)
		switch {
		case !ok:
			t.Errorf("input %q has shape %v", in.name, in.shape)
		case in.name == "" || !in.typ.known():
			t.Errorf("an input has name %q, type %q", in.name, in.typ)
		case in.typ == BYTES && len(in.bytes) != n, len(in.raw) != n*in.typ.Size():
			t.Errorf("input %q of %s%v has %d texts, %d bytes", in.name, in.typ, in.shape, len(in.bytes), len(in.raw))
		}
		if in.typ == BOOL {
			for _, b := range in.raw {
				if b > 1 {
					t.Errorf("input %q has a bool that is %d", in.name, b)
				}
			}
		}
	}
}

func FuzzREST(f *testing.F) {
	for _, text := range []string{
		`{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,-2.5e3]}]}`,
		`{"inputs":[{"data":[[1,2],[3,4]],"name":"x","shape":[2,2],"datatype":"INT8"}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`,
		`{"id":"\u00e9\ud83d\ude00","parameters":{"priority":1,"timeout":5,"a":1.5,"b":"c","d":null},"inputs":[{"name":"t","shape":[2],"datatype":"BYTES","data":["a","\n"]}]}`,
		`{"inputs":[{"name":"x","shape":[],"datatype":"BOOL","data":true},{"name":"y","shape":[0,3],"datatype":"FP16","data":[]}],"z":[{}, [null, NaN]]}`,
		`{"inputs":[{"name":"x","shape":[9223372036854775807,2],"datatype":"UINT64","data":[18446744073709551615]}]}`,
	} {
		f.Add([]byte(text), -1)
	}
	f.Add([]byte(`{"inputs":[{"name":"x","shape":[2],"datatype":"BF16","parameters":{"binary_data_size":4}}]}abcd`), 91)
	f.Add([]byte(`{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}`+"\x01\x00\x00\x00a"), 92)
	f.Fuzz(func(t *testing.T, text []byte, head int) {
		used := budget{limit: 1 << 20}
		b := &body{r: bytes.NewReader(text), most: 1 << 16, holding: holding{budget: &used}}
		req := &request{free: b.free}
		r := &http.Request{Header: http.Header{}, ContentLength: int64(len(text))}
		if head >= 0 {
			r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
		}
		if _, _, err := b.request(r, req); err == nil {
			whole(t, req.inputs)
		}
		b.free()
		if n := used.used.Load(); n != 0 {
			t.Errorf("%d bytes are still taken", n)
		}
	})
}

func FuzzGRPC(f *testing.F) {
	for _, r := range []*pb.ModelInferRequest{
		{ModelName: "m", Id: "1", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1}}}, RawInputContents: [][]byte{{0, 0, 0, 0}}},
		{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "INT8", Shape: []int64{2}, Contents: &pb.InferTensorContents{IntContents: []int32{-128, 127}}}}},
		{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "BYTES", Shape: []int64{1}}}, RawInputContents: [][]byte{{1, 0, 0, 0, 9}},
			Parameters: map[string]*pb.InferParameter{"priority": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 3}}, "none": {}}},
		{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "BOOL", Shape: []int64{1 << 40, 1 << 40}}}, Outputs: []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "y"}}},
	} {
		text, err := proto.Marshal(r)
		testhelp.Must(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r pb.ModelInferRequest
		if proto.Unmarshal(text, &r) != nil {
			return
		}
		if req, err := grpcRequest(&r, false, func(int64) error { return nil }); err == nil {
			whole(t, req.inputs)
		}
	})
}

// FuzzJSON holds the reader to encoding/json.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{`null`, `[1,2.5e-3,-0,"a\u00e9\ud800"]`, `{"a":{"b":[true,false,{}]}}`, `"\x"`, `01`, `1.`, `[1,]`, ` {} `, "\"\xff\"", `-`, `{"a" 1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := reader{text: text}
		err := r.skip(0)
		if err == nil {
			err = r.end()
		}
		if bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Infinity")) ||
			bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > deepest {
			return
		}
		if valid := json.Valid(text); valid != (err == nil) {
			t.Errorf("%q: valid is %v, and the error %v", text, valid, err)
		}
		var want string
		if json.Unmarshal(text, &want) == nil && !bytes.Contains(text, []byte("null")) {
			r := reader{text: text}
			if got, err := r.str("a string"); err != nil || got != want {
				t.Errorf("%q is %q, %v, and encoding/json's %q", text, got, err, want)
			}
			var again string
			if err := json.Unmarshal(appendString(nil, want), &again); err != nil || again != strings.ToValidUTF8(want, string(utf8.RuneError)) {
				t.Errorf("%q was written as %s", want, appendString(nil, want))
			}
		}
	})
}

func TestHalvesAreRoundedAsPyTorchDoes(t *testing.T) {
	for h := range 1 << 16 {
		f := halfFloat(uint16(h))
		want := gotorch.ToSlice[float32](gotorch.FromRaw([]byte{byte(h), byte(h >> 8)}, gotorch.Float16))[0]
		if math.Float32bits(f) != math.Float32bits(want) && (f == f || want == want) {
			t.Fatalf("%#x is %v, and PyTorch's %v", h, f, want)
		}
		if back := halfOf(float64(f)); back != uint16(h) && f == f {
			t.Fatalf("%v is %#x, and was %#x", f, back, h)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	values := []float64{0, math.Copysign(0, -1), 65519.999, 65520, 1e300, -1e300, math.Inf(1), 0x1p-25, 0x1.8p-25, 0x1.000001p-25, 0x1p-14, 0x1.ffcp-15, 0x1.ffep-15}
	for range 20000 {
		values = append(values, math.Ldexp(random.Float64()*2-1, random.IntN(50)-30))
		exact := float64(halfFloat(uint16(random.IntN(0x7bff))))
		next := float64(halfFloat(halfOf(exact) + 1))
		values = append(values, (exact+next)/2) // as near to one as to the other
	}
	raw := gotorch.RawData(gotorch.FromSlice(values).To(gotorch.Float16))
	for i, f := range values {
		// PyTorch rounds by way of float32. Where that is exact the result must be the same.
		if float64(float32(f)) != f && !math.IsInf(f, 0) {
			continue
		}
		if want := uint16(raw[2*i]) | uint16(raw[2*i+1])<<8; halfOf(f) != want {
			t.Errorf("%v is %#x, and PyTorch's %#x", f, halfOf(f), want)
		}
	}
}

func TestWhatIsWrittenAsJSONIsReadAsItWas(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, known := range dataTypes {
		if known.name == BF16 {
			continue
		}
		for _, shape := range [][]int64{{}, {0}, {7}, {3, 5}, {2, 0, 3}, {2, 3, 4}} {
			n, _ := elements(shape)
			o := output{name: "x", typ: known.name, shape: shape}
			if known.name == BYTES {
				for range n {
					o.bytes = append(o.bytes, []byte(strings.Repeat("ä\"\x00\n ", random.IntN(3))))
				}
			} else {
				o.raw = make([]byte, n*known.size)
				for i := range o.raw {
					o.raw[i] = byte(random.Uint32())
					if known.name == BOOL {
						o.raw[i] &= 1
					}
				}
			}
			text, err := appendData(nil, &o)
			testhelp.Must(t, err)
			r := reader{text: text}
			raw, texts, err := r.data("x", known.name, shape, nil, nil)
			testhelp.Must(t, err)
			if known.dtype.IsFloatingPoint() { // NaNs have many bits
				a := gotorch.FromRaw(raw, known.dtype)
				b := gotorch.FromRaw(o.raw, known.dtype)
				if !gotorch.AllClose(a, b, gotorch.AllCloseOptions{RTol: new(0.0), ATol: new(0.0), EqualNaN: true}) {
					t.Errorf("%s %v: %s", known.name, shape, text)
				}
			} else if !bytes.Equal(raw, o.raw) || len(texts) != len(o.bytes) {
				t.Errorf("%s %v: %s", known.name, shape, text)
			}
			for i := range texts {
				if !bytes.Equal(texts[i], o.bytes[i]) {
					t.Errorf("%q came back as %q", o.bytes[i], texts[i])
				}
			}
		}
	}
}

func TestNestedDataMustHaveTheShape(t *testing.T) {
	for text, ok := range map[string]bool{
		`[[1,2,3],[4,5,6]]`: true, `[1,2,3,4,5,6]`: true, `[[1,2],[3,4],[5,6]]`: false, `[[1,2,3],[4,5]]`: false,
		`[[1,2,3],[4,5,6],[]]`: false, `[[1,2,3],4,5,6]`: false, `[[[1],2,3],[4,5,6]]`: false, `1`: false, `[]`: false,
		`[1,2,3,4,5,6,7]`: false, `[1,2,3,4,5]`: false, `[[1,2,3],[4,5,[6]]]`: false, `[1,2,3,[4,5,6]]`: false,
		`[1,2,3,4,5,128]`: false, `[1,2,3,4,5,1.0]`: false, `[1,2,3,4,5,true]`: false, `[1,2,3,4,5,NaN]`: false,
	} {
		r := reader{text: []byte(text)}
		if _, _, err := r.data("x", INT8, []int64{2, 3}, nil, nil); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
