package hub

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// LoadOptions are the arguments of [LoadInto] that have defaults.
type LoadOptions struct {
	// Mapping says what becomes what where names are not the same.
	Mapping Mapping
	// Partial accepts tensors that only the model has, which stay as they are, and tensors that only the folder has.
	Partial bool
	// SkipMismatched leaves tensors alone that have another shape in the model: a classifier of other classes.
	SkipMismatched bool
	// Assign gives the model the folder's tensors themselves, rather than copy their numbers into its own: for a model
	// on gotorch.Meta, which is filled without taking memory twice. Tensors keep the folder's dtype unless DType is given.
	// An optimiser made before does not know them.
	Assign bool
	// Map leaves the tensors in their files until they are used, as [Folder.Tensor] does. With Assign it is the fastest
	// way to begin, and the files must not be shortened while the model lives. Without it they are read.
	Map bool
	// DType converts floating tensors that are assigned. Without Assign they become what the model's are.
	DType gotorch.DType
	// Device receives the tensors that are assigned. Default: the CPU.
	Device gotorch.Device
}

// Tying is implemented by models in which one tensor stands in several places, such as an embedding that is the last
// layer's weight as well.
type Tying interface {
	// TieWeights puts it there.
	TieWeights()
}

// LoadInto fills a model with the weights of a folder, by their names, and says what it found. Where something does
// not fit it returns a *FitError, which has the same report, and the model is as it was: everything is checked by the
// headers before a tensor is read, and read before the model changes.
//
// Tensors that the model has under several names are loaded under any of them; where the folder has several they must
// agree in Go as in Python, where the last one counts. After Assign, TieWeights of a [Tying] model is called; a model
// that has such tensors and no such method is an error of kind ValueError, as they would be two afterwards.
//
// Hooks of the model's state dict are called twice, at first to see what fits. Peak memory is that of the model and of
// the tensors that are read; with Assign it is that of the model, and with Map of the model and what the system has
// room for.
func LoadInto(model nn.Modular, folder *Folder, opts ...LoadOptions) (*Report, error) {
	const op = "hub.LoadInto"
	opt := args.Option(opts)
	if !opt.Assign && (opt.DType != 0 || opt.Device != 0) {
		return nil, args.ValueError(op, "DType and Device are for tensors that are assigned: with Assign, or change the model with To")
	}
	t, err := opt.Mapping.compile()
	if err != nil {
		return nil, err
	}
	p, err := t.plan(folder.Names())
	if err != nil {
		return nil, err
	}
	l := &load{op: op, model: model, folder: folder, opt: opt, plan: p,
		report: &Report{Model: className(model), Folder: folder.Dir(), Dropped: p.dropped, Incomplete: p.incomplete}}
	for _, r := range p.idle {
		if r.kind != dropRule && !r.loadOnly { // which are for some folders only
			l.report.Idle = append(l.report.Idle, r.String())
		}
	}
	if err := l.look(); err != nil {
		return l.report, err
	}
	if err := l.report.problems(opt); err != nil {
		return l.report, err
	}
	if opt.Assign {
		if _, ok := model.(Tying); !ok && len(l.ties) > 0 {
			return l.report, args.ValueError(op, "%s has one tensor as %s, which Assign would make two of: give it a method TieWeights, or load without Assign", l.report.Model, quoted(l.ties[0]))
		}
	}
	if err := l.fill(); err != nil {
		return l.report, err
	}
	return l.report, nil
}

type load struct {
	op     string
	model  nn.Modular
	folder *Folder
	opt    LoadOptions
	plan   plan
	report *Report

	ties    [][]string          // names that the model has one tensor for
	origin  map[string][]string // the folder's names, by the model's
	skipped map[string]bool     // the model's names that are not to be loaded
}

// className is what the model calls itself.
func className(m nn.Modular) string {
	name := fmt.Sprintf("%T", m)
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "Module")
}

// never is the name of a tensor that no model has: with it LoadStateDict always fails, and changes nothing.
const never = "\x00"

// look finds out what fits, by tensors without memory.
func (l *load) look() error {
	l.origin, l.skipped = map[string][]string{}, map[string]bool{}
	dict := nn.StateDict{}
	var other error
	err := gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			for _, s := range l.plan.steps {
				in := make([]gotorch.Tensor, len(s.from))
				for i, name := range s.from {
					info, _ := l.folder.Lookup(name)
					if info.DType == 0 {
						panic(args.Errorf(l.op, gotorch.NotImplementedError, "%s: the tensor %q has the dtype %q, which this torch lacks; with hub.Drop(%q) it is left out", l.folder.Dir(), name, info.Format, name))
					}
					in[i] = gotorch.Empty(info.Shape, gotorch.TensorOptions{DType: l.becomes(info.DType), Device: gotorch.Meta})
				}
				for i, out := range s.rule.apply(in) {
					dict[s.to[i]], l.origin[s.to[i]] = out, s.from
				}
			}
			dict[never] = gotorch.Empty([]int64{0}, gotorch.TensorOptions{Device: gotorch.Meta})
			var found nn.LoadReport
			err := l.model.LoadStateDict(dict, nn.LoadOptions{Report: &found, Assign: l.opt.Assign})
			var fits *nn.StateDictError
			if err != nil && !errors.As(err, &fits) && !errors.Is(err, gotorch.ValueError) {
				other = err
				return
			}
			l.found(found)
		})
	})
	return errors.Join(err, other)
}

// becomes is the dtype that a tensor of the folder is read in.
func (l *load) becomes(d gotorch.DType) gotorch.DType {
	if l.opt.DType != 0 && d.IsFloatingPoint() {
		return l.opt.DType
	}
	return d
}

// found fills the report.
func (l *load) found(found nn.LoadReport) {
	r := l.report
	state := l.model.StateDict()
	defer func() {
		for _, t := range state {
			t.Close()
		}
	}()
	l.ties = tied(state)
	missing := map[string]bool{}
	for _, name := range found.Missing {
		missing[name] = true
	}
	for _, names := range l.ties {
		var with string
		for _, name := range names {
			if !missing[name] {
				with = name
				break
			}
		}
		if with == "" {
			continue
		}
		for _, name := range names {
			if missing[name] {
				delete(missing, name)
				r.Tied = append(r.Tied, Tie{name, with})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		m := Missing{Name: name}
		if t := state[name]; t.Defined() { // and no extra state
			m.Shape = t.Shape()
		}
		r.Missing = append(r.Missing, m)
	}
	for _, name := range found.Unexpected {
		if name != never {
			l.skipped[name] = true
			info := Unexpected{Name: name, From: l.origin[name]}
			if len(info.From) == 1 {
				known, _ := l.folder.Lookup(info.From[0])
				info.Shape = known.Shape
			}
			r.Unexpected = append(r.Unexpected, info)
		}
	}
	for _, m := range found.Mismatched {
		l.skipped[m.Name] = true
		r.Mismatched = append(r.Mismatched, Mismatch{m.Name, l.origin[m.Name], m.Want, m.Got})
	}
	for _, c := range found.Converted {
		if !l.opt.Assign {
			r.Converted = append(r.Converted, Converted{c.Name, c.Got, c.Want})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.origin)) {
		info, _ := l.folder.Lookup(l.origin[name][0])
		if d := l.becomes(info.DType); d != info.DType && !l.skipped[name] {
			r.Converted = append(r.Converted, Converted{name, info.DType, d})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.origin)) {
		if !l.skipped[name] {
			r.Loaded = append(r.Loaded, Loaded{name, l.origin[name]})
		}
	}
}

// tied returns the names that one tensor has, where it has several.
func tied(state nn.StateDict) (groups [][]string) {
	type shape string
	alike := map[shape][]string{}
	for _, name := range state.Names() {
		// Without a tie, memory is that of the model's tensor and of this view.
		if t := state[name]; t.Defined() && t.Numel() > 0 && t.StorageUseCount() > 2 {
			key := shape(fmt.Sprint(t.Shape(), t.Strides(), t.StorageOffset(), t.DType()))
			alike[key] = append(alike[key], name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(alike)) {
		names := alike[key]
		for len(names) > 0 {
			group := []string{names[0]}
			var rest []string
			for _, name := range names[1:] {
				if state[name].SharesStorage(state[names[0]]) {
					group = append(group, name)
				} else {
					rest = append(rest, name)
				}
			}
			if len(group) > 1 {
				groups = append(groups, group)
			}
			names = rest
		}
	}
	return groups
}

// fill reads the tensors and loads them.
func (l *load) fill() error {
	dict := nn.StateDict{}
	defer func() {
		for _, t := range dict {
			t.Close()
		}
	}()
	for _, s := range l.plan.steps {
		if !slices.ContainsFunc(s.to, func(name string) bool { return !l.skipped[name] }) {
			continue
		}
		if err := l.step(s, dict); err != nil {
			return err
		}
	}
	err := l.model.LoadStateDict(dict, nn.LoadOptions{Partial: true, SkipMismatched: true, Assign: l.opt.Assign})
	if err != nil {
		return err
	}
	if tying, ok := l.model.(Tying); ok && l.opt.Assign {
		tying.TieWeights()
	}
	return nil
}

// step puts what a rule makes into dict.
func (l *load) step(s step, dict nn.StateDict) (err error) {
	failed := gotorch.Try0(func() {
		gotorch.Scope0(func(scope *gotorch.ScopeHandle) {
			in := make([]gotorch.Tensor, len(s.from))
			for i, name := range s.from {
				info, _ := l.folder.Lookup(name)
				opt := TensorOptions{Read: !l.opt.Map, Device: l.opt.Device}
				if d := l.becomes(info.DType); d != info.DType {
					opt.DType = d
				}
				if in[i], err = l.folder.Tensor(name, opt); err != nil {
					return
				}
				l.report.Bytes += info.Bytes
			}
			for i, out := range s.rule.apply(in) {
				if l.skipped[s.to[i]] {
					continue
				}
				if l.opt.Assign && !l.opt.Map {
					out = out.Contiguous()
				}
				scope.Keep(out)
				dict[s.to[i]] = out
			}
		})
	})
	return errors.Join(failed, err)
}
