package serve

import (
	"os"
	"path/filepath"
	"testing"

	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// One look may fall between the two renames that replace a folder.
func TestAModelIsGoneWhenTwoLooksDoNotFindIt(t *testing.T) {
	dir := t.TempDir()
	at, away := filepath.Join(dir, "a"), filepath.Join(dir, ".away")
	modeltest.Write(t, at, 3, false)
	srv := New()
	defer srv.Close(t.Context())
	testhelp.Must(t, srv.AddRepository(t.Context(), dir, RepositoryOptions{Poll: -1}))
	look := func(want bool) {
		t.Helper()
		srv.repositories[0].scan(t.Context(), "")
		if srv.Ready("a", "") != want {
			t.Errorf("ready is %v", !want)
		}
	}
	for range 2 {
		testhelp.Must(t, os.Rename(at, away))
		look(true)
		testhelp.Must(t, os.Rename(away, at))
		look(true)
	}
	testhelp.Must(t, os.Rename(at, away))
	look(true)
	look(false)
}
