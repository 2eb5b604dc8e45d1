package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch/serve/middleware"
)

func TestPagesOfTheNamedOriginsAloneUseTheServer(t *testing.T) {
	const mine, other = "https://app.example.org", "https://evil.example"
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
	for _, c := range []struct {
		origins          []string
		method, origin   string
		preflight        bool
		code             int
		allowed          string
		exposed, methods bool
	}{
		{nil, "GET", other, false, 200, "", false, false},
		{nil, "POST", other, false, 403, "", false, false},
		{nil, "POST", "", false, 200, "", false, false},
		{nil, "OPTIONS", mine, true, 405, "", false, false},
		{[]string{mine}, "GET", mine, false, 200, mine, true, false},
		{[]string{mine}, "POST", mine, false, 200, mine, true, false},
		{[]string{mine}, "OPTIONS", mine, true, 204, mine, false, true},
		{[]string{mine}, "OPTIONS", mine, false, 405, mine, true, false}, // none of a browser
		{[]string{mine}, "GET", other, false, 200, "", false, false},
		{[]string{mine}, "POST", other, false, 403, "", false, false},
		{[]string{mine}, "POST", mine + ".evil.example", false, 403, "", false, false},
		{[]string{mine}, "POST", "http://app.example.org", false, 403, "", false, false},
		{[]string{mine}, "POST", "null", false, 403, "", false, false},
		{[]string{mine}, "POST", "", false, 200, "", false, false},
		{[]string{mine}, "OPTIONS", other, true, 403, "", false, false},
		{[]string{mine, "http://localhost:3000"}, "POST", "http://localhost:3000", false, 200, "http://localhost:3000", true, false},
		{[]string{mine, "*"}, "POST", other, false, 200, "*", true, false},
		{[]string{"*"}, "OPTIONS", other, true, 204, "*", false, true},
	} {
		r := httptest.NewRequest(c.method, "https://models.example.org/v2", strings.NewReader(""))
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		if c.preflight {
			r.Header.Set("Access-Control-Request-Method", "POST")
		}
		w := httptest.NewRecorder()
		middleware.CORS(c.origins, served).ServeHTTP(w, r)
		h := w.Header()
		if w.Code != c.code || h.Get("Access-Control-Allow-Origin") != c.allowed || (h.Get("Access-Control-Expose-Headers") != "") != c.exposed ||
			strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") != c.methods || strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") != c.methods {
			t.Errorf("%v: %s of %q (preflight %v): %d %v", c.origins, c.method, c.origin, c.preflight, w.Code, h)
		}
		if h.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("a browser may send cookies")
		}
		// A cache must not give one origin's answer to another.
		if vary := slices.Contains(h.Values("Vary"), "Origin"); vary != (len(c.origins) > 0 && !slices.Contains(c.origins, "*")) {
			t.Errorf("%v: Vary is %q", c.origins, h.Values("Vary"))
		}
	}
	for origin, right := range map[string]bool{"*": true, mine: true, "http://localhost:3000": true, "http://[::1]:80": false, "http://127.0.0.1": true,
		"": false, "app.example.org": false, mine + "/": false, mine + "/a": false, mine + "?a": false, "ftp://a.org": false, "https://a@b.org": false,
		"https://A.org": false, "https://a.org:443": false, "http://a.org:443": true, "null": false, "https:// a": false} {
		if err := middleware.CheckOrigin(origin); (err == nil) != right {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
