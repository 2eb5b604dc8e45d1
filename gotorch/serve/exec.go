package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"gotorch.dev/gotorch"
)

// How a batch runs.

// input is an input of a request. Its elements are in raw, in the order of little-endian memory; for BYTES in bytes.
type input struct {
	name   string
	typ    DataType
	shape  []int64
	raw    []byte
	tensor gotorch.Tensor // the memory of raw, where raw is large
	bytes  [][]byte
}

// output is one of a request's results.
type output struct {
	spec  int // which of the signature
	name  string
	typ   DataType
	shape []int64
	raw   []byte
	bytes [][]byte
}

// timing is how long the parts of a run took.
type timing struct {
	queue, input, infer, output time.Duration
	ran                         bool
}

// Arenas are buffers that serve one request after the other.
var arenas = sync.Pool{New: func() any { return new([]byte) }}

const largestArena = 1 << 20

func newArena(size int) *[]byte {
	a := arenas.Get().(*[]byte)
	if cap(*a) < size {
		*a = make([]byte, 0, size)
	}
	*a = (*a)[:0]
	return a
}

func freeArena(a *[]byte) {
	if a != nil && cap(*a) <= largestArena {
		arenas.Put(a)
	}
}

// giveBack gives back the memory of the results.
func (j *job) giveBack() {
	freeArena(j.arena)
	j.arena, j.out = nil, nil
}

// request is what came over a wire.
type request struct {
	model, version, id string
	inputs             []input
	params             Parameters
	outputs            []string // nil: all
	priority           int64
	timeout            time.Duration // of waiting; 0: none
	sequence           sequenceRequest
	free               func() // called once, when nobody reads inputs any more
}

// response is what goes out over one. release gives its memory back.
type response struct {
	model, version, id string
	job                *job
}

func (r *response) release() { r.job.giveBack() }

// infer runs a request. It takes care of r.free in any case.
func (s *Server) infer(ctx context.Context, r *request) (*response, error) {
	begin := time.Now()
	v, j, err := s.wait(ctx, r)
	s.count(v, j, err, begin)
	if err != nil {
		return nil, err
	}
	return &response{model: v.name, version: v.id, id: r.id, job: j}, nil
}

// count counts a request that has ended; v is nil if its model is not there, and j if it never waited.
func (s *Server) count(v *version, j *job, err error, begin time.Time) {
	if v != nil {
		v.stats.count(j, err, time.Since(begin))
	}
	switch {
	case s.metrics == nil:
	case v != nil:
		v.series.Load().count(j, err)
	default:
		s.metrics.refused(err)
	}
}

func (s *Server) wait(ctx context.Context, r *request) (v *version, j *job, err error) {
	begin := time.Now()
	var in *sequence
	var entered *sequences
	var last *job
	for {
		v, q, err := s.findFor(r)
		if err != nil {
			r.free()
			return nil, nil, err
		}
		j, err := v.newJob(r)
		if err == nil && in == nil {
			if in, err = s.enterSequence(ctx, v, r, &last); in != nil {
				entered = v.sequences
			}
		} else if err == nil && entered != v.sequences {
			err = newError(Unavailable, "the model was replaced by one that does not go on with its sequences")
		}
		if err != nil {
			r.free()
			return v, nil, of(v.name, v.id, err)
		}
		j.of, j.free, last = in, r.free, j
		s.traceWaiting(ctx, v, j)
		if err := ctx.Err(); err != nil { // before anything waits
			r.free()
			return v, nil, v.gone(err)
		}
		if err := q.submit(j); err != nil {
			if err == error(errRetired) && !s.isClosing() {
				continue // it was replaced a moment ago
			}
			r.free()
			return v, nil, of(v.name, v.id, err)
		}
		return v, j, s.await(ctx, v, q, j, v.mayWait(r), begin)
	}
}

func (s *Server) isClosing() bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.closing
}

// gone is the error for a client that does not wait any longer.
func (v *version) gone(err error) error {
	msg := "the client went away before the model was done"
	if errors.Is(err, context.DeadlineExceeded) {
		msg = "the deadline was over before the model was done"
	}
	e := asError(err)
	return &Error{Code: e.Code, Model: v.name, Version: v.id, Msg: msg, cause: err}
}

// mayWait is how long a request may wait until it runs; 0: for ever.
func (v *version) mayWait(r *request) time.Duration {
	if t := v.options.queue.Timeout; t > 0 && (r.timeout <= 0 || t < r.timeout) {
		return t
	}
	return r.timeout
}

// await waits until j is done, or its client does not wait any longer. Its waiting began at begin.
func (s *Server) await(ctx context.Context, v *version, q *queue, j *job, timeout time.Duration, begin time.Time) error {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout - time.Since(begin))
		defer timer.Stop()
		late = timer.C
	}
	overdue := j.overdue
	for {
		select {
		case <-j.done:
			if j.err != nil {
				return of(v.name, v.id, s.whyCanceled(j.err))
			}
			return nil
		case <-ctx.Done():
			if q.leave(j) {
				return v.gone(ctx.Err())
			}
			<-j.done
			j.giveBack()
			return v.gone(ctx.Err())
		case <-overdue:
			if q.leave(j) {
				return of(v.name, v.id, newError(DeadlineExceeded, "the model has run for longer than %v, which is all that it may", v.options.runTimeout))
			}
			overdue = nil // it has returned in this moment
		case <-late:
			late = nil
			if q.leaveIfWaiting(j) {
				return of(v.name, v.id, newError(DeadlineExceeded, "the request has waited for %v, and no instance was free", timeout))
			}
		case <-s.killed:
			if q.leave(j) {
				return of(v.name, v.id, errClosed())
			}
			<-j.done // it was refused, or is done
			if j.err != nil {
				return of(v.name, v.id, s.whyCanceled(j.err))
			}
			return nil
		}
	}
}

// whyCanceled is the error of a model whose context has ended: it was not the client's doing if the server was closed.
func (s *Server) whyCanceled(err error) error {
	select {
	case <-s.killed:
		if errors.Is(err, context.Canceled) {
			return errClosed()
		}
	default:
	}
	return err
}

// newJob checks a request against the signature. r.free stays the caller's where it fails.
func (v *version) newJob(r *request) (*job, error) {
	j := &job{params: r.params, free: r.free, in: make([]input, len(v.signature.Inputs))}
	if v.options.runTimeout > 0 {
		j.overdue = make(chan struct{})
	}
	for i := range r.inputs {
		in := &r.inputs[i]
		at := slices.IndexFunc(v.signature.Inputs, func(s Spec) bool { return s.Name == in.name })
		if at < 0 {
			return nil, newError(InvalidArgument, "the model has no input %q; its inputs are %v", in.name, v.signature.Inputs)
		}
		if j.in[at].name != "" {
			return nil, newError(InvalidArgument, "input %q is there twice", in.name)
		}
		spec := &v.signature.Inputs[at]
		if in.typ != spec.Type {
			return nil, newError(InvalidArgument, "input %q is expected to be %s, and is %s", in.name, spec.Type, in.typ)
		}
		if !spec.fits(in.shape) {
			return nil, newError(InvalidArgument, "input %q is expected to have shape %s, where -1 is any size, and has shape %s",
				in.name, shapeText(spec.Shape), shapeText(in.shape))
		}
		if n, ok := elements(in.shape); !ok || len(in.raw) != n*in.typ.Size() || in.typ == BYTES && len(in.bytes) != n {
			return nil, newError(InvalidArgument, "input %q has data that does not go with its shape %s", in.name, shapeText(in.shape))
		}
		j.in[at] = *in
	}
	for i := range j.in {
		if j.in[i].name == "" {
			return nil, newError(InvalidArgument, "input %v is missing", v.signature.Inputs[i])
		}
	}
	if v.options.batching.Max > 0 {
		if err := v.batchable(j); err != nil {
			return nil, err
		}
	}
	for _, name := range r.outputs {
		at := slices.IndexFunc(v.signature.Outputs, func(s Spec) bool { return s.Name == name })
		if at < 0 {
			return nil, newError(InvalidArgument, "the model has no output %q; its outputs are %v", name, v.signature.Outputs)
		}
		if slices.ContainsFunc(j.out, func(o output) bool { return o.spec == at }) {
			return nil, newError(InvalidArgument, "output %q is asked for twice", name)
		}
		j.out = append(j.out, output{spec: at, name: name})
	}
	if r.outputs == nil {
		j.out = make([]output, len(v.signature.Outputs))
		for i := range j.out {
			j.out[i] = output{spec: i, name: v.signature.Outputs[i].Name}
		}
	}
	if q := v.options.queue; q.Levels > 0 {
		level := r.priority
		if level == 0 {
			level = int64(q.DefaultLevel)
		}
		if level == 0 {
			level = int64(q.Levels)
		}
		if level < 1 || level > int64(q.Levels) {
			return nil, newError(InvalidArgument, "priority is %d, and must be from 1, the most urgent, to %d, or 0", r.priority, q.Levels)
		}
		j.level = int(level) - 1
	}
	return j, nil
}

// batchable sets the rows and the key of a job.
func (v *version) batchable(j *job) error {
	var key []byte
	for i := range j.in {
		in := &j.in[i]
		if len(in.shape) == 0 {
			return newError(InvalidArgument, "input %q has no dimensions: the first is the batch", in.name)
		}
		if i > 0 && in.shape[0] != j.in[0].shape[0] {
			return newError(InvalidArgument, "inputs %q and %q have %d and %d rows: the first dimension is the batch, and the same for all",
				j.in[0].name, in.name, j.in[0].shape[0], in.shape[0])
		}
		key = binary.AppendUvarint(key, uint64(len(in.shape)))
		for d, n := range in.shape[1:] {
			key = v.appendSize(key, i, d+1, n)
		}
	}
	rows := j.in[0].shape[0]
	if rows > int64(v.options.batching.Max) && !v.options.unasked { // a larger one runs alone then
		return newError(InvalidArgument, "the request has %d rows, and the model takes at most %d", rows, v.options.batching.Max)
	}
	j.rows, j.lengths = int(rows), v.lengths(j)
	if len(j.params) > 0 {
		for _, name := range slices.Sorted(maps.Keys(j.params)) {
			key = strconv.AppendQuote(append(key, ';'), name)
			key = fmt.Appendf(key, "=%T:%q", j.params[name], fmt.Sprint(j.params[name]))
		}
	}
	j.key = string(key)
	return nil
}

var errExited = newError(Internal, "the model ended its goroutine")

// run runs a batch; if the batch fails, each of its requests alone. If a model ends the goroutine, another calls run
// again, which goes on where this one stopped.
func (v *version) run(b *batch) {
	if !b.begun {
		b.begun = true
		if v.sequences != nil && len(b.jobs) > 1 {
			b.states = make([]any, len(b.jobs))
			for i, j := range b.jobs {
				b.states[i] = j.of.State
			}
		}
		b.err = errExited // unless attempt returns
		b.err = v.attempt(b.ctx, b.jobs)
	}
	alone := b.err == nil || len(b.jobs) == 1 || v.options.batching.FailTogether || b.ctx.Err() != nil
	if alone {
		for _, j := range b.jobs {
			j.err = b.err
		}
	} else {
		if b.next == 0 {
			v.server.log.Warn("serve: a batch failed; its requests are run alone", "model", v.name, "version", v.id,
				"requests", len(b.jobs), "error", b.err)
		}
		for b.next < len(b.jobs) {
			j := b.jobs[b.next]
			if b.states != nil {
				v.closeState(j.of.putBack(b.states[b.next]))
			}
			b.next++
			if b.queue.left(j) {
				j.err = context.Canceled
				continue
			}
			j.err = errExited
			j.err = v.attempt(b.ctx, []*job{j})
		}
	}
	for _, j := range b.jobs {
		if j.err != nil && b.ctx.Err() == nil && asError(j.err).Code == Internal {
			v.server.log.Error("serve: a model failed", "model", v.name, "version", v.id, "error", j.err)
		}
	}
}

// modelPanic is a panic of a model.
type modelPanic struct {
	value any
	stack []byte
}

func (p *modelPanic) Error() string { return fmt.Sprintf("the model panicked: %v", p.value) }

// sound returns an error of a model, or what is wrong with it: its methods are the model's code, and are called later where nothing
// catches a panic.
func sound(err error) (is error) {
	if err == nil {
		return nil
	}
	if of := reflect.ValueOf(err); of.Kind() == reflect.Pointer && of.IsNil() {
		return newError(Internal, "the model returned a nil %T as an error: it must return nil", err)
	}
	defer func() {
		if p := recover(); p != nil {
			is = newError(Internal, "the model returned an error, a %T, whose methods panic: %v", err, p)
		}
	}()
	asError(err).told()
	return err
}

// attempt runs the model once.
func (v *version) attempt(ctx context.Context, jobs []*job) (err error) {
	defer func() {
		r := recover()
		if r == nil {
			err = sound(err)
			return
		}
		if e, ok := r.(error); ok {
			var wrapped *gotorch.Error
			if e = sound(e); errors.As(e, &wrapped) {
				err = e
				return
			}
		}
		p := &modelPanic{r, debug.Stack()}
		v.server.log.Error("serve: a model panicked", "model", v.name, "version", v.id, "panic", fmt.Sprint(r), "stack", string(p.stack))
		err = p
	}()
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		defer v.setThreads()()
		gotorch.InferenceMode(func() { err = v.timed(jobs, func() error { return v.compute(ctx, jobs) }) })
	})
	return err
}

// compute is attempt in a scope.
func (v *version) compute(ctx context.Context, jobs []*job) error {
	begin := time.Now()
	in := &Request{Inputs: make([]Value, len(v.signature.Inputs)), Parameters: jobs[0].params}
	rows := 0
	if v.options.batching.Max > 0 {
		in.Rows = make([]int, len(jobs))
		for i, j := range jobs {
			in.Rows[i] = j.rows
			rows += j.rows
		}
	}
	for i := range in.Inputs {
		in.Inputs[i] = joined(jobs, i, rows, v.raggedOf(i))
	}
	if v.sequences != nil {
		in.Sequences = make([]*Sequence, len(jobs))
		for i, j := range jobs {
			j.tried = true
			in.Sequences[i] = &j.of.Sequence
			defer in.Sequences[i].discard()
		}
	}
	if len(jobs[0].params) > 0 {
		in.Parameters = maps.Clone(jobs[0].params) // a model may change it, and be run again
	}
	ready := time.Now()
	ctx, span := v.traceRun(ctx, jobs, max(1, rows), begin)
	out, err := func() ([]Value, error) {
		ended := error(errExited) // unless Run returns
		defer func() { endSpan(span, ended) }()
		out, err := v.model.Run(ctx, in)
		ended = err
		return out, err
	}()
	if err != nil {
		return err
	}
	ran := time.Now()
	if err := v.split(jobs, out, rows); err != nil {
		return err
	}
	for _, s := range in.Sequences {
		s.commit()
	}
	end := time.Now()
	for _, j := range jobs {
		j.timing = timing{begin.Sub(j.arrived), ready.Sub(begin), ran.Sub(ready), end.Sub(ran), true}
	}
	v.stats.executed(max(1, rows), ready.Sub(begin), ran.Sub(ready), end.Sub(ran))
	if s := v.series.Load(); s != nil {
		s.executed(max(1, rows), end.Sub(begin))
	}
	return nil
}

// joined makes input i of a batch.
func joined(jobs []*job, i, rows int, r *ragged) Value {
	first := &jobs[0].in[i]
	v := Value{Name: first.name}
	if first.typ == BYTES {
		v.Shape = slices.Clone(first.shape)
		if len(jobs) == 1 {
			v.Bytes = slices.Clone(first.bytes)
			return v
		}
		v.Shape[0] = int64(rows)
		size := 0
		for _, j := range jobs {
			for _, text := range j.in[i].bytes {
				size += len(text)
			}
		}
		// The model may write into its texts, and be run again on what the requests have.
		copies := make([]byte, 0, size)
		for _, j := range jobs {
			for _, text := range j.in[i].bytes {
				start := len(copies)
				copies = append(copies, text...)
				v.Bytes = append(v.Bytes, copies[start:len(copies):len(copies)])
			}
		}
		return v
	}
	if len(jobs) == 1 {
		if v.Tensor = first.tensor; !v.Tensor.Defined() {
			shape := first.shape
			if shape == nil {
				shape = []int64{}
			}
			v.Tensor = gotorch.FromRaw(first.raw, first.typ.DType(), shape...)
		} else {
			// A handle of its own: the model may close it.
			v.Tensor = v.Tensor.Detach()
		}
		return v
	}
	shape := slices.Clone(first.shape)
	shape[0] = int64(rows)
	if r != nil {
		shape[r.dim] = r.longest(jobs)
	}
	v.Tensor = gotorch.Empty(shape, gotorch.TensorOptions{DType: first.typ.DType()})
	to := gotorch.RawData(v.Tensor)
	for _, j := range jobs {
		if r != nil {
			to = r.pad(to, &j.in[i], shape[r.dim])
		} else {
			to = to[copy(to, j.in[i].raw):]
		}
	}
	return v
}

// dense returns a tensor's elements as they are sent: one after the other, in CPU memory, and not negated by a flag. It is called in a
// scope.
func dense(t gotorch.Tensor) gotorch.Tensor { return t.To(gotorch.CPU).Contiguous().ResolveNeg() }

// split hands each job its part of the outputs.
func (v *version) split(jobs []*job, values []Value, rows int) error {
	specs := v.signature.Outputs
	if len(values) != len(specs) {
		return newError(Internal, "the model returned %d outputs, where its signature has %d", len(values), len(specs))
	}
	batched := v.options.batching.Max > 0
	whole := make([]output, len(specs))
	for i, spec := range specs {
		value, o := &values[i], &whole[i]
		if value.Name != "" && value.Name != spec.Name {
			return newError(Internal, "output %d of the model is named %q, where its signature says %q", i, value.Name, spec.Name)
		}
		if value.Tensor.Defined() {
			t := value.Tensor
			o.typ, o.shape = TypeOf(t.DType()), t.Shape()
			if o.typ != "" && (o.typ == spec.Type || spec.Type == "") {
				o.raw = gotorch.RawData(dense(t))
			} else if o.typ == "" {
				o.typ = DataType(t.DType().String())
			}
		} else if spec.Type != BYTES && value.Bytes == nil {
			return newError(Internal, "output %q is the zero Tensor, or was closed", spec.Name)
		} else {
			o.typ, o.shape, o.bytes = BYTES, value.Shape, value.Bytes
			if n, ok := elements(o.shape); !ok || n != len(o.bytes) {
				return newError(Internal, "output %q has %d elements, which are none of shape %v", spec.Name, len(o.bytes), o.shape)
			}
		}
		switch {
		case spec.Type == "" && !o.typ.known():
			return newError(Internal, "output %q is %s, which the protocol lacks", spec.Name, o.typ)
		case o.typ != spec.Type && spec.Type != "":
			return newError(Internal, "output %q is %s, where the model's signature says %s", spec.Name, o.typ, spec.Type)
		case !spec.fits(o.shape):
			return newError(Internal, "output %q has shape %v, where the model's signature says %v", spec.Name, o.shape, spec.Shape)
		case batched && (len(o.shape) == 0 || o.shape[0] != int64(rows)):
			return newError(Internal, "output %q has shape %v for a batch of %d rows: with Batching the first dimension is the batch",
				spec.Name, o.shape, rows)
		}
		if c := v.cutOf(i); c != nil {
			r := v.raggedOf(c.input)
			if longest := r.longest(jobs); c.dim >= len(o.shape) || o.shape[c.dim] != longest {
				return newError(Internal, "output %q has shape %v, where dimension %d should be as long as dimension %d of input %q, %d",
					spec.Name, o.shape, c.dim, r.dim, v.signature.Inputs[c.input].Name, longest)
			}
		}
	}
	at := 0
	for _, j := range jobs {
		v.giveResults(j, whole, at, rows)
		at += j.rows
	}
	return nil
}

// giveResults copies the results of j, which has the rows from at on of so many.
func (v *version) giveResults(j *job, whole []output, at, rows int) {
	batched := v.options.batching.Max > 0
	// pieces are where the job's part is among n bytes or texts of an output.
	pieces := func(o *output, n int) parts {
		switch c := v.cutOf(o.spec); {
		case !batched:
			return parts{count: 1, own: n}
		case rows == 0 || n == 0:
			return parts{}
		case c != nil:
			return c.cutParts(j, whole[o.spec].shape, at, n)
		}
		return parts{first: n / rows * at, count: 1, own: n / rows * j.rows}
	}
	size := 0
	for i := range j.out {
		o := &j.out[i]
		w := &whole[o.spec]
		p := pieces(o, len(w.raw))
		size += p.count * p.own
		if w.typ == BYTES {
			p := pieces(o, len(w.bytes))
			for k := range p.count {
				for _, b := range w.bytes[p.first+k*p.stride:][:p.own] {
					size += len(b)
				}
			}
		}
	}
	j.arena = newArena(size)
	buffer := *j.arena
	for i := range j.out {
		o := &j.out[i]
		w := &whole[o.spec]
		o.typ, o.shape = w.typ, slices.Clone(w.shape)
		if batched {
			o.shape[0] = int64(j.rows)
			if c := v.cutOf(o.spec); c != nil {
				o.shape[c.dim] = j.in[c.input].shape[c.inputDim]
			}
		}
		if w.typ == BYTES {
			p := pieces(o, len(w.bytes))
			o.bytes = make([][]byte, 0, p.count*p.own)
			for k := range p.count {
				for _, b := range w.bytes[p.first+k*p.stride:][:p.own] {
					start := len(buffer)
					buffer = append(buffer, b...)
					o.bytes = append(o.bytes, buffer[start:len(buffer):len(buffer)])
				}
			}
			continue
		}
		p := pieces(o, len(w.raw))
		start := len(buffer)
		for k := range p.count {
			buffer = append(buffer, w.raw[p.first+k*p.stride:][:p.own]...)
		}
		o.raw = buffer[start:len(buffer):len(buffer)]
	}
	*j.arena = buffer
}

// appendTexts appends elements of BYTES as the protocol has them: each with its length before it.
func appendTexts(to []byte, elements [][]byte) []byte {
	for _, e := range elements {
		to = binary.LittleEndian.AppendUint32(to, uint32(len(e)))
		to = append(to, e...)
	}
	return to
}

func textsSize(elements [][]byte) int {
	n := 4 * len(elements)
	for _, e := range elements {
		n += len(e)
	}
	return n
}

// parseTexts reads n elements of BYTES, which are all of raw.
func parseTexts(raw []byte, n int) ([][]byte, error) {
	if n > len(raw)/4 {
		return nil, newError(InvalidArgument, "%d bytes are too few for %d texts, each with its length in four bytes", len(raw), n)
	}
	texts := make([][]byte, 0, n)
	for range n {
		if len(raw) < 4 {
			return nil, newError(InvalidArgument, "the data ends after %d of %d texts", len(texts), n)
		}
		size := binary.LittleEndian.Uint32(raw)
		raw = raw[4:]
		if uint64(size) > uint64(len(raw)) || size > math.MaxInt32 {
			return nil, newError(InvalidArgument, "text %d says that it has %d bytes, and %d are left", len(texts), size, len(raw))
		}
		texts = append(texts, raw[:size:size])
		raw = raw[size:]
	}
	if len(raw) > 0 {
		return nil, newError(InvalidArgument, "%d bytes are left after %d texts", len(raw), n)
	}
	return texts, nil
}

// checkRaw says why raw data is none of a type and shape: sizes that differ, and bytes that are no bool.
func checkRaw(name string, typ DataType, n int, raw []byte) error {
	if len(raw) != n*typ.Size() {
		return newError(InvalidArgument, "input %q has %d bytes of data, where %d elements of %s are %d", name, len(raw), n, typ, n*typ.Size())
	}
	if typ == BOOL {
		for i, b := range raw {
			if b > 1 {
				return newError(InvalidArgument, "element %d of input %q is the byte %d, where a BOOL is 0 or 1", i, name, b)
			}
		}
	}
	return nil
}
