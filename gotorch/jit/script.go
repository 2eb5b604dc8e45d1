package jit

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// The functions of jit.h. What returns no error panics with *gotorch.Error; op is where errors say that they come from. Values are
// those of gotorch.Operator's Call, and ctorch's NamedTuple and Enum.

// source is a JITSource. Data counts where it is not nil, and FD elsewhere.
type source struct {
	Path            string
	FD              uintptr
	Data            []byte
	MapLocation     gotorch.Device // the zero one: where tensors were
	IgnoreChecksums bool
}

func handle(o *gotorch.Object) ctorch.Object { return ctorch.Object(o.Handle()) }

// Scripts are not profiled unless a program asks for it. Where Go lives in Python, it is Python who decides.
var profiles sync.Once

func setProfiles(on bool) (was bool) {
	profiles.Do(dontProfile)
	native.Must("jit.SetProfilingMode", ctorch.JITSetProfilingMode(on, &was))
	return was
}

func dontProfile() {
	if !ctorch.InPython() {
		native.Must("jit.SetProfilingMode", ctorch.JITSetProfilingMode(false, nil))
	}
}

func loadModule(op string, from source) (o *gotorch.Object, extra map[string]string, err error) {
	err = gotorch.Try0(func() { o, extra = mustLoad(op, from) })
	return o, extra, err
}

func mustLoad(op string, from source) (o *gotorch.Object, extra map[string]string) {
	profiles.Do(dontProfile)
	path := ctorch.CString(strings.ReplaceAll(from.Path, "\x00", ""))
	defer ctorch.CFree(unsafe.Pointer(path))
	s := ctorch.JITSource{Path: path, Fd: int64(from.FD), IgnoreChecksums: from.IgnoreChecksums}
	if from.Data != nil {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		data := from.Data
		if len(data) == 0 {
			data = []byte{0} // what is empty has no address
		}
		pinner.Pin(unsafe.SliceData(data))
		s.Data, s.Size = unsafe.Pointer(unsafe.SliceData(data)), int64(len(from.Data))
	}
	if d := from.MapLocation; d != 0 {
		s.MapLocation = ctorch.CArray([]ctorch.Device{{Type: int32(d.Type()), Index: int32(d.Index())}})
		defer ctorch.CFree(unsafe.Pointer(s.MapLocation))
	}
	var h ctorch.Object
	// A class of the script may have code that runs when it is read.
	files := gotorch.CallC(op, func(_ gotorch.CValues, results *unsafe.Pointer, n *int64) unsafe.Pointer {
		return unsafe.Pointer(ctorch.JITLoad(&s, &h, (**ctorch.Value)(unsafe.Pointer(results)), n))
	})
	o = gotorch.ObjectFromHandle(unsafe.Pointer(h), true)
	extra = map[string]string{}
	for name, content := range files[0].(gotorch.Dict).All() {
		extra[name.(string)] = content.(string)
	}
	return o, extra
}

func saveModule(op string, o *gotorch.Object, fd uintptr, extra map[string]string) error {
	return gotorch.Try0(func() {
		gotorch.CallC(op, func(in gotorch.CValues, _ *unsafe.Pointer, _ *int64) unsafe.Pointer {
			return unsafe.Pointer(ctorch.JITSave(handle(o), int64(fd), (*ctorch.Value)(in.Values), in.Len))
		}, extra)
		runtime.KeepAlive(o)
	})
}

// withName calls fn with a name as C takes it. What has a NUL byte in it is the name of nothing.
func withName(op, name string, fn func(name *ctorch.Char) any) any {
	if strings.ContainsRune(name, 0) {
		panic(args.Errorf(op, gotorch.AttributeError, "the name %s contains a NUL byte", strconv.Quote(name)))
	}
	c := ctorch.CString(name)
	defer ctorch.CFree(unsafe.Pointer(c))
	return fn(c)
}

// result calls a function that returns one value. A script may call operators that call Go.
func result(op string, o *gotorch.Object, call func(ctorch.Object, gotorch.CValues, **ctorch.Value, *int64) ctorch.Message, args ...any) any {
	out := gotorch.CallC(op, func(in gotorch.CValues, results *unsafe.Pointer, n *int64) unsafe.Pointer {
		return unsafe.Pointer(call(handle(o), in, (**ctorch.Value)(unsafe.Pointer(results)), n))
	}, args...)
	runtime.KeepAlive(o)
	return out[0]
}

func describe(op string, o *gotorch.Object) any {
	return result(op, o, func(h ctorch.Object, _ gotorch.CValues, r **ctorch.Value, n *int64) ctorch.Message {
		return ctorch.JITDescribe(h, r, n)
	})
}

func getAttr(op string, o *gotorch.Object, name string) any {
	return withName(op, name, func(name *ctorch.Char) any {
		return result(op, o, func(h ctorch.Object, _ gotorch.CValues, r **ctorch.Value, n *int64) ctorch.Message {
			return ctorch.JITGetAttr(h, name, r, n)
		})
	})
}

func setAttr(op string, o *gotorch.Object, name string, value any) {
	withName(op, name, func(name *ctorch.Char) any {
		// A property has code.
		gotorch.CallC(op, func(in gotorch.CValues, _ *unsafe.Pointer, _ *int64) unsafe.Pointer {
			return unsafe.Pointer(ctorch.JITSetAttr(handle(o), name, (*ctorch.Value)(in.Values), in.Len))
		}, value)
		runtime.KeepAlive(o)
		return nil
	})
}

func callMethod(o *gotorch.Object, method string, args []any) any {
	return withName(method, method, func(name *ctorch.Char) any {
		return result(method, o, func(h ctorch.Object, in gotorch.CValues, r **ctorch.Value, n *int64) ctorch.Message {
			return ctorch.JITCall(h, name, (*ctorch.Value)(in.Values), in.Len, (**ctorch.Char)(in.Names), in.Count, r, n)
		}, args...)
	})
}

func tensorsOf(op string, o *gotorch.Object, kinds int, once bool) any {
	return result(op, o, func(h ctorch.Object, _ gotorch.CValues, r **ctorch.Value, n *int64) ctorch.Message {
		return ctorch.JITTensors(h, int64(kinds), once, r, n)
	})
}

func modulesOf(op string, o *gotorch.Object, all bool) any {
	return result(op, o, func(h ctorch.Object, _ gotorch.CValues, r **ctorch.Value, n *int64) ctorch.Message {
		return ctorch.JITModules(h, all, r, n)
	})
}
