package main

import (
	"reflect"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
)

// Programs of nested transforms: expressions in Polish notation, which Python has written at random and evaluates as
// well (compositions.py). A transform's last operand is its function's body, in which one more variable is known, or
// two; so a body may use what the functions around it were given.
const specialComposition = specialTransform - 1

// program is what is left of the text.
type program struct {
	words []string
	given []gotorch.Tensor
}

func (p *program) word() string {
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *program) number() int64 {
	n, err := strconv.ParseInt(p.word(), 10, 64)
	if err != nil {
		panic(broken(err.Error()))
	}
	return n
}

// dim is a number, or the word none.
func (p *program) dim() int64 {
	if p.words[0] == "none" {
		p.word()
		return functorch.None
	}
	return p.number()
}

type expression = func(variables []gotorch.Tensor) gotorch.Tensor

var plain = map[string]func(x gotorch.Tensor) gotorch.Tensor{
	"sin": gotorch.Tensor.Sin, "cos": gotorch.Tensor.Cos, "tanh": gotorch.Tensor.Tanh, "neg": gotorch.Tensor.Neg,
	"sigmoid": gotorch.Tensor.Sigmoid, "square": gotorch.Tensor.Square, "clone": func(x gotorch.Tensor) gotorch.Tensor { return x.Clone() },
	"detach": gotorch.Tensor.Detach, "relu": gotorch.Tensor.ReLU,
	"sum":       func(x gotorch.Tensor) gotorch.Tensor { return x.Sum() },
	"mean":      func(x gotorch.Tensor) gotorch.Tensor { return x.Mean() },
	"sumlast":   func(x gotorch.Tensor) gotorch.Tensor { return x.SumDim([]int64{-1}) },
	"softmax":   func(x gotorch.Tensor) gotorch.Tensor { return x.Softmax(-1) },
	"cumsum":    func(x gotorch.Tensor) gotorch.Tensor { return x.CumSum(-1) },
	"logsumexp": func(x gotorch.Tensor) gotorch.Tensor { return x.LogSumExp([]int64{-1}) },
	"t":         func(x gotorch.Tensor) gotorch.Tensor { return x.Transpose(-1, -2) },
	"flat":      func(x gotorch.Tensor) gotorch.Tensor { return x.Reshape([]int64{-1}) },
	"unsqueeze": func(x gotorch.Tensor) gotorch.Tensor { return x.Unsqueeze(0) },
	"first":     func(x gotorch.Tensor) gotorch.Tensor { return x.Select(0, 0) },
	"noise":     func(x gotorch.Tensor) gotorch.Tensor { return x.Add(gotorch.RandLike(x)) },
	"dropout":   func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Dropout(x, 0.5, true) },
}

var joining = map[string]func(x, y gotorch.Tensor) gotorch.Tensor{
	"add": func(x, y gotorch.Tensor) gotorch.Tensor { return x.Add(y) }, "mul": gotorch.Tensor.Mul, "mm": gotorch.Tensor.MatMul,
	"stack":   func(x, y gotorch.Tensor) gotorch.Tensor { return gotorch.Stack([]gotorch.Tensor{x, y}) },
	"where":   func(x, y gotorch.Tensor) gotorch.Tensor { return gotorch.Where(x.GtScalar(0), x, y) },
	"inplace": func(x, y gotorch.Tensor) gotorch.Tensor { return x.Clone().Mul_(y) },
	"set": func(x, y gotorch.Tensor) gotorch.Tensor { // in a view
		z := x.Clone()
		z.Select(0, 0).Copy_(y)
		return z
	},
}

var randomnesses = []string{"error", "different", "same"}

// chunks is how many elements at a time, where 0 is all.
func chunks(n int64) gotorch.Scalar {
	if n == 0 {
		return nil
	}
	return n
}

func (p *program) expression() expression {
	word := p.word()
	if fn, ok := plain[word]; ok {
		of := p.expression()
		return func(vs []gotorch.Tensor) gotorch.Tensor { return fn(of(vs)) }
	}
	if fn, ok := joining[word]; ok {
		a, b := p.expression(), p.expression()
		return func(vs []gotorch.Tensor) gotorch.Tensor { x := a(vs); return fn(x, b(vs)) }
	}
	switch word {
	case "v":
		i := p.number()
		return func(vs []gotorch.Tensor) gotorch.Tensor { return vs[i] }
	case "c":
		i := p.number()
		return func([]gotorch.Tensor) gotorch.Tensor { return p.given[i] }
	case "nograd":
		of := p.expression()
		return func(vs []gotorch.Tensor) gotorch.Tensor {
			return gotorch.NoGrad1(func() gotorch.Tensor { return of(vs) })
		}
	}
	return p.transform(word)
}

func (p *program) transform(word string) expression {
	var numbers []int64
	for range map[string]int{"vmap": 4, "vmap2": 5, "jacrev": 1, "jacfwd": 1}[word] {
		numbers = append(numbers, p.dim())
	}
	at := p.expression()
	if word == "vmap2" || word == "grad2" {
		other, of := p.expression(), p.expression()
		return func(vs []gotorch.Tensor) gotorch.Tensor {
			f := func(x, y gotorch.Tensor) gotorch.Tensor { return of(append(vs[:len(vs):len(vs)], x, y)) }
			x := at(vs)
			y := other(vs)
			if word == "vmap2" {
				return functorch.VMap(f, functorch.VMapOptions{InDims: numbers[:2], OutDims: numbers[2:3],
					Randomness: randomnesses[numbers[3]], ChunkSize: chunks(numbers[4])})(x, y)
			}
			return functorch.Grad2(func(x, y gotorch.Tensor) gotorch.Tensor { return f(x, y).Sum() })(x, y)
		}
	}
	of := p.expression()
	return func(vs []gotorch.Tensor) gotorch.Tensor {
		f := func(x gotorch.Tensor) gotorch.Tensor { return of(append(vs[:len(vs):len(vs)], x)) }
		total := func(x gotorch.Tensor) gotorch.Tensor { return f(x).Sum() }
		x := at(vs)
		switch word {
		case "vmap":
			return functorch.VMap(f, functorch.VMapOptions{InDims: numbers[:1], OutDims: numbers[1:2],
				Randomness: randomnesses[numbers[2]], ChunkSize: chunks(numbers[3])})(x)
		case "grad":
			return functorch.Grad(total)(x)
		case "gradvalue":
			g, value, aux := functorch.GradAux(func(x gotorch.Tensor) (gotorch.Tensor, gotorch.Tensor) { y := f(x); return y.Sum(), y })(x)
			return g.Mul(value).Add(aux.Sum())
		case "vjp":
			y, vjp := functorch.VJP(f, x)
			return vjp(y.Cos())
		case "vjps": // of a batch of cotangents
			y, vjp := functorch.VJP(f, x)
			return functorch.VMap(vjp)(gotorch.Stack([]gotorch.Tensor{y.Cos(), y.Sin()}))
		case "vjpvjp": // the product, differentiated by what it is multiplied with
			y, vjp := functorch.VJP(f, x)
			return functorch.Grad(func(c gotorch.Tensor) gotorch.Tensor { return vjp(c).Square().Sum() })(y.Cos())
		case "jvp":
			y, tangent := functorch.JVP(f, x, x.Sin())
			return y.Mul(tangent)
		case "jacrev":
			return functorch.JacRev(f, functorch.JacRevOptions{ChunkSize: chunks(numbers[0])})(x)
		case "jacfwd":
			return functorch.JacFwd(f, functorch.JacFwdOptions{Randomness: randomnesses[numbers[0]]})(x)
		case "hessian":
			return functorch.Hessian(total)(x)
		}
		panic(broken("there is no " + word))
	}
}

func runComposition(in *reader) []reflect.Value {
	text := in.text()
	tensors := reflect.TypeFor[[]gotorch.Tensor]()
	list := func() []gotorch.Tensor { return in.value(tensors).Interface().([]gotorch.Tensor) }
	xs, given := list(), list()
	p := &program{words: strings.Fields(text), given: given}
	of := p.expression()
	if len(p.words) > 0 {
		panic(broken("there is more behind the program: " + strings.Join(p.words, " ")))
	}
	return []reflect.Value{reflect.ValueOf(of(xs))}
}
