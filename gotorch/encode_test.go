package gotorch_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

// everyDType calls fn with a (2, 3) tensor of random bits for each dtype that torch has and that is
// not quantised.
func everyDType(t *testing.T, fn func(d gotorch.DType, x gotorch.Tensor)) {
	r := rand.New(rand.NewPCG(1, 2))
	for d := gotorch.Uint8; d.Size() > 0; d++ {
		if d.IsQuantized() || !hasDType(t, d) {
			continue
		}
		raw := make([]byte, 6*d.Size())
		for i := range raw {
			raw[i] = byte(r.Uint32())
			if d == gotorch.Bool {
				raw[i] &= 1
			}
		}
		fn(d, gotorch.FromRaw(raw, d, 2, 3))
	}
}

func throughGob(t *testing.T, x gotorch.Tensor) gotorch.Tensor {
	t.Helper()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(&x); err != nil {
		t.Fatal(err)
	}
	var y gotorch.Tensor
	if err := gob.NewDecoder(&b).Decode(&y); err != nil {
		t.Fatal(err)
	}
	return y
}

func TestGobKeepsEveryBit(t *testing.T) {
	everyDType(t, func(d gotorch.DType, x gotorch.Tensor) {
		y := throughGob(t, x)
		if y.DType() != d || !bytes.Equal(gotorch.RawData(x), gotorch.RawData(y)) || fmt.Sprint(y.Shape()) != "[2 3]" {
			t.Error(d, "came back as", y.DType(), y.Shape())
		}
	})
	for _, x := range []gotorch.Tensor{gotorch.FromScalar(1.5), ones(0, 2), floats(1, 2).RequiresGrad_(), ones(2, 3).Transpose(0, 1)} {
		y := throughGob(t, x)
		if y.String() != x.String() || fmt.Sprint(y.Shape()) != fmt.Sprint(x.Shape()) || y.RequiresGrad() != x.RequiresGrad() {
			t.Error(x, "came back as", y)
		}
	}
	type checkpoint struct {
		Step int
		W, B gotorch.Tensor
		List []gotorch.Tensor
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(checkpoint{3, floats(1), gotorch.Tensor{}, []gotorch.Tensor{{}, floats(2)}}); err != nil {
		t.Fatal(err)
	}
	var c checkpoint
	if err := gob.NewDecoder(&b).Decode(&c); err != nil {
		t.Fatal(err)
	}
	if c.Step != 3 || c.W.String() != "tensor([1.])" || c.B.Defined() || c.List[0].Defined() || c.List[1].String() != "tensor([2.])" {
		t.Error(c)
	}
}

func TestJSONKeepsEveryValue(t *testing.T) {
	everyDType(t, func(d gotorch.DType, x gotorch.Tensor) {
		text, err := json.Marshal(x)
		if err != nil {
			t.Error(d, err)
			return
		}
		var y gotorch.Tensor
		if err := json.Unmarshal(text, &y); err != nil {
			t.Error(d, err, string(text))
			return
		}
		// One NaN is as good as another.
		again, err := json.Marshal(y)
		if err != nil || !bytes.Equal(text, again) || y.DType() != d {
			t.Errorf("%v: %s came back as %s", d, text, again)
		}
		if !strings.Contains(string(text), "NaN") && !bytes.Equal(gotorch.RawData(x), gotorch.RawData(y)) {
			t.Errorf("%v: %v came back as %v", d, x, y)
		}
	})
}

func TestJSON(t *testing.T) {
	inf := math.Inf(1)
	closed := floats(1)
	closed.Close()
	for _, c := range []struct {
		x    gotorch.Tensor
		want string
	}{
		{gotorch.Tensor{}, `null`},
		{gotorch.FromSlice([]float32{1, 2.5, 0.1, 1e30}, 2, 2), `{"dtype":"float32","shape":[2,2],"data":[1,2.5,0.1,1e+30]}`},
		{gotorch.FromSlice([]float64{math.NaN(), inf, -inf, math.Copysign(0, -1)}), `{"dtype":"float64","shape":[4],"data":["NaN","Infinity","-Infinity",-0]}`},
		{gotorch.FromSlice([]float64{1e21, 9e20, 1e-6, 9e-7}), `{"dtype":"float64","shape":[4],"data":[1e+21,900000000000000000000,0.000001,9e-07]}`},
		{gotorch.FromScalar(int64(math.MinInt64)), `{"dtype":"int64","shape":[],"data":[-9223372036854775808]}`},
		{gotorch.FromSlice([]uint64{math.MaxUint64}), `{"dtype":"uint64","shape":[1],"data":[18446744073709551615]}`},
		{gotorch.FromSlice([]bool{true, false}), `{"dtype":"bool","shape":[2],"data":[true,false]}`},
		{gotorch.FromSlice([]complex64{complex(1.5, float32(inf))}), `{"dtype":"complex64","shape":[1],"data":[[1.5,"Infinity"]]}`},
		{leaf(1), `{"dtype":"float32","shape":[1],"requires_grad":true,"data":[1]}`},
		{ones(0, 3), `{"dtype":"float32","shape":[0,3],"data":[]}`},
		{gotorch.FromRaw([]byte{1, 2, 3}, gotorch.Bits8, 3), `{"dtype":"bits8","shape":[3],"data":"AQID"}`},
		{floats(1, 2).To(gotorch.BFloat16).Flip([]int64{0}), `{"dtype":"bfloat16","shape":[2],"data":[2,1]}`},
		{gotorch.FromSlice([]complex64{1 + 2i}).Conj(), `{"dtype":"complex64","shape":[1],"data":[[1,-2]]}`},
	} {
		text, err := json.Marshal(c.x)
		if err != nil || string(text) != c.want {
			t.Errorf("got %s, %v, want %s", text, err, c.want)
		}
		var y gotorch.Tensor
		if err := json.Unmarshal(text, &y); err != nil {
			t.Error(err)
		}
		if again, err := json.Marshal(y); err != nil || string(again) != c.want {
			t.Errorf("%s came back as %s, %v", c.want, again, err)
		}
	}
	for _, x := range []gotorch.Tensor{closed, ones(2, 2).ToSparse(), ones(1).To(gotorch.Meta)} {
		var e *gotorch.Error
		if text, err := json.Marshal(x); !errors.As(err, &e) {
			t.Errorf("got %s, %v", text, err)
		}
		if _, err := x.GobEncode(); !errors.As(err, &e) {
			t.Error(err)
		}
	}
}

func TestJSONMistakes(t *testing.T) {
	for _, text := range []string{
		`[]`, `3`, `{}`, `{"dtype":"float33","shape":[],"data":[1]}`, `{"dtype":"float32","shape":[2],"data":[1]}`,
		`{"dtype":"float32","shape":[-1],"data":[]}`, `{"dtype":"float32","shape":[1],"data":["x"]}`, `{"dtype":"float32","shape":[1],"data":[true]}`,
		`{"dtype":"int8","shape":[1],"data":[128]}`, `{"dtype":"int8","shape":[1],"data":[-129]}`, `{"dtype":"uint8","shape":[1],"data":[-1]}`,
		`{"dtype":"int64","shape":[1],"data":[1.5]}`, `{"dtype":"bool","shape":[1],"data":[2]}`, `{"dtype":"complex64","shape":[1],"data":[[1]]}`,
		`{"dtype":"complex64","shape":[1],"data":[1]}`, `{"dtype":"bits8","shape":[2],"data":"AQ=="}`,
		`{"dtype":"int64","shape":[1],"requires_grad":true,"data":[1]}`, `{"dtype":"qint8","shape":[1],"data":[1]}`,
		`{"dtype":"float32","shape":[9223372036854775807,9223372036854775807],"data":[]}`,
	} {
		x := floats(5)
		if err := json.Unmarshal([]byte(text), &x); err == nil {
			t.Errorf("%s became %v", text, x)
		} else if x.String() != "tensor([5.])" {
			t.Errorf("%s changed the tensor to %v", text, x)
		}
	}
}

// first is a tensor of GoTorch's first version, which gob stored as what torch::pickle_save makes of it.
type first []byte

func (f first) GobEncode() ([]byte, error) { return f, nil }

func TestGobReadsWhatTheFirstVersionWrote(t *testing.T) {
	data, err := os.ReadFile("testdata/first_version.gob")
	if err != nil {
		t.Fatal(err)
	}
	const want = "tensor([[ 1.5000, -2.0000],\n        [ 3.0000,  4.2500]])"
	var stream bytes.Buffer
	if err := gob.NewEncoder(&stream).Encode(map[string]first{"w": data}); err != nil {
		t.Fatal(err)
	}
	var tensors map[string]gotorch.Tensor
	if err := gob.NewDecoder(&stream).Decode(&tensors); err != nil || tensors["w"].String() != want {
		t.Errorf("got %v, %v", tensors["w"], err)
	}
	var list bytes.Buffer
	if err := gotorch.Encode(&list, "m", []any{1}); err != nil {
		t.Fatal(err)
	}
	x := floats(5)
	for _, bad := range [][]byte{data[:len(data)/2], list.Bytes()} {
		if err := x.GobDecode(bad); !errors.Is(err, gotorch.ValueError) || x.String() != "tensor([5.])" {
			t.Errorf("got %v, %v", x, err)
		}
	}
}

func TestNoMoreDimensionsAreSavedThanAreRead(t *testing.T) {
	shape := slices.Repeat([]int64{1}, 65)
	x := floats(1).Reshape(shape)
	_, gobErr := x.GobEncode()
	_, jsonErr := x.MarshalJSON()
	path := filepath.Join(t.TempDir(), "m")
	for _, err := range []error{gobErr, jsonErr, gotorch.Save(path+".pt", x),
		gotorch.SaveTensors(path+".safetensors", map[string]gotorch.Tensor{"x": x})} {
		if !errors.Is(err, gotorch.NotImplementedError) || !strings.Contains(err.Error(), "65 dimensions") {
			t.Error(err)
		}
	}
	x = floats(1).Reshape(shape[:64])
	if y := throughGob(t, x); y.Dim() != 64 {
		t.Error(y.Dim())
	}
	text := fmt.Sprintf(`{"dtype":"float32","shape":[1%s],"data":[1]}`, strings.Repeat(",1", 64))
	if err := json.Unmarshal([]byte(text), &x); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

func FuzzGobDecode(f *testing.F) {
	for _, x := range []gotorch.Tensor{{}, floats(1, 2).RequiresGrad_(), ones(0, 3), gotorch.FromSlice([]int8{1, 2, 3, 4}, 2, 2)} {
		b, err := x.GobEncode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	if data, err := os.ReadFile("testdata/first_version.gob"); err != nil {
		f.Fatal(err)
	} else {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var x gotorch.Tensor
		if err := x.GobDecode(data); err == nil {
			decoded(t, x, len(data))
		}
	})
}

func FuzzUnmarshalJSON(f *testing.F) {
	for _, x := range []gotorch.Tensor{
		{}, floats(1, 2).RequiresGrad_(), ones(0, 3), gotorch.FromSlice([]int8{1, 2}), gotorch.FromSlice([]complex64{1i}),
		gotorch.FromRaw([]byte{1, 2}, gotorch.Bits8, 2), gotorch.FromSlice([]bool{true}), gotorch.FromSlice([]float64{math.Inf(1)}),
	} {
		text, err := x.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var x gotorch.Tensor
		if err := json.Unmarshal(text, &x); err == nil {
			decoded(t, x, len(text))
		}
	})
}

// decoded looks at a tensor that n bytes of a file became.
func decoded(t *testing.T, x gotorch.Tensor, n int) {
	t.Helper()
	if !x.Defined() {
		return
	}
	if bytes := x.StorageBytes(); bytes > 64*int64(n) {
		t.Fatalf("a tensor of %d bytes from %d", bytes, n)
	}
	_ = x.String()
	x.Close()
}

func TestGobMistakes(t *testing.T) {
	good, err := ones(2, 3).GobEncode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		var x gotorch.Tensor
		if err := x.GobDecode(good[:n]); err == nil {
			t.Errorf("%d of %d bytes became %v", n, len(good), x)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] = 0xff
		var x gotorch.Tensor
		_ = x.GobDecode(b) // an error or a tensor, but no panic
	}
}

func ExampleTensor_MarshalJSON() {
	text, err := json.Marshal(gotorch.FromSlice([]float32{1, 2.5, float32(math.Inf(1)), 4}, 2, 2))
	fmt.Println(string(text), err)
	// Output: {"dtype":"float32","shape":[2,2],"data":[1,2.5,"Infinity",4]} <nil>
}
