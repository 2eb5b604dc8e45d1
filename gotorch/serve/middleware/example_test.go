package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch/serve"
	"gotorch.dev/gotorch/serve/middleware"
)

func ExampleOpenTokens() {
	dir, err := os.MkdirTemp("", "tokens")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tokens")
	err = os.WriteFile(file, []byte("web infer 7b9GmYq3vXkzHa0TfLwR\n"), 0o600)
	if err != nil {
		fmt.Println(err)
		return
	}

	tokens, err := middleware.OpenTokens(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := tokens.HTTP(serve.New().HTTP())

	for _, header := range []string{"", "Bearer 7b9GmYq3vXkzHa0TfLwR"} {
		r := httptest.NewRequest(http.MethodGet, "/v2", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	_, err = tokens.Check("Bearer 7b9GmYq3vXkzHa0TfLwR", middleware.Control)
	fmt.Println(errors.Is(err, middleware.ErrWrongRole))
	// Output:
	// 401
	// 200
	// true
}
