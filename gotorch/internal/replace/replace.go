// Package replace writes files that are complete or not there, whatever ends the process.
//
// A file is written as a part file beside its place, synced, and moved there. Its saver keeps the part
// file locked, and the system takes the lock away with the process. So the next saver in the folder
// knows which part files nobody will complete, and removes them.
//
// The names of part files are random: the number of a process says little, for in a container it is 1
// after every restart. They also say on which machine they were made, since when it was started. The
// locks of another machine may not be seen on this one, so its part files are removed only once they
// have not changed for a day.
//
// C and Python (cgotorch/io.cc and pytorch_bridge/native/atomic_files.py) do the same under the same names, so
// each removes what the others leave.
package replace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// File makes what fill writes the content of the file at path: once that is complete, and not before.
// A link is kept, and the file that it leads to replaced. A device or a pipe is written to as it is.
func File(path string, fill func(io.Writer) error) error {
	if path == "" {
		return &fs.PathError{Op: "create", Path: path, Err: errors.New("the path is empty")}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	old, err := os.Stat(path)
	exists := err == nil
	if exists && old.IsDir() {
		return &fs.PathError{Op: "create", Path: path, Err: errors.New("is a directory")}
	}
	if exists && !old.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(fill(f), f.Close())
	}
	folder := filepath.Dir(path)
	removeDead(folder)
	f, lock, err := create(folder)
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: underlying(err)}
	}
	complete := false
	defer func() {
		if !complete { // also after a panic in fill
			f.Close()
			os.Remove(f.Name())
		}
		lock.Close()
	}()
	if exists {
		// Only who may read and write it: what was written here does not run as another.
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil { // some file systems report a full disk only here
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	complete = true
	// So that the new name survives a crash; not every file system can.
	if dir, err := os.Open(folder); err == nil {
		dir.Sync()
		dir.Close()
	}
	return nil
}

func underlying(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// machine tells machines apart, and the times between two starts of one.
var machine = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if len(id) < 8 || !hexadecimal.Match(id[:8]) {
		return "00000000"
	}
	return string(id[:8])
})

var (
	hexadecimal = regexp.MustCompile(`^[0-9a-f]{8}$`)
	partName    = regexp.MustCompile(`^gotorch-([0-9a-f]{8})-[0-9a-f]{16}\.part$`)
)

// create makes a part file. lock is a second descriptor of it: the lock is held until both are closed.
func create(folder string) (f, lock *os.File, err error) {
	for range 100 {
		var random [8]byte
		rand.Read(random[:])
		name := filepath.Join(folder, "gotorch-"+machine()+"-"+hex.EncodeToString(random[:])+".part")
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if locked(f) {
			if lock, err = duplicate(f); err == nil {
				return f, lock, nil
			}
		}
		f.Close()
		os.Remove(name)
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, syscall.EBUSY
}

// locked locks a part file that was just made. It returns false where another has taken it for dead in
// between, and removes it.
func locked(f *os.File) bool {
	switch err := Lock(f); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false
	case err != nil: // a file system without locks, where nobody can take it for dead
		return true
	}
	here, err1 := f.Stat()
	named, err2 := os.Lstat(f.Name())
	return err1 == nil && err2 == nil && os.SameFile(here, named)
}

// Lock locks a file or folder that is open, until it is closed. The error is syscall.EWOULDBLOCK where another has locked it, and
// another one where the file system has no locks.
func Lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			return err
		}
	}
}

func duplicate(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, &fs.PathError{Op: "dup", Path: f.Name(), Err: err}
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// A part file of another machine that has not changed for so long is dead.
const deadAfter = 24 * time.Hour

// removeDead removes the part files in a folder whose savers have died. What cannot be read, locked or
// removed stays.
func removeDead(folder string) {
	dir, err := os.Open(folder)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if m := partName.FindStringSubmatch(name); m != nil {
			removeIfDead(filepath.Join(folder, name), m[1] == machine())
		}
	}
}

func removeIfDead(path string, ours bool) {
	// Not through a link, and without waiting for what is no file.
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || !ours && time.Since(info.ModTime()) < deadAfter {
		return
	}
	// If it is complete by now, or removed, its name is gone, and no other file will have it.
	if Lock(f) == nil {
		os.Remove(path)
	}
}
