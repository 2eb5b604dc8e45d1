package ctorch

import "fmt"

// The levels of function transforms are an OS thread's, as modes are.

// mostLevels is how deep transforms may nest. libtorch goes through the levels of a thread by recursion, and where
// they are too many for the thread's stack the process ends.
const mostLevels = 512

// EnterLevel locks the goroutine to its thread and enters a level. leave undoes both, with the levels
// above that were not left; it is to be deferred.
func EnterLevel(kind int32, batchSize int64, randomness int32) (level int64, leave func() Message, m Message) {
	thread, m := LockThread()
	if m != nil {
		return 0, nil, m
	}
	if m := EnterTransform(kind, batchSize, randomness, &level); m != nil {
		UnlockThread(thread)
		return 0, nil, m
	}
	leave = func() Message {
		m := LeaveTransform(level)
		UnlockThread(thread)
		return m
	}
	if level > mostLevels {
		if m := leave(); m != nil {
			return 0, nil, m
		}
		return 0, nil, NewMessage("RuntimeError", fmt.Sprintf("there are %d transforms within one another already, and there may be no more", mostLevels))
	}
	return level, leave, nil
}

// Transformed calls a function that makes a tensor of another one, and may warn.
func Transformed(w Word, call func(t Tensor, result *Tensor) Message) (made Word, m Message, warnings Warnings) {
	h, m := HoldWord(w, "self")
	if m != nil {
		return nil, m, Warnings{}
	}
	defer FreeTensor(h)
	var result Tensor
	warnings = GatherWarnings()
	m = call(h, &result)
	return Wrap(result), m, warnings.Gathered()
}
