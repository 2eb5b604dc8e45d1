package daemon

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"

	"golang.org/x/sys/unix"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
)

// What the machine and the container have for a server, and what an operator should know of it.

// threadAttrs say how many threads an op uses, and why.
func threadAttrs() []any {
	return []any{"threads", gotorch.NumThreads(), "of", ctorch.WhyThreads()}
}

// warn logs what is dangerous in the configuration, though it is not wrong.
func (s *server) warn(at Addresses) {
	c := s.config
	var open []string
	for _, a := range []net.Addr{at.HTTP, at.GRPC} {
		if tcp, ok := a.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			open = append(open, a.String())
		}
	}
	if len(open) > 0 && c.Auth.Tokens == "" && c.TLS.ClientCA == "" {
		may := "use the models"
		if c.Control {
			may = "use, load and unload the models"
		}
		s.log.Warn("daemon: whoever reaches an address may "+may+": set auth.tokens or tls.client_ca, or serve 127.0.0.1 alone",
			"addresses", strings.Join(open, ", "))
	}
	connections := 0
	for _, a := range []net.Addr{at.HTTP, at.GRPC, at.Metrics} {
		if a != nil {
			connections += c.Limits.Connections
		}
	}
	const others = 64 // files of models, logs and the runtime
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && uint64(connections+others) > files.Cur {
		s.log.Warn("daemon: limits.connections lets more connections in than the process may have open files: raise ulimit -n, or lower it",
			"connections", connections, "files", files.Cur)
	}
}

// limitMemory sets the soft limit of Go's memory to what the container leaves it: nine tenths of the container's limit, less
// what the process has outside of Go, such as weights. Near it Go collects more often, rather than that the kernel ends the
// process. GOMEMLIMIT holds where it is set.
func limitMemory(log *slog.Logger) {
	all := ctorch.MemoryLimit("")
	if all <= 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := goLimit(all, outsideGo())
	debug.SetMemoryLimit(limit)
	log.Info("daemon: the container limits the memory", "container", Bytes(all).String(), "gomemlimit", Bytes(limit).String())
}

// goLimit is Go's limit where the container has so many bytes, of which so many are not Go's. It is a tenth at least: with
// less Go would do nothing but collect.
func goLimit(all, others int64) int64 { return max(all/10, all/10*9-others) }

// outsideGo is how much memory the process has that is not Go's, and cannot be read again from a file.
func outsideGo() int64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer file.Close()
	var kilobytes int64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			fmt.Sscan(rest, &kilobytes)
		}
	}
	gos := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(gos)
	return max(0, kilobytes<<10-int64(gos[0].Value.Uint64()-gos[1].Value.Uint64()))
}
