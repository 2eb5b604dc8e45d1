package ctorch

import (
	"testing"
	"time"
)

// enters reports whether somebody who takes a place gets it; later, where that takes a while.
func enters(p *places) (now bool, later chan bool) {
	later = make(chan bool, 1)
	if p.tryTake() {
		return true, nil
	}
	go func() { later <- p.wait() }()
	// Until it has a place or is in the queue.
	for {
		p.mutex.Lock()
		queued := len(p.waiting)
		p.mutex.Unlock()
		if queued > 0 || len(later) > 0 {
			return false, later
		}
		time.Sleep(time.Millisecond)
	}
}

func TestPlacesAreHandedOn(t *testing.T) {
	p := &places{limit: 1, patience: time.Hour}
	if now, _ := enters(p); !now {
		t.Fatal("the first has to wait")
	}
	now, second := enters(p)
	if now || len(second) > 0 {
		t.Fatal("two are inside")
	}
	p.takeNow() // over the limit
	p.give()    // which is undone first
	if time.Sleep(10 * time.Millisecond); len(second) > 0 {
		t.Fatal("two are inside")
	}
	p.give()
	if !<-second {
		t.Error("the place was refused")
	}
	// One that is given back before it is taken lets another in.
	p.give()
	p.give()
	for range 2 {
		if now, _ := enters(p); !now {
			t.Error("there is no place")
		}
	}
	p.takeNow()
	p.give()
	p.give()
	if n := p.now.Load(); n != 0 || p.over != 0 || p.unheld != 0 || len(p.waiting) != 0 {
		t.Errorf("not all came back: %d, %d, %d, %d", n, p.over, p.unheld, len(p.waiting))
	}
}

func TestPlacesGiveWay(t *testing.T) {
	most := int64(6)
	p := &places{limit: 2, patience: 5 * time.Millisecond, more: func(now int64) int64 { return min(1, most-now) }, patient: 2}
	var waiting []chan bool
	for range 8 {
		if now, later := enters(p); !now {
			waiting = append(waiting, later)
		}
	}
	in, refused := 0, 0
	for _, w := range waiting {
		if <-w {
			in++
		} else {
			refused++
		}
	}
	if in != 4 || refused != 2 {
		t.Errorf("%d were let in and %d refused, want 4 and 2", in, refused)
	}
	// As many get in without waiting, until there was no need.
	p.give()
	if p.tryTake() || !p.wait() {
		t.Error("it forgot that more may be inside")
	}
	for range 6 {
		p.give()
	}
	p.relax()
	if n := p.relax(); n != 0 {
		t.Errorf("%d more may be inside, though nobody is", n)
	}
	if n := p.now.Load(); n != 0 || p.over != 0 || p.unheld != 0 {
		t.Errorf("not all came back: %d, %d, %d", n, p.over, p.unheld)
	}
}
