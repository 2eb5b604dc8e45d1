package pickle

import (
	"errors"
	"testing"
)

// anything is a host that takes what comes.
type anything struct{ budget *Budget }

func (h anything) Global(module, name string) (any, error) { return module + "." + name, nil }

func (h anything) Reduce(callable any, args *Tuple) (any, error) {
	d := &Dict{}
	for i, arg := range args.Items {
		if inner, ok := arg.(*Dict); ok {
			copied, err := inner.Copy(h.budget)
			if err != nil {
				return nil, err
			}
			return copied, copied.Set(int64(i), callable, h.budget)
		}
		if err := d.Set(arg, callable, h.budget); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (h anything) Build(any, any) error { return nil }

func (h anything) Persistent(id any) (any, error) { return id, nil }

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b]q\x01(K\x02\x88Neu.",
		"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x05torch\x94\x8c\x04Size\x94\x93\x94K\x02\x85\x85R\x8f(K\x01\x90C\x01a\x86.",
		"\x80\x02cm\nn\n}(K\x01K\x02u\x85R}b(tQ0(K\x01l(NNd\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x80.",
		"\x80\x03]q\x00(h\x00h\x00e2G\x3f\xf0\x00\x00\x00\x00\x00\x00M\x01\x02J\xff\xff\xff\xff\x87.",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		budget := NewBudget(len(data))
		if _, err := Decode(data, anything{budget}, budget); err == nil && budget.left < 0 {
			t.Fatal("the budget is overdrawn")
		}
	})
}

// A copy and its original go their own ways.
func TestCopiesOfADict(t *testing.T) {
	budget := NewBudget(0)
	d := &Dict{}
	for i := range 20 {
		if err := d.Set(int64(i), i, budget); err != nil {
			t.Fatal(err)
		}
	}
	c, err := d.Copy(budget)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := errors.Join(c.Set(int64(i), -i, budget), c.Set("new", i, budget)); err != nil {
			t.Fatal(err)
		}
	}
	if v, _ := d.Get(int64(7)); v != 7 || len(d.Items) != 20 {
		t.Errorf("the original has %v, and %d items", v, len(d.Items))
	}
	v, _ := c.Get(int64(7))
	if last, _ := c.Get("new"); v != -7 || last != 19 || len(c.Items) != 21 {
		t.Errorf("the copy has %v, %v, and %d items", v, last, len(c.Items))
	}
	if _, err := d.Copy(&Budget{left: 10}); !errors.Is(err, ErrBudget) {
		t.Error(err)
	}
}
