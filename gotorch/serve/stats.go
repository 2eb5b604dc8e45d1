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
	Batches                                          []BatchStatistics // by size
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
}

func newStatistics() *statistics { return &statistics{batches: map[int]*BatchStatistics{}} }

// executed counts a batch.
func (s *statistics) executed(rows int, input, infer, output time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.all.LastInference = time.Now()
	s.all.Executions++
	s.all.Inferences += uint64(rows)
	b := s.batches[rows]
	if b == nil {
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
			for _, q := range v.queues {
				waiting, running := q.size()
				one.Waiting += waiting
				one.Running += running
			}
			all = append(all, one)
		}
	}
	return all, nil
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
	}
}

// Describe is part of [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
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
	for _, h := range []*prometheus.HistogramVec{m.queue, m.compute, m.batch} {
		h.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if all, err := m.server.Statistics("", ""); err == nil {
		for _, s := range all {
			gauge(m.waiting, float64(s.Waiting), s.Name, s.Version)
			gauge(m.running, float64(s.Running), s.Name, s.Version)
		}
	}
	memory := gotorch.MemoryStats()
	gauge(m.handles, float64(memory.LiveHandles))
	gauge(m.bytes, float64(memory.NativeBytes))
	gauge(m.bodies, float64(m.server.bytes.used.Load()))
}

// count counts a request that has ended.
func (m *metrics) count(v *version, j *job, err error) {
	code := "OK"
	if err != nil {
		code = asError(err).Code.String()
	} else {
		m.queue.WithLabelValues(v.name, v.id).Observe(j.timing.queue.Seconds())
	}
	m.requests.WithLabelValues(v.name, v.id, code).Inc()
}

// refused counts a request for a model that is not there. Its name is the client's, and so no label.
func (m *metrics) refused(err error) {
	m.requests.WithLabelValues("", "", asError(err).Code.String()).Inc()
}

func (m *metrics) executed(v *version, rows int, took time.Duration) {
	m.compute.WithLabelValues(v.name, v.id).Observe(took.Seconds())
	m.batch.WithLabelValues(v.name, v.id).Observe(float64(rows))
}
