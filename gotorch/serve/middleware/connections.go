package middleware

import (
	"container/list"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// LimitConnections returns a function for http.Server.ConnState that lets at most so many connections be. When one more
// comes, the one is closed that has waited longest without a request; where all have one, it is the new one. So who
// opens many connections and says nothing keeps nobody out. It panics if most is not positive.
//
// Connections in the middle of a request are those of http.Server's ReadHeaderTimeout and ReadTimeout.
func LimitConnections(most int) func(net.Conn, http.ConnState) {
	if most < 1 {
		panic(fmt.Sprintf("middleware.LimitConnections: the most is %d, and must be positive", most))
	}
	c := &connections{most: most, all: map[net.Conn]*list.Element{}, waiting: list.New()}
	return c.change
}

type connections struct {
	most int

	mutex   sync.Mutex
	all     map[net.Conn]*list.Element // its place in waiting, or nil
	waiting *list.List                 // of net.Conn, the longest first
}

func (c *connections) change(conn net.Conn, state http.ConnState) {
	c.mutex.Lock()
	var victim net.Conn
	switch state {
	case http.StateNew:
		if len(c.all) >= c.most {
			victim = conn
			if first := c.waiting.Front(); first != nil {
				victim = first.Value.(net.Conn)
				c.waiting.Remove(first)
				delete(c.all, victim)
			}
		}
		if victim != conn {
			c.all[conn] = c.waiting.PushBack(conn)
		}
	case http.StateIdle, http.StateActive:
		at, ours := c.all[conn]
		if !ours {
			break
		}
		if at != nil {
			c.waiting.Remove(at)
			c.all[conn] = nil
		}
		if state == http.StateIdle {
			c.all[conn] = c.waiting.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		if at := c.all[conn]; at != nil {
			c.waiting.Remove(at)
		}
		delete(c.all, conn)
	}
	c.mutex.Unlock()
	if victim != nil {
		victim.Close()
	}
}
