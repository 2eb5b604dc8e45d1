package gotorch

// Layout is how a tensor's elements lie in memory. The zero Layout means "not given".
type Layout int8

// PyTorch's layouts.
const (
	Strided Layout = 1 + iota
	SparseCOO
	SparseCSR
	MKLDNN
	SparseCSC
	SparseBSR
	SparseBSC
	Jagged
)

// String returns PyTorch's name, "torch.strided".
func (l Layout) String() string {
	names := [...]string{"none", "strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc",
		"sparse_bsr", "sparse_bsc", "jagged"}
	if l <= 0 || int(l) >= len(names) {
		return names[0]
	}
	return "torch." + names[l]
}

// MemoryFormat is the order of a dense tensor's dimensions in memory. The zero MemoryFormat means
// "not given".
type MemoryFormat int8

// PyTorch's memory formats.
const (
	ContiguousFormat MemoryFormat = 1 + iota
	PreserveFormat
	ChannelsLast
	ChannelsLast3d
)

// String returns PyTorch's name, "torch.channels_last".
func (f MemoryFormat) String() string {
	names := [...]string{"none", "contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
	if f <= 0 || int(f) >= len(names) {
		return names[0]
	}
	return "torch." + names[f]
}

func (f MemoryFormat) required(op opID, arg string) int64 { return requiredEnum(f, op, arg) }
