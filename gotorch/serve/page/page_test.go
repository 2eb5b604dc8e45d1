package page_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"gotorch.dev/gotorch/serve"
	"gotorch.dev/gotorch/serve/page"
)

func get(method string) *http.Response {
	w := httptest.NewRecorder()
	page.Handler().ServeHTTP(w, httptest.NewRequest(method, "/", nil))
	return w.Result()
}

func TestThePolicyLetsThePagesOwnScriptRunAndNothingElse(t *testing.T) {
	res := get("GET")
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res.StatusCode, err)
	}
	policy := res.Header.Get("Content-Security-Policy")
	for _, tag := range []string{"script", "style"} {
		found := regexp.MustCompile("(?s)<"+tag+">(.*?)</"+tag+">").FindAllSubmatch(text, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements %s", len(found), tag)
		}
		sum := sha256.Sum256(found[0][1])
		if want := fmt.Sprintf("%s-src 'sha256-%s'", tag, base64.StdEncoding.EncodeToString(sum[:])); !strings.Contains(policy, want) {
			t.Errorf("the policy is %q, without %s", policy, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	// Handlers and styles in attributes would be against it, and so would what comes from elsewhere.
	for _, bad := range []string{` on\w+="`, ` style="`, `src="`, `https?:`, `innerHTML`, `eval\(`} {
		if found := regexp.MustCompile(bad).Find(text); found != nil {
			t.Errorf("the page has %s", found)
		}
	}
}

func TestThePageIsOnlyRead(t *testing.T) {
	if res := get("POST"); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Error(res.StatusCode, res.Header)
	}
	if res := get("HEAD"); res.StatusCode != 200 {
		t.Error(res.StatusCode)
	}
}

func ExampleHandler() {
	srv := serve.New()
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page.Handler())
	mux.Handle("/v2/", srv.HTTP())

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
