package middleware

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch/serve/internal/servetest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var quiet = slog.New(slog.DiscardHandler)

const (
	inferToken   = "infer-token-0123456789"
	controlToken = "control-token-0123456789"
	oldToken     = "old-token-0123456789"
)

// tokensFile has one token for each case; that of control stands there as its hash.
func tokensFile(t testing.TB) string {
	sum := sha256.Sum256([]byte(controlToken))
	path := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "# who may what\n\nweb infer %s 2999-01-01T00:00:00Z\r\nops infer,control,metrics sha256:%s\nold infer %s 2020-01-01T00:00:00+01:00\n",
		inferToken, hex.EncodeToString(sum[:]), oldToken), 0o600))
	return path
}

func openTokens(t testing.TB, opts ...TokensOptions) *Tokens {
	tokens, err := OpenTokens(tokensFile(t), opts...)
	must(t, err)
	return tokens
}

func TestATokenIsGoodForItsRolesUntilItExpires(t *testing.T) {
	tokens := openTokens(t)
	for _, c := range []struct {
		header string
		role   Role
		name   string
		err    error
	}{
		{"Bearer " + inferToken, Infer, "web", nil},
		{"bearer   " + inferToken, Infer, "web", nil},
		{"Bearer " + controlToken, Control, "ops", nil},
		{"Bearer " + controlToken, Metrics, "ops", nil},
		{"Bearer " + inferToken, Control, "web", ErrWrongRole},
		{"Bearer " + inferToken, Metrics, "web", ErrWrongRole},
		{"Bearer " + oldToken, Infer, "old", ErrExpired},
		{"", Infer, "", ErrNoToken},
		{"Bearer", Infer, "", ErrBadHeader},
		{"Bearer ", Infer, "", ErrBadHeader},
		{inferToken, Infer, "", ErrBadHeader},
		{"Basic " + inferToken, Infer, "", ErrBadHeader},
		{"Bearer " + inferToken + "x", Infer, "", ErrWrongToken},
		{"Bearer " + inferToken[1:], Infer, "", ErrWrongToken},
		{"Bearer " + inferToken + " ", Infer, "", ErrWrongToken},
		{"Bearer sha256:" + strings.Repeat("0", 64), Infer, "", ErrWrongToken},
		{"Bearer " + strings.Repeat("x", 5000), Infer, "", ErrBadHeader},
	} {
		name, err := tokens.Check(c.header, c.role)
		if name != c.name || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%.40q for %s: %q and %v, expected %q and %v", c.header, c.role, name, err, c.name, c.err)
		}
	}
	soon := time.Date(2998, 12, 31, 23, 59, 59, 0, time.UTC)
	tokens.now = func() time.Time { return soon }
	if _, err := tokens.Check("Bearer "+inferToken, Infer); err != nil {
		t.Errorf("a second before it expires: %v", err)
	}
	soon = soon.Add(time.Second)
	if _, err := tokens.Check("Bearer "+inferToken, Infer); !errors.Is(err, ErrExpired) {
		t.Errorf("when it expires: %v", err)
	}
}

func TestAFileOfTokensThatIsWrongSaysWhereAndNoToken(t *testing.T) {
	good := "a infer aaaaaaaaaaaaaaaaaaaa\n"
	for text, want := range map[string]string{
		"":                                 "there is no token",
		"# nothing\n\n":                    "there is no token",
		"a infer\n":                        ":1: a line is NAME ROLES TOKEN",
		good + "b infer x y z\n":           ":2: a line is NAME ROLES TOKEN",
		"a boss secretsecretsecret\n":      `one of [infer control metrics], and not "boss"`,
		"a infer, secretsecretsecret\n":    `and not ""`,
		"a infer secretsecret\n":           "16 to 4096 characters",
		"a infer secretsecretsecret§§\n":   "16 to 4096 characters",
		"a infer sha256:secretsecret\n":    "64 hexadecimal digits, and not these 12",
		"a infer secretsecretsecret 2027":  "no moment such as",
		good + good:                        ":2: the name \"a\" is there already, in line 1",
		good + "b" + good[1:]:              ":2: the token is there already, in line 1",
		"a infer secretsecretsecret never": "no moment",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := OpenTokens(path)
		var wrong *TokensError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none"), "/dev/zero"} {
		if _, err := OpenTokens(path); err == nil {
			t.Errorf("%s is taken for a file of tokens", path)
		}
	}
	large := filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(large, nil, 0o600))
	must(t, os.Truncate(large, 1<<40))
	if _, err := OpenTokens(large); err == nil || !strings.Contains(err.Error(), "are the most") {
		t.Errorf("a file of a terabyte: %v", err)
	}
}

func TestNewTokensAreReadAndWrongOnesAreNot(t *testing.T) {
	var log bytes.Buffer
	path := tokensFile(t)
	tokens, err := OpenTokens(path, TokensOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	now := time.Now()
	tokens.file.now = func() time.Time { return now }
	check := func(token string) error {
		now = now.Add(between)
		_, err := tokens.Check("Bearer "+token, Infer)
		return err
	}
	must(t, check(inferToken))
	must(t, os.WriteFile(path, []byte("new infer new-token-0123456789\n"), 0o600))
	if err := check(inferToken); !errors.Is(err, ErrWrongToken) {
		t.Errorf("a token that was taken out: %v", err)
	}
	must(t, check("new-token-0123456789"))
	must(t, os.WriteFile(path, []byte("newer infer\n"), 0o600))
	must(t, check("new-token-0123456789"))
	must(t, os.Remove(path))
	must(t, check("new-token-0123456789"))
	must(t, check("new-token-0123456789"))
	if n := strings.Count(log.String(), "the old ones stay"); n != 2 {
		t.Errorf("a wrong file and a missing one are logged %d times: %s", n, &log)
	}
	must(t, os.WriteFile(path, []byte("newest infer newest-token-0123456789\n"), 0o600))
	must(t, check("newest-token-0123456789"))
}

func TestRESTNeedsARole(t *testing.T) {
	for _, closed := range []bool{false, true} {
		tokens := openTokens(t, TokensOptions{CloseHealth: closed})
		h := tokens.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "in") }))
		health := 200
		if closed {
			health = 401
		}
		for _, c := range []struct {
			path, token string
			code        int
		}{
			{"/v2/health/live", "", health}, {"/v2/health/ready", "", health}, {"/v2/health/ready/", "", 401}, {"/v2/health/x", "", 401},
			{"/v2/health/live", inferToken, 200},
			{"/v2", "", 401}, {"/v2/models/m/infer", "", 401}, {"/v2/models/m/infer", inferToken, 200}, {"/v2/models/m/infer", oldToken, 401},
			{"/v2/models/m/infer", "wrong-token-0123456789", 401}, {"/v2/repository/index", inferToken, 200},
			{"/v2/repository/models/m/load", inferToken, 403}, {"/v2/repository/models/m/unload", inferToken, 403},
			{"/v2/repository/models/m/unload", controlToken, 200},
			{"//v2/repository/models/m/load", "", 401}, {"/v2/../v2/models", "", 401},
		} {
			r := httptest.NewRequest("POST", "http://x/", nil)
			r.URL.Path = c.path
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.code {
				t.Errorf("%s with %.10s: %d, expected %d", c.path, c.token, w.Code, c.code)
			}
			if c.code == 401 && !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s: no WWW-Authenticate", c.path)
			}
			if c.code > 400 && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %s is no JSON", c.path, w.Body)
			}
		}
		r := httptest.NewRequest("GET", "/v2", nil)
		r.Header["Authorization"] = []string{"Bearer " + inferToken, "Bearer " + inferToken}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 401 {
			t.Errorf("two headers: %d", w.Code)
		}
	}
	h := openTokens(t).Require(Metrics, http.NotFoundHandler())
	for token, code := range map[string]int{"": 401, inferToken: 403, controlToken: 404} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != code {
			t.Errorf("metrics with %q: %d", token, w.Code)
		}
	}
}

func TestGRPCNeedsARole(t *testing.T) {
	tokens := openTokens(t)
	service := "/inference.GRPCInferenceService/"
	for _, c := range []struct {
		method  string
		headers []string
		code    codes.Code
	}{
		{service + "ServerLive", nil, codes.OK}, {service + "ServerReady", nil, codes.OK}, {"/grpc.health.v1.Health/Check", nil, codes.OK},
		{service + "ModelInfer", nil, codes.Unauthenticated},
		{service + "ModelInfer", []string{"Bearer " + inferToken}, codes.OK},
		{service + "ModelInfer", []string{"Bearer " + inferToken, "Bearer " + inferToken}, codes.Unauthenticated},
		{service + "ModelInfer", []string{"Bearer " + oldToken}, codes.Unauthenticated},
		{service + "RepositoryModelLoad", []string{"Bearer " + inferToken}, codes.PermissionDenied},
		{service + "RepositoryModelUnload", []string{"Bearer " + inferToken}, codes.PermissionDenied},
		{service + "RepositoryModelUnload", []string{"Bearer " + controlToken}, codes.OK},
		{"noslash", nil, codes.Unauthenticated},
	} {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{"authorization": c.headers})
		if err := tokens.Admit(ctx, c.method); status.Code(err) != c.code {
			t.Errorf("%s with %d headers: %v, expected %v", c.method, len(c.headers), err, c.code)
		}
	}
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	a := servetest.NewAuthority(t, "one")
	cert, key := a.New("server")
	config, err := TLS(cert, key, TLSOptions{Log: quiet})
	must(t, err)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	srv.TLS = config
	srv.StartTLS()
	defer srv.Close()
	name := func() string {
		conn, err := tls.Dial("tcp", srv.Listener.Addr().String(), &tls.Config{RootCAs: a.Pool})
		must(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "server" {
		t.Fatal(got)
	}
	a.Write(cert, key, "renewed", time.Now().Add(time.Hour))
	for deadline := time.Now().Add(10 * time.Second); name() != "renewed"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not served")
		}
	}
	must(t, os.WriteFile(key, []byte("half"), 0o600)) // wrong, so the old ones stay
	time.Sleep(between + 50*time.Millisecond)
	if got := name(); got != "renewed" {
		t.Fatal(got)
	}
}

func TestMutualTLSLetsOnlyThoseInThatTheAuthorityHasSigned(t *testing.T) {
	ours, theirs := servetest.NewAuthority(t, "ours"), servetest.NewAuthority(t, "theirs")
	cert, key := ours.New("server")
	config, err := TLS(cert, key, TLSOptions{ClientCA: ours.CA, MinVersion: tls.VersionTLS13})
	must(t, err)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	srv.TLS, srv.Config.ErrorLog = config, slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	defer srv.Close()
	get := func(config *tls.Config) error {
		config.RootCAs = ours.Pool
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		res, err := client.Get(srv.URL)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	with := func(a *servetest.Authority, until time.Time) *tls.Config {
		cert, key := filepath.Join(t.TempDir(), "c"), filepath.Join(t.TempDir(), "k")
		a.Write(cert, key, "client", until)
		pair, err := tls.LoadX509KeyPair(cert, key)
		must(t, err)
		// Shown whatever the server asks for.
		return &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	later := time.Now().Add(time.Hour)
	must(t, get(with(ours, later)))
	if get(&tls.Config{}) == nil || get(with(theirs, later)) == nil || get(with(ours, time.Now().Add(-time.Minute))) == nil {
		t.Error("a client without a certificate, with another's, or with one that has expired is let in")
	}
	old := with(ours, later)
	old.MaxVersion = tls.VersionTLS12
	if get(old) == nil {
		t.Error("TLS 1.2 is spoken, where 1.3 is the least")
	}
}

func TestCertificatesThatAreWrongAreErrors(t *testing.T) {
	a := servetest.NewAuthority(t, "a")
	cert, key := a.New("one")
	_, other := a.New("two")
	garbage := filepath.Join(t.TempDir(), "garbage")
	must(t, os.WriteFile(garbage, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n"), 0o600))
	for want, c := range map[string][3]string{
		"private key does not match": {cert, other, ""}, "the certificate: ": {"none", key, ""}, "the certificate's key: ": {cert, "none", ""},
		"are no certificate": {garbage, key, ""}, "has no certificate in PEM": {cert, key, garbage}, "sign clients'": {cert, key, "none"},
	} {
		if _, err := TLS(c[0], c[1], TLSOptions{ClientCA: c[2]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %s", c, err, want)
		}
	}
	if _, err := TLS(cert, key, TLSOptions{MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.0 is taken")
	}
}

func TestConnectionsThatSayNothingKeepNobodyOut(t *testing.T) {
	const most = 20
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(300 * time.Millisecond)
		}
		io.WriteString(w, "served")
	}))
	var mutex sync.Mutex
	open, peak := 0, 0
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		mutex.Lock()
		defer mutex.Unlock()
		switch s {
		case http.StateNew:
			open++
		case http.StateClosed:
			open--
		}
		peak = max(peak, open)
	}
	LimitConnections(srv.Config, most)
	srv.Start()
	defer srv.Close()
	before := runtime.NumGoroutine()
	slow := make(chan error, 1)
	go func() { // a request that runs is not cut off for others
		res, err := http.Get(srv.URL + "/slow")
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		slow <- err
	}()
	time.Sleep(50 * time.Millisecond)
	var idle []net.Conn
	for range 300 {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		must(t, err)
		idle = append(idle, c)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for range 5 {
		res, err := client.Get(srv.URL)
		must(t, err)
		if text, err := io.ReadAll(res.Body); err != nil || string(text) != "served" {
			t.Fatal(string(text), err)
		}
		res.Body.Close()
	}
	must(t, <-slow)
	mutex.Lock()
	if open > most+2 {
		t.Errorf("%d connections are open, where %d may be", open, most)
	}
	mutex.Unlock()
	for _, c := range idle {
		c.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
	}
}

func TestARequestIsALineWithoutSecrets(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&text, nil))
	h := Log(log).HTTP(openTokens(t).HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("panic") {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Traceresponse", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, ID(r.Context()))
	})))
	call := func(id, token, query string) (w *httptest.ResponseRecorder, line map[string]any) {
		text.Reset()
		r := httptest.NewRequest("POST", "/v2/models/m/infer?"+query, strings.NewReader("body-secret"))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set(RequestID, id)
		w = httptest.NewRecorder()
		func() {
			defer func() { recover() }()
			h.ServeHTTP(w, r)
		}()
		must(t, json.Unmarshal(text.Bytes(), &line))
		if strings.Contains(text.String(), "secret") || strings.Contains(text.String(), token) {
			t.Errorf("the line has a secret: %s", &text)
		}
		return w, line
	}
	w, line := call("abc-1", inferToken, "q=secret")
	if w.Code != 418 || w.Body.String() != "abc-1" || w.Header().Get(RequestID) != "abc-1" {
		t.Error(w)
	}
	for key, want := range map[string]any{"id": "abc-1", "method": "POST", "path": "/v2/models/m/infer", "status": 418.0, "bytes": 5.0,
		"user": "web", "trace": "0af7651916cd43dd8448eb211c80319c", "level": "INFO"} {
		if line[key] != want {
			t.Errorf("%s is %v, expected %v", key, line[key], want)
		}
	}
	if _, line = call("", "wrong-token-0123456789", ""); line["status"] != 401.0 || len(line["id"].(string)) < 20 {
		t.Error(line)
	}
	for _, id := range []string{"two\nlines", strings.Repeat("x", 129), "ü", " "} {
		if w, line = call(id, inferToken, ""); line["id"] == id || w.Header().Get(RequestID) != line["id"] {
			t.Errorf("the id %q is kept", id)
		}
	}
	if _, line = call("p", inferToken, "panic"); line["status"] != 500.0 || line["level"] != "ERROR" {
		t.Error(line)
	}
}

// A client chooses the method, the path, its id and its trace, and writes no line of its own.
func TestNoClientForgesALineOfTheLog(t *testing.T) {
	forged := "\nlevel=ERROR msg=forged"
	lines := func(text string) int { return strings.Count(text, "\n") }
	for _, format := range []string{"text", "json"} {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		if format == "json" {
			log = slog.New(slog.NewJSONHandler(&text, nil))
		}
		requests := Log(log)
		h := requests.HTTP(http.NotFoundHandler())
		r := httptest.NewRequest("GET", "/v2/models/m", nil)
		r.URL.Path += forged + strings.Repeat("\n\xff\u2028", 20000)
		r.Method = strings.Repeat("GET", 20000)
		r.Header.Set(RequestID, "id"+forged)
		r.RemoteAddr = "1.2.3.4:5" + forged
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := text.String(); lines(got) != 1 || len(got) > 5000 {
			t.Errorf("%s: %d lines of %d bytes: %.300q", format, lines(got), len(got), got)
		}

		text.Reset()
		for _, id := range []string{"id" + forged, strings.Repeat("x", 129), "fine"} {
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-request-id", id, "traceparent", "00-"+forged+strings.Repeat("x", 32-len(forged))+"-b-1"))
			requests.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(ctx context.Context, _ any) (any, error) {
				if got := ID(ctx); (got == id) != (id == "fine") {
					t.Errorf("the id %.20q is %q", id, got)
				}
				return nil, nil
			})
		}
		if got := text.String(); lines(got) != 3 || len(got) > 2000 {
			t.Errorf("%s: %q", format, got)
		}
	}
}
