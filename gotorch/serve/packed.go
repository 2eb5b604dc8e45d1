package serve

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// How bodies are packed, and what can go wrong while one is read.

// unpack makes b read what its body unpacks to.
func (b *body) unpack(h http.Header) error {
	encoding := ""
	for name := range strings.SplitSeq(strings.Join(h.Values("Content-Encoding"), ","), ",") {
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case "", "identity":
		case "x-gzip": // RFC 9110, section 8.4.1.3
			name = "gzip"
			fallthrough
		default:
			if encoding != "" {
				name = encoding + ", " + name
			}
			encoding = name
		}
	}
	if encoding == "" {
		return nil
	}
	b.packed = &bounded{b.r, b.most}
	packed := bufio.NewReader(b.packed)
	b.whole = -1
	var err error
	switch encoding {
	case "gzip":
		members := &gzipMembers{packed: packed}
		members.one, err = gzip.NewReader(packed)
		if err == nil {
			members.one.Multistream(false)
		}
		b.r = members
	case "deflate":
		var unpacked io.Reader
		unpacked, err = zlib.NewReader(packed)
		b.r = &wholeStream{unpacked, packed}
	default:
		return &Error{Code: InvalidArgument, status: http.StatusUnsupportedMediaType,
			Msg: "the body is packed with " + strconv.Quote(shorten(encoding, 40)) + ", where gzip and deflate are understood"}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrDictionary), err == io.EOF, err == io.ErrUnexpectedEOF:
		kind := encoding
		if encoding == "deflate" {
			kind = "deflate, which is zlib's format"
		}
		return newError(InvalidArgument, "the body is not packed with %s: %v", kind, err)
	}
	return b.failed(err, "what is packed with "+encoding)
}

var errPackedTail = newError(InvalidArgument, "the body has bytes after the end of what is packed")

// wholeStream is what a stream unpacks to, after which nothing may follow.
type wholeStream struct {
	r      io.Reader
	packed *bufio.Reader
}

func (w *wholeStream) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err == io.EOF {
		if _, more := w.packed.Peek(1); more == nil { // it stays there, for who reads again
			err = errPackedTail
		} else if more != io.EOF {
			err = more
		}
	}
	return n, err
}

// gzipMembers is what a gzip file unpacks to: one member, or several one after the other, and nothing else.
type gzipMembers struct {
	one    *gzip.Reader
	packed *bufio.Reader
}

func (g *gzipMembers) Read(p []byte) (int, error) {
	n, err := g.one.Read(p)
	if err != io.EOF {
		return n, err
	}
	magic, err := g.packed.Peek(2)
	switch {
	case len(magic) == 0 && err == io.EOF:
		return n, io.EOF
	case err != nil && err != io.EOF:
		return n, err
	case string(magic) != "\x1f\x8b":
		return n, errPackedTail
	}
	if err := g.one.Reset(g.packed); err != nil {
		return n, err
	}
	g.one.Multistream(false)
	return n, nil
}

// announced fails if a body that says how long it is has no n bytes more.
func (b *body) announced(n int64, what string) error {
	if b.whole >= 0 && n > b.whole-b.got {
		return newError(InvalidArgument, "%s %d bytes, and the body has %d more: the body ends after %d", what, n, max(0, b.whole-b.got), b.whole)
	}
	return nil
}

// readError is the error for a body that could not be read. The text of one of the network has addresses, which are
// nobody's business.
func readError(err error, got int64, in string) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	at := "after " + strconv.FormatInt(got, 10) + " bytes"
	if got == 0 {
		at = "before its first byte"
	} else if in != "" {
		at += ", in " + in
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Error{Code: DeadlineExceeded, status: http.StatusRequestTimeout, Msg: "the body did not come in the time that it may take: it stopped " + at}
	}
	var network *net.OpError
	if errors.As(err, &network) {
		err = network.Err
	}
	return newError(InvalidArgument, "the body could not be read %s: %v", at, err)
}
