package middleware

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch/serve/internal/connlimit"
)

// Role is what a token is good for.
type Role string

// The roles. A token may have several.
const (
	Infer   Role = "infer"   // inference, and what can be asked about models
	Control Role = "control" // loading and unloading models, if the server lets clients at all
	Metrics Role = "metrics" // metrics
)

var roles = []Role{Infer, Control, Metrics}

// Why a request is refused: errors.Is(err, middleware.ErrNoToken).
var (
	ErrNoToken    = errors.New("there is no bearer token: send the header Authorization: Bearer TOKEN")
	ErrBadHeader  = errors.New("the header Authorization is not of the form Bearer TOKEN")
	ErrWrongToken = errors.New("the token is not known")
	ErrExpired    = errors.New("the token has expired")
	ErrWrongRole  = errors.New("the token is not good for this")
)

// TokensOptions are the arguments of [OpenTokens] that have defaults.
type TokensOptions struct {
	// CloseHealth asks for a token also where the server is asked whether it is alive and ready. Without it anyone may,
	// as probes have no tokens.
	CloseHealth bool
	// Log is told of a new file that is wrong. Default: slog.Default().
	Log *slog.Logger
}

// Tokens are those of a file, and who may do what with them. HTTP, Unary and Stream let nobody else in.
type Tokens struct {
	options TokensOptions
	file    *watched[[]token]
	now     func() time.Time
}

type token struct {
	name    string
	roles   []Role
	hash    [sha256.Size]byte
	expires time.Time // zero: never
}

// OpenTokens reads a file of tokens, and again when it has changed. A line is
//
//	NAME ROLES TOKEN [EXPIRES]
//
// with the name that logs have, roles with commas between them, the token itself or sha256: and the 64 hexadecimal digits of
// its hash, so that the file tells nobody a token, and the moment from which on it is refused, as 2027-01-31T00:00:00Z.
// Empty lines and those that begin with # are nothing. A token has 16 characters or more of those that a header may have:
// openssl rand -base64 32 makes one.
//
// The error is a [*TokensError], or that of reading the file.
func OpenTokens(path string, opts ...TokensOptions) (*Tokens, error) {
	t := &Tokens{now: time.Now}
	if len(opts) > 0 {
		t.options = opts[0]
	}
	if t.options.Log == nil {
		t.options.Log = slog.Default()
	}
	var err error
	t.file, err = watch([]string{path}, func() ([]token, error) {
		text, err := read(path)
		if err != nil {
			return nil, err
		}
		return parseTokens(path, text)
	}, func(err error) {
		t.options.Log.Error("middleware: new tokens are wrong, and the old ones stay", "error", err)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// TokensError says what is wrong with a line of a file of tokens. It never has the token.
type TokensError struct {
	File string
	Line int
	Msg  string
}

// Error returns "tokens:3: ...".
func (e *TokensError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

const (
	shortestToken = 16
	longestToken  = 4096
	mostTokens    = 10000
)

func parseTokens(path string, text []byte) ([]token, error) {
	var all []token
	names := map[string]int{}
	hashes := map[[sha256.Size]byte]int{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		wrong := func(format string, values ...any) ([]token, error) {
			return nil, &TokensError{path, number, fmt.Sprintf(format, values...)}
		}
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 3 || len(fields) > 4 {
			return wrong("a line is NAME ROLES TOKEN [EXPIRES], and this one has %d words", len(fields))
		}
		one := token{name: fields[0]}
		if at := names[one.name]; at > 0 {
			return wrong("the name %.100q is there already, in line %d", one.name, at)
		}
		names[one.name] = number
		for role := range strings.SplitSeq(fields[1], ",") {
			if !slices.Contains(roles, Role(role)) {
				return wrong("a role is one of %v, and not %.100q", roles, role)
			}
			one.roles = append(one.roles, Role(role))
		}
		if digits, hashed := strings.CutPrefix(fields[2], "sha256:"); hashed {
			sum, err := hex.DecodeString(digits)
			if err != nil || len(sum) != sha256.Size {
				return wrong("after sha256: there are 64 hexadecimal digits, and not these %d characters", len(digits))
			}
			one.hash = [sha256.Size]byte(sum)
		} else {
			if !wellFormed(fields[2]) {
				return wrong("a token has %d to %d characters of A-Z, a-z, 0-9 and -._~+/=, and this one has %d, or others",
					shortestToken, longestToken, len(fields[2]))
			}
			one.hash = sha256.Sum256([]byte(fields[2]))
		}
		if at := hashes[one.hash]; at > 0 {
			return wrong("the token is there already, in line %d", at)
		}
		hashes[one.hash] = number
		if len(fields) == 4 {
			var err error
			if one.expires, err = time.Parse(time.RFC3339, fields[3]); err != nil {
				return wrong("%.100q is no moment such as 2027-01-31T00:00:00Z", fields[3])
			}
		}
		if all = append(all, one); len(all) > mostTokens {
			return wrong("there are more than %d tokens", mostTokens)
		}
	}
	if len(all) == 0 {
		return nil, &TokensError{path, number, "there is no token, so nobody could come in"}
	}
	return all, nil
}

// wellFormed reports whether a text can be a token: RFC 6750, section 2.1.
func wellFormed(text string) bool {
	if len(text) < shortestToken || len(text) > longestToken {
		return false
	}
	for _, c := range []byte(text) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~+/=", c) >= 0) {
			return false
		}
	}
	return true
}

// Check returns the name of the token in the value of a header Authorization, if it is good for a role; else one of
// [ErrNoToken], [ErrBadHeader], [ErrWrongToken], [ErrExpired] and [ErrWrongRole]. How long it takes says nothing about tokens: all are
// compared, by their hashes, each in constant time.
func (t *Tokens) Check(authorization string, role Role) (name string, err error) {
	if authorization == "" {
		return "", ErrNoToken
	}
	scheme, text, ok := strings.Cut(authorization, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", ErrBadHeader
	}
	text = strings.TrimLeft(text, " ")
	if text == "" || len(text) > longestToken {
		return "", ErrBadHeader
	}
	hash := sha256.Sum256([]byte(text))
	all := t.file.get()
	found := -1
	for i := range all {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], all[i].hash[:]), i, found)
	}
	if found < 0 {
		return "", ErrWrongToken
	}
	one := &all[found]
	switch {
	case !one.expires.IsZero() && !t.now().Before(one.expires):
		return one.name, ErrExpired
	case !slices.Contains(one.roles, role):
		return one.name, fmt.Errorf("%w: it needs the role %s", ErrWrongRole, role)
	}
	return one.name, nil
}

// HTTP lets requests through to a server's handler ([serve.Server.HTTP]) whose token has the role for what they do, and
// answers others with 401, or with 403 where only the role is missing.
//
// [serve.Server.HTTP]: https://pkg.go.dev/gotorch.dev/gotorch/serve#Server.HTTP
func (t *Tokens) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role, open := restRole(r.URL.Path)
		if open && !t.options.CloseHealth || t.admit(w, r, role) {
			next.ServeHTTP(w, r)
		}
	})
}

// Require is HTTP for a handler that needs one role for everything, such as that of metrics.
func (t *Tokens) Require(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.admit(w, r, role) {
			next.ServeHTTP(w, r)
		}
	})
}

func (t *Tokens) admit(w http.ResponseWriter, r *http.Request, role Role) bool {
	headers := r.Header.Values("Authorization")
	var name string
	err := ErrBadHeader
	if len(headers) <= 1 {
		name, err = t.Check(r.Header.Get("Authorization"), role)
	}
	note(r.Context(), name)
	if err == nil {
		return true
	}
	code := http.StatusUnauthorized
	switch {
	case errors.Is(err, ErrWrongRole):
		code = http.StatusForbidden
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope"`)
	case errors.Is(err, ErrNoToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
	default:
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	w.Header().Set("Content-Type", "application/json")
	connlimit.LeaveBody(w, r)
	w.WriteHeader(code)
	fmt.Fprintf(w, "{\"error\":%q}", err.Error())
	return false
}

// restRole is the role that a path needs, and whether it is one of the server's health.
func restRole(path string) (role Role, health bool) {
	switch {
	case path == "/v2/health/live" || path == "/v2/health/ready":
		return Infer, true
	case strings.HasPrefix(path, "/v2/repository/models/"):
		return Control, false
	case path == "/metrics":
		return Metrics, false
	}
	return Infer, false
}

// grpcRole is restRole for a method of gRPC.
func grpcRole(method string) (role Role, health bool) {
	if strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return Infer, true
	}
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "ServerLive", "ServerReady":
		return Infer, true
	case "RepositoryModelLoad", "RepositoryModelUnload":
		return Control, false
	}
	return Infer, false
}

// Admit returns nil if a call of gRPC has a token whose role is good for the method, and else the error that Unary and
// Stream return. ctx has the call's metadata. As serve.GRPCLimits.Admit it refuses a call before any message of it is read.
func (t *Tokens) Admit(ctx context.Context, method string) error {
	role, open := grpcRole(method)
	if open && !t.options.CloseHealth {
		return nil
	}
	headers := metadata.ValueFromIncomingContext(ctx, "authorization")
	var name string
	err := ErrBadHeader
	switch len(headers) {
	case 0:
		err = ErrNoToken
	case 1:
		name, err = t.Check(headers[0], role)
	}
	note(ctx, name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrWrongRole):
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

// Unary is a grpc.UnaryServerInterceptor that lets calls through whose token has the role for their method, and refuses
// others with UNAUTHENTICATED, or with PERMISSION_DENIED where only the role is missing. A server with streams needs
// Stream too.
func (t *Tokens) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := t.Admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// Stream is Unary for streams: a grpc.StreamServerInterceptor. The token is looked at when a stream begins.
func (t *Tokens) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := t.Admit(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}
