package gotorch

import "gotorch.dev/gotorch/internal/ctorch"

// AnomalyOptions are the arguments of [DetectAnomaly] that have defaults.
type AnomalyOptions struct {
	IgnoreNaN bool // do not stop at a NaN
}

// DetectAnomaly runs fn while backward passes look for mistakes: one that computes a NaN panics with
// a RuntimeError, and each that fails gives a [Warning] which says where in the program the forward
// call was made. It holds for all goroutines and slows everything down; it is for finding a mistake
// that is known to be there. Both the forward and the backward pass belong into fn.
func DetectAnomaly(fn func(), opts ...AnomalyOptions) {
	var enabled, checkNaN bool
	ctorch.GetAnomalyMode(&enabled, &checkNaN)
	defer func() { setAnomaly(enabled, checkNaN) }()
	setAnomaly(true, !option(opts).IgnoreNaN)
	fn()
}

// SetDetectAnomaly turns on or off what [DetectAnomaly] does for the time of a function.
func SetDetectAnomaly(on bool, opts ...AnomalyOptions) {
	setAnomaly(on, !option(opts).IgnoreNaN)
}

// AnomalyDetected reports whether backward passes look for mistakes.
func AnomalyDetected() bool {
	var enabled, checkNaN bool
	ctorch.GetAnomalyMode(&enabled, &checkNaN)
	return enabled
}

func setAnomaly(on, checkNaN bool) {
	ctorch.DetectAnomalies(on, checkNaN)
}
