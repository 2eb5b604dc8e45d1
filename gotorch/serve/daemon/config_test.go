package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch/serve/internal/servetest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFlagsHoldBeforeVariablesAndThoseBeforeTheFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, "serve.yaml", `
# a comment
model_repository: [`+dir+`]
http: 127.0.0.1:1
grpc: ""
drain: 1m
limits: {connections: 3, request_bytes: 8MiB, queue: 5}
log:
  format: json
  requests: true
tls:
`)
	c, err := Load(file, []string{"HOME=/root", "GOTORCH_SERVE_LIMITS_CONNECTIONS=4", "GOTORCH_SERVE_LIMITS_QUEUE=6", "GOTORCH_SERVE_CONFIG=x",
		"GOTORCH_SERVE_PORT=tcp://10.0.0.1:8000", "GOTORCH_SERVE_SERVICE_HOST=10.0.0.1", "GOTORCH_SERVE_MODEL_REPOSITORY=/tmp:/"},
		[][2]string{{"limits.queue", "7"}, {"page", "false"}, {"model_repository", dir}, {"model_repository", "/tmp"}})
	must(t, err)
	want := Default()
	want.ModelRepository, want.HTTP, want.GRPC, want.Drain, want.Page = []string{dir, "/tmp"}, "127.0.0.1:1", "", time.Minute, false
	want.Limits.Connections, want.Limits.RequestBytes, want.Limits.Queue = 4, 8<<20, 7
	want.Log.Format, want.Log.Requests = "json", true
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nexpected\n%+v", c, want)
	}
	json, err := Load(write(t, "serve.json", `{"http": ":1", "limits": {"request_time": "2s"}, "models": null}`), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "models has no value") {
		t.Error(err)
	}
	if json.HTTP != ":1" || json.Limits.RequestTime != 2*time.Second {
		t.Errorf("%+v", json)
	}
	if c, err = Load(write(t, "empty.yaml", "# nothing\n"), nil, nil); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Error(c, err)
	}
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	a := servetest.NewAuthority(t, "a")
	cert, _ := a.New("one")
	_, other := a.New("two")
	file := write(t, "serve.yaml", `htpp: :80
grpc: 8001
metrics: [":1"]
control: yes
models: [digits, "a/b"]
limits:
  connections: many
  streams: 0
  request_bytes: 64MB
  all_bytes: 9223372036854775807GiB
  request_time: 5
  queue: 3
  queue: 4
log: json
tls:
  cert: `+cert+`
  key: `+other+`
  min_version: 1.1
auth: {tokens: /does-not-exist, close_health: true}
tracing: {endpoint: "localhost:4318", sample: .nan}
poll: -1s
`)
	_, err := Load(file, []string{"GOTORCH_SERVE_LIMITS_HEADER_TIME=0", "GOTORCH_SERVE_TOKENS=x", "GOTORCH_SERVE_GRCP=x"},
		[][2]string{{"model_repository", "/does-not-exist"}, {"shutdown", "soon"}})
	var wrong *ConfigError
	if !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	for _, want := range []string{
		file + `:1: there is no key "htpp"; is it http?`,
		file + `:2: grpc is "8001": it must be an address such as :8000`,
		file + `:3: metrics must be one value`,
		file + `:4: control is "yes": it must be true or false`,
		file + `:5: models is "a/b": it must be the name of a model`,
		file + `:7: limits.connections is "many": it must be a whole number`,
		file + `:8: limits.streams is "0": it must be from 1 to`,
		file + `:9: limits.request_bytes is "64MB": it must be a size, such as 64MiB`,
		file + `:10: limits.all_bytes is "9223372036854775807GiB": it must be a size`,
		file + `:11: limits.request_time is "5": it must be a duration, such as 30s`,
		file + `:13: limits.queue is there twice, and in line 12`,
		file + `:14: log must be keys with their values`,
		file + `:16: tls.cert is "` + cert,
		file + `:18: tls.min_version is "1.1": it must be 1.2 or 1.3`,
		file + `:19: auth.tokens is "/does-not-exist"`,
		file + `:20: tracing.endpoint is "localhost:4318": it must be a URL`,
		file + `:20: tracing.sample is ".nan": it must be a number`,
		file + `:21: poll is "-1s": it must not be negative`,
		`GOTORCH_SERVE_LIMITS_HEADER_TIME: limits.header_time is "0s": it must be a millisecond or more`,
		`GOTORCH_SERVE_TOKENS: there is no such setting`,
		`GOTORCH_SERVE_GRCP: there is no such setting; is it GOTORCH_SERVE_GRPC?`,
		`--model-repository: model_repository is "/does-not-exist": it must be a folder`,
		`--shutdown: shutdown is "soon": it must be a duration`,
	} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%d times: %s", n, want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
	if len(wrong.Problems) != 23 {
		t.Errorf("%d problems:\n%v", len(wrong.Problems), err)
	}
}

func TestFilesThatAreNoConfigurationAreErrors(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	for text, want := range map[string]string{
		"http: [":                             "did not find",
		"- http":                              ":1: the file must be keys with their values",
		"http: &x :1\ngrpc: *x\n":             ":2: grpc is an alias",
		"http: :1\n---\nhttp: :2\n":           "more than one document",
		"[a, b]: c":                           "a key must be a word",
		"models: [[a]]\n":                     "models must be a list of texts",
		"http: \x00":                          "control characters",
		"<<: {http: x}":                       `there is no key "<<"`,
		bomb:                                  "there is no key",
		strings.Repeat("[", 20000):            "",
		"http: |\n  :1\n  :2\n":               "it must be an address",
		"limits: {connections: 1e3}\n":        "it must be a whole number",
		"http: ''\ngrpc: ''\n":                "there is nothing to serve else",
		"http: :1\ngrpc: :1\n":                "it is the address of http too",
		"tls: {client_ca: x}":                 "tls.cert and tls.key must be there too",
		"tls: {cert: x}":                      "tls.key is \"\": it must be there, as tls.cert is",
		"auth: {close_health: true}":          "auth.tokens must be there too",
		"models: [a]":                         "there is no model_repository",
		"tracing: {endpoint: 'http://a:b@c'}": "it must be a URL",
	} {
		_, err := Load(write(t, "f", text), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: %v, expected %s", text, err, want)
		}
	}
	for _, path := range []string{"/does-not-exist", t.TempDir(), "/dev/zero"} {
		if _, err := Load(path, nil, nil); err == nil {
			t.Errorf("%s is taken for a configuration", path)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("http: :80\nlimits: {queue: 3}\n")
	f.Add(`{"models": ["a"], "poll": "3s"}`)
	f.Add("a: &a [*a]\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "serve.yaml")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		c, err := Load(path, nil, nil)
		var wrong *ConfigError
		if err != nil && (!errors.As(err, &wrong) || len(wrong.Problems) == 0) {
			t.Fatal(err)
		}
		if err == nil && c.Check() != nil {
			t.Fatal("what is right is wrong a second time")
		}
	})
}

func TestTheCommandLineSaysWhatItDidByItsExitCode(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--version"}, ExitDone, "shop 1.2"},
		{[]string{"--check", "--http", ":1"}, ExitDone, "the configuration is right"},
		{[]string{"--check", "--http", "x", "--log.level=loud"}, ExitUsage, "--log.level: log.level is \"loud\""},
		{[]string{"--help"}, ExitDone, "-limits.request-bytes"},
		{[]string{"--htpp", ":1"}, ExitUsage, "flag provided but not defined"},
		{[]string{"--page", "maybe"}, ExitUsage, "is no flag"},
		{[]string{"--config", "/does-not-exist"}, ExitUsage, "/does-not-exist"},
		{[]string{"--http", "127.0.0.1:99999"}, ExitUsage, "it must be an address"},
		{[]string{"--http", "no-such-host.invalid:1", "--grpc", "", "--metrics", ""}, ExitFailed, "daemon: http: "},
		{[]string{"--tracing.endpoint", "http://localhost:1"}, ExitUsage, "sends no spans"},
	} {
		var out bytes.Buffer
		if code := start(c.args, nil, &out, &out, Options{Name: "shop", Version: "1.2"}); code != c.code || !strings.Contains(out.String(), c.text) {
			t.Errorf("%v: %d, expected %d, with %s", c.args, code, c.code, &out)
		}
	}
}

func TestEveryKeyHasAFlagAVariableAndWords(t *testing.T) {
	c := Default()
	var out bytes.Buffer
	start([]string{"--help"}, nil, &out, &out, Options{Name: "x"})
	for _, f := range c.fields() {
		if f.help == "" || strings.Contains(f.key, "..") || strings.HasSuffix(f.key, ".") {
			t.Errorf("%q has no key or no help", f.key)
		}
		if !strings.Contains(out.String(), "-"+flagName(f.key)) {
			t.Errorf("--help does not have %s", f.key)
		}
		if f.value.Kind() == reflect.Slice {
			continue
		}
		before := f.value.Interface()
		if want := f.set(f.text()); want != "" || !reflect.DeepEqual(before, f.value.Interface()) {
			t.Errorf("%s: what it is, %q, is not what it may be set to: %s", f.key, f.text(), want)
		}
	}
}
