// Package testhelp is what tests of several packages share, those too that gotorch itself is built on.
package testhelp

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Must ends the test if there is an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Rounds is how often a test tries something at random that it tries n times: a fifth of it with -short, as under the
// race detector, which takes ten times as long and looks for something else than what is tried.
func Rounds(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}

// NoFiles returns paths of what is there and cannot be read by place, by what they are. Who opens some of
// them as if they were files waits for ever, or reads for ever.
func NoFiles(tb testing.TB) map[string]string {
	tb.Helper()
	dir := tb.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	Must(tb, syscall.Mkfifo(at("pipe"), 0o600))
	Must(tb, os.Symlink(at("pipe"), at("link")))
	Must(tb, os.Symlink(at("loop"), at("loop")))
	socket, err := net.Listen("unix", at("socket"))
	Must(tb, err)
	tb.Cleanup(func() { socket.Close() })
	return map[string]string{
		"a pipe":                  at("pipe"),
		"a link to a pipe":        at("link"),
		"a link to itself":        at("loop"),
		"a socket":                at("socket"),
		"a folder":                dir,
		"a device without end":    "/dev/zero",
		"a device without a byte": "/dev/null",
		"a file of the kernel's":  "/proc/self/maps", // which says that it is empty
		"a file below a pipe":     at("pipe") + "/file",
	}
}

// Descriptors returns how many files the process has open.
func Descriptors(tb testing.TB) int {
	tb.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	Must(tb, err)
	return len(open)
}

// NoMoreGoroutines fails if more goroutines are left than there were before. It gives them time to end: one that
// has said its last word is still counted until it is scheduled, and so is the runtime's own that runs cleanups,
// while it does.
func NoMoreGoroutines(tb testing.TB, before int) {
	tb.Helper()
	for deadline := time.Now().Add(100 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			tb.Errorf("%d goroutines are left, where %d were before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
			return
		}
	}
}

// Migrate returns on another OS thread, as Go may do to a goroutine at any time. The goroutine must not be locked to one.
func Migrate() {
	for was := syscall.Gettid(); syscall.Gettid() == was; {
		held, leave := make(chan bool), make(chan bool)
		go func() { // mostly on this thread, as soon as it waits
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			close(held)
			<-leave
		}()
		<-held
		close(leave)
	}
}
