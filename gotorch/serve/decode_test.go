package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
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
	f.Add([]byte("abcdefgh"), 0)
	raw := &version{signature: Signature{Inputs: []Spec{{Name: "x", Type: FP32, Shape: []int64{-1, 2}}}}}
	f.Fuzz(func(t *testing.T, text []byte, head int) {
		used := budget{limit: 1 << 20}
		b := &body{r: bytes.NewReader(text), most: 1 << 16, whole: int64(len(text)), holding: holding{budget: &used}}
		req := &request{free: b.free}
		r := &http.Request{Header: http.Header{}, ContentLength: int64(len(text))}
		if head >= 0 {
			r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
		}
		if _, _, err := b.request(r, req, raw.rawShape); err == nil {
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
		replaced := err != nil && (strings.Contains(err.Error(), "half of a surrogate pair") || strings.Contains(err.Error(), "JSON is UTF-8"))
		if valid := json.Valid(text); valid != (err == nil) && !(valid && replaced) {
			t.Errorf("%q: valid is %v, and the error %v", text, valid, err)
		}
		if err != nil { // also what is no UTF-8, and halves of surrogate pairs, which encoding/json replaces
			return
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

// numberText writes a number in one of the ways of JSON.
func numberText(random *rand.Rand, x *big.Float) string {
	text := x.Text([]byte("egf")[random.IntN(3)], -1)
	if random.IntN(2) == 0 && !strings.ContainsAny(text, "e") {
		text += "e0"
	}
	return text
}

// A number is what it rounds to, and refused where that is infinite: a model would see another number than was sent.
func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for typ, of := range map[DataType]struct{ bits, digits, highest int }{FP16: {16, 11, 15}, FP32: {32, 24, 127}, FP64: {64, 53, 1023}} {
		times2 := func(f float64, n int) *big.Float {
			return new(big.Float).SetMantExp(new(big.Float).SetPrec(2000).SetFloat64(f), n)
		}
		// The least number that rounds to infinity: half a step above the largest.
		limit := times2(1, of.highest+1)
		limit.Sub(limit, times2(1, of.highest-of.digits))
		for i := range 2000 {
			x := new(big.Float).Copy(limit)
			switch i % 4 {
			case 0: // the limit itself
			case 1:
				x.Add(x, times2(random.Float64()*2-1, of.highest-random.IntN(2*of.digits)))
			case 2:
				x = times2(random.Float64(), random.IntN(3*of.highest)-of.highest)
			case 3: // the very last digit below, which is not out of range
				x.Sub(x, times2(1, of.highest-of.digits-300))
			}
			out := x.Cmp(limit) >= 0
			text := numberText(random, x)
			if random.IntN(2) == 0 {
				text = "-" + text
			}
			if i%4 == 3 && typ == FP16 {
				continue // halves come of doubles, which have not so many digits
			}
			r := reader{text: []byte("[" + text + "]")}
			_, _, err := r.data("x", typ, []int64{1}, nil, nil)
			if (err != nil) != out || out && !strings.Contains(err.Error(), "out of the range of "+string(typ)) {
				t.Fatalf("%s as %s: %v, out of range is %v", text, typ, err, out)
			}
		}
		for _, text := range []string{"Infinity", "-Infinity", "NaN", "1e-999", "-0.0"} {
			r := reader{text: []byte("[" + text + "]")}
			if _, _, err := r.data("x", typ, []int64{1}, nil, nil); err != nil {
				t.Errorf("%s as %s: %v", text, typ, err)
			}
		}
	}
}

// Text that no UTF-8 is, and halves of surrogate pairs, are refused and not replaced, wherever they stand.
func TestWhatIsNoTextIsRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for range 20000 {
		var text strings.Builder
		var units []uint16
		whole := true
		for range random.IntN(6) {
			switch random.IntN(6) {
			case 0:
				text.WriteString("a")
				units = append(units, 'a')
			case 1:
				text.WriteString("ä\U0001F600\uFFFD")
				units = append(units, utf16.Encode([]rune("ä\U0001F600\uFFFD"))...)
			case 2:
				text.WriteByte([]byte{0x80, 0xff, 0xc3, 0xed}[random.IntN(4)])
				text.WriteByte('"' - 1)
				whole = false
			default: // a half of a pair, or a letter
				unit := []uint16{0xd800, 0xdbff, 0xdc00, 0xdfff, 0xe000, 0x41, 0xfffd}[random.IntN(7)]
				fmt.Fprintf(&text, []string{`\u%04x`, `\u%04X`}[random.IntN(2)], unit)
				units = append(units, unit)
			}
		}
		runes := utf16.Decode(units)
		whole = whole && slices.Equal(utf16.Encode(runes), units) // Decode replaces halves
		r := reader{text: []byte(`"` + text.String() + `"`)}
		got, err := r.bytes("a text")
		if whole != (err == nil) || whole && string(got) != string(runes) {
			t.Fatalf("%q: %q, %v, where %q was expected, whole %v", text.String(), got, err, string(runes), whole)
		}
	}
	for _, bad := range []string{`\ud800`, `\udc00`, "\xff"} {
		for _, form := range []string{
			`{"id":"%s","inputs":[]}`, `{"parameters":{"a":"%s"},"inputs":[]}`, `{"parameters":{"%s":1},"inputs":[]}`, `{"unknown":["%s"],"inputs":[]}`,
			`{"inputs":[{"name":"%s","shape":[1],"datatype":"BYTES","data":["a"]}]}`, `{"inputs":[{"name":"a","shape":[1],"datatype":"BYTES","data":["%s"]}]}`,
			`{"inputs":[{"data":["%s"],"name":"a","shape":[1],"datatype":"BYTES"}]}`, `{"inputs":[],"outputs":[{"name":"%s"}]}`,
		} {
			text := strings.Replace(form, "%s", bad, 1)
			used := budget{limit: 1 << 20}
			b := &body{r: strings.NewReader(text), most: 1 << 16, whole: int64(len(text)), holding: holding{budget: &used}}
			_, _, err := b.request(&http.Request{Header: http.Header{}, ContentLength: int64(len(text))}, &request{free: b.free}, nil)
			b.free()
			if err == nil || asError(err).Code != InvalidArgument {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
