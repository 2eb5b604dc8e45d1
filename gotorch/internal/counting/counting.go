// Package counting counts the bytes that go through a reader or a writer.
package counting

import "io"

// Reader counts in N what is read from R.
type Reader struct {
	R io.Reader
	N int64
}

func (c *Reader) Read(b []byte) (int, error) {
	n, err := c.R.Read(b)
	c.N += int64(n)
	return n, err
}

// Writer counts in N what W has written.
type Writer struct {
	W io.Writer
	N int64
}

func (c *Writer) Write(b []byte) (int, error) {
	n, err := c.W.Write(b)
	c.N += int64(n)
	return n, err
}
