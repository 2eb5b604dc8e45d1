package daemon

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestADangerousConfigurationIsWarnedOf(t *testing.T) {
	tokens := write(t, "tokens", "web infer infer-token-0123456789\n")
	for _, c := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(*Config) {}, nil},
		{func(c *Config) { c.HTTP = ":0" }, []string{"may use the models"}},
		{func(c *Config) { c.GRPC = "0.0.0.0:0" }, []string{"may use the models"}},
		{func(c *Config) { c.HTTP, c.Control = ":0", true }, []string{"may use, load and unload the models"}},
		{func(c *Config) { c.HTTP, c.Auth.Tokens = ":0", tokens }, []string{"tokens are sent without TLS"}},
		{func(c *Config) { c.Metrics = ":0" }, nil},
		{func(c *Config) { c.Limits.Connections = 1 << 24 }, []string{"ulimit -n"}},
	} {
		var log lockedBuffer
		t.Run("server", func(t *testing.T) {
			serving(t, c.change, Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		})
		if n := strings.Count(log.String(), "level=WARN"); n != len(c.want) {
			t.Errorf("%d warnings, expected %q:\n%s", n, c.want, log.String())
		}
		for _, want := range c.want {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no warning has %q:\n%s", want, log.String())
			}
		}
	}
}

func TestGoHasTheMemoryThatTheModelsLeave(t *testing.T) {
	for _, c := range []struct{ all, others, want int64 }{
		{1000, 0, 900}, {1000, 300, 600}, {1000, 900, 100}, {1000, 5000, 100}, {10, 0, 9},
	} {
		if got := goLimit(c.all, c.others); got != c.want {
			t.Errorf("of %d bytes, %d not Go's, Go has %d, expected %d", c.all, c.others, got, c.want)
		}
	}
	if n := outsideGo(); n < 1<<20 || n > 1<<40 { // libtorch is
		t.Errorf("%d bytes are not Go's", n)
	}
}

func TestAModelThatHangsIsLeftAlone(t *testing.T) {
	at := serving(t, func(c *Config) { c.Limits.RunTime = 500 * time.Millisecond })
	url := "http://" + at.HTTP.String() + "/v2/models/slow"
	if code, text, err := post(http.DefaultClient, url, 20); code != 504 || err != nil || !strings.Contains(text, "longer than 500ms") {
		t.Errorf("%d %s %v", code, text, err)
	}
	if code, text, err := post(http.DefaultClient, url, 0.01); code != 200 || err != nil {
		t.Errorf("a short run after it: %d %s %v", code, text, err)
	}
}
