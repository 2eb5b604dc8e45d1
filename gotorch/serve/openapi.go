package serve

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openAPI describes the protocol over REST as OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI []byte

func (s *Server) restOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	w.Write(openAPI)
	return nil
}
