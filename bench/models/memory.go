package models

import (
	"runtime"
	"time"

	"gotorch.dev/gotorch"
)

// Growth is how memory went on while a model was trained.
type Growth struct {
	Handles  int64   // live handles more at the end than after the first tenth, when all that is dead was freed
	Resident float64 // the same in MB of the process, while training
	Peak     float64 // the most that the process had above what it had after the first tenth, in MB
}

// Train takes n steps, such as those of [Step], and frees nothing by hand. resident tells the memory of the process in MB.
func Train(step func() gotorch.Tensor, n int, resident func() float64) Growth {
	for range n / 10 {
		step()
	}
	base := resident() // with what the allocator keeps, which Live gives back
	begin := Live()
	var g Growth
	for i := range n - n/10 {
		step()
		if i%50 == 0 {
			g.Peak = max(g.Peak, resident()-base)
		}
	}
	g.Resident = resident() - base
	g.Handles = Live() - begin
	runtime.KeepAlive(step) // and with it the model
	return g
}

// Live collects until nothing more is freed, and returns how many handles are alive.
func Live() int64 {
	live := gotorch.MemoryStats().LiveHandles
	for same := 0; same < 5; {
		runtime.GC()
		time.Sleep(time.Millisecond)
		gotorch.ReleaseCachedMemory()
		now := gotorch.MemoryStats().LiveHandles
		if now == live {
			same++
		} else {
			same, live = 0, now
		}
	}
	return live
}
