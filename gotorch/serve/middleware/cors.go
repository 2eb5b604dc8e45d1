package middleware

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// AnyOrigin, as the one origin of [CORS], lets pages of every site in.
const AnyOrigin = "*"

// CheckOrigin says what is wrong with an origin, such as https://app.example.org: a scheme, a host, and a port where it is not
// the scheme's own.
func CheckOrigin(origin string) error {
	if origin == AnyOrigin {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Host != strings.ToLower(u.Host) || origin != u.Scheme+"://"+u.Host ||
		u.Port() == map[string]string{"http": "80", "https": "443"}[u.Scheme] && u.Port() != "" {
		return fmt.Errorf("middleware: the origin is %.200q, and must be *, or as a browser writes it: https://app.example.org, in small letters and with a port only where it is not the scheme's own", origin)
	}
	return nil
}

// What a page may send, and what it may see of an answer.
const (
	corsMethods = "GET, HEAD, POST"
	corsHeaders = "Authorization, Content-Encoding, Content-Type, Inference-Header-Content-Length, Traceparent, X-Request-Id"
	corsExposed = "Content-Encoding, Inference-Header-Content-Length, Retry-After, X-Request-Id"
	corsMaxAge  = "600"
)

// CORS lets pages of the named origins use a server from a browser, and refuses requests that a browser sends from the page
// of any other site and that are not only read. It answers a browser's preflight itself, so it goes around [Tokens.HTTP]:
// a preflight has no token. Pages send a token in the header Authorization; cookies and client certificates are not asked
// for. Without origins it only refuses. It panics where [CheckOrigin] finds something wrong.
func CORS(origins []string, next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if err := CheckOrigin(origin); err != nil {
			panic(err)
		}
		if origin != AnyOrigin {
			if err := protection.AddTrustedOrigin(origin); err != nil {
				panic(err)
			}
		}
	}
	all := slices.Contains(origins, AnyOrigin)
	protected := protection.Handler(next)
	if len(origins) == 0 {
		return protected
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if !all {
			h.Add("Vary", "Origin")
		}
		origin := r.Header.Get("Origin")
		allowed := origin != "" && (all || slices.Contains(origins, origin))
		preflight := r.Method == http.MethodOptions && origin != "" && r.Header.Get("Access-Control-Request-Method") != ""
		if allowed {
			if all {
				origin = AnyOrigin
			}
			h.Set("Access-Control-Allow-Origin", origin)
		}
		switch {
		case preflight && allowed:
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", corsMaxAge)
			w.WriteHeader(http.StatusNoContent)
		case preflight:
			http.Error(w, "this server answers pages of other origins", http.StatusForbidden)
		case allowed:
			h.Set("Access-Control-Expose-Headers", corsExposed)
			next.ServeHTTP(w, r)
		default:
			protected.ServeHTTP(w, r)
		}
	})
}
