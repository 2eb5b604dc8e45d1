// Package kinds has a function for everything that load_go passes between Python and Go.
package kinds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"gotorch.dev/gotorch"
)

// Celsius is a number with a name.
type Celsius float32

// Colour is a string with a name.
type Colour string

// Limit, Name and Ratio are constants that Python sees.
const (
	Limit         = 1 << 40
	Name  Colour  = "kinds"
	Ratio float32 = 0.5
	On            = true
)

func Bool(v bool) bool                                           { return v }
func Int(v int) int                                              { return v }
func Int8(v int8) int8                                           { return v }
func Int16(v int16) int16                                        { return v }
func Int32(v int32) int32                                        { return v }
func Int64(v int64) int64                                        { return v }
func Uint(v uint) uint                                           { return v }
func Uint8(v uint8) uint8                                        { return v }
func Uint16(v uint16) uint16                                     { return v }
func Uint32(v uint32) uint32                                     { return v }
func Uint64(v uint64) uint64                                     { return v }
func Float32(v float32) float32                                  { return v }
func Float64(v float64) float64                                  { return v }
func Complex64(v complex64) complex64                            { return v }
func Complex128(v complex128) complex128                         { return v }
func String(v string) string                                     { return v }
func Bytes(v []byte) []byte                                      { return v }
func Named(v Celsius) Celsius                                    { return v }
func Duration(v time.Duration) time.Duration                     { return v }
func Ints(v []int) []int                                         { return v }
func Int32s(v []int32) []int32                                   { return v }
func Float64s(v []float64) []float64                             { return v }
func Complexes(v []complex64) []complex64                        { return v }
func Bools(v []bool) []bool                                      { return v }
func Strings(v []string) []string                                { return v }
func Colours(v []Colour) []Colour                                { return v }
func Celsiuses(v []Celsius) []Celsius                            { return v }
func Nested(v [][]int16) [][]int16                               { return v }
func Files(v [][]byte) [][]byte                                  { return v }
func Triple(v [3]float64) [3]float64                             { return v }
func Map(v map[string]int) map[string]int                        { return v }
func Named2(v map[Colour][]string) map[int8]bool                 { return map[int8]bool{int8(len(v)): true} }
func Maybe(v *int) *int                                          { return v }
func Number(v gotorch.Scalar) gotorch.Scalar                     { return v }
func DType(v gotorch.DType) gotorch.DType                        { return v }
func Device(v gotorch.Device) gotorch.Device                     { return v }
func Tensor(v gotorch.Tensor) gotorch.Tensor                     { return v }
func Tensors(v []gotorch.Tensor) gotorch.Tensors                 { return v }
func Dict(v map[string]gotorch.Tensor) map[string]gotorch.Tensor { return v }

// Nothing takes nothing and returns nothing.
func Nothing() {}

// Three returns three values.
func Three(x gotorch.Tensor) (double gotorch.Tensor, shape []int64, text string) {
	return x.MulScalar(2), x.Shape(), x.DType().Name()
}

// Sum adds numbers.
func Sum(start float64, more ...float64) float64 {
	for _, v := range more {
		start += v
	}
	return start
}

// CatAll joins tensors along the first dimension.
func CatAll(tensors ...gotorch.Tensor) gotorch.Tensor { return gotorch.Cat(tensors) }

// ScaleOptions are the options of Scale.
type ScaleOptions struct {
	Factor float64 // what to multiply with; 0 means 1
	Shift  *float64
	DType  gotorch.DType
	Hook   func() // not for Python
	secret int
}

// Scale returns x · Factor + Shift.
func Scale(x gotorch.Tensor, opts ...ScaleOptions) gotorch.Tensor {
	o := ScaleOptions{}
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Factor == 0 {
		o.Factor = 1
	}
	x = x.MulScalar(o.Factor)
	if o.Shift != nil {
		x = x.AddScalar(*o.Shift)
	}
	if o.DType != 0 {
		x = x.To(o.DType)
	}
	o.secret++
	return x
}

// OptionsGiven tells how many options structs arrived.
func OptionsGiven(opts ...ScaleOptions) int { return len(opts) }

// Keywords has parameters that Python has other uses for, and some without a name.
func Keywords(lambda int, None int, _ int) int { return lambda*100 + None*10 }

// Errors ---------------------------------------------------------------------------------------------

// Open fails unless there is a file.
func Open(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("cannot open: %w", err)
	}
	return info.Size(), nil
}

// Check returns an error, and nothing else.
func Check(ok bool) error {
	if ok {
		return nil
	}
	return fs.ErrPermission
}

// TryMM multiplies, and returns what goes wrong as an error.
func TryMM(a, b gotorch.Tensor) (gotorch.Tensor, error) {
	return gotorch.Try(func() gotorch.Tensor { return a.MM(b) })
}

// MM multiplies, and panics if that goes wrong.
func MM(a, b gotorch.Tensor) gotorch.Tensor { return a.MM(b) }

// PanicKind panics with an Error of this kind.
func PanicKind(kind, msg string) {
	panic(&gotorch.Error{Op: "test", Kind: gotorch.ErrorKind(kind), Msg: msg})
}

// Wrapped panics with an error that wraps one of gotorch.
func Wrapped() {
	panic(fmt.Errorf("around: %w", &gotorch.Error{Kind: gotorch.IndexError, Msg: "inside"}))
}

var noMap map[string]int

type evil struct{}

func (evil) Error() string { panic("never ask") }

// Panic panics in one of several ways.
func Panic(how string) {
	switch how {
	case "string":
		panic("broken")
	case "int":
		panic(7)
	case "error":
		panic(errors.New("an error"))
	case "nil":
		panic(nil)
	case "index":
		var s []int
		_ = s[len(how)]
	case "pointer":
		var t *ScaleOptions
		t.Factor = 1
	case "map":
		noMap["a"] = 1
	case "divide":
		zero := len(how) - len("divide")
		_ = 1 / zero
	case "evil":
		panic(evil{})
	case "exit":
		runtime.Goexit()
	case "exit in a hook":
		w := gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true})
		w.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { runtime.Goexit(); return gotorch.Tensor{} })
		w.Sum().Backward()
	}
}

// Closed returns a tensor that is closed.
func Closed(x gotorch.Tensor) gotorch.Tensor {
	y := x.Clone()
	y.Close()
	return y
}

// HalfClosed returns a good tensor and a closed one.
func HalfClosed(x gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{x, Closed(x)} }

// CloseIt closes its argument.
func CloseIt(x gotorch.Tensor) { x.Close() }

// Memory ---------------------------------------------------------------------------------------------

var kept []gotorch.Tensor

// Keep holds on to a tensor after the call.
func Keep(x gotorch.Tensor) { kept = append(kept, x) }

// Kept gives back what Keep was given.
func Kept() []gotorch.Tensor { return kept }

// Forget drops what Keep was given.
func Forget() { kept = nil }

// Add1 changes x in place.
func Add1(x gotorch.Tensor) gotorch.Tensor { return x.AddScalar_(1) }

// Row returns a view.
func Row(x gotorch.Tensor, i int64) gotorch.Tensor { return x.Select(0, i) }

// FromGo returns a tensor whose memory is Go's.
func FromGo(n int) gotorch.Tensor {
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	return gotorch.FromBlob(data)
}

// Churn makes n tensors of a megabyte and drops them.
func Churn(n int) {
	for range n {
		gotorch.Zeros([]int64{1 << 18})
	}
}

// Scoped sums in a scope.
func Scoped(x gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return x.MulScalar(2).AddScalar(1).Sum() })
}

// NativeBytes is how much gotorch's own allocator has handed out.
func NativeBytes() int64 { return gotorch.MemoryStats().AllocatedBytes }

// Threads --------------------------------------------------------------------------------------------

var inside, most atomic.Int64

// Together waits until as many calls of it go on as callers says, or a minute, and returns how many
// went on at a time at most.
func Together(callers int64) int64 {
	n := inside.Add(1)
	defer inside.Add(-1)
	for {
		old := most.Load()
		if n <= old || most.CompareAndSwap(old, n) {
			break
		}
	}
	for end := time.Now().Add(time.Minute); most.Load() < callers && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return most.Load()
}

// Goroutines computes x·x/2 in n of them and adds the results.
func Goroutines(x gotorch.Tensor, n int) gotorch.Tensor {
	parts := make([]gotorch.Tensor, n)
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() {
			runtime.Gosched()
			parts[i] = x.Mul(x).DivScalar(2)
		})
	}
	all.Wait()
	return gotorch.Stack(parts).SumDim([]int64{0})
}

var spinning atomic.Bool

// Spin goes round in a goroutine, in a loop that calls nothing, until StopSpinning, or a minute.
func Spin() {
	spinning.Store(true)
	time.AfterFunc(time.Minute, StopSpinning)
	done := make(chan bool)
	go func() {
		for spinning.Load() {
		}
		close(done)
	}()
	<-done
}

// Spinning says whether Spin goes round.
func Spinning() bool { return spinning.Load() }

// StopSpinning ends Spin.
func StopSpinning() { spinning.Store(false) }

// CloseLater closes tensors one by one after it has returned.
func CloseLater(tensors []gotorch.Tensor) {
	go func() {
		for _, t := range tensors {
			t.Close()
			time.Sleep(10 * time.Microsecond)
		}
	}()
}

// ComputeForever computes in goroutines that never end.
func ComputeForever() {
	for range 3 {
		go func() {
			for {
				x := gotorch.Randn([]int64{64, 64})
				x.MM(x).Close()
				x.Close()
			}
		}()
	}
}

// GradEnabled tells whether autograd records here, and in a goroutine.
func GradEnabled() (here, elsewhere bool) {
	answer := make(chan bool)
	go func() { answer <- gotorch.GradEnabled() }()
	return gotorch.GradEnabled(), <-answer
}

// Hooked returns x·x, whose gradient a Go function doubles.
func Hooked(x gotorch.Tensor) gotorch.Tensor {
	y := x.Mul(x)
	y.RegisterHook(func(grad gotorch.Tensor) gotorch.Tensor { return grad.MulScalar(2) })
	return y
}

// What Python cannot call ----------------------------------------------------------------------------

type hidden struct{}

// Pair is a struct.
type Pair struct{ A, B int }

func Generic[T any](v T) T         { return v }
func Channel(c chan int)           {}
func Callback(f func(int) int) int { return f(1) }
func Hidden(h hidden)              {}
func Struct(p Pair) Pair           { return p }
func Interface(v fmt.Stringer)     {}
func Address(p uintptr)            {}
func ErrorFirst() (error, int)     { return nil, 0 } //lint:ignore ST1008 that is the point
func ResultFunc() func()           { return nil }
func Pointers(p *Pair)             {}
func FloatKeys(m map[float64]int)  {}
func HiddenOptions(opts ...hidden) {}

func unexported() {}

var _ = unexported
