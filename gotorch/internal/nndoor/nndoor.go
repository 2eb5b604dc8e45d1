// Package nndoor is how packages train and profiler reach what package nn has for them alone. nn fills these variables
// when the program starts; it cannot be imported here, so modules come as any.
package nndoor

var (
	// KeepState keeps a model's buffers and the random numbers of its devices: restore sets them back, free
	// forgets them. model is an nn.Modular.
	KeepState func(model any) (restore, free func())

	// FirstNonFinite runs fn with a copy of a model, and returns the module that is the first to return what is
	// not finite from inputs that are. Nothing happens to the model, but for random numbers.
	FirstNonFinite func(model any, fn func(copied any)) (name, class string, found bool)

	// NonFiniteParameter returns the name of the first parameter that is not finite.
	NonFiniteParameter func(model any) (name string, found bool)

	// Spans calls enter before each call of Forward of a model's modules, and leave at its end, also where that is a
	// panic. For package profiler.
	Spans func(model any, enter func(name, class string) (leave func())) (remove func())

	// Span is the same for one module, an nn.Modular.
	Span func(module any, enter func() (leave func())) (remove func())

	// SyncBatchNorm has an nn.SyncBatchNormModule go by the batches of several ranks: sum adds a gotorch.Tensor up over them, in
	// place. It is false for other modules. For package distributed.
	SyncBatchNorm func(module any, sum func(tensor any)) (remove func(), is bool)

	// Cloned is called with each module that was copied, and its copy; of returns what a module within has become. For package
	// distributed.
	Cloned = func(original, copied any, of func(module any) any) {}

	// Finite reports whether all numbers of a gotorch.Tensor are neither infinite nor NaN.
	Finite func(tensor any) bool
)
