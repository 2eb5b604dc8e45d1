package serve

import (
	lists "container/list"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds the bytes of all requests, over REST and gRPC. Where there are no more, requests are ended whose clients have
// stopped sending: else a few that send a part and wait would keep all others out.
type budget struct {
	limit int64
	used  atomic.Int64

	mutex sync.Mutex
	slow  lists.List // of *holding: those of which a part is still to come; the front has made no progress for the longest time
}

// holding is what a request takes of a budget.
type holding struct {
	budget *budget
	taken  atomic.Int64
	ended  atomic.Bool // the budget has ended it for others
	end    func()      // makes who reads it stop; nil where nobody waits for a client

	// Guarded by the budget's mutex.
	at    *lists.Element
	fresh int64     // bytes that have come since it was moved to the back
	moved time.Time // when that was
}

const (
	// stalled is how long a request makes no progress until it may be ended for others.
	stalled = time.Second
	// progress is how many bytes are progress. A client that sends one now and then makes none.
	progress = 16 << 10
)

// take takes n bytes, or reports that there are none.
func (h *holding) take(n int64) bool {
	for !h.budget.add(n) {
		if h.ended.Load() || !h.budget.endStalled() {
			return false
		}
	}
	h.taken.Add(n)
	if h.ended.Load() { // what ends it may have looked before they were added
		h.free()
		return false
	}
	return true
}

// add adds n bytes, or none at all: one that is too large must not stand in the way of others for a moment.
func (b *budget) add(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// fits reports whether so many bytes could be taken. It ends other requests for them.
func (h *holding) fits(n int64) bool {
	for n > h.budget.limit-h.budget.used.Load() {
		if h.ended.Load() || !h.budget.endStalled() {
			return false
		}
	}
	return !h.ended.Load()
}

// give gives n bytes back that take has taken.
func (h *holding) give(n int64) {
	for {
		taken := h.taken.Load()
		n = min(n, taken) // all are back already where the budget has ended it
		if h.taken.CompareAndSwap(taken, taken-n) {
			h.budget.used.Add(-n)
			return
		}
	}
}

// free gives all bytes back.
func (h *holding) free() { h.budget.used.Add(-h.taken.Swap(0)) }

// waits says that n bytes have come, and that more are to come.
func (h *holding) waits(n int64) {
	b := h.budget
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch h.fresh += n; {
	case h.ended.Load():
	case h.at == nil:
		h.at, h.fresh, h.moved = b.slow.PushBack(h), 0, time.Now()
	case h.fresh >= progress:
		b.slow.MoveToBack(h.at)
		h.fresh, h.moved = 0, time.Now()
	}
}

// whole says that nothing is to come for now.
func (h *holding) whole() {
	b := h.budget
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if h.at != nil {
		b.slow.Remove(h.at)
		h.at = nil
	}
}

// endStalled ends the request that has made no progress for the longest time, if that is long enough.
func (b *budget) endStalled() bool {
	b.mutex.Lock()
	first := b.slow.Front()
	if first == nil || time.Since(first.Value.(*holding).moved) < stalled {
		b.mutex.Unlock()
		return false
	}
	h := first.Value.(*holding)
	b.slow.Remove(first)
	h.at = nil
	h.ended.Store(true)
	h.end() // while whole waits: nobody ends a request that is read
	b.mutex.Unlock()
	h.free()
	return true
}

// newBody is the body of a request over REST.
func (s *Server) newBody(w http.ResponseWriter, r *http.Request) *body {
	b := &body{r: r.Body, most: s.maxBody, whole: r.ContentLength, holding: holding{budget: &s.bytes}}
	b.end = func() { http.NewResponseController(w).SetReadDeadline(time.Now()) }
	return b
}

// waiting notes that a read has returned so many bytes. Small bodies come with one.
func (b *body) waiting(n int, err error) {
	if err == nil && b.end != nil {
		b.waits(int64(n))
	}
}
