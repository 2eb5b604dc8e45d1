package serve

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gotorch.dev/gotorch"
)

// Statistics is what a version of a model has done since it was added, as the protocol's statistics extension has it.
type Statistics struct {
	Name, Version string
	LastInference time.Time // when a batch was run last
	Inferences    uint64    // rows that were computed; without Batching requests
	Executions    uint64    // batches
	Success       Total     // requests, from when they were read to when their answer could be written
	Fail          Total     // requests that ended in an error, those too whose client went away
	// Of the requests in Success: waiting, and what was done to the batch that they were in. Joined requests count the
	// whole batch's time each.
	Queue, ComputeInput, ComputeInfer, ComputeOutput Total
	Batches                                          []BatchStatistics // by size, of the first 256 sizes, or of all up to Batching.Max
	Waiting, Running                                 int               // requests, and batches, now
}

// Total is how often something was done, and how long it took together.
type Total struct {
	Count uint64
	Time  time.Duration
}

func (t *Total) add(d time.Duration) {
	t.Count++
	t.Time += d
}

// BatchStatistics is what was done in batches of one size. Each total is of batches.
type BatchStatistics struct {
	Size                                      int // in rows
	ComputeInput, ComputeInfer, ComputeOutput Total
}

type statistics struct {
	mutex   sync.Mutex
	all     Statistics
	batches map[int]*BatchStatistics
	most    int // how many sizes there may be: clients choose them
}

func newStatistics(most int) *statistics {
	return &statistics{batches: map[int]*BatchStatistics{}, most: max(256, most)}
}

// executed counts a batch.
func (s *statistics) executed(rows int, input, infer, output time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.all.LastInference = time.Now()
	s.all.Executions++
	s.all.Inferences += uint64(rows)
	b := s.batches[rows]
	if b == nil {
		if len(s.batches) >= s.most {
			return
		}
		b = &BatchStatistics{Size: rows}
		s.batches[rows] = b
	}
	b.ComputeInput.add(input)
	b.ComputeInfer.add(infer)
	b.ComputeOutput.add(output)
}

// count counts a request that has ended; j is nil if it never waited.
func (s *statistics) count(j *job, err error, took time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err != nil {
		s.all.Fail.add(took)
		return
	}
	s.all.Success.add(took)
	s.all.Queue.add(j.timing.queue)
	s.all.ComputeInput.add(j.timing.input)
	s.all.ComputeInfer.add(j.timing.infer)
	s.all.ComputeOutput.add(j.timing.output)
}

// Statistics returns what the versions of a model have done; with "" for the name of all models, and with "" for the
// version of all versions. A model or version that is not there is an [*Error] of code NotFound.
func (s *Server) Statistics(name, version string) ([]Statistics, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	names := []string{name}
	if name == "" {
		names = slices.Sorted(maps.Keys(s.models))
	}
	all := []Statistics{}
	for _, name := range names {
		versions, err := s.some(name, version)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			v.stats.mutex.Lock()
			one := v.stats.all
			one.Name, one.Version = v.name, v.id
			for _, size := range slices.Sorted(maps.Keys(v.stats.batches)) {
				one.Batches = append(one.Batches, *v.stats.batches[size])
			}
			v.stats.mutex.Unlock()
			one.Waiting, one.Running = v.load()
			all = append(all, one)
		}
	}
	return all, nil
}

// load returns how many requests wait for v, and how many batches run. The server's mutex is held.
func (v *version) load() (waiting, running int) {
	for _, q := range v.queues {
		w, r := q.size()
		waiting += w
		running += r
	}
	return waiting, running
}

// metrics are a server's for Prometheus.
type metrics struct {
	server   *Server
	requests *prometheus.CounterVec
	queue    *prometheus.HistogramVec
	compute  *prometheus.HistogramVec
	batch    *prometheus.HistogramVec
	waiting  *prometheus.Desc
	running  *prometheus.Desc
	handles  *prometheus.Desc
	bytes    *prometheus.Desc
	bodies   *prometheus.Desc
	failures prometheus.Counter

	mutex  sync.Mutex
	series map[[2]string]*series // by name and version
}

func newMetrics(s *Server) *metrics {
	labels := []string{"model", "version"}
	times := prometheus.ExponentialBuckets(50e-6, 2.5, 14) // 50 µs to 7.5 s
	name := func(n string) string { return "gotorch_serve_" + n }
	histogram := func(n, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name(n), Help: help, Buckets: buckets}, labels)
	}
	gauge := func(n, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(name(n), help, labels, nil)
	}
	return &metrics{
		server: s,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("requests_total"),
			Help: "Requests that have ended, by the code of their answer."}, append(labels, "code")),
		queue:   histogram("queue_seconds", "How long requests waited until they ran.", times),
		compute: histogram("compute_seconds", "How long batches took, inputs and outputs included.", times),
		batch:   histogram("batch_rows", "How many rows batches had.", prometheus.ExponentialBuckets(1, 2, 11)),
		waiting: gauge("queue_requests", "Requests that wait.", labels),
		running: gauge("running_batches", "Batches that run.", labels),
		handles: gauge("live_tensors", "Tensors that the process holds.", nil),
		bytes:   gauge("tensor_bytes", "Memory of tensors on the CPU.", nil),
		bodies:  gauge("request_bytes", "Memory of request bodies that are read and run.", nil),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: name("close_failures_total"),
			Help: "Models, and states of sequences, whose Close failed or panicked."}),
		series: map[[2]string]*series{},
	}
}

// Describe is part of [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
	m.failures.Describe(ch)
	for _, h := range []*prometheus.HistogramVec{m.queue, m.compute, m.batch} {
		h.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.waiting, m.running, m.handles, m.bytes, m.bodies} {
		ch <- d
	}
}

// Collect is part of [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.Collect(ch)
	m.failures.Collect(ch)
	for _, h := range []*prometheus.HistogramVec{m.queue, m.compute, m.batch} {
		h.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	m.server.mutex.RLock()
	for _, versions := range m.server.models {
		for _, v := range versions {
			if len(v.queues) > 0 {
				waiting, running := v.load()
				gauge(m.waiting, float64(waiting), v.name, v.id)
				gauge(m.running, float64(running), v.name, v.id)
			}
		}
	}
	m.server.mutex.RUnlock()
	memory := gotorch.MemoryStats()
	gauge(m.handles, float64(memory.LiveHandles))
	gauge(m.bytes, float64(memory.NativeBytes))
	gauge(m.bodies, float64(m.server.bytes.used.Load()))
}

// series are those of a version of a model, and of those that replace it. Who counts after they were dropped counts for
// nobody.
type series struct {
	queue, compute, batch prometheus.Observer
	requests              *prometheus.CounterVec // of the model and version

	mutex   sync.Mutex
	byCode  map[string]prometheus.Counter
	dropped bool
}

// open returns the series of a version that goes into service.
func (m *metrics) open(name, id string) *series {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	key := [2]string{name, id}
	s := m.series[key]
	if s == nil {
		s = &series{queue: m.queue.WithLabelValues(name, id), compute: m.compute.WithLabelValues(name, id),
			batch: m.batch.WithLabelValues(name, id), byCode: map[string]prometheus.Counter{},
			requests: m.requests.MustCurryWith(prometheus.Labels{"model": name, "version": id})}
		m.series[key] = s
	}
	return s
}

// drop forgets the series of a version that is out of service.
func (m *metrics) drop(name, id string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	key := [2]string{name, id}
	s := m.series[key]
	if s == nil {
		return
	}
	delete(m.series, key)
	s.mutex.Lock()
	s.dropped = true
	s.mutex.Unlock()
	m.requests.DeletePartialMatch(prometheus.Labels{"model": name, "version": id})
	for _, h := range []*prometheus.HistogramVec{m.queue, m.compute, m.batch} {
		h.DeleteLabelValues(name, id)
	}
}

// count counts a request that has ended.
func (s *series) count(j *job, err error) {
	code := "OK"
	if err != nil {
		code = asError(err).Code.String()
	} else {
		s.queue.Observe(j.timing.queue.Seconds())
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.dropped {
		return
	}
	c := s.byCode[code]
	if c == nil {
		c = s.requests.WithLabelValues(code)
		s.byCode[code] = c
	}
	c.Inc()
}

func (s *series) executed(rows int, took time.Duration) {
	s.compute.Observe(took.Seconds())
	s.batch.Observe(float64(rows))
}

// refused counts a request for a model that is not there. Its name is the client's, and so no label.
func (m *metrics) refused(err error) {
	m.requests.WithLabelValues("", "", asError(err).Code.String()).Inc()
}
