package middleware

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"gotorch.dev/gotorch/internal/regular"
)

// largestFile bounds what is read of a file: certificates and tokens are small.
const largestFile = 4 << 20

func read(path string) ([]byte, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > largestFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has %d bytes, and %d are the most", size, largestFile)}
	}
	data, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err == nil && len(data) > largestFile {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d bytes", largestFile)}
	}
	return data, err
}

// identity tells a file from one that has taken its place.
type identity struct {
	device, inode uint64
	size          int64
	changed       time.Time
}

func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	id := identity{size: info.Size(), changed: info.ModTime()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode = uint64(s.Dev), s.Ino
	}
	return id, nil
}

// between is how long a file is not looked at again.
const between = time.Second

// watched is what was read from files, and is read again when one of them has changed.
type watched[T any] struct {
	paths  []string
	load   func() (T, error)
	failed func(error) // a new file is wrong: what was there stays

	mutex  sync.Mutex
	now    func() time.Time
	value  T
	seen   []identity
	looked time.Time
}

// watch reads the files a first time.
func watch[T any](paths []string, load func() (T, error), failed func(error)) (*watched[T], error) {
	w := &watched[T]{paths: paths, load: load, failed: failed, now: time.Now}
	seen, err := w.identities()
	var unread error
	if w.value, unread = load(); unread != nil {
		return nil, unread // it says more of which file it is
	}
	if err != nil {
		return nil, err
	}
	w.seen, w.looked = seen, w.now()
	return w, nil
}

func (w *watched[T]) identities() ([]identity, error) {
	ids := make([]identity, len(w.paths))
	for i, path := range w.paths {
		var err error
		if ids[i], err = identify(path); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// get returns the newest value that is right.
func (w *watched[T]) get() T {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if now := w.now(); now.Sub(w.looked) >= between {
		w.looked = now
		w.look()
	}
	return w.value
}

func (w *watched[T]) look() {
	seen, err := w.identities()
	if err != nil {
		if w.seen != nil { // said once
			w.failed(err)
		}
		w.seen = nil
		return
	}
	same := len(seen) == len(w.seen)
	for i := range w.seen {
		same = same && seen[i] == w.seen[i]
	}
	if same {
		return
	}
	w.seen = seen
	value, err := w.load()
	if err != nil {
		w.failed(err)
		return
	}
	w.value = value
}
