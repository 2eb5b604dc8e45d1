package distributed

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

// A store of c10d waits for keys no longer than its time limit, but for ever for the answer to what a server answers at once:
// where the network is cut nobody tells it that there will be none. The kernel can have its receives end, which c10d takes for
// an error. c10d keeps its socket to itself, so it is looked for among those of the process: it is the one that is connected to
// the server's port. What else is, such as sockets of Go and of Gloo, does not block, and is not changed by a time limit.

// storeSockets are the sockets of this process that are connected to a port.
func storeSockets(port int) (fds []int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		peer, err := syscall.Getpeername(fd)
		if err != nil {
			continue
		}
		switch p := peer.(type) {
		case *syscall.SockaddrInet4:
			if p.Port == port {
				fds = append(fds, fd)
			}
		case *syscall.SockaddrInet6:
			if p.Port == port {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}

// limitAnswers has a store at a port wait for an answer no longer than d.
func limitAnswers(port int, d time.Duration) {
	limit := syscall.NsecToTimeval(d.Nanoseconds())
	for _, fd := range storeSockets(port) {
		_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit)
		_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit)
	}
}

// breakOff ends connections to a port: an answer that comes after its time would be taken for that of the next question.
func breakOff(port int) {
	for _, fd := range storeSockets(port) {
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
	}
}
