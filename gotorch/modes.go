package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Modes are the state of an OS thread. The functions here lock the goroutine to its thread, change
// the mode, run a function, and restore the mode, also when that panics. So a mode holds for what
// the function itself does, and for nothing else: a goroutine that it starts runs on another thread
// and sees that thread's own mode, which is the default unless it enters one too. How many goroutines
// may be inside at a time is said in locked.go.

// NoGrad runs fn while autograd records nothing: results do not require grad, and memory is not kept
// for a backward pass.
//
// Goroutines that fn starts are not in the mode; they can call NoGrad themselves. fn should not wait for
// long: what is said at [Scope] holds for all modes.
func NoGrad(fn func()) { SetGradEnabled(false, fn) }

// NoGrad1 is [NoGrad] for a function with a result.
func NoGrad1[R any](fn func() R) (result R) {
	NoGrad(func() { result = fn() })
	return result
}

// EnableGrad runs fn while autograd records, inside a [NoGrad] for instance. [InferenceMode] cannot
// be undone by it.
func EnableGrad(fn func()) { SetGradEnabled(true, fn) }

// SetGradEnabled is [EnableGrad] or [NoGrad].
func SetGradEnabled(enabled bool, fn func()) {
	thread := lockThread()
	previous := ctorch.SetGradMode(enabled)
	defer func() {
		ctorch.SetGradMode(previous)
		unlockThread(thread)
	}()
	fn()
}

// GradEnabled reports whether autograd records what the calling goroutine does.
func GradEnabled() bool { return ctorch.GradModeEnabled() }

// InferenceMode runs fn in a stricter and faster form of [NoGrad]: tensors made inside can never
// take part in a graph, nor be changed in place outside.
//
// Goroutines that fn starts are not in the mode.
func InferenceMode(fn func()) { SetInferenceMode(true, fn) }

// InferenceMode1 is [InferenceMode] for a function with a result.
func InferenceMode1[R any](fn func() R) (result R) {
	InferenceMode(func() { result = fn() })
	return result
}

// SetInferenceMode is [InferenceMode], or undoes it for the time of fn.
func SetInferenceMode(enabled bool, fn func()) {
	thread := lockThread()
	var state ctorch.InferenceMode
	if err := ctorch.EnterInferenceMode(enabled, &state); err != nil {
		unlockThread(thread)
		panicC("InferenceMode", unsafe.Pointer(err))
	}
	defer func() {
		ctorch.LeaveInferenceMode(state)
		unlockThread(thread)
	}()
	fn()
}

// InferenceModeEnabled reports whether the calling goroutine is in [InferenceMode].
func InferenceModeEnabled() bool { return ctorch.InferenceModeEnabled() }

// AutocastOptions are the arguments of [Autocast] that have defaults.
type AutocastOptions struct {
	Disabled bool // compute in full precision inside of another Autocast
	NoCache  bool // cast parameters anew for each use
}

// Autocast runs fn while ops on one type of device choose their precision: those that are safe and
// fast in dtype, matrix products for instance, cast their arguments to it; others compute in
// float32. The zero DType is the device's own choice: BFloat16 on the CPU, Float16 on CUDA.
//
// It panics with a ValueError if dtype is neither Float16 nor BFloat16, and with a RuntimeError if
// the device is missing or has no autocast. Goroutines that fn starts are not in the mode. Backward
// passes belong outside: they run in the precision of the forward pass.
func Autocast(device Device, dtype DType, fn func(), opts ...AutocastOptions) {
	opt := option(opts)
	if device == 0 {
		panic(newError("Autocast", TypeError, "argument 'device' is the zero Device, where a device is required"))
	}
	mode := ctorch.Autocast{
		DeviceType: int32(device.Type()),
		Dtype:      int32(dtype) - 1,
		Enabled:    !opt.Disabled,
		Cache:      !opt.NoCache,
	}
	var previous ctorch.Autocast
	thread := lockThread()
	if err := ctorch.EnterAutocast(&mode, &previous); err != nil {
		unlockThread(thread)
		panicC("Autocast", unsafe.Pointer(err))
	}
	defer func() {
		err := ctorch.LeaveAutocast(&previous)
		unlockThread(thread)
		MustNil(unsafe.Pointer(err))
	}()
	fn()
}

// AutocastEnabled reports whether the calling goroutine is in an [Autocast] for the device's type. It
// panics with a RuntimeError if the device is missing or has no autocast.
func AutocastEnabled(device Device) bool { return autocast("AutocastEnabled", device).Enabled }

// AutocastDType returns the dtype that [Autocast] uses, or would use, on the device's type.
func AutocastDType(device Device) DType { return DType(autocast("AutocastDType", device).Dtype + 1) }

func autocast(op string, device Device) (mode ctorch.Autocast) {
	if err := ctorch.GetAutocast(int32(device.Type()), &mode); err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	return mode
}

// lockThread is runtime.LockOSThread for modes and scopes, and unlockThread undoes it.
func lockThread() *ctorch.Thread {
	thread, err := ctorch.LockThread()
	if err != nil {
		panicC("", unsafe.Pointer(err))
	}
	return thread
}

func unlockThread(thread *ctorch.Thread) { ctorch.UnlockThread(thread) }

// Settings of the process --------------------------------------------------------------------------------

// Setting is a switch that holds for the whole process.
type Setting int32

const (
	CuDNN                      Setting = ctorch.SettingCuDNN                  // use cuDNN
	CuDNNBenchmark             Setting = ctorch.SettingCuDNNBenchmark         // try its algorithms and take the fastest
	CuDNNDeterministic         Setting = ctorch.SettingCuDNNDeterministic     // only its deterministic algorithms
	CuDNNAllowTF32             Setting = ctorch.SettingCuDNNAllowTF32         // TensorFloat32 in convolutions
	CUDAAllowTF32              Setting = ctorch.SettingCUDAAllowTF32          // TensorFloat32 in matrix products
	CUDAAllowFP16Reduction     Setting = ctorch.SettingCUDAAllowFP16Reduction // sum float16 products in float16
	CUDAAllowBF16Reduction     Setting = ctorch.SettingCUDAAllowBF16Reduction // sum bfloat16 products in bfloat16
	OneDNN                     Setting = ctorch.SettingMKLDNN                 // use oneDNN
	OneDNNDeterministic        Setting = ctorch.SettingMKLDNNDeterministic    // only its deterministic algorithms
	NNPACK                     Setting = ctorch.SettingNNPACK                 // use NNPACK
	FlashSDP                   Setting = ctorch.SettingFlashSDP               // of ScaledDotProductAttention
	MemEfficientSDP            Setting = ctorch.SettingMemEfficientSDP        // of ScaledDotProductAttention
	MathSDP                    Setting = ctorch.SettingMathSDP                // of ScaledDotProductAttention
	CuDNNSDP                   Setting = ctorch.SettingCuDNNSDP               // of ScaledDotProductAttention
	CheckSparseInvariants      Setting = ctorch.SettingSparseInvariants       // check what sparse tensors are made of
	FillUninitializedMemory    Setting = ctorch.SettingDeterministicFill      // under UseDeterministicAlgorithms
	WarnAlways                 Setting = ctorch.SettingWarnAlways             // repeat warnings that PyTorch gives once
	settingDeterministic       Setting = ctorch.SettingDeterministicAlgorithms
	settingMatmulPrecision     Setting = ctorch.SettingMatmulPrecision
	settingCuDNNBenchmarkLimit Setting = ctorch.SettingCuDNNBenchmarkLimit
)

// Enabled reports whether the setting is on.
func (s Setting) Enabled() bool { return s.get() != 0 }

// Set turns the setting on or off.
func (s Setting) Set(on bool) { s.set(boolInt(on)) }

func (s Setting) get() int64 {
	var v int64
	if err := ctorch.GetSetting(int32(s), &v); err != nil {
		panicC("Setting", unsafe.Pointer(err))
	}
	return int64(v)
}

func (s Setting) set(v int64) {
	if err := ctorch.SetSetting(int32(s), int64(v)); err != nil {
		panicC("Setting", unsafe.Pointer(err))
	}
}

// Determinism says what an op does that has no deterministic algorithm.
type Determinism int64

const (
	NonDeterministic     Determinism = iota // whatever is fastest, for all ops
	WarnNonDeterministic                    // warn where there is no deterministic algorithm
	Deterministic                           // panic with a RuntimeError where there is none
)

// UseDeterministicAlgorithms makes ops use algorithms that give the same result on every run.
func UseDeterministicAlgorithms(d Determinism) { settingDeterministic.set(int64(d)) }

// DeterministicAlgorithms returns what [UseDeterministicAlgorithms] has set.
func DeterministicAlgorithms() Determinism { return Determinism(settingDeterministic.get()) }

// MatmulPrecision is the precision inside of float32 matrix products.
type MatmulPrecision int64

const (
	HighestPrecision MatmulPrecision = iota // float32
	HighPrecision                           // TensorFloat32, or sums of two bfloat16
	MediumPrecision                         // bfloat16
)

// SetFloat32MatmulPrecision sets the precision inside of float32 matrix products where the device
// has a choice.
func SetFloat32MatmulPrecision(p MatmulPrecision) { settingMatmulPrecision.set(int64(p)) }

// Float32MatmulPrecision returns what [SetFloat32MatmulPrecision] has set.
func Float32MatmulPrecision() MatmulPrecision { return MatmulPrecision(settingMatmulPrecision.get()) }

// SetCuDNNBenchmarkLimit sets how many algorithms [CuDNNBenchmark] tries; 0 is all.
func SetCuDNNBenchmarkLimit(n int) { settingCuDNNBenchmarkLimit.set(int64(n)) }

// CuDNNBenchmarkLimit returns what [SetCuDNNBenchmarkLimit] has set.
func CuDNNBenchmarkLimit() int { return int(settingCuDNNBenchmarkLimit.get()) }
