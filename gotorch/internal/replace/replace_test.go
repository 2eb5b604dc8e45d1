package replace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch/internal/testhelp"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// parts returns the part files in a folder.
func parts(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.part"))
	testhelp.Must(t, err)
	return found
}

// Where this is set, the test saves to the file that it names, and dies in the middle.
const dying = "GOTORCH_TEST_DYING_SAVER"

func TestTheNextSaverRemovesWhatADeadOneLeft(t *testing.T) {
	if path := os.Getenv(dying); path != "" {
		t.Fatal(File(path, func(w io.Writer) error {
			testhelp.Must(t, text("half")(w))
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}))
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.pt")
	testhelp.Must(t, File(path, text("old")))
	for range 2 {
		child := exec.Command(os.Args[0], "-test.run=^TestTheNextSaverRemovesWhatADeadOneLeft$")
		child.Env = append(os.Environ(), dying+"="+path)
		var died *exec.ExitError
		if err := child.Run(); !errors.As(err, &died) || died.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
			t.Fatalf("got %q, %v", got, err)
		}
		// The second has removed the first one's.
		if found := parts(t, dir); len(found) != 1 {
			t.Fatal("the dead saver left", found)
		}
	}
	testhelp.Must(t, File(filepath.Join(dir, "another.pt"), text("new")))
	if found := parts(t, dir); len(found) > 0 {
		t.Error("left behind:", found)
	}
}

// Where this is set, the test saves to the file that it names, for ever.
const saving = "GOTORCH_TEST_SAVER"

func TestKilledAtAnyMoment(t *testing.T) {
	if path := os.Getenv(saving); path != "" {
		for version := byte('a'); ; version = 'a' + (version-'a'+1)%26 {
			testhelp.Must(t, File(path, text(strings.Repeat(string(version), 300_000))))
			fmt.Println("saved")
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.pt")
	killed := 0
	for range 25 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledAtAnyMoment$")
		child.Env = append(os.Environ(), saving+"="+path)
		output, err := child.StdoutPipe()
		testhelp.Must(t, err)
		testhelp.Must(t, child.Start())
		lines := bufio.NewReader(output)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, lines)
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		testhelp.Must(t, child.Process.Kill())
		_ = child.Wait()
		got, err := os.ReadFile(path)
		testhelp.Must(t, err)
		if len(got) != 300_000 || bytes.Count(got, got[:1]) != len(got) {
			t.Fatalf("the file has %d bytes, of which %d are %q", len(got), bytes.Count(got, got[:1]), got[0])
		}
		killed += len(parts(t, dir))
	}
	t.Log("killed in the middle:", killed)
	testhelp.Must(t, File(path, text("x")))
	if found := parts(t, dir); len(found) > 0 {
		t.Error("left behind:", found)
	}
}

func TestALivingSaversPartFileStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.pt")
	testhelp.Must(t, File(path, func(w io.Writer) error {
		testhelp.Must(t, text("outer")(w))
		if found := parts(t, dir); len(found) != 1 {
			t.Error("there are", found)
		}
		testhelp.Must(t, File(path, text("inner")))
		if found := parts(t, dir); len(found) != 1 {
			t.Error("there are", found)
		}
		return nil
	}))
	if got, err := os.ReadFile(path); err != nil || string(got) != "outer" {
		t.Errorf("got %q, %v", got, err)
	}
	if found := parts(t, dir); len(found) > 0 {
		t.Error("left behind:", found)
	}
}

// The lock is held until the file has its name: a saver that is between closing and moving it lives.
func TestManySaversDoNotHinderEachOther(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			path := filepath.Join(dir, fmt.Sprint("m", i%2))
			for k := range 60 {
				content := fmt.Sprint(i, " ", k)
				if err := File(path, text(strings.Repeat(content, 100))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if found := parts(t, dir); len(found) > 0 {
		t.Error("left behind:", found)
	}
}

func TestWhatMayBeSomebodyElsesStays(t *testing.T) {
	dir := t.TempDir()
	place := func(name string) string { return filepath.Join(dir, name) }
	foreign, old := "gotorch-ffffffff-0123456789abcdef.part", "gotorch-fffffffe-0123456789abcdef.part"
	ours := "gotorch-" + machine() + "-0123456789abcdef.part"
	linked := "gotorch-" + machine() + "-0000000000000000.part"
	keep := []string{
		foreign, "m.pt.part", "gotorch-x-0123456789abcdef.part", ours + ".bak", "a" + ours,
		strings.ToUpper(ours), linked, "target",
	}
	for _, name := range append(keep, old, ours) {
		if name != linked {
			testhelp.Must(t, os.WriteFile(place(name), nil, 0o666))
		}
	}
	testhelp.Must(t, os.Symlink("target", place(linked)))
	before := time.Now().Add(-deadAfter - time.Minute)
	testhelp.Must(t, os.Chtimes(place(old), before, before))
	testhelp.Must(t, File(place("m.pt"), text("x")))
	for _, name := range keep {
		if _, err := os.Lstat(place(name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{old, ours} {
		if _, err := os.Lstat(place(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Error(name, "stays:", err)
		}
	}
	if got, err := os.ReadFile(place("target")); err != nil || !bytes.Equal(got, nil) {
		t.Error(got, err)
	}
}

func TestFailingLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.pt")
	testhelp.Must(t, File(path, text("old")))
	broken := errors.New("broken")
	if err := File(path, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	func() {
		defer func() {
			if v := recover(); v != "panicked" {
				t.Error("got", v)
			}
		}()
		testhelp.Must(t, File(path, func(io.Writer) error { panic("panicked") }))
	}()
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("got %q, %v", got, err)
	}
	if found := parts(t, dir); len(found) > 0 {
		t.Error("left behind:", found)
	}
	missing := filepath.Join(dir, "no", "such", "folder")
	var at *fs.PathError
	if err := File(missing, text("x")); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &at) || at.Path != missing {
		t.Error(err)
	}
	// As long a name as there may be.
	testhelp.Must(t, File(filepath.Join(dir, strings.Repeat("n", 255)), text("x")))
}
