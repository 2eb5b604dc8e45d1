package daemon

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// notifier tells systemd how it goes, where the unit has Type=notify: sd_notify(3). Without systemd it does nothing.
type notifier struct {
	conn *net.UnixConn
	stop chan struct{}
	once sync.Once
}

func newNotifier(env func(string) string) (*notifier, error) {
	n := &notifier{stop: make(chan struct{})}
	path := env("NOTIFY_SOCKET")
	if path == "" {
		return n, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("daemon: systemd is not to be reached at NOTIFY_SOCKET: %w", err)
	}
	n.conn = conn
	if µs, err := strconv.ParseUint(env("WATCHDOG_USEC"), 10, 62); err == nil && µs > 0 {
		go n.watchdog(time.Duration(µs) * time.Microsecond / 2)
	}
	return n, nil
}

func (n *notifier) say(text string) {
	if n.conn != nil {
		n.conn.Write([]byte(text)) // if systemd has gone there is nobody to tell
	}
}

func (n *notifier) ready() { n.say("READY=1\nSTATUS=Serving") }

func (n *notifier) stopping() { n.say("STOPPING=1\nSTATUS=Ending") }

// watchdog says regularly that the process is not stuck.
func (n *notifier) watchdog(every time.Duration) {
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.say("WATCHDOG=1")
		case <-n.stop:
			return
		}
	}
}

func (n *notifier) close() {
	n.once.Do(func() { close(n.stop) })
	if n.conn != nil {
		n.conn.Close()
	}
}
