package nn

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ModuleListModule is what [ModuleList] makes.
type ModuleListModule struct {
	Module
	Modules []Modular `nn:",inline"`
}

// ModuleList is modules by numbers, "0", "1". A slice of modules as a field is as good, and keeps their type.
// It panics with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleList.html.
func ModuleList(modules ...Modular) *ModuleListModule {
	m := Init(&ModuleListModule{})
	m.Append(modules...)
	return m
}

func (m *ModuleListModule) moduleList() *ModuleListModule { return m }

// Append puts modules behind the others.
func (m *ModuleListModule) Append(modules ...Modular) { m.Insert(len(m.Modules), modules...) }

// Insert puts modules before the one at a place. It panics with an IndexError if there is no such place.
func (m *ModuleListModule) Insert(at int, modules ...Modular) {
	const op = "nn.ModuleList"
	if at < 0 || at > len(m.Modules) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.IndexError, Msg: fmt.Sprintf("index %d is out of range: there are %d modules", at, len(m.Modules))})
	}
	for i, module := range modules {
		notNil(op, module, at+i)
		walkFrom([]*Module{&m.Module}, module, pyInt(int64(at+i)), func(string, Modular) bool { return true })
	}
	m.Modules = slices.Insert(m.Modules, at, modules...)
}

func notNil(op string, module Modular, i any) {
	if module == nil || isNil(module) {
		panic(typeError(op, "module %v is nil, a %T", i, module))
	}
}

// Len returns how many there are.
func (m *ModuleListModule) Len() int { return len(m.Modules) }

// ModuleDictModule is what [ModuleDict] makes.
type ModuleDictModule struct {
	Module
	names   []string
	modules []Modular `nn:"-"` // see entries
}

// ModuleDict is modules by name, in the order in which they were set. A map of modules as a field is as good,
// in alphabetical order.
//
//	nn.ModuleDict().Set("conv", nn.Conv2d(3, 8, 3)).Set("pool", nn.MaxPool2d(2))
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleDict.html.
func ModuleDict() *ModuleDictModule { return Init(&ModuleDictModule{}) }

// Set sets the module of a name, and returns m. It panics with a ValueError if the name is empty or has a dot,
// and with a TypeError if the module is nil.
func (m *ModuleDictModule) Set(name string, module Modular) *ModuleDictModule {
	const op = "nn.ModuleDict"
	if name == "" || strings.Contains(name, ".") {
		panic(args.ValueError(op, "a name must not be empty nor contain a dot, but is %q", name))
	}
	notNil(op, module, name)
	walkFrom([]*Module{&m.Module}, module, name, func(string, Modular) bool { return true })
	if i := slices.Index(m.names, name); i >= 0 {
		m.modules[i] = module
	} else {
		m.names, m.modules = append(m.names, name), append(m.modules, module)
	}
	return m
}

// Get returns the module of a name, or nil if there is none.
func (m *ModuleDictModule) Get(name string) Modular {
	if i := slices.Index(m.names, name); i >= 0 {
		return m.modules[i]
	}
	return nil
}

// Delete removes the module of a name. It panics with a KeyError if there is none.
func (m *ModuleDictModule) Delete(name string) {
	i := indexOf("nn.ModuleDict.Delete", m.names, name)
	// New lists, as the old ones may be run through.
	m.names = slices.Concat(m.names[:i], m.names[i+1:])
	m.modules = slices.Concat(m.modules[:i], m.modules[i+1:])
}

// indexOf returns where a name is. It panics with a KeyError if it is not there.
func indexOf(op string, names []string, name string) int {
	i := slices.Index(names, name)
	if i < 0 {
		panic(args.Errorf(op, gotorch.KeyError, "%q is none of the names %q", name, names))
	}
	return i
}

// Len returns how many there are.
func (m *ModuleDictModule) Len() int { return len(m.names) }

// All yields the modules in their order.
func (m *ModuleDictModule) All() iter.Seq2[string, Modular] {
	return func(yield func(string, Modular) bool) {
		modules := m.modules
		for i, name := range m.names {
			if !yield(name, modules[i]) {
				return
			}
		}
	}
}

// dictionary is a ModuleDict, or a struct that embeds one.
type dictionary interface{ dict() *ModuleDictModule }

func (m *ModuleDictModule) dict() *ModuleDictModule { return m }

func (m *ModuleDictModule) keepOf(clone func(Modular) Modular) {
	m.names, m.modules = slices.Clone(m.names), slices.Clone(m.modules)
	for i := range m.modules {
		m.modules[i] = clone(m.modules[i])
	}
}
