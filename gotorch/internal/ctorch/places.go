package ctorch

import (
	"sync"
	"sync/atomic"
	"time"
)

// places are what goroutines take, and give back, where only so many may be at a time: a semaphore
// that is one locked instruction while there is room.
//
// Who has a place may be waiting for who waits for one, because between the two there is the program:
// a hook that waits for another goroutine, a function inside NoGrad that does, a collective. Nothing can
// tell. So the bound gives way: when no place has come back for some time, more are let in, and as many
// from then on, until there is no need any more.
type places struct {
	limit    int64
	patience time.Duration         // how long nothing need come back
	more     func(now int64) int64 // how many are let in then, beyond now
	patient  int                   // how often more may be 0 before those that wait fail

	now atomic.Int64 // those inside, and those that wait

	mutex   sync.Mutex
	waiting []chan bool // first come, first served; false where there is no hope
	unheld  int64       // places for goroutines that are about to wait
	over    int64       // how many are inside beyond the limit
	allowed int64       // how many may be
	most    int64       // the most that were, since relax ran
	moved   bool        // one has come back since the timer ran
	full    int         // how often more was 0 since then
	timer   *time.Timer // runs while some wait
}

// tryTake takes a place if there is one. If not, the caller must wait.
func (p *places) tryTake() bool { return p.now.Add(1) <= p.limit }

// wait waits for a place after tryTake has found none. It returns false where there is no hope to get
// one.
func (p *places) wait() bool {
	p.mutex.Lock()
	switch {
	case p.unheld > 0:
		p.unheld--
	case p.over < p.allowed:
		p.over++
		p.most = max(p.most, p.over)
	default:
		place := make(chan bool, 1)
		p.waiting = append(p.waiting, place)
		if len(p.waiting) == 1 {
			p.moved = false
			if p.timer == nil {
				p.timer = time.AfterFunc(p.patience, p.stalled)
			} else {
				p.timer.Reset(p.patience)
			}
		}
		p.mutex.Unlock()
		return <-place
	}
	p.mutex.Unlock()
	return true
}

// takeNow takes a place whether or not there is one.
func (p *places) takeNow() {
	if !p.tryTake() {
		p.takeOver()
	}
}

// takeOver is wait for who must not.
func (p *places) takeOver() {
	p.mutex.Lock()
	if p.unheld > 0 {
		p.unheld--
	} else {
		p.over++
	}
	p.mutex.Unlock()
}

// give gives a place back. It may also come before a takeNow, which then takes it again.
func (p *places) give() {
	if p.now.Add(-1) < p.limit {
		return
	}
	// There is one over the limit, inside or waiting, or about to wait.
	p.mutex.Lock()
	p.moved = true
	switch {
	case p.over > p.allowed:
		p.over--
	case len(p.waiting) > 0:
		p.next() <- true
	case p.over > 0:
		p.over--
	default:
		p.unheld++
	}
	p.mutex.Unlock()
}

func (p *places) next() chan bool {
	place := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	return place
}

// stalled runs from time to time while some wait.
func (p *places) stalled() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.moved {
		p.full = 0
	} else if n := p.more(p.limit + p.over); n > 0 {
		for range min(n, int64(len(p.waiting))) {
			p.over++
			p.next() <- true
		}
		p.allowed = max(p.allowed, p.over)
		p.most = max(p.most, p.over)
		tidySoon()
	} else if p.full++; p.full > p.patient {
		for len(p.waiting) > 0 {
			p.now.Add(-1)
			p.next() <- false
		}
		p.full = 0
	}
	p.moved = false
	if len(p.waiting) > 0 {
		p.timer.Reset(p.patience)
	}
}

// relax allows no more beyond the limit than there were since it ran last, and returns how many.
func (p *places) relax() int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.allowed = min(p.allowed, p.most)
	p.most = p.over
	return p.allowed
}
