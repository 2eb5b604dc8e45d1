package gotorch

/*
#include <cgotorch.h>
#include <stdlib.h>
*/
import "C"

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// TorchScript, for package jit.

func init() {
	door.CallScripts = door.Scripts[*Object, Device]{
		Load: loadScript, Save: saveScript, SetProfiles: setScriptProfiles,
		Describe: func(op string, o *Object) any {
			return scriptResult(op, o, func(h C.Object, r **C.Value, n *C.int64_t) *C.char { return C.JITDescribe(h, r, n) })
		},
		GetAttr: func(op string, o *Object, name string) any {
			c := caller{op: op}
			defer c.free()
			cName := c.scriptName(name)
			return scriptResult(op, o, func(h C.Object, r **C.Value, n *C.int64_t) *C.char { return C.JITGetAttr(h, cName, r, n) })
		},
		IsModule: func(o *Object) bool { return o.isModule },
		SetAttr:  setScriptAttr, Call: callScript,
		Tensors: func(op string, o *Object, kinds int, once bool) any {
			return scriptResult(op, o, func(h C.Object, r **C.Value, n *C.int64_t) *C.char {
				return C.JITTensors(h, C.int64_t(kinds), C.bool(once), r, n)
			})
		},
		Modules: func(op string, o *Object, all bool) any {
			return scriptResult(op, o, func(h C.Object, r **C.Value, n *C.int64_t) *C.char {
				return C.JITModules(h, C.bool(all), r, n)
			})
		},
		Train: func(op string, o *Object, on bool) {
			err := C.JITTrain(o.handle(), C.bool(on))
			runtime.KeepAlive(o)
			if err != nil {
				panicC(op, unsafe.Pointer(err))
			}
		},
		Close: func(o *Object) {
			C.JITClose(o.handle())
			runtime.KeepAlive(o)
		},
	}
}

func (o *Object) handle() C.Object { return C.Object(o.c.h) }

// Scripts are not profiled unless a program asks for it. Where Go lives in Python, it is Python who decides.
var scriptProfiles sync.Once

func setScriptProfiles(on bool) (was bool) {
	scriptProfiles.Do(dontProfileScripts)
	var before C.bool
	if err := C.JITSetProfilingMode(C.bool(on), &before); err != nil {
		panicC("jit.SetProfilingMode", unsafe.Pointer(err))
	}
	return bool(before)
}

func dontProfileScripts() {
	if inPython {
		return
	}
	if err := C.JITSetProfilingMode(false, nil); err != nil {
		panicC("jit.SetProfilingMode", unsafe.Pointer(err))
	}
}

func loadScript(op string, source door.ScriptSource[Device]) (o *Object, extra map[string]string, err error) {
	defer catch(&err)
	scriptProfiles.Do(dontProfileScripts)
	c := caller{op: op}
	defer c.free()
	s := C.JITSource{
		path: c.cString(strings.ReplaceAll(source.Path, "\x00", "")), fd: C.int64_t(source.FD),
		ignore_checksums: C.bool(source.IgnoreChecksums),
	}
	if source.Data != nil {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		data := source.Data
		if len(data) == 0 {
			data = []byte{0} // what is empty has no address
		}
		pinner.Pin(unsafe.SliceData(data))
		s.data, s.size = unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(source.Data))
	}
	if source.MapLocation != 0 {
		device := (*C.Device)(C.malloc(C.size_t(unsafe.Sizeof(C.Device{}))))
		c.strings = append(c.strings, unsafe.Pointer(device))
		*device = cDevice(op, source.MapLocation)
		s.map_location = device
	}
	var h C.Object
	var files *C.Value
	var n C.int64_t
	state := enterBack() // a class of the script may have code that runs when it is read
	cErr := C.JITLoad(&s, &h, &files, &n)
	warnings := leaveBack(state)
	defer warnings.handOn(true)
	if cErr != nil {
		return nil, nil, takeError(op, unsafe.Pointer(cErr))
	}
	o = &Object{isModule: true}
	o.c.own(unsafe.Pointer(h), func(h unsafe.Pointer) { C.FreeObject(C.Object(h)) })
	defer C.FreeValues(files, n, false)
	r := resultReader{unsafe.Slice(files, n)}
	extra = map[string]string{}
	for name, content := range r.next().(Dict).All() {
		extra[name.(string)] = content.(string)
	}
	return o, extra, nil
}

func saveScript(op string, o *Object, fd uintptr, extra map[string]string) (err error) {
	defer catch(&err)
	c := caller{op: op}
	defer c.free()
	c.add(extra)
	cErr := C.JITSave(o.handle(), C.int64_t(fd), unsafe.SliceData(c.values), C.int64_t(len(c.values)))
	runtime.KeepAlive(o)
	if cErr != nil {
		return takeError(op, unsafe.Pointer(cErr))
	}
	return nil
}

// scriptName is a name as C takes it. What has a NUL byte in it is the name of nothing.
func (c *caller) scriptName(name string) *C.char {
	if strings.ContainsRune(name, 0) {
		panic(newError(c.op, AttributeError, "the name "+strconv.Quote(name)+" contains a NUL byte"))
	}
	return c.cString(name)
}

// scriptResult calls a function of jit.h that returns one value.
func scriptResult(op string, o *Object, call func(C.Object, **C.Value, *C.int64_t) *C.char) any {
	var results *C.Value
	var n C.int64_t
	state := enterBack() // a script may call operators that call Go
	err := call(o.handle(), &results, &n)
	warnings := leaveBack(state)
	runtime.KeepAlive(o)
	taken := false
	defer func() { C.FreeValues(results, n, C.bool(!taken)) }()
	checkBack(op, unsafe.Pointer(err), warnings)
	taken = true
	r := resultReader{unsafe.Slice(results, n)}
	return r.next()
}

func callScript(op string, o *Object, method string, args []any) any {
	c := caller{op: op}
	defer c.free()
	cMethod := c.scriptName(method)
	names := c.names(args)
	for _, arg := range args {
		if named, ok := arg.(NamedArg); ok {
			arg = named.Value
		}
		c.add(arg)
	}
	result := scriptResult(op, o, func(h C.Object, r **C.Value, n *C.int64_t) *C.char {
		return C.JITCall(h, cMethod, unsafe.SliceData(c.values), C.int64_t(len(c.values)), names, C.int64_t(len(args)), r, n)
	})
	runtime.KeepAlive(args)
	return result
}

func setScriptAttr(op string, o *Object, name string, value any) {
	c := caller{op: op}
	defer c.free()
	cName := c.scriptName(name)
	c.add(value)
	state := enterBack() // a property has code
	err := C.JITSetAttr(o.handle(), cName, unsafe.SliceData(c.values), C.int64_t(len(c.values)))
	warnings := leaveBack(state)
	runtime.KeepAlive(o)
	runtime.KeepAlive(value)
	checkBack(op, unsafe.Pointer(err), warnings)
}
