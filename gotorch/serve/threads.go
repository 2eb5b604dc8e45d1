package serve

import "gotorch.dev/gotorch/internal/ctorch"

// Threads is how many threads an op of the model may use in each of its [Instances]; by default as many as other ops
// of the program, see [gotorch.SetNumThreads]. It is for models that are too small to be worth several, and for what
// must leave processors to others.
//
// It holds for as long as the model runs, in the goroutine that runs it.
type Threads int

func (n Threads) set(o *modelOptions) {
	o.threads = int(n)
	o.threadsGiven = true
}

func (o *modelOptions) checkThreads() error {
	if o.threadsGiven && (o.threads < 1 || o.threads > 1024) {
		return newError(InvalidArgument, "Threads is %d, and must be from 1 to 1024", o.threads)
	}
	return nil
}

// setThreads gives the calling goroutine, which is locked to its thread, the model's number of threads.
func (v *version) setThreads() (restore func()) {
	if v.options.threads == 0 {
		return func() {}
	}
	before := ctorch.OwnThreads(int64(v.options.threads))
	return func() { ctorch.OwnThreads(before) }
}
