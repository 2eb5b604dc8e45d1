package ctorch

/*
#define _GNU_SOURCE
#include <cgotorch.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#cgo noescape gotorch_call_block
#cgo nocallback gotorch_call_block

static int gotorch_memfd(void) { return memfd_create("gotorch-model", MFD_CLOEXEC); }

// What libcgotorch exports must be found by libraries that are linked to nothing. In a program it is; where Go is
// itself in a library that was loaded for itself alone, as in Python, libcgotorch is not.
static void gotorch_show_symbols(void) {
  Dl_info self;
  if (dladdr((void *)FreeString, &self) && self.dli_fname)
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

// gotorch_dlopen returns NULL and a message, which is the caller's to free.
static void *gotorch_dlopen(const char *path, char **message) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *message = NULL;
  if (handle == NULL) {
    const char *said = dlerror();
    *message = strdup(said ? said : "dlopen failed");
  }
  return handle;
}

static void gotorch_call_block(uintptr_t function, void *block) { ((void (*)(void *))function)(block); }
*/
import "C"

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Libraries of models that are loaded while the program runs, for package graph.

// CallBlock calls a function of a [Library] on a block.
func CallBlock(function uintptr, block unsafe.Pointer) {
	C.gotorch_call_block(C.uintptr_t(function), block)
}

// Library is a shared library that was loaded while the program runs.
type Library struct{ handle unsafe.Pointer }

// NotLoaded says why a library cannot be loaded.
type NotLoaded string

func (e NotLoaded) Error() string { return string(e) }

var showSymbols sync.Once

// libraries counts those that were opened.
var libraries atomic.Uint64

// OpenLibrary loads a shared library from memory. What is loaded are these bytes, whatever becomes of the file that
// they were read from; none of the library's symbols is seen by others. The error is one of the operating system, or [NotLoaded].
func OpenLibrary(code []byte) (*Library, error) {
	showSymbols.Do(func() { C.gotorch_show_symbols() })
	f, err := libraryFile()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Write(code); err != nil {
		return nil, err
	}
	path := C.CString(loadPath(int(f.Fd()), libraries.Add(1)))
	defer C.free(unsafe.Pointer(path))
	var message *C.char
	handle := C.gotorch_dlopen(path, &message)
	if handle == nil {
		defer C.free(unsafe.Pointer(message))
		text := C.GoString(message)
		// It begins with the path, which says nothing to anybody.
		if _, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(text, "/proc/") {
			text = rest
		}
		return nil, NotLoaded(text)
	}
	return &Library{handle}, nil
}

// loadPath is a path of a file descriptor. The loader knows libraries by the paths that they were loaded by, and a
// number of a descriptor comes again: n, which does not, is written into the path in dots.
func loadPath(fd int, n uint64) string {
	var b strings.Builder
	b.WriteString("/proc/self/fd")
	for ; n > 0; n >>= 1 {
		b.WriteByte('/')
		if n&1 != 0 {
			b.WriteByte('.')
		}
	}
	b.WriteByte('/')
	b.WriteString(strconv.Itoa(fd))
	return b.String()
}

// libraryFile returns a file without a name: in memory, or where the system lets no such file be run, among the
// temporary ones.
func libraryFile() (*os.File, error) {
	if fd := C.gotorch_memfd(); fd >= 0 {
		return os.NewFile(uintptr(fd), "gotorch-model"), nil
	}
	f, err := os.CreateTemp("", "gotorch-model-*.so")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return f, nil
}

// Symbol returns the address of a symbol, and 0 where there is none.
func (l *Library) Symbol(name string) uintptr {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return uintptr(C.dlsym(l.handle, c))
}

// Text returns the text that a symbol is the beginning of, of at most so many bytes; "" where there is none.
func (l *Library) Text(name string, most int) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	at := C.dlsym(l.handle, c)
	if at == nil {
		return ""
	}
	return C.GoStringN((*C.char)(at), C.int(C.strnlen((*C.char)(at), C.size_t(most))))
}

// Close unloads it, and reports whether that was possible. Nobody may be in it, or call it any more.
func (l *Library) Close() bool { return C.dlclose(l.handle) == 0 }
