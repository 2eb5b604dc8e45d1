package serve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ran is what a queue has run: the ids of the jobs in each batch.
type ran struct {
	mutex   sync.Mutex
	batches [][]string
	at      []time.Duration
	start   time.Time
	takes   time.Duration
}

func (r *ran) run(b *batch) {
	r.mutex.Lock()
	var ids []string
	for _, j := range b.jobs {
		ids = append(ids, j.in[0].name)
	}
	r.batches = append(r.batches, ids)
	r.at = append(r.at, time.Since(r.start))
	r.mutex.Unlock()
	select {
	case <-time.After(r.takes):
	case <-b.ctx.Done():
	}
}

func (r *ran) text() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return fmt.Sprint(r.batches)
}

func put(t *testing.T, q *queue, id, key string, rows, level int) *job {
	t.Helper()
	j := &job{key: key, rows: rows, level: level, in: []input{{name: id}}, free: func() {}}
	if err := q.submit(j); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return j
}

func queueFor(r *ran, o queueOptions) *queue {
	r.start = time.Now()
	if o.instances == 0 {
		o.instances = 1
	}
	if o.limit == 0 {
		o.limit = 1000
	}
	if o.levels == 0 {
		o.levels = 1
	}
	return newQueue(o, r.run)
}

func TestWhatComesWhileABatchRunsIsTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 4})
		for i := range 7 {
			put(t, q, fmt.Sprint(i), "", 1, 0)
			if i == 0 {
				synctest.Wait() // until it runs
			}
		}
		time.Sleep(time.Minute)
		if got := r.text(); got != "[[0] [1 2 3 4] [5 6]]" {
			t.Error(got)
		}
	})
}

// With one processor the first would run alone, and the others after it, if the queue did not let them come. Once in a
// while the runtime changes the order of its own accord.
func TestRequestsThatAreReadyTogetherAreOneBatch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var got string
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			r := &ran{takes: time.Second}
			q := queueFor(r, queueOptions{max: 8})
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() { put(t, q, "a", "", 1, 0) })
			}
			all.Wait()
			time.Sleep(time.Minute)
			got = r.text()
		})
		if got == "[[a a a a a]]" {
			return
		}
	}
	t.Error(got)
}

// What docs/serving.md says of Batching.Max, in the time of a model: 85 requests a second of 6.3 ms, in even intervals, while
// the machine stands still for 100 ms of each second; and more than could be answered one by one.
func TestMaxTradesTheTailForThroughput(t *testing.T) {
	tail := func(max, rate int, stall time.Duration, takes func(rows int) time.Duration) (p99 time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			q := newQueue(queueOptions{max: max, instances: 1, limit: 10000, levels: 1}, func(b *batch) {
				time.Sleep(takes(len(b.jobs)))
				if into := time.Since(begun) % time.Second; into < stall {
					time.Sleep(stall - into)
				}
			})
			times := make([]time.Duration, 20*rate)
			var all sync.WaitGroup
			for i := range times {
				all.Go(func() {
					begin := time.Now()
					<-put(t, q, "a", "", 1, 0).done
					times[i] = time.Since(begin)
				})
				time.Sleep(time.Second / time.Duration(rate))
			}
			all.Wait()
			slices.Sort(times)
			p99 = times[len(times)*99/100]
		})
		return p99
	}
	linear := func(rows int) time.Duration { return time.Duration(rows) * 6300 * time.Microsecond }
	cheaper := func(rows int) time.Duration { return time.Duration(3150+3150*rows) * time.Microsecond }
	small, large := tail(2, 85, 100*time.Millisecond, linear), tail(8, 85, 100*time.Millisecond, linear)
	if small > 105*time.Millisecond || large < 130*time.Millisecond {
		t.Errorf("after a stall: %v with batches of two, and %v with those of eight", small, large)
	}
	small, large = tail(1, 200, 0, cheaper), tail(8, 200, 0, cheaper)
	if small < time.Second || large > 20*time.Millisecond {
		t.Errorf("at 200 requests a second: %v alone, and %v with batches of eight", small, large)
	}
}

func TestABatchWaitsForItsDelayAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Millisecond}
		q := queueFor(r, queueOptions{max: 4, delay: 10 * time.Millisecond})
		put(t, q, "a", "", 1, 0)
		time.Sleep(6 * time.Millisecond)
		put(t, q, "b", "", 1, 0)
		time.Sleep(time.Second)
		for i := range 5 { // four are a batch at once, and the fifth waits
			put(t, q, fmt.Sprint(i), "", 1, 0)
		}
		time.Sleep(time.Second)
		if got := r.text(); got != "[[a b] [0 1 2 3] [4]]" {
			t.Error(got)
		}
		if want := []time.Duration{10, 1006, 1016}; !slices.Equal(r.at, []time.Duration{want[0] * 1e6, want[1] * 1e6, want[2] * 1e6}) {
			t.Errorf("ran at %v", r.at)
		}
	})
}

func TestAPreferredSizeRunsAtOnceAndNoMoreThanIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 8, delay: time.Minute, preferred: []int{2, 4}})
		put(t, q, "a", "", 1, 0)
		put(t, q, "b", "", 1, 0) // runs, for a second
		for i := range 5 {
			put(t, q, fmt.Sprint(i), "", 1, 0)
		}
		time.Sleep(3 * time.Second)
		if got := r.text(); got != "[[a b] [0 1 2 3]]" {
			t.Error(got)
		}
		time.Sleep(time.Hour)
		if got := r.text(); got != "[[a b] [0 1 2 3] [4]]" {
			t.Error(got)
		}
	})
}

func TestOnlyThoseWithTheSameKeyAreJoinedAndNoKeyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 3})
		for i, key := range []string{"x", "x", "y", "x", "z", "x", "x", "y"} {
			put(t, q, fmt.Sprint(key, i), key, 1, 0)
			if i == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(time.Minute)
		if got := r.text(); got != "[[x0] [x1 x3 x5] [y2 y7] [z4] [x6]]" {
			t.Error(got)
		}
	})
}

func TestRowsCountAndRequestsOfOneKeyKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 8})
		put(t, q, "first", "", 1, 0)
		synctest.Wait()
		for i, rows := range []int{5, 4, 3, 8, 0, 1} {
			put(t, q, fmt.Sprintf("%d:%d", i, rows), "", rows, 0)
		}
		time.Sleep(time.Minute)
		if got := r.text(); got != "[[first] [0:5] [1:4 2:3] [3:8] [4:0 5:1]]" {
			t.Error(got)
		}
	})
}

func TestHigherPrioritiesRunFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 2, levels: 3})
		put(t, q, "first", "", 1, 2)
		synctest.Wait()
		put(t, q, "c1", "", 1, 2)
		put(t, q, "b1", "other", 1, 1)
		put(t, q, "a1", "", 1, 0)
		put(t, q, "c2", "", 1, 2)
		time.Sleep(time.Minute)
		if got := r.text(); got != "[[first] [a1 c1] [b1] [c2]]" {
			t.Error(got)
		}
	})
}

func TestInstancesRunBatchesBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{instances: 3})
		for i := range 7 {
			put(t, q, fmt.Sprint(i), "", 1, 0)
			if i == 0 {
				synctest.Wait() // until it runs
			}
		}
		time.Sleep(500 * time.Millisecond)
		if waiting, running := q.size(); waiting != 4 || running != 3 {
			t.Errorf("%d wait, %d run", waiting, running)
		}
		<-q.close(errUnloaded)
		if got := time.Since(r.start); got != 3*time.Second {
			t.Errorf("7 jobs of a second took three instances %v", got)
		}
	})
}

func TestAFullQueueRefusesAndHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{limit: 2})
		put(t, q, "runs", "", 1, 0)
		put(t, q, "a", "", 1, 0)
		b := put(t, q, "b", "", 1, 0)
		refused := &job{free: func() { t.Error("a job that was refused is its submitter's") }}
		if err := q.submit(refused); !errors.Is(err, ResourceExhausted) {
			t.Error(err)
		}
		if !q.leave(b) {
			t.Error("b waited, and could not leave")
		}
		put(t, q, "c", "", 1, 0)
		time.Sleep(time.Minute)
		if got := r.text(); got != "[[runs] [a] [c]]" {
			t.Error(got)
		}
	})
}

func TestWhoLeavesBeforeItsTurnNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 2, delay: 10 * time.Second})
		freed := 0
		a := put(t, q, "a", "", 1, 0)
		a.free = func() { freed++ }
		if !q.leave(a) || q.leave(a) || freed != 1 {
			t.Errorf("left, and freed %d times", freed)
		}
		put(t, q, "b", "", 1, 0)
		time.Sleep(time.Minute)
		if got := r.text(); got != "[[b]]" || r.at[0] != 10*time.Second {
			t.Error(got, r.at)
		}
	})
}

func TestTheContextOfABatchEndsWhenTheLastClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Hour}
		q := queueFor(r, queueOptions{max: 2, delay: time.Minute})
		a, b := put(t, q, "a", "", 1, 0), put(t, q, "b", "", 1, 0)
		synctest.Wait()
		ctx := a.batch.ctx
		q.leave(a)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("the batch was canceled, and b still waits for it")
		}
		q.leave(b)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("nobody waits for the batch, and it was not canceled")
		}
		if _, running := q.size(); running != 0 {
			t.Error("the instance is not free")
		}
	})
}

func TestClosingRunsWhatWaitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Second}
		q := queueFor(r, queueOptions{max: 2, delay: time.Hour})
		put(t, q, "a", "x", 1, 0)
		put(t, q, "b", "y", 1, 0)
		<-q.close(errUnloaded)
		if got := r.text(); got != "[[a] [b]]" {
			t.Error(got)
		}
		if err := q.submit(&job{}); err != error(errUnloaded) {
			t.Error(err)
		}
	})
}

func TestKillingRefusesWhatWaitsAndCancelsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ran{takes: time.Hour}
		q := queueFor(r, queueOptions{})
		freed := 0
		runs := put(t, q, "runs", "", 1, 0)
		waits := put(t, q, "waits", "", 1, 0)
		waits.free = func() { freed++ }
		q.kill(errUnloaded)
		<-waits.done
		<-runs.done
		<-q.idle
		if waits.err != error(errUnloaded) || freed != 1 || r.text() != "[[runs]]" {
			t.Error(waits.err, freed, r.text())
		}
	})
}

func TestAModelThatEndsItsGoroutineLeavesItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		q := newQueue(queueOptions{instances: 1, limit: 10, levels: 1}, func(b *batch) {
			runs++
			if !b.begun {
				b.begun = true
				runtime.Goexit()
			}
		})
		a, b := put(t, q, "a", "", 1, 0), put(t, q, "b", "", 1, 0)
		<-a.done
		<-b.done
		if runs != 4 {
			t.Errorf("%d calls for two jobs that end the goroutine once each", runs)
		}
	})
}

func TestABatchIsNoMoreThanItsShareOfPadding(t *testing.T) {
	for want, padding := range map[string][]float64{
		"[[0] [1000 1 900] [1 1 2 3]]":       {0.5},
		"[[0] [1000] [1 1 1] [2] [3] [900]]": {0},
		"[[0] [1000 1 1 1 2 3 900]]":         {1},
		"[[0] [1000 1 1 1 2] [3 900]]":       nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			o := queueOptions{max: 8, padding: padding}
			if padding == nil {
				o.max = 5
			}
			r := &ran{takes: time.Second}
			q := queueFor(r, o)
			for i, n := range []int64{0, 1000, 1, 1, 1, 2, 3, 900} {
				j := &job{rows: 1, lengths: []int64{n}, in: []input{{name: fmt.Sprint(n)}}, free: func() {}}
				if err := q.submit(j); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					synctest.Wait() // until it runs
				}
			}
			time.Sleep(time.Minute)
			if got := r.text(); got != want {
				t.Errorf("with %v: %s, not %s", padding, got, want)
			}
		})
	}
}

// TestNoJobIsLostAndNoneRunsTwice has clients come, leave and stay at random.
func TestNoJobIsLostAndNoneRunsTwice(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			o := queueOptions{max: random.IntN(6), instances: 1 + random.IntN(3), limit: 5 + random.IntN(50), levels: 1 + random.IntN(3)}
			if o.max > 0 {
				o.delay = time.Duration(random.IntN(3)) * 5 * time.Millisecond
				if random.IntN(2) == 0 {
					o.preferred = []int{1 + random.IntN(o.max)}
				}
			}
			if o.max > 0 && random.IntN(2) == 0 {
				o.padding = []float64{random.Float64(), float64(random.IntN(3)) / 2}
			}
			var mutex sync.Mutex
			times := map[*job]int{}
			running := 0
			q := newQueue(o, func(b *batch) {
				mutex.Lock()
				running++
				rows := 0
				for _, j := range b.jobs {
					times[j]++
					rows += max(1, j.rows)
					if j.key != b.jobs[0].key {
						t.Errorf("seed %d: keys %q and %q were joined", seed, j.key, b.jobs[0].key)
					}
				}
				for i, most := range o.padding {
					var rows, given, longest int64
					for _, j := range b.jobs {
						rows, given = rows+int64(j.rows), given+int64(j.rows)*j.lengths[i]
						if j.rows > 0 {
							longest = max(longest, j.lengths[i])
						}
					}
					if whole := rows * longest; float64(whole-given) > most*float64(whole)+1e-6 {
						t.Errorf("seed %d: %d of %d elements are padding, where a share of %v may be", seed, whole-given, whole, most)
					}
				}
				if running > o.instances || len(b.jobs) > 1 && rows > o.max {
					t.Errorf("seed %d: %d run, %d rows in a batch", seed, running, rows)
				}
				sleep := time.Duration(random.IntN(20)) * time.Millisecond
				mutex.Unlock()
				time.Sleep(sleep)
				mutex.Lock()
				running--
				mutex.Unlock()
			})
			var clients sync.WaitGroup
			var refused, left, answered, freed int
			for client := range 8 {
				own := rand.New(rand.NewPCG(seed, uint64(client)))
				clients.Go(func() {
					for range 60 {
						j := &job{key: fmt.Sprint(own.IntN(3)), rows: own.IntN(max(1, o.max)), level: own.IntN(o.levels)}
						j.lengths = []int64{own.Int64N(20), own.Int64N(3)}
						j.free = func() { mutex.Lock(); freed++; mutex.Unlock() }
						if err := q.submit(j); err != nil {
							mutex.Lock()
							refused++
							mutex.Unlock()
							time.Sleep(time.Millisecond)
							continue
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(own.IntN(200))*time.Millisecond)
						select {
						case <-j.done:
							mutex.Lock()
							answered++
							if times[j] != 1 {
								t.Errorf("seed %d: a job ran %d times", seed, times[j])
							}
							mutex.Unlock()
						case <-ctx.Done():
							waited := q.leaveIfWaiting(j)
							if waited || q.leave(j) {
								mutex.Lock()
								left++
								if waited && times[j] != 0 {
									t.Errorf("seed %d: a job that left the queue ran", seed)
								}
								mutex.Unlock()
							} else {
								<-j.done
								mutex.Lock()
								answered++
								mutex.Unlock()
							}
						}
						cancel()
						time.Sleep(time.Duration(own.IntN(10)) * time.Millisecond)
					}
				})
			}
			clients.Wait()
			<-q.close(errUnloaded)
			synctest.Wait()
			if refused+left+answered != 8*60 || freed != left+answered {
				t.Errorf("seed %d: %d refused, %d left, %d answered, %d freed", seed, refused, left, answered, freed)
			}
			if len(q.buckets) != 0 || len(q.full) != 0 || q.waiting != 0 {
				t.Errorf("seed %d: %d keys, %d of them full, %d jobs are left", seed, len(q.buckets), len(q.full), q.waiting)
			}
		})
	}
}

func TestAConfigurationSaysHowMuchIsPadding(t *testing.T) {
	for text, want := range map[string]any{"": nil, `, "padding": 0`: 0.0, `, "padding": 0.25`: 0.25} {
		c, err := parseConfig([]byte(`{"ragged": [{"input": "x", "dim": 1` + text + `}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.options()[0].(Ragged).Padding; got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
