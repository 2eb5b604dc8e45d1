package serve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Whether a server is ready: what balances load, and what replaces one release by the next, believes it.

// IsReady reports what the server answers to who asks whether it is ready: whether [Server.CheckReady] returns nil.
func (s *Server) IsReady() bool { return s.CheckReady() == nil }

// CheckReady returns nil if the server is ready, and else an [*Error] of code Unavailable that says why not. It is ready
// while it has a model, everything that its repositories name is in service, no model hangs (see [RunTimeout]),
// [Server.SetReady] says nothing else, and [Server.Close] has not been called.
//
// A repository names the models of RepositoryOptions.Only, which must have a version in service each; without Only all that
// are in its folder, of which there must be one. At first every version must load: a server that begins beside a damaged
// one is not ready. Once all have been loaded, a version or a model that is added later and does not load changes nothing:
// what was in service stays, and so does the answer. A model that [Server.Unload] has put out of service counts as loaded.
func (s *Server) CheckReady() error {
	if s.isClosing() {
		return errClosed()
	}
	if s.notReady.Load() {
		return newError(Unavailable, "the server is not ready yet, or will be closed soon")
	}
	s.mutex.RLock()
	repositories, models := slices.Clone(s.repositories), len(s.models)
	why := s.hanging()
	s.mutex.RUnlock()
	for _, r := range repositories {
		why = append(why, r.unready()...)
	}
	if why == nil && models == 0 {
		why = []string{"there is no model"}
	}
	if why == nil {
		return nil
	}
	const most = 10
	if n := len(why); n > most {
		why = append(why[:most], fmt.Sprintf("and %d more", n-most))
	}
	return newError(Unavailable, "the server is not ready: %s", strings.Join(why, "; "))
}

// unready says what of the folder is not in service, and must be.
func (r *repository) unready() []string {
	r.seen.Lock()
	defer r.seen.Unlock()
	failures := r.failed()
	if !r.listed || len(r.pending) > 0 && !r.settled {
		why := []string{"a folder of models is being loaded"}
		for _, model := range slices.Sorted(maps.Keys(r.pending)) {
			why = append(why, "model "+model+" is not loaded yet")
		}
		return why
	}
	loaded := map[string]bool{}
	for key, e := range r.entries {
		loaded[key.model] = loaded[key.model] || e.loaded
	}
	var why []string
	for _, name := range r.only {
		if loaded[name] {
			continue
		}
		i := slices.IndexFunc(failures, func(f indexed) bool { return f.Name == name })
		if i < 0 {
			why = append(why, fmt.Sprintf("model %s is not in the folder", name))
		} else if r.settled { // else it is among all failures
			why = append(why, failures[i].why())
		}
	}
	if !r.settled {
		for _, f := range failures {
			why = append(why, f.why())
		}
	}
	if why == nil && !slices.Contains(slices.Collect(maps.Values(loaded)), true) {
		why = []string{"there is no model in the folder"}
	}
	if why == nil {
		r.settled = true
	}
	return why
}

// why is what a failure says of itself.
func (i indexed) why() string {
	return fmt.Sprintf("model %s, version %s is not loaded: %s", i.Name, cmp.Or(i.Version, "?"), i.Reason)
}
