package daemon

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gotorch.dev/gotorch/serve/middleware"
)

// Config is what can be set. [Default] has what is set where nothing is said: start from it. A key in a file is the name
// that stands after key: beside the field, below that of its group, and a flag is the same with dashes: max_connections of
// the group limits is --limits.max-connections, and GOTORCH_SERVE_LIMITS_MAX_CONNECTIONS in the environment.
type Config struct {
	ModelRepository []string      `key:"model_repository" help:"folder with models, as export_model writes them; may be given several times"`
	Models          []string      `key:"models" help:"names of the models of the repositories that are served; all, if none is named"`
	Poll            time.Duration `key:"poll" help:"how often the repositories are looked at for changes; 0: never"`

	HTTP    string `key:"http" help:"address for REST, and the page; empty: none"`
	GRPC    string `key:"grpc" help:"address for gRPC; empty: none"`
	Metrics string `key:"metrics" help:"address for /metrics, /livez and /readyz; empty: none"`
	Page    bool   `key:"page" help:"serve a page at / that shows models and tries them out"`
	Control bool   `key:"control" help:"let clients load and unload models"`

	CORS []string `key:"cors" help:"origins such as https://app.example.org whose pages may use REST; *: all; may be given several times"`

	Drain    time.Duration `key:"drain" help:"how long it goes on serving, not ready, when it is told to end"`
	Shutdown time.Duration `key:"shutdown" help:"how long it then waits for requests that are there"`

	TLS     TLS     `key:"tls"`
	Auth    Auth    `key:"auth"`
	Limits  Limits  `key:"limits"`
	Log     Log     `key:"log"`
	Tracing Tracing `key:"tracing"`
}

// TLS is the certificate that the server shows, and those that it wants to see. Files are read again when they change.
type TLS struct {
	Cert         string `key:"cert" help:"file with the certificate and its chain, in PEM; empty: no TLS"`
	Key          string `key:"key" help:"file with the certificate's key, in PEM"`
	ClientCA     string `key:"client_ca" help:"file with certificates that sign those of clients, which must show one then (mutual TLS)"`
	MinVersion   string `key:"min_version" help:"oldest TLS that is spoken: 1.2 or 1.3"`
	PlainMetrics bool   `key:"plain_metrics" help:"serve the metrics address without TLS"`
}

// Auth is who may come in.
type Auth struct {
	Tokens      string `key:"tokens" help:"file with bearer tokens, lines of NAME ROLES TOKEN [EXPIRES]; roles: infer,control,metrics; empty: anyone may do everything"`
	CloseHealth bool   `key:"close_health" help:"ask for a token also for health and readiness"`
	OpenMetrics bool   `key:"open_metrics" help:"ask for no token at the metrics address"`
}

// Limits are bounds for what clients may do.
type Limits struct {
	Connections  int           `key:"connections" help:"connections at a time, for REST and for gRPC each"`
	HeaderBytes  Bytes         `key:"header_bytes" help:"size of a request's headers"`
	HeaderTime   time.Duration `key:"header_time" help:"how long a client may take to send them, and for the handshake"`
	RequestBytes Bytes         `key:"request_bytes" help:"size of a request"`
	RequestTime  time.Duration `key:"request_time" help:"how long a client may take to send it"`
	WriteTime    time.Duration `key:"write_time" help:"how long a client may take to read a piece of its answer"`
	IdleTime     time.Duration `key:"idle_time" help:"how long a connection may be idle"`
	AllBytes     Bytes         `key:"all_bytes" help:"size of all requests together"`
	Streams      int           `key:"streams" help:"calls at a time on a connection of gRPC"`
	PingTime     time.Duration `key:"ping_time" help:"how often a client of gRPC may ping; one that does so more often is cut off"`
	RunTime      time.Duration `key:"run_time" help:"how long a run of a model may take, unless its config.json says so; 0: as long as it takes"`
	Queue        int           `key:"queue" help:"requests that may wait for a model"`
}

// Log is what is logged, to standard error.
type Log struct {
	Format   string `key:"format" help:"text or json"`
	Level    string `key:"level" help:"debug, info, warn or error"`
	Requests bool   `key:"requests" help:"a line for each request"`
}

// Tracing is where spans of OpenTelemetry go.
type Tracing struct {
	Endpoint string  `key:"endpoint" help:"URL of a collector that speaks OTLP over HTTP, such as http://localhost:4318; empty: no spans"`
	Sample   float64 `key:"sample" help:"share of traces that are recorded, of those that begin here"`
}

// Bytes is a size. As text it may have one of the units KiB, MiB and GiB.
type Bytes int64

var units = []struct {
	name  string
	bytes Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String returns "64MiB".
func (b Bytes) String() string {
	for _, u := range units {
		if b >= u.bytes && b%u.bytes == 0 {
			return strconv.FormatInt(int64(b/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func parseBytes(text string) (Bytes, bool) {
	unit := Bytes(1)
	for _, u := range units {
		if digits, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = digits, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, false
	}
	return Bytes(n) * unit, true
}

// Default returns what holds where nothing is said.
func Default() Config {
	return Config{
		Poll: 5 * time.Second, HTTP: ":8000", GRPC: ":8001", Metrics: ":8002", Page: true,
		Drain: 5 * time.Second, Shutdown: 30 * time.Second,
		TLS: TLS{MinVersion: "1.2"},
		Limits: Limits{Connections: 1000, HeaderBytes: 64 << 10, HeaderTime: 10 * time.Second, RequestBytes: 64 << 20,
			RequestTime: time.Minute, WriteTime: time.Minute, IdleTime: 2 * time.Minute, AllBytes: 1 << 30, Streams: 256,
			PingTime: 10 * time.Second, RunTime: 10 * time.Minute, Queue: 256},
		Log:     Log{Format: "text", Level: "info"},
		Tracing: Tracing{Sample: 1},
	}
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Key   string // limits.connections
	Value string // "" where it is a secret's, or nothing was said
	From  string // serve.yaml:7, --http, GOTORCH_SERVE_HTTP; "" for what a program has set
	Want  string // what is expected
}

// String returns `serve.yaml:7: limits.connections is "many", and must be a number`.
func (p Problem) String() string {
	text := p.Want
	if p.Key != "" {
		text = fmt.Sprintf("%s is %q: %s", p.Key, p.Value, p.Want)
	}
	if p.From != "" {
		text = p.From + ": " + text
	}
	return text
}

// ConfigError is everything that is wrong with a configuration.
type ConfigError struct{ Problems []Problem }

// Error has a line for each problem.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// field is a key, and where its value lies.
type field struct {
	key, help string
	value     reflect.Value
}

// fields lists the keys of a configuration.
func (c *Config) fields() []field { return fieldsOf(reflect.ValueOf(c).Elem(), "") }

func fieldsOf(v reflect.Value, prefix string) []field {
	var all []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := prefix + tag.Get("key")
		if v.Field(i).Kind() == reflect.Struct {
			all = append(all, fieldsOf(v.Field(i), key+".")...)
		} else {
			all = append(all, field{key, tag.Get("help"), v.Field(i)})
		}
	}
	return all
}

// set sets a field to a text, or says what it must be.
func (f field) set(text string) (want string) {
	switch f.value.Interface().(type) {
	case string:
		f.value.SetString(text)
	case bool:
		if text != "true" && text != "false" {
			return "it must be true or false"
		}
		f.value.SetBool(text == "true")
	case int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return "it must be a whole number"
		}
		f.value.SetInt(n)
	case float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "it must be a number"
		}
		f.value.SetFloat(x)
	case Bytes:
		n, ok := parseBytes(text)
		if !ok {
			return "it must be a size, such as 64MiB"
		}
		f.value.SetInt(int64(n))
	case time.Duration:
		if text == "0" {
			text = "0s"
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return "it must be a duration, such as 30s or 1m30s"
		}
		f.value.SetInt(int64(d))
	case []string:
		f.value.Set(reflect.Append(f.value, reflect.ValueOf(text)))
	}
	return ""
}

// text is a field's value as set takes it.
func (f field) text() string {
	if list, ok := f.value.Interface().([]string); ok {
		return strings.Join(list, string(os.PathListSeparator))
	}
	return fmt.Sprint(f.value.Interface())
}

// Check says everything that is wrong with a configuration, in a [*ConfigError]. It reads the files that the
// configuration names, and opens no address.
func (c *Config) Check() error {
	var problems []Problem
	bad := func(key, value, want string, args ...any) {
		problems = append(problems, Problem{Key: key, Value: value, Want: fmt.Sprintf(want, args...)})
	}
	for i, dir := range c.ModelRepository {
		if info, err := os.Stat(dir); err != nil {
			bad("model_repository", dir, "it must be a folder: %v", bare(err))
		} else if !info.IsDir() {
			bad("model_repository", dir, "it must be a folder, and is a file")
		}
		for _, other := range c.ModelRepository[:i] {
			if other == dir {
				bad("model_repository", dir, "it is there twice")
			}
		}
	}
	for _, name := range c.Models {
		if name == "" || strings.Contains(name, "/") {
			bad("models", name, "it must be the name of a model")
		}
	}
	if len(c.Models) > 0 && len(c.ModelRepository) == 0 {
		bad("models", strings.Join(c.Models, ", "), "there is no model_repository that they could be in")
	}

	seen := map[string]string{}
	for _, a := range []struct{ key, value string }{{"http", c.HTTP}, {"grpc", c.GRPC}, {"metrics", c.Metrics}} {
		if a.value == "" {
			continue
		}
		host, port, err := net.SplitHostPort(a.value)
		n, notNumber := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil || notNumber != nil:
			bad(a.key, a.value, "it must be an address such as :8000 or 127.0.0.1:8000")
		case strings.ContainsAny(host, " /"):
			bad(a.key, a.value, "%q is no host", host)
		case n != 0 && seen[a.value] != "":
			bad(a.key, a.value, "it is the address of %s too", seen[a.value])
		}
		seen[a.value] = a.key
	}
	if c.HTTP == "" && c.GRPC == "" {
		bad("http", "", "either this or grpc must be an address: there is nothing to serve else")
	}

	for _, origin := range c.CORS {
		if err := middleware.CheckOrigin(origin); err != nil {
			bad("cors", origin, "it must be * or an origin such as https://app.example.org: small letters, no path, and a port only where it is not the scheme's own")
		}
	}

	for key, d := range map[string]time.Duration{"poll": c.Poll, "drain": c.Drain, "shutdown": c.Shutdown} {
		if d < 0 {
			bad(key, d.String(), "it must not be negative")
		}
	}
	l := c.Limits
	for key, d := range map[string]time.Duration{"header_time": l.HeaderTime, "request_time": l.RequestTime,
		"write_time": l.WriteTime, "idle_time": l.IdleTime, "ping_time": l.PingTime} {
		if d < time.Millisecond {
			bad("limits."+key, d.String(), "it must be a millisecond or more: without a limit a slow client holds what it has for ever")
		}
	}
	if l.RunTime < 0 {
		bad("limits.run_time", l.RunTime.String(), "it must not be negative")
	}
	for key, n := range map[string]int{"connections": l.Connections, "streams": l.Streams, "queue": l.Queue} {
		if n < 1 || n > 1<<24 {
			bad("limits."+key, strconv.Itoa(n), "it must be from 1 to %d", 1<<24)
		}
	}
	for _, b := range []struct {
		key         string
		value       Bytes
		least, most Bytes
	}{{"header_bytes", l.HeaderBytes, 4 << 10, 16 << 20}, {"request_bytes", l.RequestBytes, 1 << 10, 2<<30 - 1}, {"all_bytes", l.AllBytes, 1 << 10, 1 << 50}} {
		if b.value < b.least || b.value > b.most {
			bad("limits."+b.key, b.value.String(), "it must be from %v to %v", b.least, b.most)
		}
	}

	switch t := c.TLS; {
	case t.Cert == "" && t.Key == "":
		if t.ClientCA != "" {
			bad("tls.client_ca", t.ClientCA, "tls.cert and tls.key must be there too")
		}
	case t.Cert == "":
		bad("tls.cert", "", "it must be there, as tls.key is")
	case t.Key == "":
		bad("tls.key", "", "it must be there, as tls.cert is")
	default:
		if _, err := middleware.TLS(t.Cert, t.Key, middleware.TLSOptions{ClientCA: t.ClientCA}); err != nil {
			bad("tls.cert", t.Cert, "%v", bare(err))
		}
	}
	if tlsVersions[c.TLS.MinVersion] == 0 {
		bad("tls.min_version", c.TLS.MinVersion, "it must be 1.2 or 1.3")
	}
	if c.Auth.Tokens != "" {
		if _, err := middleware.OpenTokens(c.Auth.Tokens); err != nil {
			bad("auth.tokens", c.Auth.Tokens, "%v", bare(err))
		}
	} else if c.Auth.CloseHealth {
		bad("auth.close_health", "true", "auth.tokens must be there too")
	}

	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format", c.Log.Format, "it must be text or json")
	}
	if _, ok := logLevels[c.Log.Level]; !ok {
		bad("log.level", c.Log.Level, "it must be debug, info, warn or error")
	}
	if e := c.Tracing.Endpoint; e != "" {
		if u, err := url.Parse(e); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			bad("tracing.endpoint", e, "it must be a URL such as http://localhost:4318")
		}
	}
	if s := c.Tracing.Sample; !(s >= 0 && s <= 1) {
		bad("tracing.sample", fmt.Sprint(s), "it must be from 0 to 1")
	}
	if len(problems) == 0 {
		return nil
	}
	// In the order of the keys, as half of them come from maps.
	place := map[string]int{}
	for i, f := range c.fields() {
		place[f.key] = i
	}
	sortStable(problems, func(p Problem) int { return place[p.Key] })
	return &ConfigError{problems}
}

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// bare is an error's text without the package's name.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "middleware: ") }
