package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/logfile"
)

// SummaryWriterOptions are the arguments of [NewSummaryWriter] that have defaults.
type SummaryWriterOptions struct {
	Comment        string         // what the name of the folder ends with, where none is given; default: ""
	PurgeStep      gotorch.Scalar // TensorBoard hides what earlier files of the folder have of this step and later ones; default: none
	FlushSecs      gotorch.Scalar // after so many seconds at most a record is in the file; default: 120
	FilenameSuffix string         // what the names of files end with; default: ""
}

// SummaryWriter writes event files. It may be used by several goroutines.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html.
type SummaryWriter struct {
	mu      sync.Mutex
	folder  string
	suffix  string
	every   time.Duration
	mark    string // who writes, for a Log to know its files
	purge   *int64
	files   map[string]*eventFile // by the folder below this one: "" for this one
	failed  error                 // the first error
	configs []string              // of embeddings
}

// eventFile is a file and how to find it.
type eventFile struct {
	*logfile.File
	name string // below the writer's folder
}

// NewSummaryWriter makes a folder, if it is not there, and an event file in it. Where logDir is "", the folder is
// runs/TIME_HOST in the working directory. It returns an error if the file cannot be made, and panics with a ValueError
// if an option is out of range.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.
func NewSummaryWriter(logDir string, opts ...SummaryWriterOptions) (*SummaryWriter, error) {
	return newWriter(logDir, "gotorch.dev/gotorch/train/tensorboard", args.Option(opts))
}

// newWriter makes a writer whose files begin with a mark of who writes.
func newWriter(logDir, mark string, o SummaryWriterOptions) (*SummaryWriter, error) {
	const op = "tensorboard.NewSummaryWriter"
	seconds := args.Float(op, "FlushSecs", o.FlushSecs, 120)
	if !(seconds > 0 && seconds < 1e9) {
		panic(args.ValueError(op, "FlushSecs must be positive, but is %v", seconds))
	}
	if strings.ContainsAny(o.FilenameSuffix, "/\x00") {
		panic(args.ValueError(op, "FilenameSuffix is %q, which is not part of a name", o.FilenameSuffix))
	}
	if logDir == "" {
		logDir = filepath.Join("runs", time.Now().Format("Jan02_15-04-05")+"_"+host()+o.Comment)
	}
	w := &SummaryWriter{folder: logDir, suffix: o.FilenameSuffix, every: time.Duration(seconds * float64(time.Second)),
		mark: mark, purge: args.IntPointer(op, "PurgeStep", o.PurgeStep), files: map[string]*eventFile{}}
	if _, err := w.file(""); err != nil {
		return nil, err
	}
	return w, nil
}

// host returns the name of the machine as it may be in the name of a file.
func host() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '.' || r < ' ' {
			return '-'
		}
		return r
	}, name)
}

// LogDir returns the folder.
func (w *SummaryWriter) LogDir() string { return w.folder }

var (
	fileName = regexp.MustCompile(`^events\.out\.tfevents\.(\d{1,18})\.`)
	made     atomic.Int64 // files in this process
)

// file returns the event file of a folder below the writer's, which it makes if there is none.
func (w *SummaryWriter) file(below string) (*eventFile, error) {
	if f := w.files[below]; f != nil {
		return f, nil
	}
	if w.files == nil {
		return nil, fmt.Errorf("tensorboard: %s: %w", w.folder, fs.ErrClosed)
	}
	folder := filepath.Join(w.folder, below)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	// TensorBoard reads the files of a folder in the order of their names, so the newest comes last.
	second := time.Now().Unix()
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if m := fileName.FindStringSubmatch(e.Name()); m != nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && n >= second && n < second+1e6 {
				second = n + 1
			}
		}
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d%s", second, host(), os.Getpid(), made.Add(1)-1, w.suffix)
	f, err := logfile.Open(filepath.Join(folder, name), 0, w.every)
	if err != nil {
		return nil, err
	}
	file := &eventFile{f, filepath.Join(below, name)}
	first := event(0, time.Now()).text(3, "brain.Event:2").bytes(10, message{}.text(1, w.mark))
	err = file.Append(framed(first))
	if w.purge != nil { // the first file is the writer's own
		for _, rest := range []message{message{}.text(3, "brain.Event:2"), message{}.bytes(7, message{}.varint(1, 1))} {
			err = errors.Join(err, file.Append(framed(append(event(*w.purge, time.Now()), rest...))))
		}
		w.purge = nil
	}
	if err = errors.Join(err, file.Flush()); err != nil {
		err = errors.Join(err, f.Close(), os.Remove(filepath.Join(folder, name)))
		return nil, err
	}
	w.files[below] = file
	return file, nil
}

// event is the begin of an Event.
func event(step int64, at time.Time) message {
	if at.IsZero() {
		at = time.Now()
	}
	return message{}.double(1, float64(at.UnixNano())/1e9).varint(2, step)
}

// add appends an event to the file of a folder below the writer's. In rest is what the event has besides step and time.
func (w *SummaryWriter) add(below string, step int, at time.Time, rest message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, err := w.file(below)
	if err == nil {
		err = f.Append(framed(append(event(int64(step), at), rest...)))
	}
	return w.keep(err)
}

// keep keeps the first error, for Close.
func (w *SummaryWriter) keep(err error) error {
	if w.failed == nil && !errors.Is(err, fs.ErrClosed) {
		w.failed = err
	}
	return err
}

// refuse keeps and returns the error of an argument that does not fit.
func (w *SummaryWriter) refuse(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keep(err)
}

// summary appends a Summary.
func (w *SummaryWriter) summary(step int, at time.Time, summary message) error {
	return w.add("", step, at, message{}.bytes(5, summary))
}

// Flush writes to the files what was added.
func (w *SummaryWriter) Flush() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files {
		err = errors.Join(err, f.Flush())
	}
	return w.keep(err)
}

// Close writes to the files what was added, closes them, and returns the first error that there was. What is added
// afterwards is an error. A second call does nothing.
func (w *SummaryWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files {
		w.keep(f.Close())
	}
	w.files = nil
	err := w.failed
	w.failed = nil
	return err
}

// local reports whether a path stays below the folder that it is joined to, and is one that Clean would give.
func local(path string) bool {
	return filepath.IsLocal(path) && path != "." && !strings.ContainsRune(path, 0) && !slices.Contains(strings.Split(path, "/"), "..")
}

func valueError(method, format string, values ...any) *gotorch.Error {
	return args.ValueError("tensorboard.SummaryWriter."+method, format, values...)
}
