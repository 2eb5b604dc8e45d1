package logfile_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch/internal/logfile"
	"gotorch.dev/gotorch/internal/testhelp"
)

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	testhelp.Must(t, err)
	return string(b)
}

func TestRecordsComeWithoutBeingAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := logfile.Open(path, 0, time.Millisecond)
	testhelp.Must(t, err)
	testhelp.Must(t, f.Append([]byte("one\n")))
	for content(t, path) == "" {
		time.Sleep(time.Millisecond)
	}
	testhelp.Must(t, f.Append([]byte("two\n")))
	testhelp.Must(t, f.Close())
	testhelp.Must(t, f.Close())
	if got := content(t, path); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	if err := f.Append([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestAFileGoesOnFromASize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct {
		size int64
		want string
	}{{0, "x"}, {-1, "xx"}, {1, "xx"}, {2, "xxx"}, {0, "x"}} {
		f, err := logfile.Open(path, c.size, 0)
		testhelp.Must(t, err)
		if _, err := logfile.Open(path, -1, 0); err == nil || !strings.Contains(err.Error(), "somebody else") {
			t.Error("two write to one file:", err)
		}
		testhelp.Must(t, f.Append([]byte("x")))
		size, err := f.Sync()
		if err != nil || size != int64(len(c.want)) {
			t.Errorf("size %d, %v", size, err)
		}
		testhelp.Must(t, f.Close())
		if got := content(t, path); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if _, err := logfile.Open(path, 9, 0); err == nil || !strings.Contains(err.Error(), "has 1 bytes, where 9") {
		t.Error(err)
	}
	if got := content(t, path); got != "x" {
		t.Errorf("a file that was refused has %q", got)
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	before := testhelp.Descriptors(t)
	for what, path := range testhelp.NoFiles(t) {
		if strings.HasPrefix(path, "/proc") { // a file, by what the system says
			continue
		}
		if f, err := logfile.Open(path, 0, 0); err == nil {
			t.Errorf("%s was opened", what)
			f.Close()
		}
	}
	if now := testhelp.Descriptors(t); now > before+1 { // the socket of NoFiles
		t.Errorf("%d files are open, and %d before", now, before)
	}
}

// Where this is set, the test writes to the file that it names, below a limit.
const limited = "GOTORCH_TEST_LIMITED"

func TestAFullDiskLeavesWholeRecordsAndIsTriedAgain(t *testing.T) {
	const record = "0123456789abcde\n" // the limit is in the middle of one
	if path := os.Getenv(limited); path != "" {
		var was syscall.Rlimit
		testhelp.Must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
		testhelp.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1000, Max: was.Max}))
		f, err := logfile.Open(path, 0, time.Hour)
		testhelp.Must(t, err)
		for range 60 {
			testhelp.Must(t, f.Append([]byte(record)))
		}
		testhelp.Must(t, f.Flush())
		for range 10 {
			testhelp.Must(t, f.Append([]byte(record)))
		}
		if size, err := f.Sync(); !errors.Is(err, syscall.EFBIG) || size != 960 || f.Waiting() != 10 {
			t.Errorf("%v, size %d, %d wait", err, size, f.Waiting())
		}
		if got := content(t, path); got != strings.Repeat(record, 60) {
			t.Errorf("the file has %d bytes", len(got))
		}
		dropped := 0
		for range 1 << 17 { // 2 MiB
			if err := f.Append([]byte(record)); errors.Is(err, logfile.ErrDropped) {
				dropped++
			}
		}
		if kept := f.Waiting(); kept > 1<<16+5000 || kept+dropped != 1<<17+10 {
			t.Errorf("%d are kept, %d dropped", kept, dropped)
		}
		kept := f.Waiting()
		testhelp.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
		testhelp.Must(t, f.Close())
		if got := content(t, path); got != strings.Repeat(record, 60+kept) {
			t.Errorf("the file has %d bytes, want %d", len(got), 16*(60+kept))
		}
		fmt.Println("done")
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestAFullDiskLeavesWholeRecordsAndIsTriedAgain$")
	child.Env = append(os.Environ(), limited+"="+filepath.Join(t.TempDir(), "log"))
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "done") {
		t.Errorf("%v: %s", err, out)
	}
}
