package middleware

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"gotorch.dev/gotorch/serve/internal/connlimit"
)

// LimitConnections lets a server have at most so many connections. It sets the server's ConnContext and ConnState, calls
// those that were there, and goes around its Handler. When one more connection comes, the one is closed that has made no
// progress for the longest time, among those that are idle, have not sent a whole request yet, or sent it slowly; where all
// have requests that are served, the new one is closed. So clients that open many connections and send nothing, or little,
// keep nobody out. It panics if most is not positive.
func LimitConnections(web *http.Server, most int) {
	if most < 1 {
		panic(fmt.Sprintf("middleware.LimitConnections: the most is %d, and must be positive", most))
	}
	c := &connections{table: connlimit.New(most), all: map[net.Conn]*connlimit.Conn{}}
	outer, state, next := web.ConnContext, web.ConnState, web.Handler
	if next == nil {
		next = http.DefaultServeMux
	}
	web.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if outer != nil {
			ctx = outer(ctx, conn)
		}
		return c.open(ctx, conn)
	}
	web.ConnState = func(conn net.Conn, to http.ConnState) {
		if state != nil {
			state(conn, to)
		}
		c.change(conn, to)
	}
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
}

type connections struct {
	table *connlimit.Table
	mutex sync.Mutex
	all   map[net.Conn]*connlimit.Conn
}

type connKey struct{ *connections }

func (c *connections) open(ctx context.Context, conn net.Conn) context.Context {
	in := c.table.Add(func() { conn.Close() })
	if in == nil {
		conn.Close()
		return ctx
	}
	c.mutex.Lock()
	c.all[conn] = in
	c.mutex.Unlock()
	return context.WithValue(ctx, connKey{c}, in)
}

func (c *connections) change(conn net.Conn, to http.ConnState) {
	c.mutex.Lock()
	in := c.all[conn]
	if to == http.StateClosed || to == http.StateHijacked {
		delete(c.all, conn)
	}
	c.mutex.Unlock()
	switch to {
	case http.StateActive, http.StateIdle:
		in.Progress()
	case http.StateClosed, http.StateHijacked:
		in.Remove()
	}
}

func (c *connections) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	in, _ := r.Context().Value(connKey{c}).(*connlimit.Conn)
	if in == nil {
		next.ServeHTTP(w, r)
		return
	}
	if r.Body == nil || r.Body == http.NoBody {
		in.Begin()
		defer in.End()
	} else {
		b := &receivedBody{ReadCloser: r.Body, in: in}
		defer b.end()
		r.Body = b
	}
	next.ServeHTTP(w, r)
}

// receivedBody is a body that a client is sending.
type receivedBody struct {
	io.ReadCloser
	in    *connlimit.Conn
	whole bool // all of it has come
}

func (b *receivedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.whole:
	case err == io.EOF:
		b.whole = true
		b.in.Begin()
	default:
		b.in.Received(n)
	}
	return n, err
}

func (b *receivedBody) end() {
	if b.whole {
		b.in.End()
	}
}
