package serve

import (
	"fmt"
	"slices"
	"time"
)

// RunTimeout is how long a run of the model may take; by default Options.RunTimeout. A run that takes longer has its context
// ended, and its clients are answered with DEADLINE_EXCEEDED, or 504. It keeps its instance until it returns, as nothing can
// end a goroutine. When all [Instances] are kept so, the model is not ready, those that wait for it are refused with
// UNAVAILABLE, or 503, and so is what comes, until one returns. Of a model with [Sequences] that holds for a sequence, too:
// what waits for the run, or comes, is refused until it returns.
type RunTimeout time.Duration

func (d RunTimeout) set(o *modelOptions) {
	o.runTimeout = time.Duration(d)
	o.runTimeoutGiven = true
}

// checkRunTimeout fills in the server's and says what is wrong.
func (s *Server) checkRunTimeout(o *modelOptions) error {
	if !o.runTimeoutGiven {
		o.runTimeout = s.options.RunTimeout
	} else if o.runTimeout <= 0 {
		return newError(InvalidArgument, "RunTimeout is %v, and must be positive; leave it out for none", o.runTimeout)
	}
	return nil
}

// timed runs f, an attempt to run jobs, and answers their clients when it takes too long.
func (v *version) timed(jobs []*job, f func() error) error {
	limit := v.options.runTimeout
	if limit <= 0 {
		return f()
	}
	q := jobs[0].batch.queue
	begin := time.Now()
	timer := time.AfterFunc(limit, func() {
		if v.sequences != nil {
			for _, j := range jobs {
				v.sequences.isOverdue(j, limit)
			}
		}
		if hangs := q.overdue(jobs, limit); hangs {
			v.server.log.Error("serve: a model hangs: all instances have run for longer than they may", "model", v.name, "version", v.id, "limit", limit.String())
		} else {
			v.server.log.Error("serve: a model runs for longer than it may", "model", v.name, "version", v.id, "limit", limit.String())
		}
	})
	defer func() { // also where the model ends the goroutine
		if timer.Stop() {
			return
		}
		q.returned()
		v.server.log.Warn("serve: a run that took longer than it may has returned", "model", v.name, "version", v.id, "took", time.Since(begin).String())
	}()
	return f()
}

// overdue tells the clients of jobs that the model takes too long for them, and reports whether nothing else can run.
func (q *queue) overdue(jobs []*job, limit time.Duration) (hangs bool) {
	q.mutex.Lock()
	for _, j := range jobs {
		if !j.late { // by a run of the batch that failed then
			j.late = true
			close(j.overdue)
		}
	}
	var refused []*job
	if hangs = int(q.hung.Add(1)) >= q.instances; hangs {
		refused = q.refuseWaiting(newError(Unavailable, "the model hangs: its instances have run for longer than %v", limit))
	}
	q.mutex.Unlock()
	for _, j := range refused {
		j.free()
	}
	return hangs
}

// returned is called when a run has returned that was overdue. What overdue does may still go on.
func (q *queue) returned() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.hung.Add(-1)
}

// hangs reports whether all instances run for longer than they may.
func (q *queue) hangs() bool { return int(q.hung.Load()) >= q.instances }

// refuseWaiting refuses all that wait, for whom the caller calls free. The mutex is held.
func (q *queue) refuseWaiting(why error) (refused []*job) {
	for i := range q.levelsOf {
		for j := q.levelsOf[i].first; j != nil; j = q.levelsOf[i].first {
			q.remove(j)
			j.state, j.err = jobDone, why
			refused = append(refused, j)
			close(j.done)
		}
	}
	return refused
}

// hanging says which models hang. The mutex is held.
func (s *Server) hanging() (why []string) {
	for _, versions := range s.models {
		for _, v := range versions {
			if v.queue != nil && v.queue.hangs() {
				why = append(why, fmt.Sprintf("model %s, version %s hangs: it has run for longer than %v", v.name, v.id, v.options.runTimeout))
			}
		}
	}
	slices.Sort(why)
	return why
}
