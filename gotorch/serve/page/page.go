// Package page is a page for browsers that shows what a model server serves and tries models out: the state, signature
// and statistics of each, and a form made from its inputs. An input that can be a small picture, such as [-1 1 28 28], is
// drawn with the mouse, a finger or the keys. Results that are one row of numbers are shown as bars.
//
//	mux.Handle("GET /{$}", page.Handler())
//	mux.Handle("/v2/", srv.HTTP())
//
// The page asks the server that it came from, over REST, and nobody else: it is one file without anything from outside, and
// its Content-Security-Policy lets a browser load nothing more. Where the server wants a token, the page asks for one, and
// keeps it until it is closed.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strconv"
)

//go:embed page.html
var html []byte

// between returns the text between two marks, which are there.
func between(text []byte, begin, end string) []byte {
	_, text, _ = bytes.Cut(text, []byte(begin))
	text, _, _ = bytes.Cut(text, []byte(end))
	return text
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Handler returns the page, for GET and HEAD. It is for the path / of a server whose /v2 is [serve.Server.HTTP]'s.
//
// [serve.Server.HTTP]: https://pkg.go.dev/gotorch.dev/gotorch/serve#Server.HTTP
func Handler() http.Handler {
	policy := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src " +
		hash(between(html, "<script>", "</script>")) + "; style-src " + hash(between(html, "<style>", "</style>"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "there is a page to read, and nothing to send", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(html)))
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		w.Write(html)
	})
}
