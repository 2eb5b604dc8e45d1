// Load is the clients of `make bench-serve`, one program for all servers. It reads jobs, one line of JSON each, and
// answers each with a line of figures.
//
// In a closed loop each client sends its next request when it has the answer to the last: what a server can do. With a
// rate requests are due at even intervals, whether or not earlier ones are answered, and the time of each counts from
// when it was due, not from when a client was free to send it: a server that stands still for a second is charged with
// all that would have come in that second (what is left out otherwise is called coordinated omission).
//
// Every answer is compared with Python's.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// job is what to measure.
type job struct {
	Kind    string  // how the server is spoken to: one of kinds
	Address string  // host:port
	Path    string  // of requests over HTTP that have no path of the protocol's own
	Model   string  // its name
	Input   string  // its input's name
	Type    string  // and that's datatype, as the protocol writes it
	Shape   []int64 // of one input, without the batch
	Inputs  string  // file with the inputs, one after the other
	Outputs string  // file with what Python makes of them, FP32
	Clients int
	Seconds float64
	Rate    float64 // requests a second; 0 for a closed loop
}

// figures are the answer.
type figures struct {
	Requests int
	Rate     float64 // answers a second
	P50, P99 float64 // µs
	Max      float64
	Late     float64   // the longest that a request was sent after it was due because all clients waited, in µs
	CPU      float64   // the share of a processor that this program took
	Times    []float64 `json:",omitempty"` // all of them, with a rate
	Error    string    `json:",omitempty"`
}

// client sends request i, and says whether the answer is the right one.
type client interface {
	connect() error
	do(i int) error
	close()
}

var kinds = map[string]func(j *job, cases *cases) (client, error){
	"v2":      dialV2,
	"v2json":  dialV2JSON,
	"grpc":    dialGRPC,
	"raw":     dialRaw,
	"rawjson": dialRawJSON,
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var j job
		f := figures{}
		if err := json.Unmarshal(line, &j); err != nil {
			f.Error = err.Error()
		} else if f, err = run(&j); err != nil {
			f.Error = err.Error()
		}
		if err := out.Encode(f); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
	}
}

// cases are the requests that clients send in turns, and their answers.
type cases struct {
	inputs   [][]byte
	outputs  [][]float32
	requests [][]byte // as they are sent; all clients send the same
}

func (j *job) cases() (*cases, error) {
	inputs, err := os.ReadFile(j.Inputs)
	if err != nil {
		return nil, err
	}
	outputs, err := os.ReadFile(j.Outputs)
	if err != nil {
		return nil, err
	}
	size := map[string]int{"FP32": 4, "INT64": 8}[j.Type]
	for _, n := range j.Shape {
		size *= int(n)
	}
	if size == 0 || len(inputs) == 0 || len(inputs)%size != 0 {
		return nil, fmt.Errorf("%d bytes are no inputs of %s and shape %v", len(inputs), j.Type, j.Shape)
	}
	n := len(inputs) / size
	c := &cases{}
	all := floats(outputs)
	for i := range n {
		c.inputs = append(c.inputs, inputs[i*size:(i+1)*size])
		c.outputs = append(c.outputs, all[i*len(all)/n:(i+1)*len(all)/n])
	}
	return c, nil
}

// check compares an answer with Python's: batches of other sizes are added up in another order.
func (c *cases) check(i int, got []float32) error {
	want := c.outputs[i%len(c.outputs)]
	if len(got) != len(want) {
		return fmt.Errorf("request %d is answered with %d numbers, where Python has %d", i, len(got), len(want))
	}
	for k, w := range want {
		if d := math.Abs(float64(got[k] - w)); !(d <= 1e-4+1e-4*math.Abs(float64(w))) {
			return fmt.Errorf("number %d of the answer to request %d is %v, where Python has %v", k, i, got[k], w)
		}
	}
	return nil
}

func run(j *job) (figures, error) {
	dial := kinds[j.Kind]
	if dial == nil || j.Clients < 1 {
		return figures{}, fmt.Errorf("no clients of kind %q", j.Kind)
	}
	c, err := j.cases()
	if err != nil {
		return figures{}, err
	}
	clients := make([]client, j.Clients)
	for i := range clients {
		if clients[i], err = dial(j, c); err != nil {
			return figures{}, err
		}
		defer clients[i].close()
		if err := clients[i].connect(); err != nil { // before time is taken
			return figures{}, err
		}
	}
	if err := clients[0].do(0); err != nil {
		return figures{}, err
	}
	length := time.Duration(j.Seconds * float64(time.Second))
	cpu, begin := processTime(), time.Now()
	var times []time.Duration
	var late time.Duration
	if j.Rate > 0 {
		times, late, err = open(clients, j.Rate, length)
	} else {
		times, err = closed(clients, length)
	}
	took := time.Since(begin)
	if err != nil {
		return figures{}, err
	}
	f := figures{Requests: len(times), Rate: float64(len(times)) / took.Seconds(), Late: micro(late),
		CPU: float64(processTime()-cpu) / float64(took)}
	if j.Rate > 0 {
		for _, t := range times {
			f.Times = append(f.Times, math.Round(micro(t)))
		}
	}
	slices.Sort(times)
	if n := len(times); n > 0 {
		f.P50, f.P99, f.Max = micro(times[n/2]), micro(times[min(n-1, n*99/100)]), micro(times[n-1])
	}
	return f, nil
}

func micro(d time.Duration) float64 { return float64(d) / 1e3 }

func processTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// closed has each client send one request after the other.
func closed(clients []client, length time.Duration) ([]time.Duration, error) {
	all := make([][]time.Duration, len(clients))
	errs := make([]error, len(clients))
	end := time.Now().Add(length)
	var wait sync.WaitGroup
	for n, c := range clients {
		wait.Go(func() {
			for i := n; ; i += len(clients) {
				begin := time.Now()
				if begin.After(end) {
					return
				}
				if errs[n] = c.do(i); errs[n] != nil {
					return
				}
				all[n] = append(all[n], time.Since(begin))
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(all...), nil
}

// open sends requests at a rate. Clients that are free take the next that is due; where all wait for answers, it is
// sent late, and its time counts all the same.
func open(clients []client, rate float64, length time.Duration) ([]time.Duration, time.Duration, error) {
	total := int(rate * length.Seconds())
	times := make([]time.Duration, total)
	due := make(chan int, total)
	start := time.Now().Add(time.Millisecond)
	at := func(i int) time.Time { return start.Add(time.Duration(float64(i) / rate * 1e9)) }
	var late atomic.Int64
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	for _, c := range clients {
		wait.Go(func() {
			for i := range due {
				when := at(i)
				for behind := int64(time.Since(when)); ; {
					if old := late.Load(); behind <= old || late.CompareAndSwap(old, behind) {
						break
					}
				}
				if err := c.do(i); err != nil {
					failed.Store(&err)
					return
				}
				times[i] = time.Since(when)
			}
		})
	}
	// Go's timers are as fine as a millisecond where the program is idle; the system's sleep is as fine as 50 µs.
	for i := 0; i < total && failed.Load() == nil; i++ {
		if rest := time.Until(at(i)); rest > 0 {
			t := syscall.NsecToTimespec(int64(rest))
			syscall.Nanosleep(&t, nil)
		}
		due <- i
	}
	close(due)
	wait.Wait()
	if err := failed.Load(); err != nil {
		return nil, 0, *err
	}
	return times, time.Duration(late.Load()), nil
}
