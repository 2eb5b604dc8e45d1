package serve

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The server's health and its models over REST, and what it says of paths and methods that it does not have.

// The status of "not ready": the protocol wants one of 4xx.
const notReadyStatus = http.StatusBadRequest

// serverHealth answers for the server. The protocol's text has "live" for both, KServe's servers and clients "ready" for the
// second.
type serverHealth struct {
	Live  bool  `json:"live"`
	Ready *bool `json:"ready,omitempty"`
}

func (s *Server) restLive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, serverHealth{Live: true})
}

func (s *Server) restReady(w http.ResponseWriter, _ *http.Request) error {
	ready := s.IsReady()
	status := http.StatusOK
	if !ready {
		status = notReadyStatus
	}
	return writeStatus(w, status, serverHealth{true, &ready})
}

// modelHealth answers for a model.
type modelHealth struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"` // why it is not
}

func (s *Server) restModelReady(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	_, _, err := s.find(name, r.PathValue("version"))
	switch {
	case err == nil:
		return writeJSON(w, modelHealth{Name: name, Ready: true})
	case errors.Is(err, NotFound):
		return err
	}
	return writeStatus(w, notReadyStatus, modelHealth{Name: name, Error: asError(err).told()})
}

// restModels lists the models that are in service, as KServe's servers do.
func (s *Server) restModels(w http.ResponseWriter, _ *http.Request) error {
	s.mutex.RLock()
	names := slices.Sorted(maps.Keys(s.latest))
	s.mutex.RUnlock()
	if names == nil {
		names = []string{}
	}
	return writeJSON(w, map[string][]string{"models": names})
}

// notThere is the error for a path, or for a method of a path, that mux does not have; it sets the header Allow.
func notThere(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) *Error {
	if why := notSupported(r.URL.Path); why != "" {
		return newError(Unimplemented, "%s", why)
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		_, pattern := mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
		if pattern == "/" || pattern == "" {
			continue
		}
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	if allowed == nil {
		return newError(NotFound, "there is no %.200s", r.URL.Path)
	}
	allow := strings.Join(allowed, ", ")
	w.Header().Set("Allow", allow)
	return &Error{Code: InvalidArgument, status: http.StatusMethodNotAllowed,
		Msg: "the method is " + shorten(r.Method, 40) + ", and " + shorten(r.URL.Path, 200) + " has " + allow}
}

// notSupported says which extension of the protocol a path belongs to that this server does not have; "" for none.
func notSupported(path string) string {
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	switch {
	case first == "systemsharedmemory" || first == "cudasharedmemory":
		return "shared memory is not supported: send the data itself"
	case first == "logging":
		return "clients cannot change the logging of this server"
	case first == "trace" || first == "models" && strings.HasSuffix(path, "/trace/setting"):
		return "clients cannot change the tracing of this server"
	case first == "models" && (strings.HasSuffix(path, "/generate") || strings.HasSuffix(path, "/generate_stream")):
		return "the generate extension is not supported: send the model's inputs to its path infer"
	}
	return ""
}
