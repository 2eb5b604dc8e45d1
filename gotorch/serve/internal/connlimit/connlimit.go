// Package connlimit bounds how many connections a server has, and chooses which one is closed for a new one.
package connlimit

import (
	"container/list"
	"sync"
)

// Table is the connections of a server.
type Table struct {
	most int

	mutex   sync.Mutex
	count   int
	waiting *list.List // of *Conn: those that serve no request; the front has made no progress for the longest time
}

// Conn is a connection of a table. The zero value and nil are in none, and their methods do nothing.
type Conn struct {
	table   *Table
	close   func()
	at      *list.Element // nil while it serves a request, and when it is out of the table
	serving int           // how many whole requests are served
	fresh   int           // bytes that have come since it was moved to the back
	gone    bool
}

// New returns a table for so many connections.
func New(most int) *Table { return &Table{most: most, waiting: list.New()} }

// Add adds a connection, which close closes. Where the table is full, the connection is closed that serves no request and
// has made no progress for the longest time: it is idle, or its client sends slowly, or not at all. Add returns nil where
// all serve requests.
func (t *Table) Add(close func()) *Conn {
	t.mutex.Lock()
	var victim *Conn
	if t.count >= t.most {
		first := t.waiting.Front()
		if first == nil {
			t.mutex.Unlock()
			return nil
		}
		victim = first.Value.(*Conn)
		victim.remove()
	}
	c := &Conn{table: t, close: close}
	c.at = t.waiting.PushBack(c)
	t.count++
	t.mutex.Unlock()
	if victim != nil {
		victim.close()
	}
	return c
}

// remove is Remove with the mutex held.
func (c *Conn) remove() {
	if c.gone {
		return
	}
	c.gone = true
	c.table.count--
	if c.at != nil {
		c.table.waiting.Remove(c.at)
		c.at = nil
	}
}

// Remove takes a connection that is closed out of the table.
func (c *Conn) Remove() { c.locked(c.remove) }

// Begin says that a whole request has come: the connection stays until End.
func (c *Conn) Begin() {
	c.locked(func() {
		if c.serving++; c.serving == 1 && c.at != nil {
			c.table.waiting.Remove(c.at)
			c.at = nil
		}
	})
}

// End says that a request that Begin was called for has been answered.
func (c *Conn) End() {
	c.locked(func() {
		if c.serving--; c.serving == 0 && !c.gone {
			c.fresh = 0
			c.at = c.table.waiting.PushBack(c)
		}
	})
}

// Progress says that the client has done something: it is not the first to be closed any more.
func (c *Conn) Progress() {
	c.locked(func() {
		if c.at != nil {
			c.fresh = 0
			c.table.waiting.MoveToBack(c.at)
		}
	})
}

// enough is how many bytes are progress. A client that sends one now and then makes none.
const enough = 16 << 10

// Received says that bytes of a request have come of which more is to come.
func (c *Conn) Received(n int) {
	c.locked(func() {
		if c.fresh += n; c.fresh >= enough && c.at != nil {
			c.fresh = 0
			c.table.waiting.MoveToBack(c.at)
		}
	})
}

func (c *Conn) locked(f func()) {
	if c == nil || c.table == nil {
		return
	}
	c.table.mutex.Lock()
	defer c.table.mutex.Unlock()
	f()
}
