package gotorch

import "gotorch.dev/gotorch/internal/ctorch"

// Memory is what [MemoryStats] returns.
type Memory struct {
	LiveHandles    int64 // tensors that this process holds and has not freed
	MadeHandles    int64 // tensors since the start
	NativeBytes    int64 // memory of CPU tensors, each storage once, also of those that only autograd holds
	AllocatedBytes int64 // the same since the start
	CachedBytes    int64 // freed, but kept to be handed out again: see ReleaseCachedMemory
	Origins        []Origin
}

// Origin is a place in the program where tensors were made that still live.
type Origin struct {
	Site    string // "main.go:12 main.main"
	Tensors int
	Bytes   int64 // of their storages; views count in full
}

// MemoryStats returns how much memory tensors take. Where they were made it only knows of those made
// while [RecordOrigins] was on.
func MemoryStats() Memory {
	ctorch.FreeUnused()
	var made, freed int64
	ctorch.Handles(&made, &freed)
	a := ctorch.Allocated()
	return Memory{
		LiveHandles:    made - freed,
		MadeHandles:    made,
		NativeBytes:    a.LiveBytes,
		AllocatedBytes: a.AllocatedBytes,
		CachedBytes:    a.CachedBytes,
		Origins:        origins(),
	}
}

func origins() (list []Origin) {
	for _, o := range ctorch.Origins() {
		list = append(list, Origin(o))
	}
	return list
}

// ReleaseCachedMemory gives memory that no tensor uses back to the operating system.
func ReleaseCachedMemory() {
	ctorch.DrainAll()
	ctorch.FreeUnused()
	ctorch.ReleaseCached()
}

// RecordOrigins makes [MemoryStats] tell where tensors are made, from now on. It slows down every
// op, so it is for finding leaks.
func RecordOrigins(on bool) {
	ctorch.RecordOrigins(on)
}
