package hub

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Mapping is a table that says how the tensors of a folder become those of a model, where the two are not the same.
// Its rules are those of [Prefix], [Name], [Split], [Join], [Func] and [Drop]:
//
//	hub.Mapping{
//		hub.Prefix("h.", "transformer.h."),                                     // where the folder has no such prefix
//		hub.Name("transformer.h.*.attn.c_attn.weight", "blocks.*.qkv.weight").Transposed(),
//		hub.Split("blocks.*.kv.weight", 0, "blocks.*.k.weight", "blocks.*.v.weight"),
//		hub.Drop("transformer.h.*.attn.bias"),                                  // a mask, which is no weight
//	}
//
// In a name, * stands for one part between dots, and ** for any number of parts; in the model's name they stand for
// the same again, in the same order. The order of the rules says nothing. For each tensor of the folder at first the
// longest prefix is replaced that a Prefix rule is for, and then the one rule applies that is for the result: one
// without a * before those with. A name that no rule is for stays as it is. Two rules for one name, of which neither has
// to be preferred, and two tensors that become one, are errors of kind ValueError.
type Mapping []Rule

// Rule is a line of a [Mapping].
type Rule struct {
	kind       ruleKind
	from, to   []string
	dim        int64
	sizes      []int64
	transposed bool
	after      bool // it transposes what it makes, as the way back does
	loadOnly   bool
	fn         func([]gotorch.Tensor) []gotorch.Tensor
}

type ruleKind int

const (
	renameRule ruleKind = iota
	prefixRule
	splitRule
	joinRule
	funcRule
	dropRule
)

// Prefix replaces how names begin: Prefix("model.", "") takes it away, Prefix("h.", "transformer.h.") adds to it.
func Prefix(from, to string) Rule {
	return Rule{kind: prefixRule, from: []string{from}, to: []string{to}}
}

// Name gives a tensor another name. from is the folder's, to the model's.
func Name(from, to string) Rule {
	return Rule{kind: renameRule, from: []string{from}, to: []string{to}}
}

// Split makes several tensors of one, by cutting it along a dimension: into as many equal parts as there are names, or
// into those of [Rule.Sizes].
func Split(from string, dim int64, to ...string) Rule {
	return Rule{kind: splitRule, from: []string{from}, dim: dim, to: to}
}

// Join makes one tensor of several, by putting them one behind the other along a dimension. All of from have the same
// wildcards.
func Join(to string, dim int64, from ...string) Rule {
	return Rule{kind: joinRule, from: from, dim: dim, to: []string{to}}
}

// Func makes tensors of others in any other way. fn gets those of from and returns those of to. It is called with
// tensors on gotorch.Meta as well, to learn the shapes, and must not change its arguments. Such a rule is of no use for
// [SaveModel], as nothing knows the way back.
func Func(from, to []string, fn func([]gotorch.Tensor) []gotorch.Tensor) Rule {
	return Rule{kind: funcRule, from: from, to: to, fn: fn}
}

// Drop leaves a tensor of the folder out, without a word of it being unexpected.
func Drop(from string) Rule { return Rule{kind: dropRule, from: []string{from}} }

// Transposed returns the rule for tensors whose last two dimensions the folder has the other way round, as the linear
// layers of GPT-2. They are transposed before they are cut or joined.
func (r Rule) Transposed() Rule {
	r.transposed = true
	return r
}

// LoadOnly returns the rule for [LoadInto] alone: [SaveModel] leaves it out, and so keeps the names that the rule makes.
// It is for what older folders have.
func (r Rule) LoadOnly() Rule {
	r.loadOnly = true
	return r
}

// Sizes returns a [Split] rule for parts of other sizes than equal ones. For a way back by [Join] they are kept.
func (r Rule) Sizes(sizes ...int64) Rule {
	r.sizes = slices.Clone(sizes)
	return r
}

// String returns the rule as it would be written.
func (r Rule) String() string {
	var s string
	switch r.kind {
	case prefixRule:
		s = fmt.Sprintf("Prefix(%q, %q)", r.from[0], r.to[0])
	case renameRule:
		s = fmt.Sprintf("Name(%q, %q)", r.from[0], r.to[0])
	case splitRule:
		s = fmt.Sprintf("Split(%q, %d, %s)", r.from[0], r.dim, quoted(r.to))
	case joinRule:
		s = fmt.Sprintf("Join(%q, %d, %s)", r.to[0], r.dim, quoted(r.from))
	case funcRule:
		s = fmt.Sprintf("Func([%s], [%s])", quoted(r.from), quoted(r.to))
	case dropRule:
		s = fmt.Sprintf("Drop(%q)", r.from[0])
	}
	if r.transposed {
		s += ".Transposed()"
	}
	if r.loadOnly {
		s += ".LoadOnly()"
	}
	return s
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, name := range names {
		q[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(q, ", ")
}

// apply makes the model's tensors of the folder's. It panics as the functions that it calls do.
func (r Rule) apply(in []gotorch.Tensor) []gotorch.Tensor {
	switch {
	case !r.transposed:
		return r.plain(in)
	case r.after:
		return r.turned(r.plain(in))
	}
	return r.plain(r.turned(in))
}

func (r Rule) turned(in []gotorch.Tensor) []gotorch.Tensor {
	turned := make([]gotorch.Tensor, len(in))
	for i, t := range in {
		if t.Dim() < 2 {
			panic(args.ValueError("hub.Mapping", "%v transposes a tensor of shape %v, which has less than two dimensions", r, t.Shape()))
		}
		turned[i] = t.Transpose(-2, -1)
	}
	return turned
}

func (r Rule) plain(in []gotorch.Tensor) []gotorch.Tensor {
	switch r.kind {
	case splitRule:
		sizes := r.sizes
		if sizes == nil {
			n := int64(len(r.to))
			dim := r.dim
			if dim < 0 {
				dim += in[0].Dim()
			}
			if dim < 0 || dim >= in[0].Dim() || in[0].Size(dim)%n != 0 {
				panic(args.ValueError("hub.Mapping", "%v cannot cut a tensor of shape %v into %d equal parts", r, in[0].Shape(), n))
			}
			sizes = slices.Repeat([]int64{in[0].Size(dim) / n}, len(r.to))
		}
		return in[0].SplitWithSizes(sizes, gotorch.SplitWithSizesOptions{Dim: r.dim})
	case joinRule:
		return []gotorch.Tensor{gotorch.Cat(in, gotorch.CatOptions{Dim: r.dim})}
	case funcRule:
		out := r.fn(in)
		if len(out) != len(r.to) {
			panic(args.ValueError("hub.Mapping", "the function of %v returned %d tensors for %d names", r, len(out), len(r.to)))
		}
		return out
	}
	return in
}

// inverse returns the rule for the way back.
func (r Rule) inverse() (Rule, error) {
	back := r
	back.from, back.to, back.after = r.to, r.from, !r.after
	switch r.kind {
	case splitRule:
		back.kind = joinRule
	case joinRule:
		back.kind = splitRule
	case funcRule:
		return Rule{}, args.ValueError("hub.Mapping", "there is no way back from %v", r)
	}
	return back, nil
}

// Names ------------------------------------------------------------------------------------------------------

// pattern is a name in which * and ** are wildcards.
type pattern struct {
	text   string
	exact  bool
	regexp *regexp.Regexp
	pieces []string // between the wildcards
	stars  []string
}

var wildcard = regexp.MustCompile(`\*+`)

func compilePattern(r Rule, text string) (pattern, error) {
	p := pattern{text: text, stars: wildcard.FindAllString(text, -1), pieces: wildcard.Split(text, -1)}
	p.exact = len(p.stars) == 0
	if text == "" {
		return p, args.ValueError("hub.Mapping", "%v has an empty name", r)
	}
	var b strings.Builder
	b.WriteString(`\A`)
	any := 0
	for i, piece := range p.pieces {
		b.WriteString(regexp.QuoteMeta(piece))
		if i == len(p.stars) {
			break
		}
		switch p.stars[i] {
		case "*":
			b.WriteString(`([^.]+)`)
		case "**":
			b.WriteString(`(.+)`)
			any++
		default:
			return p, args.ValueError("hub.Mapping", "%v: %q has %q, which is no wildcard", r, text, p.stars[i])
		}
	}
	if any > 1 {
		return p, args.ValueError("hub.Mapping", "%v: %q has ** twice, which could be read in several ways", r, text)
	}
	b.WriteString(`\z`)
	var err error
	if p.regexp, err = regexp.Compile(b.String()); err != nil { // a name that is no UTF-8
		return p, args.ValueError("hub.Mapping", "%v: %v", r, err)
	}
	return p, nil
}

func (p pattern) match(name string) (captures []string, ok bool) {
	if p.exact {
		return nil, name == p.text
	}
	m := p.regexp.FindStringSubmatch(name)
	if m == nil {
		return nil, false
	}
	return m[1:], true
}

func (p pattern) fill(captures []string) string {
	var b strings.Builder
	for i, piece := range p.pieces {
		b.WriteString(piece)
		if i < len(captures) {
			b.WriteString(captures[i])
		}
	}
	return b.String()
}

// table is a Mapping that has been checked.
type table struct {
	prefixes []Rule
	rules    []compiled
	exact    map[string][2]int // a name without wildcards: the rule, and which of its from it is
}

type compiled struct {
	Rule
	from, to []pattern
}

func (m Mapping) compile() (*table, error) {
	t := &table{exact: map[string][2]int{}}
	for _, r := range m {
		if r.kind == prefixRule {
			for _, other := range t.prefixes {
				if other.from[0] == r.from[0] {
					return nil, args.ValueError("hub.Mapping", "%v and %v are for the same names", other, r)
				}
			}
			t.prefixes = append(t.prefixes, r)
			continue
		}
		c := compiled{Rule: r}
		if len(r.from) == 0 || len(r.to) == 0 && r.kind != dropRule {
			return nil, args.ValueError("hub.Mapping", "%v has no names", r)
		}
		if r.sizes != nil && (r.kind != splitRule && r.kind != joinRule || len(r.sizes) != len(r.to)*len(r.from)) {
			return nil, args.ValueError("hub.Mapping", "%v has sizes for %d parts", r, len(r.sizes))
		}
		for _, name := range r.from {
			p, err := compilePattern(r, name)
			if err != nil {
				return nil, err
			}
			if len(c.from) > 0 && !slices.Equal(p.stars, c.from[0].stars) {
				return nil, args.ValueError("hub.Mapping", "%v: %q and %q have other wildcards", r, r.from[0], name)
			}
			if p.exact {
				if at, taken := t.exact[name]; taken {
					other := r
					if at[0] < len(t.rules) {
						other = t.rules[at[0]].Rule
					}
					return nil, args.ValueError("hub.Mapping", "%v and %v are both for %q", other, r, name)
				}
				t.exact[name] = [2]int{len(t.rules), len(c.from)}
			}
			c.from = append(c.from, p)
		}
		for _, name := range r.to {
			p, err := compilePattern(r, name)
			if err != nil {
				return nil, err
			}
			if !slices.Equal(p.stars, c.from[0].stars) {
				return nil, args.ValueError("hub.Mapping", "%v: %q and %q have other wildcards", r, r.from[0], name)
			}
			c.to = append(c.to, p)
		}
		t.rules = append(t.rules, c)
	}
	return t, nil
}

// renamed returns the name with its prefix replaced.
func (t *table) renamed(name string) string {
	best := -1
	for i, r := range t.prefixes {
		if strings.HasPrefix(name, r.from[0]) && (best < 0 || len(r.from[0]) > len(t.prefixes[best].from[0])) {
			best = i
		}
	}
	if best < 0 {
		return name
	}
	r := t.prefixes[best]
	return r.to[0] + strings.TrimPrefix(name, r.from[0])
}

// find returns the rule for a name, which of its from it is, and what the wildcards stand for; -1 where there is none.
func (t *table) find(name string) (rule, place int, captures []string, err error) {
	if at, ok := t.exact[name]; ok {
		return at[0], at[1], nil, nil
	}
	rule = -1
	for i, r := range t.rules {
		for j, p := range r.from {
			if p.exact {
				continue
			}
			found, ok := p.match(name)
			if !ok {
				continue
			}
			if rule >= 0 {
				return -1, 0, nil, args.ValueError("hub.Mapping", "%q is ambiguous: %v and %v are for it, and neither names it without a *", name, t.rules[rule].Rule, r.Rule)
			}
			rule, place, captures = i, j, found
		}
	}
	return rule, place, captures, nil
}

// step is a rule that is applied once: from tensors of the folder to tensors of the model.
type step struct {
	rule     Rule
	from, to []string
	wanted   []string // the names of from after prefixes were replaced, with those that are not there
}

// plan says how the tensors of these names, in their order, become others.
type plan struct {
	steps      []step
	dropped    []string
	incomplete []Incomplete
	idle       []Rule // for no name
}

// Incomplete is a rule of which not all tensors are there.
type Incomplete struct {
	Rule    Rule
	Present []string // those that are there
	Missing []string // those that are not
}

func (t *table) plan(names []string) (plan, error) {
	var p plan
	groups := map[string]*step{} // by rule and captures
	used := make([]bool, len(t.rules))
	usedPrefix := make([]bool, len(t.prefixes))
	var order []string
	identity := Rule{kind: renameRule}
	for _, name := range names {
		inner := t.renamed(name)
		for i, r := range t.prefixes {
			usedPrefix[i] = usedPrefix[i] || strings.HasPrefix(name, r.from[0])
		}
		i, place, captures, err := t.find(inner)
		if err != nil {
			return plan{}, err
		}
		if i < 0 {
			key := "\x00" + name
			groups[key] = &step{rule: identity, from: []string{name}, to: []string{inner}}
			order = append(order, key)
			continue
		}
		r := t.rules[i]
		used[i] = true
		if r.kind == dropRule {
			p.dropped = append(p.dropped, name)
			continue
		}
		key := fmt.Sprint(i, "\x00", strings.Join(captures, "\x00"))
		s := groups[key]
		if s == nil {
			s = &step{rule: r.Rule, from: make([]string, len(r.from))}
			for _, to := range r.to {
				s.to = append(s.to, to.fill(captures))
			}
			for _, from := range r.from {
				s.wanted = append(s.wanted, from.fill(captures))
			}
			groups[key] = s
			order = append(order, key)
		}
		if s.from[place] != "" {
			return plan{}, args.ValueError("hub.Mapping", "%q and %q both become %q, of %v", s.from[place], name, s.wanted[place], r.Rule)
		}
		s.from[place] = name
	}
	from := map[string]string{}
	for _, key := range order {
		s := groups[key]
		if slices.Contains(s.from, "") {
			in := Incomplete{Rule: s.rule}
			for k, name := range s.from {
				if name != "" {
					in.Present = append(in.Present, name)
				} else {
					in.Missing = append(in.Missing, s.wanted[k])
				}
			}
			p.incomplete = append(p.incomplete, in)
			continue
		}
		for _, to := range s.to {
			if other, taken := from[to]; taken {
				return plan{}, args.ValueError("hub.Mapping", "%s and %s both become %q", other, quoted(s.from), to)
			}
			from[to] = quoted(s.from)
		}
		p.steps = append(p.steps, *s)
	}
	for i, r := range t.rules {
		if !used[i] {
			p.idle = append(p.idle, r.Rule)
		}
	}
	for i, r := range t.prefixes {
		if !usedPrefix[i] {
			p.idle = append(p.idle, r)
		}
	}
	return p, nil
}

// Check returns what names of a folder become, without a folder: for tests of a table. What it returns is by the
// folder's names, sorted; those that are dropped are not there, and names of rules that lack a part neither.
func (m Mapping) Check(names []string) (map[string][]string, error) {
	t, err := m.compile()
	if err != nil {
		return nil, err
	}
	p, err := t.plan(slices.Sorted(slices.Values(names)))
	if err != nil {
		return nil, err
	}
	result := map[string][]string{}
	for _, s := range p.steps {
		for _, name := range s.from {
			result[name] = slices.Clone(s.to)
		}
	}
	return result, nil
}

// back is plan for the way from a model to a folder.
func (m Mapping) back(names []string) (plan, error) {
	m = slices.DeleteFunc(slices.Clone(m), func(r Rule) bool { return r.loadOnly })
	t, err := m.compile()
	if err != nil {
		return plan{}, err
	}
	var inverse Mapping
	prefixes := map[string]Rule{}
	for _, r := range m {
		switch {
		case r.kind == dropRule:
		case r.kind == prefixRule:
			if other, taken := prefixes[r.to[0]]; taken {
				return plan{}, args.ValueError("hub.SaveModel", "there is no way back from both %v and %v", other, r)
			}
			prefixes[r.to[0]] = r
		default:
			back, err := r.inverse()
			if err != nil {
				return plan{}, err
			}
			inverse = append(inverse, back)
		}
	}
	it, err := inverse.compile()
	if err != nil {
		return plan{}, err
	}
	p, err := it.plan(names)
	if err != nil {
		return plan{}, err
	}
	if len(p.incomplete) > 0 {
		in := p.incomplete[0]
		return plan{}, args.ValueError("hub.SaveModel", "%v needs %s, which the model does not have", in.Rule, quoted(in.Missing))
	}
	// Prefixes were replaced at first, so their way back comes last.
	pt := &table{}
	for _, to := range slices.Sorted(maps.Keys(prefixes)) {
		pt.prefixes = append(pt.prefixes, Prefix(to, prefixes[to].from[0]))
	}
	var outer []string
	for i := range p.steps {
		s := &p.steps[i]
		for k, name := range s.to {
			s.to[k] = pt.renamed(name)
		}
		outer = append(outer, s.to...)
	}
	// The way there must lead to where this began.
	forth, err := t.plan(slices.Sorted(slices.Values(outer)))
	if err != nil {
		return plan{}, fmt.Errorf("hub.SaveModel: the mapping has no way back: %w", err)
	}
	var there []string
	for _, s := range forth.steps {
		there = append(there, s.to...)
	}
	slices.Sort(there)
	if want := slices.Sorted(slices.Values(names)); !slices.Equal(there, want) {
		for _, name := range want {
			if !slices.Contains(there, name) {
				return plan{}, args.ValueError("hub.SaveModel", "the mapping has no way back: %q would not be found again", name)
			}
		}
		return plan{}, args.ValueError("hub.SaveModel", "the mapping has no way back: it would make %d tensors of %d", len(there), len(want))
	}
	return p, nil
}
