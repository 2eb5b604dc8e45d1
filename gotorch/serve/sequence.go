package serve

import (
	listpkg "container/list"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/graph"
	"gotorch.dev/gotorch/internal/args"
)

// Requests that belong together.

// Sequences makes a model keep state between requests that belong together: Triton's sequence extension. A request
// names its sequence in the parameter sequence_id, a number or a text; the first has sequence_start, and the last
// sequence_end, both true or false. Requests of a sequence run one at a time, in the order in which they came; those of
// different ones may be joined.
//
// A model in Go finds the state in [Request.Sequences]. One of export_model whose manifest says which outputs become
// inputs (pb.export_model(state=...)) needs nothing else: see [FromGraph].
//
// A new version of a model goes on with the sequences of the one that it replaces.
type Sequences struct {
	// Max is how many sequences there may be at a time. The start of another is refused: 429. default: 1024
	Max gotorch.Scalar
	// Idle is how long a sequence may have no requests. Its state is freed then, and a request that goes on with it is
	// refused. Default: a minute.
	Idle time.Duration
}

func (q Sequences) set(o *modelOptions) { o.sequences = &q }

// Sequence is what a request belongs to, where its model has [Sequences].
type Sequence struct {
	ID         string // a number is its digits; 1 and "1" are two sequences
	Start, End bool   // of the request
	// State is the model's own, nil at first. It is kept from request to request, and if it is an [io.Closer], closed
	// when the sequence ends, was idle too long or is begun anew, and when the model is closed. Only one request of a
	// sequence runs at a time; a Close that fails or panics is logged and counted. A request that fails leaves in it what the model left there. Where a batch fails and its
	// requests are run again, each alone, State is put back first. What a run has changed inside of it stays changed, and
	// an [io.Closer] stays, but for one where there was nil: that is closed.
	State any

	next stateOf // of a model of FromGraph, until the results are there
}

// commit makes what the model has left for the next request the state.
func (s *Sequence) commit() {
	if s.next == nil {
		return
	}
	if before, ok := s.State.(stateOf); ok {
		before.Close()
	}
	s.State, s.next = s.next, nil
}

// discard is commit for a run that failed.
func (s *Sequence) discard() {
	s.next.Close()
	s.next = nil
}

// putBack makes State what it was before a run that is done again, and returns what is to be closed.
func (s *Sequence) putBack(before any) (ended any) {
	_, closes := s.State.(io.Closer)
	if _, closed := before.(io.Closer); closed || closes && before != nil {
		return nil // nobody knows whether the model has closed what was there
	}
	ended, s.State = s.State, before
	return ended
}

// sequenceRequest is what a request says of sequences.
type sequenceRequest struct {
	id         sequenceID
	start, end bool
}

// sequenceID tells sequences apart. The zero value is none.
type sequenceID struct {
	text   string
	number bool // text is its digits
}

// takeSequence takes from the parameters what they say of sequences.
func (r *request) takeSequence() error {
	flag := func(name string) (bool, error) {
		value, ok := r.params[name]
		if !ok {
			return false, nil
		}
		b, ok := value.(bool)
		if !ok {
			return false, newError(InvalidArgument, "parameter %s is %s, and must be true or false", name, told(value))
		}
		delete(r.params, name)
		return b, nil
	}
	if value, ok := r.params["sequence_id"]; ok {
		switch id := value.(type) {
		case int64, uint64:
			if digits := fmt.Sprint(id); digits != "0" { // which clients send where there is none
				r.sequence.id = sequenceID{digits, true}
			}
		case string:
			if len(id) > 256 {
				return newError(InvalidArgument, "parameter sequence_id has %d bytes, and may have 256", len(id))
			}
			r.sequence.id.text = id
		default:
			return newError(InvalidArgument, "parameter sequence_id is %s, and must be an integer or a text", told(value))
		}
		delete(r.params, "sequence_id")
	}
	var err error
	if r.sequence.start, err = flag("sequence_start"); err != nil {
		return err
	}
	r.sequence.end, err = flag("sequence_end")
	return err
}

// findFor is find for a request: one that goes on with a sequence and names no version goes where the sequence is.
func (s *Server) findFor(r *request) (*version, *queue, error) {
	if r.sequence.id != (sequenceID{}) && !r.sequence.start && r.version == "" {
		s.mutex.RLock()
		var found *version // the highest, where several have one of this name
		for _, v := range s.models[r.model] {
			if v.queue != nil && v.sequences != nil && !s.closing && (found == nil || compareVersions(v.id, found.id) > 0) &&
				v.sequences.has(r.sequence.id) {
				found = v
			}
		}
		if found != nil {
			q := found.queue
			s.mutex.RUnlock()
			return found, q, nil
		}
		s.mutex.RUnlock()
	}
	return s.find(r.model, r.version)
}

// enterSequence waits for the request's turn in its sequence. r.free ends it then.
func (s *Server) enterSequence(ctx context.Context, v *version, r *request, current **job) (*sequence, error) {
	if v.sequences == nil {
		if r.sequence != (sequenceRequest{}) {
			return nil, newError(InvalidArgument, "the model keeps no state between requests: leave sequence_id, sequence_start and sequence_end out")
		}
		return nil, nil
	}
	q := v.sequences
	one, err := q.enter(ctx, r.sequence, v.queueOf.limit, v.mayWait(r), s.killed)
	if err != nil {
		return nil, err
	}
	free := r.free
	r.free = func() {
		j := *current
		free()
		q.leave(one, j)
	}
	return one, nil
}

// sequences are those of a model. Versions of it that replace each other share them.
type sequences struct {
	mutex sync.Mutex
	max   int
	idle  time.Duration
	users int // versions
	waits int // requests that wait for others of their sequences
	close func(state any)
	byID  map[sequenceID]*sequence
	order listpkg.List // of *sequence, those whose last request was first before the others
	timer *time.Timer
}

type sequence struct {
	Sequence
	id      sequenceID
	busy    bool
	waiting []chan error // each gets nil when it is its turn, or why it is none
	overdue error        // why nothing waits for the run of now; nil while that is not overdue
	last    time.Time
	place   *listpkg.Element
}

// newSequences checks the options; nil where there are none.
func newSequences(o *Sequences, close func(state any)) (found *sequences, err error) {
	if o == nil {
		return nil, nil
	}
	const op = "serve.Add"
	limit, err := gotorch.Try(func() int64 { return args.Int(op, "Sequences.Max", o.Max, 1024) })
	switch {
	case err != nil:
		return nil, newError(InvalidArgument, "%v", err)
	case limit < 1 || limit > 1<<24:
		return nil, newError(InvalidArgument, "Sequences.Max is %d, and must be positive, and at most %d", limit, 1<<24)
	case o.Idle < 0:
		return nil, newError(InvalidArgument, "Sequences.Idle is %v, and must not be negative", o.Idle)
	}
	idle := o.Idle
	if idle == 0 {
		idle = time.Minute
	}
	return &sequences{max: int(limit), idle: idle, users: 1, close: close, byID: map[sequenceID]*sequence{}}, nil
}

// share makes the sequences those of one version more, whose options are next's.
func (q *sequences) share(next *sequences) *sequences {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.users++
	q.max, q.idle = next.max, next.idle
	return q
}

// unshare is for a version that is done. The last one ends all sequences.
func (q *sequences) unshare() {
	q.mutex.Lock()
	q.users--
	var ended []any
	if q.users == 0 {
		for _, s := range q.byID {
			ended = append(ended, q.drop(s))
		}
		if q.timer != nil {
			q.timer.Stop()
		}
	}
	q.mutex.Unlock()
	q.closeStates(ended)
}

// drop forgets a sequence, and returns its state. The mutex is held.
func (q *sequences) drop(s *sequence) any {
	delete(q.byID, s.id)
	q.order.Remove(s.place)
	state := s.State
	s.State = nil
	return state
}

func (v *version) closeState(state any) { v.close("the state of a sequence", state) }

func (q *sequences) closeStates(states []any) {
	for _, state := range states {
		q.close(state)
	}
}

// has reports whether there is a sequence.
func (q *sequences) has(id sequenceID) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.byID[id] != nil
}

// enter waits until it is a request's turn in its sequence, where no more others wait, of all sequences, than may. leave
// must be called when nothing of the request runs any more.
func (q *sequences) enter(ctx context.Context, r sequenceRequest, most int, timeout time.Duration, killed <-chan struct{}) (*sequence, error) {
	if r.id == (sequenceID{}) {
		return nil, newError(InvalidArgument, "the model keeps state between requests: the parameter sequence_id must name a sequence")
	}
	q.mutex.Lock()
	s := q.byID[r.id]
	if s == nil {
		if !r.start {
			err := q.unknown(r.id.text)
			q.mutex.Unlock()
			return nil, err
		}
		if len(q.byID) >= q.max {
			err := q.full()
			q.mutex.Unlock()
			return nil, err
		}
		s = &sequence{Sequence: Sequence{ID: r.id.text}, id: r.id}
		s.place = q.order.PushBack(s)
		q.byID[r.id] = s
	}
	if s.busy {
		if err := s.overdue; err != nil {
			q.mutex.Unlock()
			return nil, err
		}
		if q.waits >= most {
			err := newError(ResourceExhausted, "%d requests wait for others of their sequences, and no more may: try again later", q.waits)
			q.mutex.Unlock()
			return nil, err
		}
		turn := make(chan error, 1)
		s.waiting = append(s.waiting, turn)
		q.waits++
		q.mutex.Unlock()
		if err := q.await(ctx, s, turn, timeout, killed); err != nil {
			return nil, err
		}
		q.mutex.Lock()
		if !r.start && s.place == nil { // the request before ended it
			next, err := q.next(s), q.unknown(r.id.text)
			q.mutex.Unlock()
			next()
			return nil, err
		}
	}
	s.busy = true
	var before []any
	if r.start && s.State != nil {
		before = append(before, s.State)
		s.State = nil
	}
	if s.place == nil { // it was ended, and begins anew
		if other := q.byID[r.id]; other != nil || len(q.byID) >= q.max {
			next, err := q.next(s), q.full()
			if other != nil {
				err = newError(ResourceExhausted, "sequence %q was begun anew by another request: try again later", r.id.text)
			}
			q.mutex.Unlock()
			next()
			return nil, err
		}
		s.place = q.order.PushBack(s)
		q.byID[r.id] = s
	}
	s.Start, s.End = r.start, r.end
	q.mutex.Unlock()
	q.closeStates(before)
	return s, nil
}

// full is the error for one sequence too many. The mutex is held.
func (q *sequences) full() error {
	return newError(ResourceExhausted, "there are %d sequences, and no more may begin: end one, or try again later", q.max)
}

// unknown is the error for a sequence that is not there. The mutex is held.
func (q *sequences) unknown(id string) error {
	return newError(InvalidArgument, "sequence %q has not begun, has ended, or had no request for %v: its first request has the parameter sequence_start",
		id, q.idle)
}

// await waits for a turn.
func (q *sequences) await(ctx context.Context, s *sequence, turn chan error, timeout time.Duration, killed <-chan struct{}) error {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case err := <-turn:
		return err
	case <-ctx.Done():
		err = asError(ctx.Err())
	case <-late:
		err = newError(DeadlineExceeded, "the request has waited for %v for others of its sequence", timeout)
	case <-killed:
		err = errClosed()
	}
	q.mutex.Lock()
	for i, other := range s.waiting {
		if other == turn {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			q.waits--
			q.mutex.Unlock()
			return err
		}
	}
	q.mutex.Unlock()
	if refused := <-turn; refused != nil {
		return refused
	}
	q.mutex.Lock()
	next := q.next(s) // its turn has come meanwhile
	q.mutex.Unlock()
	next()
	return err
}

// next gives the turn to who waits. The mutex is held, and must not be when what is returned is called.
func (q *sequences) next(s *sequence) func() {
	if len(s.waiting) == 0 {
		s.busy = false
		return func() {}
	}
	turn := s.waiting[0]
	s.waiting = s.waiting[1:]
	q.waits--
	return func() { turn <- nil }
}

// isOverdue says that the run of j takes too long for its client. What waits for it in its sequence does not wait any longer.
func (q *sequences) isOverdue(j *job, limit time.Duration) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	s := j.of
	if j.leftSequence {
		return
	}
	s.overdue = newError(Unavailable, "the request of sequence %q before this one has run for longer than %v", s.ID, limit)
	for _, turn := range s.waiting {
		turn <- s.overdue
	}
	q.waits -= len(s.waiting)
	s.waiting = nil
}

// leave ends the turn of a request, whose job is nil where it came to none. A last request for which the model was not
// tried, as the queue was full, may be sent again, and ends nothing.
func (q *sequences) leave(s *sequence, j *job) {
	tried, ran := j != nil && j.tried, j != nil && j.timing.ran
	q.mutex.Lock()
	if j != nil {
		j.leftSequence = true
	}
	s.overdue = nil
	var ended []any
	if s.place != nil && (s.End && tried || s.Start && !ran || q.users == 0) {
		ended = append(ended, q.drop(s))
		s.place = nil
	} else if s.place == nil && s.State != nil {
		ended, s.State = append(ended, s.State), nil
	}
	s.last = time.Now()
	if s.place != nil {
		q.order.MoveToBack(s.place)
		q.arm()
	}
	next := q.next(s)
	q.mutex.Unlock()
	next()
	q.closeStates(ended)
}

// arm sets the timer for the sequence that is idle first. The mutex is held.
func (q *sequences) arm() {
	first := q.order.Front()
	if first == nil || q.users == 0 {
		return
	}
	wait := max(time.Until(first.Value.(*sequence).last.Add(q.idle)), time.Millisecond)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.expire)
	} else {
		q.timer.Reset(wait)
	}
}

// expire ends the sequences that have had no requests for long.
func (q *sequences) expire() {
	q.mutex.Lock()
	var ended []any
	now := time.Now()
	for range q.order.Len() {
		first := q.order.Front()
		s := first.Value.(*sequence)
		if s.busy {
			s.last = now
			q.order.MoveToBack(first)
			continue
		}
		if now.Sub(s.last) < q.idle {
			break
		}
		ended = append(ended, q.drop(s))
		s.place = nil
	}
	q.arm()
	q.mutex.Unlock()
	q.closeStates(ended)
}

// FromGraph returns a model that runs a folder of pb.export_model: see [graph.Open]. Inputs and outputs are those of
// its manifest. If some outputs are state (pb.export_model(state=...)), clients see neither these nor the inputs that
// they become: the model needs [Sequences], and keeps them.
//
// The server closes m when it is done with it. FromGraph panics with a TypeError where m has a dtype that the protocol
// has none for.
func FromGraph(m *graph.Model) Model {
	g := &graphModel{model: m}
	hidden := map[string]bool{}
	for _, s := range m.State() {
		hidden["i"+s.Input], hidden["o"+s.Output] = true, true
	}
	specs := func(side string, found []graph.Spec) (shown []Spec, places []int) {
		for i, s := range found {
			typ := TypeOf(s.DType)
			if typ == "" {
				panic(args.TypeError("serve.FromGraph", "%v is of a dtype that the protocol has none for", s))
			}
			if hidden[side+s.Name] {
				continue
			}
			shown, places = append(shown, Spec{s.Name, typ, s.Shape}), append(places, i)
		}
		return shown, places
	}
	g.signature.Inputs, g.inputs = specs("i", m.Inputs())
	g.signature.Outputs, g.outputs = specs("o", m.Outputs())
	place := func(specs []graph.Spec, name string) int {
		for i, s := range specs {
			if s.Name == name {
				return i
			}
		}
		return -1 // Open has seen that there is one
	}
	for _, s := range m.State() {
		in := place(m.Inputs(), s.Input)
		g.state = append(g.state, statePair{place(m.Outputs(), s.Output), in, m.Inputs()[in]})
	}
	return g
}

type statePair struct {
	output, input int
	spec          graph.Spec
}

type graphModel struct {
	model           *graph.Model
	signature       Signature
	inputs, outputs []int // places of those that clients see
	state           []statePair
}

// stateOf is the state of a sequence: tensors that are in no scope.
type stateOf []gotorch.Tensor

func (s stateOf) Close() error {
	for _, t := range s {
		t.Close()
	}
	return nil
}

func (g *graphModel) Signature() Signature { return g.signature }
func (g *graphModel) Close() error         { return g.model.Close() }

func (g *graphModel) Run(_ context.Context, in *Request) ([]Value, error) {
	if len(g.state) > 0 && len(in.Sequences) == 0 {
		return nil, newError(Internal, "the model keeps state: add it with serve.Sequences")
	}
	tensors := make([]gotorch.Tensor, len(g.inputs)+len(g.state))
	for k, i := range g.inputs {
		tensors[i] = in.Inputs[k].Tensor
	}
	rows := in.Rows
	if rows == nil {
		rows = []int{1}
		if len(in.Inputs) > 0 && in.Inputs[0].Tensor.Dim() > 0 {
			rows[0] = int(in.Inputs[0].Tensor.Size(0))
		}
	}
	for k, pair := range g.state {
		t, err := pair.before(k, in.Sequences, rows)
		if err != nil {
			return nil, err
		}
		tensors[pair.input] = t
	}
	out, err := gotorch.Try(func() []gotorch.Tensor { return g.model.Call(tensors...) })
	if err != nil {
		return nil, inputError(err)
	}
	if len(g.state) > 0 {
		if err := g.keep(out, in.Sequences, rows); err != nil {
			return nil, err
		}
	}
	values := make([]Value, len(g.outputs))
	for k, i := range g.outputs {
		values[k] = Value{Tensor: out[i]}
	}
	return values, nil
}

// before joins the state of sequences as an input; one that begins has zeros.
func (p statePair) before(k int, all []*Sequence, rows []int) (gotorch.Tensor, error) {
	parts := make([]gotorch.Tensor, len(all))
	for i, s := range all {
		shape := append([]int64{}, p.spec.Shape...)
		if len(shape) > 0 && shape[0] < 0 {
			shape[0] = int64(rows[i])
		}
		kept := s.next // of another run for the same request
		if kept == nil {
			kept, _ = s.State.(stateOf)
		}
		if k >= len(kept) {
			parts[i] = gotorch.Zeros(shape, gotorch.TensorOptions{DType: p.spec.DType})
			continue
		}
		parts[i] = kept[k]
		if len(shape) > 0 && kept[k].Size(0) != shape[0] {
			return gotorch.Tensor{}, newError(InvalidArgument, "sequence %q began with %d rows, and the request has %d", s.ID, kept[k].Size(0), shape[0])
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return gotorch.Cat(parts), nil
}

// keep gives each sequence its part of what it goes on with. It becomes the state when the results are there: a batch
// that fails may be run again.
func (g *graphModel) keep(out []gotorch.Tensor, all []*Sequence, rows []int) error {
	total := 0
	for _, n := range rows {
		total += n
	}
	at := 0
	for i, s := range all {
		var kept stateOf
		err := gotorch.Try0(func() {
			gotorch.Unscoped(func() {
				for _, pair := range g.state {
					t := out[pair.output]
					if len(all) > 1 && (t.Dim() == 0 || t.Size(0) != int64(total)) {
						panic(args.ValueError("serve", "state %d has shape %v for a batch of %d rows", pair.output, t.Shape(), total))
					}
					part := t
					if len(all) > 1 {
						part = t.Narrow(0, int64(at), int64(rows[i]))
					}
					kept = append(kept, part.Clone()) // the request's own outputs may be the same memory
					if len(all) > 1 {
						part.Close()
					}
				}
			})
		})
		if err != nil {
			kept.Close()
			return err
		}
		s.discard()
		s.next = kept
		at += rows[i]
	}
	return nil
}
