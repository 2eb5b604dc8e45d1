package door

// ScriptSource is a JITSource of cgotorch's jit.h. Data counts where it is not nil, and FD elsewhere.
type ScriptSource[Device any] struct {
	Path            string
	FD              uintptr
	Data            []byte
	MapLocation     Device // the zero one: where tensors were
	IgnoreChecksums bool
}

// NamedTuple is a tuple with names, among the values of scripts. Name is that of its type, and may be "" for an argument.
type NamedTuple struct {
	Name   string
	Fields []string
	Values []any
}

// Enum is a member of an enum. Type and Value may be left out of an argument.
type Enum struct {
	Type, Name string
	Value      any
}

// The kinds of JITTensors.
const (
	ScriptParameters = 1
	ScriptBuffers    = 2
)

// Scripts are the functions of jit.h. Object is *gotorch.Object. What returns no error panics with *gotorch.Error; op is where
// errors say that they come from. Values are those of gotorch.Operator's Call, and NamedTuple and Enum.
type Scripts[Object, Device any] struct {
	Load        func(op string, source ScriptSource[Device]) (module Object, extra map[string]string, err error)
	Save        func(op string, module Object, fd uintptr, extra map[string]string) error
	SetProfiles func(on bool) (was bool)

	IsModule func(o Object) bool
	Describe func(op string, o Object) any
	GetAttr  func(op string, o Object, name string) any
	SetAttr  func(op string, o Object, name string, value any)
	Call     func(op string, o Object, method string, args []any) any
	Tensors  func(op string, module Object, kinds int, once bool) any
	Modules  func(op string, module Object, all bool) any
	Train    func(op string, module Object, on bool)
	Close    func(o Object)
}

// CallScripts is a Scripts[*gotorch.Object, gotorch.Device].
var CallScripts any
