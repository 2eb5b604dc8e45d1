package data

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// progress is how far an epoch has come, and what it began with.
type progress struct {
	generator []byte       // state of the loader's generator at the begin; nil if it has none
	random    []byte       // of the default generator
	sampler   gotorch.Dict // of the sampler, if it has a state
	set       []any        // of the iterables that have a state
	epoch     int          // how many were begun before
	dealt     int          // samples that another number of ranks had

	batches int         // that were taken, or left out because all of their samples failed: all before this one
	samples int         // of an Iterable, in those batches
	taken   map[int]int // batches that were taken before others: where their samples end, by the number
	failed  int
	ended   bool
}

// resume is where an epoch is to begin.
type resume struct {
	random                          []byte
	batches, samples, failed, dealt int
	taken                           map[int]int
}

// stateOf returns the state of a generator; nil for nil.
func stateOf(g *gotorch.Generator) []byte {
	if g == nil {
		return nil
	}
	t := g.State()
	defer t.Close()
	return gotorch.ToSlice[byte](t)
}

func setState(g *gotorch.Generator, state []byte) {
	t := gotorch.FromSlice(state)
	defer t.Close()
	g.SetState(t)
}

// samplerState returns the sampler that has a state of its own, or nil.
func (l *Loader[B]) samplerState() stateful {
	if s, is := l.sampler.(stateful); is {
		return s
	}
	s, _ := l.batchSampler.(stateful)
	return s
}

// statesOf returns the states of iterables.
func statesOf(sets []stateful) (all []any) {
	gotorch.Unscoped(func() {
		for _, set := range sets {
			all = append(all, set.StateDict())
		}
	})
	return all
}

// loadStates gives iterables their states, or none of them.
func loadStates(sets []stateful, states []any) (err error) {
	before := statesOf(sets)
	for i, set := range sets {
		state, _ := states[i].(gotorch.Dict)
		if err = set.LoadStateDict(state); err != nil {
			for k := range i {
				err = errors.Join(err, sets[k].LoadStateDict(before[k].(gotorch.Dict)))
			}
			return err
		}
	}
	return nil
}

// begin plans the next epoch.
func (l *Loader[B]) begin() (*epoch, *progress, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &progress{epoch: l.epochs, dealt: int(l.dealt.Load()), taken: map[int]int{}}
	e, err := guarded(func() (*epoch, error) {
		var base *gotorch.Generator
		if r := l.resume; r != nil {
			p.random, p.batches, p.samples, p.failed, p.dealt = r.random, r.batches, r.samples, r.failed, r.dealt
			maps.Copy(p.taken, r.taken)
			base = gotorch.NewGenerator(gotorch.CPU)
			setState(base, r.random)
		} else {
			p.random = stateOf(gotorch.DefaultGenerator(gotorch.CPU))
		}
		p.generator = stateOf(l.generator)
		if s := l.samplerState(); s != nil {
			gotorch.Unscoped(func() { p.sampler = s.StateDict() })
		}
		p.set = statesOf(l.source.states())
		e := l.draw(base, p.dealt)
		e.number, e.dealt, e.taken = p.epoch, p.dealt, maps.Clone(p.taken)
		return e, nil
	})
	if err != nil {
		// The next call begins the same epoch, at the same place.
		if p.generator != nil {
			setState(l.generator, p.generator)
		}
		return nil, nil, err
	}
	l.at, l.resume, l.epochs = p, nil, p.epoch+1
	l.dealt.Store(0)
	return e, p, nil
}

// taken notes that a batch was taken.
func (l *Loader[B]) taken(p *progress, j job, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.failed = failed
	p.taken[j.number] = j.first + j.count
	for {
		end, is := p.taken[p.batches]
		if !is {
			return
		}
		delete(p.taken, p.batches)
		p.batches, p.samples = p.batches+1, end
	}
}

// finish notes that an epoch is over.
func (l *Loader[B]) finish(p *progress, e *epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.ended {
		p.ended = true
		e.end()
	}
}

// Skipped returns how many samples of the epoch were left out because they failed: of the one that was begun last.
func (l *Loader[B]) Skipped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.resume != nil:
		return l.resume.failed
	case l.at != nil:
		return l.at.failed
	}
	return 0
}

const stateVersion = 2 // 1 had no epoch

// order says how an epoch's samples are chosen.
func (l *Loader[B]) order() string {
	switch {
	case l.source.streams():
		return "iterable"
	case l.batchSampler != nil:
		return "batch sampler"
	case l.sampler != nil:
		return "sampler"
	case l.shuffle:
		return "shuffled"
	}
	return "sequential"
}

// StateDict returns where the loader is: which batch of the epoch that was begun last is next, also where a loop over it was
// left, and what its order was drawn from. Batches that were prepared and not taken do not count. A loader that is made in
// the same way, with as many workers as it likes, goes on from it by LoadStateDict with the same batches, bit for bit, and
// reads nothing that was taken before; of an [Iterable] that is not [Seekable], what was taken is read and dropped. The state
// has those of iterables and samplers that have one.
//
// Where neither Seed nor Generator was given, later epochs go on as gotorch's default generator does, whose state is not a
// part. train.LoopOf.Checkpoints saves both.
func (l *Loader[B]) StateDict() gotorch.Dict {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, known := l.source.samples(0)
	if !known {
		n = -1
	}
	p := progress{ended: true}
	if l.at != nil {
		p = *l.at
	}
	begun := l.resume != nil || !p.ended
	if l.resume != nil || p.ended {
		p = progress{generator: stateOf(l.generator), set: statesOf(l.source.states()), epoch: l.epochs, dealt: int(l.dealt.Load())}
		if s := l.samplerState(); s != nil {
			p.sampler = s.StateDict()
		}
		if r := l.resume; r != nil {
			p.random, p.batches, p.samples, p.failed, p.dealt = r.random, r.batches, r.samples, r.failed, r.dealt
			p.taken = r.taken
		}
	}
	dict := gotorch.Dict{
		{Key: "version", Value: stateVersion},
		{Key: "order", Value: l.order()},
		{Key: "length", Value: n},
		{Key: "batch_size", Value: l.batchSize},
		{Key: "drop_last", Value: l.dropLast},
		{Key: "batching", Value: !l.noBatches},
		{Key: "epoch", Value: p.epoch},
		{Key: "begun", Value: begun},
		{Key: "batches", Value: p.batches},
		{Key: "samples", Value: p.samples},
		{Key: "failed", Value: p.failed},
	}
	if p.generator != nil {
		dict = append(dict, gotorch.DictItem{Key: "generator", Value: gotorch.FromSlice(p.generator)})
	}
	if begun {
		dict = append(dict, gotorch.DictItem{Key: "random", Value: gotorch.FromSlice(p.random)})
	}
	if l.samplerState() != nil {
		dict = append(dict, gotorch.DictItem{Key: "sampler", Value: p.sampler})
	}
	if len(p.set) > 0 {
		dict = append(dict, gotorch.DictItem{Key: "set", Value: p.set})
	}
	if by, is := l.source.shared(); is {
		dict = append(dict, gotorch.DictItem{Key: "ranks", Value: by.ranks()}, gotorch.DictItem{Key: "whole", Value: by.whole()})
	}
	if len(p.taken) > 0 {
		var taken []any
		for _, number := range slices.Sorted(maps.Keys(p.taken)) {
			taken = append(taken, number, p.taken[number])
		}
		dict = append(dict, gotorch.DictItem{Key: "taken", Value: taken})
	}
	if p.dealt > 0 {
		dict = append(dict, gotorch.DictItem{Key: "dealt", Value: p.dealt})
	}
	return dict
}

// LoadStateDict sets the loader to what StateDict has returned: the next epoch that is begun is the rest of that one. It
// returns a ValueError, and changes nothing, if the data set has another length, if the options that decide what the
// batches are differ, or if dict is no such state.
func (l *Loader[B]) LoadStateDict(dict gotorch.Dict) (err error) {
	const op = "data.Loader.LoadStateDict"
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := func(format string, values ...any) error { return args.ValueError(op, format, values...) }
	n, known := l.source.samples(0)
	if !known {
		n = -1
	}
	for _, want := range []gotorch.DictItem{
		{Key: "version", Value: stateVersion}, {Key: "order", Value: l.order()}, {Key: "length", Value: n},
		{Key: "batch_size", Value: l.batchSize}, {Key: "drop_last", Value: l.dropLast}, {Key: "batching", Value: !l.noBatches},
	} {
		if got := plain(dict.Get(want.Key)); got != want.Value {
			return wrong("%s is %v in the state, and %v in this loader", want.Key, shown(got), want.Value)
		}
	}
	begun, is := dict.Get("begun").(bool)
	if !is {
		return wrong("begun is a %T, where a bool is expected", dict.Get("begun"))
	}
	var r resume
	epoch := 0
	for _, number := range []struct {
		key  string
		into *int
	}{{"batches", &r.batches}, {"samples", &r.samples}, {"failed", &r.failed}, {"epoch", &epoch}, {"dealt", &r.dealt}} {
		if number.key == "dealt" && dict.Get("dealt") == nil {
			continue
		}
		value, is := plain(dict.Get(number.key)).(int)
		if !is || value < 0 || value == math.MaxInt { // to which the next is added
			return wrong("%s is %v, where a number is expected that is not negative", number.key, shown(dict.Get(number.key)))
		}
		*number.into = value
	}
	if r.taken, err = takenOf(dict); err != nil {
		return wrong("%v", err)
	}
	generator, err := generatorState(dict, "generator", l.generator != nil)
	if err != nil {
		return wrong("%v", err)
	}
	if r.random, err = generatorState(dict, "random", begun); err != nil {
		return wrong("%v", err)
	}
	sets := l.source.states()
	set, _ := dict.Get("set").([]any)
	if len(set) != len(sets) {
		return wrong("the state is of a data set with %d iterables that have a state, and this one has %d", len(set), len(sets))
	}
	for _, state := range set {
		if _, is := state.(gotorch.Dict); !is {
			return wrong("the state of an iterable is a %T, where a dict is expected", state)
		}
	}
	if err := loadStates(sets, set); err != nil {
		return fmt.Errorf("%s: the data set: %w", op, err)
	}
	if s := l.samplerState(); s != nil {
		state, is := dict.Get("sampler").(gotorch.Dict)
		if !is {
			return wrong("sampler is a %T, where a dict is expected", dict.Get("sampler"))
		}
		if err := s.LoadStateDict(state); err != nil {
			return fmt.Errorf("%s: the sampler: %w", op, err)
		}
	}
	if generator != nil {
		setState(l.generator, generator)
	}
	l.at, l.resume, l.epochs = nil, nil, epoch
	l.dealt.Store(int64(r.dealt))
	if begun {
		l.resume = &r
	}
	return nil
}

// takenOf returns which batches a state says that were taken before others.
func takenOf(dict gotorch.Dict) (taken map[int]int, err error) {
	value, is := dict.Get("taken").([]any)
	if dict.Get("taken") != nil && (!is || len(value)%2 != 0) {
		return nil, fmt.Errorf("taken is %v, where a list of pairs of numbers is expected", shown(dict.Get("taken")))
	}
	taken = map[int]int{}
	for i := 0; i < len(value); i += 2 {
		number, is1 := plain(value[i]).(int)
		end, is2 := plain(value[i+1]).(int)
		if !is1 || !is2 || number < 0 || end < 0 {
			return nil, fmt.Errorf("taken has %v and %v, where numbers are expected that are not negative", shown(value[i]), shown(value[i+1]))
		}
		taken[number] = end
	}
	return taken, nil
}

// LoadRanks has the next epoch be the rest of one that a job of another number of processes has begun. states are what
// StateDict has returned in each of them, after as many batches in all; all processes of this job call it with the same. What is
// left of the epoch's samples is dealt out among them by the loader's [DistributedSampler] or [DistributedIterable], so that in the
// whole epoch each sample is given once, but for those that fill up the last round. Batches may have another size than they had.
//
// Transforms that draw random numbers draw others than they would have in the other job. It returns a ValueError, and changes
// nothing, if the loader has neither of them (TransformIterable alone may be around the latter), if the data set has another length,
// if the states are not of such loaders, and if they are not of the same epoch and place: where samples failed, for instance, and
// were left out.
func (l *Loader[B]) LoadRanks(states []gotorch.Dict) error {
	const op = "data.Loader.LoadRanks"
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := func(format string, values ...any) error { return args.ValueError(op, format, values...) }
	if len(states) == 0 {
		return wrong("there are no states")
	}
	if by, is := l.source.shared(); is {
		return l.loadIterableRanks(by, states, wrong)
	}
	order, is := l.sampler.(*DistributedSamples)
	if !is {
		return wrong("the loader's Sampler is a %T, which cannot share out the rest of an epoch: give it a data.DistributedSampler, or make its Iterable by data.DistributedIterable", l.sampler)
	}
	n, _ := l.source.samples(0)
	type place struct{ epoch, dealt, batches, size int }
	var all place
	for rank, dict := range states {
		if err := checkRank(rank, dict, gotorch.Dict{{Key: "order", Value: "sampler"}, {Key: "length", Value: n}}); err != nil {
			return wrong("%v", err)
		}
		var p place
		batches, is1 := plain(dict.Get("batches")).(int)
		size, is2 := plain(dict.Get("batch_size")).(int)
		sampler, is3 := dict.Get("sampler").(gotorch.Dict)
		if !is1 || !is2 || !is3 || batches < 0 || size < 1 {
			return wrong("the state of process %d is not that of a loader with a data.DistributedSampler", rank)
		}
		epoch, dealt, err := distributedState(op, sampler)
		if err != nil {
			return err
		}
		if p = (place{epoch, dealt, batches, size}); rank == 0 {
			all = p
		} else if p != all {
			return wrong("process %d is at batch %d of epoch %d, and process 0 at batch %d of epoch %d", rank, p.batches, p.epoch, all.batches, all.epoch)
		}
	}
	if all.batches > n || all.dealt > n {
		return wrong("process 0 has taken %d batches of a data set of %d", all.batches, n)
	}
	generator, err := l.generatorOf(states, order.rank)
	if err != nil {
		return wrong("%v", err)
	}
	before := DistributedSamples{set: order.set, numReplicas: len(states), dropLast: order.dropLast}
	dropLast, _ := states[0].Get("drop_last").(bool)
	dealt := min(all.dealt+all.batches*min(all.size, n)*len(states), n)
	if all.batches > 0 && all.batches >= numBatches(before.rest(all.dealt), all.size, dropLast) { // what it left out is not of the epoch
		dealt = n
	}
	order.epoch.Store(int64(all.epoch))
	order.dealt.Store(int64(dealt))
	if generator != nil {
		setState(l.generator, generator)
	}
	l.at, l.resume = nil, nil
	return nil
}

// checkRank returns an error if the state of a process is not what LoadRanks can go on from.
func checkRank(rank int, state, more gotorch.Dict) error {
	for key, want := range append(gotorch.Dict{{Key: "version", Value: stateVersion}, {Key: "failed", Value: 0}, {Key: "taken", Value: nil}}, more...).All() {
		if got := plain(state.Get(key)); got != want {
			return fmt.Errorf("%s is %v in the state of process %d, and must be %v", key, shown(got), rank, want)
		}
	}
	return nil
}

// generatorOf returns the state of a process's generator. A process that is new has a generator that is.
func (l *Loader[B]) generatorOf(states []gotorch.Dict, rank int) ([]byte, error) {
	if rank >= len(states) {
		return nil, nil
	}
	return generatorState(states[rank], "generator", l.generator != nil)
}

// loadIterableRanks is LoadRanks of a loader whose Iterable ranks share. The mutex is held.
func (l *Loader[B]) loadIterableRanks(by sharing, states []gotorch.Dict, wrong func(format string, values ...any) error) error {
	type place struct{ epoch, dealt, samples int }
	var all place
	for rank, dict := range states {
		if err := checkRank(rank, dict, gotorch.Dict{{Key: "order", Value: l.order()}, {Key: "ranks", Value: len(states)}, {Key: "whole", Value: by.whole()}}); err != nil {
			return wrong("%v", err)
		}
		var p place
		for _, number := range []struct {
			key  string
			into *int
		}{{"epoch", &p.epoch}, {"samples", &p.samples}, {"dealt", &p.dealt}} {
			value, is := plain(dict.Get(number.key)).(int)
			if dict.Get(number.key) == nil && number.key == "dealt" {
				is = true
			}
			if !is || value < 0 || value > math.MaxInt/(2*len(states)) {
				return wrong("%s is %v in the state of process %d, where a number is expected that is not negative", number.key, shown(dict.Get(number.key)), rank)
			}
			*number.into = value
		}
		if set, _ := dict.Get("set").([]any); len(set) > 0 {
			return wrong("the Iterable has a state of its own, of which each process has another")
		}
		if rank == 0 {
			all = p
		} else if p != all {
			return wrong("process %d is at sample %d of epoch %d, and process 0 at sample %d of epoch %d", rank, p.samples, p.epoch, all.samples, all.epoch)
		}
	}
	generator, err := l.generatorOf(states, by.rank())
	if err != nil {
		return wrong("%v", err)
	}
	if generator != nil {
		setState(l.generator, generator)
	}
	l.at, l.resume, l.epochs = nil, nil, all.epoch
	l.dealt.Store(int64(all.dealt + all.samples*len(states)))
	return nil
}

// KeepPlace keeps where the loader is. restore sets it back: what is begun next is what would have been, and a loop that is under way
// goes on. A state as of StateDict does not say whether the epoch that was left is to be begun anew or gone on with.
func (l *Loader[B]) KeepPlace() (restore func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, resume, epochs, dealt, generator := l.at, l.resume, l.epochs, l.dealt.Load(), stateOf(l.generator)
	sets := l.source.states()
	set := statesOf(sets)
	var sampler gotorch.Dict
	s := l.samplerState()
	if s != nil {
		sampler = s.StateDict()
	}
	return func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.at, l.resume, l.epochs = at, resume, epochs
		l.dealt.Store(dealt)
		if generator != nil {
			setState(l.generator, generator)
		}
		err := loadStates(sets, set)
		if s != nil {
			err = errors.Join(err, s.LoadStateDict(sampler))
		}
		return err
	}
}

// plain returns an int64 as an int.
func plain(value any) any {
	if v, is := value.(int64); is {
		return int(v)
	}
	return value
}

// shown is how an error tells a value.
func shown(value any) any {
	switch value.(type) {
	case nil:
		return "missing"
	case int, bool, float64:
		return value
	case string:
		return fmt.Sprintf("%.40q", value)
	}
	return fmt.Sprintf("a %T", value)
}

// generatorState returns the state of a generator that a dict has, or must not have.
func generatorState(dict gotorch.Dict, key string, wanted bool) ([]byte, error) {
	value := dict.Get(key)
	t, is := value.(gotorch.Tensor)
	switch {
	case value == nil && !wanted:
		return nil, nil
	case !wanted:
		return nil, fmt.Errorf("it has a state %q, for which this loader has no use: was it made with Seed or Generator?", key)
	case !is || !t.Defined() || t.DType() != gotorch.Uint8 || t.Dim() != 1 || t.Device().Type() != gotorch.DeviceTypeCPU:
		return nil, fmt.Errorf("%q is %v, where the state of a generator is expected", key, shown(value))
	}
	var state []byte
	err := gotorch.Try0(func() {
		state = gotorch.ToSlice[byte](t)
		setState(gotorch.NewGenerator(gotorch.CPU), state)
	})
	if err != nil {
		return nil, fmt.Errorf("%q is no state of a generator: %w", key, err)
	}
	return state, nil
}
