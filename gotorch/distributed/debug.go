package distributed

import (
	"sync"

	"gotorch.dev/gotorch/internal/args"
)

// DebugLevel says how much c10d looks at what it is asked to do.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.DebugLevel
type DebugLevel int

// All ranks of a job, those of Python too, need the same level.
const (
	DebugOff DebugLevel = iota
	// DebugInfo logs what [DataParallel] does.
	DebugInfo
	// DebugDetail has the ranks of a group tell each other what they are about to do before each collective, which takes
	// as long again: ranks that call different ones, or with other shapes or dtypes, all get an error that says how they
	// differ. Without it Gloo ends a process that is sent more than it expects.
	DebugDetail
)

var debugNames = [...]string{"OFF", "INFO", "DETAIL"}

// String returns what the variable TORCH_DISTRIBUTED_DEBUG is for the level.
func (l DebugLevel) String() string {
	if l < 0 || int(l) >= len(debugNames) {
		return "DebugLevel(?)"
	}
	return debugNames[l]
}

// SetDebugLevel sets the level of groups that are made from now on. Before the first call it is that of the variable
// TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.set_debug_level
func SetDebugLevel(level DebugLevel) error {
	if level < 0 || int(level) >= len(debugNames) {
		return args.ValueError("SetDebugLevel", "there is no level %d, but DebugOff, DebugInfo and DebugDetail", int(level))
	}
	said.Do(func() {})
	return c10dSetDebugLevel(int(level))
}

// CurrentDebugLevel returns the level of groups that are made now.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_debug_level
func CurrentDebugLevel() DebugLevel {
	_ = debugFromEnvironment()
	return DebugLevel(c10dDebugLevel())
}

var (
	said      sync.Once // that a level was set
	saidWrong error     // written in it
)

// debugFromEnvironment has c10d read the variable, unless a level was set. The error is a ValueError for another word.
func debugFromEnvironment() error {
	said.Do(func() { saidWrong = c10dSetDebugLevel(-1) })
	return saidWrong
}
