// Package regular opens files that are read whole or by place, which only regular ones can be.
package regular

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a file to read, and returns its size. It refuses a device, which may never end, and a pipe,
// without waiting for who writes into it. Whoever reads a file opens it once: its name may lead to
// another file a moment later.
func Open(path string) (f *os.File, size int64, err error) {
	if path == "" {
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: errors.New("the path is empty")}
	}
	f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}
