package serve

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// How requests wait, and in what batches they run.
//
// A queue is a state and no goroutine: whoever changes it (a request that comes or goes, a batch that is done, a timer)
// looks, with the mutex held, whether a batch may run now, and starts it. So there is nobody to be woken, and an idle
// server has no goroutines.
//
// Requests with the same key may be joined. A request is in two lists: that of its level of priority, in order of
// arrival, and that of its key and level. The oldest of the highest level decides what runs next, and those of its
// key go with it: so no key starves another. Keys of which a batch is full need not wait until the delay is over.

type jobState uint8

const (
	jobWaiting jobState = iota
	jobRunning
	jobLeft // runs, and nobody waits for it
	jobDone
)

// job is a request in a queue. What is below the line belongs to who runs it.
type job struct {
	key     string // those with the same may be joined
	rows    int
	level   int // 0 is the most urgent
	arrived time.Time
	seq     uint64
	state   jobState
	batch   *batch
	bucket  *bucket
	inLevel links
	inKey   links
	done    chan struct{} // closed when it has run, or was refused while it waited
	late    bool          // overdue is closed
	overdue chan struct{} // closed when it has run for longer than it may; nil where it may for ever

	in           []input
	lengths      []int64 // of ragged inputs
	params       Parameters
	of           *sequence // that it belongs to, or nil
	leftSequence bool      // its turn there is over; guarded by the sequences
	free         func()    // gives back the memory of in; called once, when no one reads it any more
	out          []output
	arena        *[]byte // in which out lies
	err          error
	timing       timing
	tried        bool // the model was run for it
	trace        jobTrace
}

type links struct{ prev, next *job }

// batch is what runs at a time.
type batch struct {
	jobs   []*job
	ctx    context.Context
	cancel context.CancelFunc
	live   int // those that somebody waits for
	queue  *queue
	// How far it has come, for who goes on where a model has ended the goroutine.
	begun  bool
	err    error
	next   int
	states []any // of the jobs' sequences before the batch ran, where it may be run again
}

// bucket is the jobs of one key.
type bucket struct {
	key    string
	levels []list
	rows   int
	jobs   int
	full   bool // is in queue.full
}

// list is a list of jobs that is linked through one of their links.
type list struct {
	first, last *job
	links       func(*job) *links
}

func levelLinks(j *job) *links { return &j.inLevel }
func keyLinks(j *job) *links   { return &j.inKey }

func newLists(n int, links func(*job) *links) []list {
	lists := make([]list, n)
	for i := range lists {
		lists[i].links = links
	}
	return lists
}

func (l *list) push(j *job) {
	*l.links(j) = links{prev: l.last}
	if l.last == nil {
		l.first = j
	} else {
		l.links(l.last).next = j
	}
	l.last = j
}

func (l *list) remove(j *job) {
	at := l.links(j)
	if at.prev == nil {
		l.first = at.next
	} else {
		l.links(at.prev).next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		l.links(at.next).prev = at.prev
	}
	*at = links{}
}

type queueOptions struct {
	max       int // rows in a batch; 0 where each request runs alone
	delay     time.Duration
	preferred []int // sorted
	instances int
	limit     int // how many may wait
	levels    int
	padding   []float64 // how much of each ragged input may be padding
}

type queue struct {
	queueOptions
	run func(*batch) // sets out or err of each job

	mutex    sync.Mutex
	levelsOf []list
	buckets  map[string]*bucket
	full     []*bucket
	waiting  int
	running  map[*batch]struct{}
	hung     atomic.Int32 // of those, which run for longer than they may
	gathers  bool         // a goroutine is about to take a batch
	seq      uint64
	closed   error // why nothing comes in any more
	timer    *time.Timer
	empty    bool          // it is closed, and nothing is left
	emptied  func()        // called once then, before
	idle     chan struct{} // is closed
}

func newQueue(o queueOptions, run func(*batch)) *queue {
	return &queue{queueOptions: o, run: run, levelsOf: newLists(o.levels, levelLinks), buckets: map[string]*bucket{},
		running: map[*batch]struct{}{}, idle: make(chan struct{})}
}

// submit takes a job, or says why not; j.free is the caller's then.
func (q *queue) submit(j *job) error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.closed != nil {
		return q.closed
	}
	if q.waiting >= q.limit {
		return newError(ResourceExhausted, "%d requests wait, and no more may: try again later", q.waiting)
	}
	if q.hangs() {
		return newError(Unavailable, "the model hangs: its instances have run for longer than they may")
	}
	q.seq++
	j.seq, j.arrived, j.state, j.done = q.seq, time.Now(), jobWaiting, make(chan struct{})
	b := q.buckets[j.key]
	if b == nil {
		b = &bucket{key: j.key, levels: newLists(q.levels, keyLinks)}
		q.buckets[j.key] = b
	}
	j.bucket = b
	b.levels[j.level].push(j)
	b.rows += max(1, j.rows)
	b.jobs++
	q.levelsOf[j.level].push(j)
	q.waiting++
	if !b.full && q.enough(b) {
		b.full = true
		q.full = append(q.full, b)
	}
	q.start()
	return nil
}

// enough reports whether a batch of b need not wait for more.
func (q *queue) enough(b *bucket) bool {
	return q.max == 0 || b.rows >= q.max || len(q.preferred) > 0 && b.rows >= q.preferred[0]
}

// remove takes a job out of those that wait.
func (q *queue) remove(j *job) {
	b := j.bucket
	q.levelsOf[j.level].remove(j)
	b.levels[j.level].remove(j)
	b.rows -= max(1, j.rows)
	b.jobs--
	q.waiting--
	j.bucket = nil
	if b.jobs == 0 {
		delete(q.buckets, b.key)
	}
	if b.full && (b.jobs == 0 || !q.enough(b)) {
		b.full = false
		q.full = slices.DeleteFunc(q.full, func(f *bucket) bool { return f == b })
	}
}

// start runs what may run now, and sets the timer for what may later.
func (q *queue) start() {
	for !q.gathers && len(q.running) < q.instances {
		if q.max > 1 && q.delay == 0 && q.waiting > 0 {
			q.gathers = true
			go q.gather()
			break
		}
		b := q.take()
		if b == nil {
			break
		}
		go q.work(b)
	}
	q.setTimer()
	q.tellIdle()
}

// gather runs the next batch, but first lets others run that are ready to. Of many requests that come at once the first
// would else be a batch of its own wherever processors are few, and all others would wait for it.
func (q *queue) gather() {
	runtime.Gosched()
	q.mutex.Lock()
	q.gathers = false
	b := q.take()
	q.start()
	q.mutex.Unlock()
	if b != nil {
		q.work(b)
	}
}

func (q *queue) tellIdle() {
	if q.closed == nil || q.waiting > 0 || len(q.running) > 0 || q.gathers || q.empty {
		return
	}
	q.empty = true
	if q.emptied == nil {
		close(q.idle)
		return
	}
	go func() {
		q.emptied()
		close(q.idle)
	}()
}

// setTimer is for the first request whose delay ends, if there is an instance to run it.
func (q *queue) setTimer() {
	if len(q.running) >= q.instances || q.waiting == 0 || q.gathers {
		if q.timer != nil {
			q.timer.Stop()
		}
		return
	}
	var first time.Time
	for i := range q.levelsOf {
		if j := q.levelsOf[i].first; j != nil && (first.IsZero() || j.arrived.Before(first)) {
			first = j.arrived
		}
	}
	wait := time.Until(first.Add(q.delay))
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, func() {
			q.mutex.Lock()
			defer q.mutex.Unlock()
			q.start()
		})
	} else {
		q.timer.Reset(wait)
	}
}

func before(a, b *job) bool { return a.level < b.level || a.level == b.level && a.seq < b.seq }

// head returns the job of b that is first in line.
func (b *bucket) head() *job {
	for i := range b.levels {
		if j := b.levels[i].first; j != nil {
			return j
		}
	}
	return nil
}

// take returns the batch that runs next, if one may run now.
func (q *queue) take() *batch {
	if q.waiting == 0 {
		return nil
	}
	var first *job
	due := false
	now := time.Now()
	for i := range q.levelsOf {
		if j := q.levelsOf[i].first; j != nil && (q.closed != nil || now.Sub(j.arrived) >= q.delay) {
			first, due = j, true
			break
		}
	}
	for _, b := range q.full {
		if j := b.head(); first == nil || before(j, first) {
			first, due = j, false
		}
	}
	if first == nil {
		return nil
	}
	b := first.bucket
	most := q.max
	if !due && b.rows < q.max {
		for _, n := range q.preferred {
			if n <= b.rows {
				most = n
			}
		}
	}
	out := &batch{queue: q}
	rows := 0
	var padded padding
	for i := range b.levels {
		for j, next := b.levels[i].first, (*job)(nil); j != nil; j = next {
			next = j.inKey.next
			n := max(1, j.rows)
			if len(out.jobs) > 0 && rows+n > most {
				break
			}
			if !padded.add(j, q.padding) {
				continue // it would make the batch too large, and is in a later one
			}
			rows += n
			q.remove(j)
			j.state, j.batch = jobRunning, out
			out.jobs = append(out.jobs, j)
		}
	}
	out.live = len(out.jobs)
	out.ctx, out.cancel = context.WithCancel(context.Background())
	q.running[out] = struct{}{}
	return out
}

// growStack makes the goroutine's stack as large as models need while there is little on it. It is copied whenever it
// grows, which from the depths of a model is a twentieth of what a small one takes.
//
//go:noinline
func growStack() (sum byte) {
	var room [12 << 10]byte
	for i := 0; i < len(room); i += 4 << 10 {
		sum += room[i]
	}
	return sum
}

// work runs batches until none may run now.
func (q *queue) work(b *batch) {
	growStack()
	returned := false
	defer func() {
		if !returned { // the model has ended the goroutine
			go q.work(b)
		}
	}()
	for b != nil {
		q.run(b)
		b = q.finish(b)
	}
	returned = true
}

// finish hands a batch's results out, and returns the next one.
func (q *queue) finish(b *batch) *batch {
	b.cancel()
	q.mutex.Lock()
	for _, j := range b.jobs {
		left := j.state == jobLeft
		j.state = jobDone
		if left {
			j.giveBack()
		}
		close(j.done)
	}
	delete(q.running, b)
	next := q.take()
	q.start()
	q.mutex.Unlock()
	for _, j := range b.jobs {
		j.free()
	}
	return next
}

// leave is for who no longer waits for j. It returns false if j is done already.
func (q *queue) leave(j *job) bool {
	q.mutex.Lock()
	switch j.state {
	case jobWaiting:
		q.remove(j)
		j.state = jobDone
		q.start()
		q.mutex.Unlock()
		j.free()
		return true
	case jobRunning:
		j.state = jobLeft
		if j.batch.live--; j.batch.live == 0 {
			j.batch.cancel()
		}
		q.mutex.Unlock()
		return true
	}
	q.mutex.Unlock()
	return false
}

// leaveIfWaiting takes j out of the queue, if it is still there.
func (q *queue) leaveIfWaiting(j *job) bool {
	q.mutex.Lock()
	if j.state != jobWaiting {
		q.mutex.Unlock()
		return false
	}
	q.remove(j)
	j.state = jobDone
	q.start()
	q.mutex.Unlock()
	j.free()
	return true
}

// left reports whether nobody waits for j.
func (q *queue) left(j *job) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return j.state == jobLeft
}

// close lets nothing in any more; what is there runs. The channel is closed when nothing is left.
func (q *queue) close(why error) <-chan struct{} {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.closed == nil {
		q.closed = why
		q.start()
	}
	return q.idle
}

// kill refuses what waits, and cancels what runs.
func (q *queue) kill(why error) {
	q.mutex.Lock()
	if q.closed == nil {
		q.closed = why
	}
	refused := q.refuseWaiting(why)
	for b := range q.running {
		b.cancel()
	}
	q.start()
	q.mutex.Unlock()
	for _, j := range refused {
		j.free()
	}
}

// size returns how many requests wait, and how many batches run.
func (q *queue) size() (waiting, running int) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.waiting, len(q.running)
}
