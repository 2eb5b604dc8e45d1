package serve

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// changedAt says which file it is, and when it was changed by the system's clock, which a copy that keeps times does
// not set.
func changedAt(info fs.FileInfo) (id string, changed time.Time) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", info.ModTime()
	}
	if info.IsDir() { // what is in it changes it
		return fmt.Sprint(st.Ino), time.Time{}
	}
	return fmt.Sprint(st.Ino, st.Ctim), time.Unix(st.Ctim.Unix())
}
