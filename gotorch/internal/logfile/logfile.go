// Package logfile appends records to files that others read meanwhile: what is in a file are whole records, also after
// a write that failed half way, and after the process was killed.
//
// Records are gathered, and written by one call of the system within a second or so. What cannot be written, because
// the disk is full for instance, is kept and tried again, up to a bound; the file is made as long as it was before.
package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	atOnce     = 64 << 10 // so much is written without waiting
	maxPending = 1 << 20  // more than this is dropped where nothing can be written
)

// DefaultEvery is how long a record waits at most, before it is written.
const DefaultEvery = time.Second

// ErrDropped is what the error of Append is as well, where the record is lost.
var ErrDropped = errors.New("too much could not be written, and this is dropped")

// File is a file that records are appended to. It may be used by several goroutines.
type File struct {
	mu      sync.Mutex
	f       *os.File
	every   time.Duration
	size    int64 // of the whole records in the file
	torn    bool  // there may be more in the file than size
	pending []byte
	waiting int // records in pending
	limit   int // of pending: to be written then
	timer   *time.Timer
	late    error // of a write that the timer has made
}

// Open opens a file to append to, or makes it, and keeps the first size bytes of what is in it; all if size is
// negative. It returns an error if there is less, if another process is writing there, or if it is no regular file.
func Open(path string, size int64, every time.Duration) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, err
	}
	file, err := open(f, size)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "append to", Path: path, Err: err}, f.Close())
	}
	if file.every = every; every <= 0 {
		file.every = DefaultEvery
	}
	return file, nil
}

func open(f *os.File, size int64) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	// The lock goes with the process. Some file systems have none.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.New("somebody else is writing to it")
	}
	if size < 0 {
		size = info.Size()
	}
	if info.Size() < size {
		return nil, fmt.Errorf("it has %d bytes, where %d were written", info.Size(), size)
	}
	if info.Size() > size {
		if err := f.Truncate(size); err != nil {
			return nil, err
		}
	}
	return &File{f: f, size: size, limit: atOnce}, nil
}

// Append adds a record. Its error is that of writing, which may be of records before; the record is kept, and tried again
// later, unless the error is ErrDropped.
func (f *File) Append(record []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return fs.ErrClosed
	}
	if len(f.pending) > 0 && len(f.pending)+len(record) > maxPending {
		if err := f.write(); err != nil {
			return errors.Join(err, ErrDropped)
		}
	}
	f.pending, f.waiting = append(f.pending, record...), f.waiting+1
	if err := f.late; err != nil {
		f.late = nil
		f.wait()
		return err
	}
	if len(f.pending) >= f.limit {
		err := f.write()
		if err != nil {
			f.wait()
		}
		return err
	}
	f.wait()
	return nil
}

// wait has the timer write what is pending.
func (f *File) wait() {
	if f.timer == nil {
		f.timer = time.AfterFunc(f.every, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.timer = nil
			if f.f != nil {
				if f.late = f.write(); f.late != nil {
					f.wait()
				}
			}
		})
	}
}

// write writes what is pending, or leaves the file as it was.
func (f *File) write() error {
	if err := f.mend(); err != nil {
		return err
	}
	if len(f.pending) == 0 {
		return nil
	}
	n, err := f.f.WriteAt(f.pending, f.size)
	if err != nil {
		f.torn = true
		f.limit = len(f.pending) + atOnce
		return errors.Join(err, f.mend())
	}
	f.size, f.waiting = f.size+int64(n), 0
	if f.pending, f.limit = f.pending[:0], atOnce; cap(f.pending) > 4*atOnce {
		f.pending = nil
	}
	return nil
}

// mend takes away what a write that failed has left.
func (f *File) mend() error {
	if !f.torn {
		return nil
	}
	if err := f.f.Truncate(f.size); err != nil {
		return err
	}
	f.torn = false
	return nil
}

// Flush writes what was appended.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	f.late = nil
	return f.write()
}

// Sync writes what was appended, has the system bring it to the disk, and returns how long the file is, also where it
// fails.
func (f *File) Sync() (size int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return f.size, fs.ErrClosed
	}
	f.late = nil
	if err := f.write(); err != nil {
		return f.size, err
	}
	return f.size, f.f.Sync()
}

// Waiting returns how many records are kept that are not in the file.
func (f *File) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// Close writes what was appended, and closes the file, also where it returns an error. A second call does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	err := errors.Join(f.write(), f.f.Close())
	f.f = nil
	return err
}
