package daemon

import (
	"context"
	"fmt"
	"time"
)

// readyPeriod is how often it is looked at whether the server is ready: folders of models change.
const readyPeriod = 200 * time.Millisecond

// serve serves until it is told to end, or a listener fails, and tells everyone whether the server is ready. A server that is
// not, and that nothing can make ready, is an error.
func (s *server) serve(ctx context.Context, abort <-chan struct{}, at Addresses) error {
	s.models.SetReady(true)
	why := s.models.CheckReady()
	if c := s.config; why != nil && c.Poll == 0 && !c.Control && len(c.ModelRepository) > 0 {
		return fmt.Errorf("daemon: with poll 0 nothing will change that: %w", why)
	}
	ticker := time.NewTicker(readyPeriod)
	defer ticker.Stop()
	ready, told, said := false, false, ""
	for {
		switch {
		case why == nil && !ready:
			s.setServing(true)
			s.log.Info("daemon: ready", addressAttrs(at)...)
			if !told {
				s.tell.ready()
				if s.options.Ready != nil {
					s.options.Ready(at)
				}
			}
			ready, told, said = true, true, ""
		case why != nil && why.Error() != said:
			s.setServing(false)
			s.log.Warn("daemon: not ready", "error", why)
			ready, said = false, why.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-abort:
			return nil
		case err := <-s.failed:
			return err
		case <-ticker.C:
		}
		why = s.models.CheckReady()
	}
}
