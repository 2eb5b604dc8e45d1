// Files reads a file of tensors and writes what it holds to another, for tests/test_files.py:
//
//	files HOW SOURCE TARGET
package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"

	"gotorch.dev/gotorch"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(how, source, target string) error {
	var opt gotorch.LoadOptions
	switch how {
	case "map", "safetensors-map":
		opt.Map = true
	case "unchecked":
		opt.IgnoreChecksums = true
	}
	switch how {
	case "describe":
		return describeAll(source, target)
	case "value", "map", "unchecked":
		v, err := gotorch.Load(source, opt)
		if err != nil {
			return err
		}
		return gotorch.Save(target, v)
	case "tensors":
		tensors, err := gotorch.LoadTensors(source)
		if err != nil {
			return err
		}
		return gotorch.SaveTensors(target, tensors)
	default:
		tensors, metadata, err := gotorch.LoadSafetensors(source, opt)
		if err != nil {
			return err
		}
		return gotorch.SaveSafetensors(target, tensors, metadata)
	}
}

// describeAll writes a description of each file of a folder to another: NAME.json, and NAME.err for those that are refused.
// Those without objects of Python's are saved as NAME, too.
func describeAll(source, target string) error {
	paths, err := filepath.Glob(filepath.Join(source, "*.pt"))
	if err != nil {
		return err
	}
	for i, path := range paths {
		to := filepath.Join(target, filepath.Base(path))
		v, err := gotorch.Load(path, gotorch.LoadOptions{Map: i%2 == 1})
		var e *gotorch.Error
		if errors.As(err, &e) {
			if err := os.WriteFile(to+".err", []byte(err.Error()), 0o666); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		d := describer{}
		text, err := json.Marshal(d.value(v))
		if err != nil {
			return err
		}
		if err := os.WriteFile(to+".json", text, 0o666); err != nil {
			return err
		}
		if err := gotorch.Save(to, v); err != nil && !(d.opaque && strings.Contains(err.Error(), "which Save does not write")) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// describer writes values as lists that begin with a kind, which tests/test_files.py does, too.
type describer struct {
	storages []gotorch.Tensor // one tensor of each
	opaque   bool
}

func (d *describer) list(kind string, items []any) []any {
	list := []any{kind}
	for _, item := range items {
		list = append(list, d.value(item))
	}
	return list
}

func (d *describer) value(v any) any {
	switch v := v.(type) {
	case nil:
		return []any{"none"}
	case bool:
		return []any{"bool", v}
	case int64:
		return []any{"int", fmt.Sprint(v)}
	case *big.Int:
		return []any{"int", v.String()}
	case float64:
		return []any{"float", bits(v)}
	case complex128:
		return []any{"complex", bits(real(v)), bits(imag(v))}
	case string:
		return []any{"str", hex.EncodeToString([]byte(v))}
	case []byte:
		return []any{"bytes", hex.EncodeToString(v)}
	case gotorch.DType:
		return []any{"torch", "torch." + v.Name()}
	case gotorch.Device:
		return []any{"device", v.String()}
	case gotorch.Layout:
		return []any{"torch", v.String()}
	case *gotorch.Storage:
		return []any{"storage", v.Bytes()}
	case gotorch.Tuple:
		return d.list("tuple", v)
	case []any:
		return d.list("list", v)
	case gotorch.Dict:
		dict := []any{"dict"}
		for key, value := range v.All() {
			dict = append(dict, []any{d.value(key), d.value(value)})
		}
		return dict
	case *gotorch.PickledObject:
		d.opaque = true
		return []any{"object", v.Class}
	case gotorch.Tensor:
		return d.tensor(v)
	}
	panic(fmt.Sprintf("a value of type %T", v))
}

// bits is the bits of a float; all NaNs are one.
func bits(f float64) string {
	if math.IsNaN(f) {
		return "nan"
	}
	return fmt.Sprintf("%016x", math.Float64bits(f))
}

func (d *describer) tensor(t gotorch.Tensor) any {
	dtype, shape, layout := t.DType().Name(), t.Shape(), t.Layout()
	head := []any{"tensor", dtype, append([]int64{}, shape...), layout.String(), t.RequiresGrad()}
	t = t.Detach()
	if t.Device() == gotorch.Meta {
		return append(head, "meta", append([]int64{}, t.Strides()...))
	}
	switch layout {
	case gotorch.SparseCOO:
		return append(head, t.IsCoalesced(), d.tensor(gotorch.Call("aten::_indices", "", t)[0].(gotorch.Tensor)), d.tensor(gotorch.Call("aten::_values", "", t)[0].(gotorch.Tensor)))
	case gotorch.SparseCSR, gotorch.SparseBSR:
		return append(head, d.tensor(t.CrowIndices()), d.tensor(t.ColIndices()), d.tensor(t.Values()))
	case gotorch.SparseCSC, gotorch.SparseBSC:
		return append(head, d.tensor(t.CcolIndices()), d.tensor(t.RowIndices()), d.tensor(t.Values()))
	}
	head = append(head, append([]int64{}, t.Strides()...), t.IsConj(), t.IsNeg(), d.storage(t))
	if t.DType().IsQuantized() {
		switch t.QSchemeOf() {
		case 0:
			head = append(head, bits(t.QScale()), t.QZeroPoint())
		default:
			head = append(head, d.tensor(t.QPerChannelScales()), d.tensor(t.QPerChannelZeroPoints()), t.QPerChannelAxis())
		}
		t = t.IntRepr()
	}
	plain := t.ResolveConj().ResolveNeg().Contiguous()
	return append(head, hex.EncodeToString(gotorch.RawData(plain)))
}

// storage numbers storages in the order in which they are met; those without bytes have no number.
func (d *describer) storage(t gotorch.Tensor) int {
	if t.StorageBytes() == 0 {
		return -1
	}
	for i, other := range d.storages {
		if other.SharesStorage(t) {
			return i
		}
	}
	d.storages = append(d.storages, t)
	return len(d.storages) - 1
}
