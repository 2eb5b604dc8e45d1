package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/logfile"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/train"
)

// LogOptions are the arguments of [NewLog] that have defaults.
type LogOptions struct {
	Overwrite bool           // remove what another run has logged to the folder; default: an error of Run
	FlushSecs gotorch.Scalar // after so many seconds at most an entry is in the file; default: 2
}

// Log is a train.LogSink that writes event files.
type Log struct {
	folder string
	LogOptions
	w    *SummaryWriter
	size map[string]int64 // of the files of the run, as far as they count
}

// logMark says in the first record of a file that a Log wrote it.
const logMark = "gotorch.dev/gotorch/train/tensorboard.Log"

// NewLog returns a log for train.LoopOf.Log that writes event files to a folder: a number under its name, a histogram for
// what train.LoopOf.Watch gives, texts.
//
// A run that goes on from a checkpoint shortens its event file to what was logged up to there, and goes on in a new one,
// which tells a TensorBoard that is looking on to forget the rest. Files of another run's Log in the folder are an error
// of Run, unless they are to be overwritten; other files are left alone.
//
// It panics with a ValueError if an option is out of range.
func NewLog(folder string, opts ...LogOptions) *Log {
	o := args.Option(opts)
	if seconds := args.Float("tensorboard.NewLog", "FlushSecs", o.FlushSecs, 2); !(seconds > 0 && seconds < 1e9) {
		panic(args.ValueError("tensorboard.NewLog", "FlushSecs must be positive, but is %v", seconds))
	}
	if folder == "" {
		panic(args.ValueError("tensorboard.NewLog", "the folder has no name"))
	}
	return &Log{folder: folder, LogOptions: o}
}

// Writer returns the writer of a run that goes on, for images and what else a hook may have; nil outside of one. What is
// added to it in the run's folder belongs to the run: it goes where the run goes on from before.
func (l *Log) Writer() *SummaryWriter { return l.w }

// Begin is of train.LogSink.
func (l *Log) Begin(start train.LogStart) error {
	there, err := l.own()
	if err != nil {
		return err
	}
	l.size = map[string]int64{}
	marked, _ := start.Mark.Get("files").(gotorch.Dict)
	if start.Mark != nil {
		for key, value := range marked.All() {
			name, ok1 := key.(string)
			size, ok2 := value.(int64)
			if !ok1 || !ok2 || size < 0 || !fileName.MatchString(name) || filepath.Base(name) != name {
				return fmt.Errorf("%s: what the checkpoint says of its files is wrong: %v, %v", l.folder, key, value)
			}
			l.size[name] = size
		}
		for name := range l.size {
			if !slices.Contains(there, name) {
				if !l.Overwrite {
					return fmt.Errorf("%s: the file %s is gone, in which the run was logged: give the option Overwrite to do without, or another folder", l.folder, name)
				}
				delete(l.size, name)
			}
		}
	} else if len(there) > 0 && !l.Overwrite && !(start.Resumes && start.Step == 0) {
		return fmt.Errorf("%s: it has a log already, %s: give the option Overwrite, or another folder", l.folder, there[0])
	}
	for _, name := range there {
		path := filepath.Join(l.folder, name)
		size, is := l.size[name]
		if !is {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		f, err := logfile.Open(path, size, 0)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
	o := SummaryWriterOptions{FlushSecs: args.Float("tensorboard.NewLog", "FlushSecs", l.FlushSecs, 2)}
	if start.Resumes {
		o.PurgeStep = start.Step + 1
	}
	l.w, err = newWriter(l.folder, logMark, o)
	return err
}

// own returns the names of the files in the folder that a Log has written.
func (l *Log) own() (names []string, err error) {
	entries, err := os.ReadDir(l.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && fileName.MatchString(e.Name()) {
			if mark, err := markOf(filepath.Join(l.folder, e.Name())); err == nil && mark == logMark {
				names = append(names, e.Name())
			}
		}
	}
	return names, nil
}

// markOf returns who has written an event file, "" for others than this package.
func markOf(path string) (string, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, min(size, 1024))
	n, err := f.ReadAt(head, 0)
	if n < len(head) {
		return "", err
	}
	return markIn(head), nil
}

// markIn returns the source_metadata.writer of the first event.
func markIn(head []byte) string {
	event, whole := unframed(head)
	if !whole {
		return ""
	}
	source, _ := bytesField(event, 10)
	mark, _ := bytesField(source, 1)
	return string(mark)
}

// bytesField returns a field of a message, the last if there are several.
func bytesField(m []byte, number protowire.Number) (value []byte, found bool) {
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return nil, false
		}
		rest := m[size:]
		length := protowire.ConsumeFieldValue(n, kind, rest)
		if length < 0 {
			return nil, false
		}
		if n == number && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(rest)
			found = true
		}
		m = rest[length:]
	}
	return value, found
}

// Log is of train.LogSink.
func (l *Log) Log(e train.LogEntry) error {
	if l.w == nil {
		return os.ErrClosed
	}
	var summary message
	for _, v := range e.Values {
		summary = append(summary, scalarOf(v.Name, v.Value, AddScalarOptions{})...)
	}
	return l.w.summary(e.Step, e.Time, summary)
}

// LogText is of train.LogTexts.
func (l *Log) LogText(step int, name, text string) error {
	if l.w == nil {
		return os.ErrClosed
	}
	return l.w.AddText(name, text, step)
}

// LogHistogram is of train.LogHistograms. Numbers of which none has a bucket, which are those above 1e20, are left out.
func (l *Log) LogHistogram(step int, name string, values gotorch.Tensor) error {
	if l.w == nil {
		return os.ErrClosed
	}
	numbers, err := gotorch.Try(func() []float64 { return read[float64](values, gotorch.Float64) })
	if err != nil {
		return err
	}
	h, err := HistogramOf(numbers)
	if err != nil && len(numbers) > 0 {
		return nil
	} else if err != nil {
		return err
	}
	return l.w.AddHistogramRaw(name, h, step)
}

// Mark is of train.LogSink.
func (l *Log) Mark() (gotorch.Dict, error) {
	if l.w == nil {
		return nil, os.ErrClosed
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	f, err := l.w.file("")
	if err == nil {
		var size int64
		size, err = f.Sync()
		l.size[f.name] = size
	}
	var files gotorch.Dict
	for _, name := range slices.Sorted(maps.Keys(l.size)) {
		files = append(files, gotorch.DictItem{Key: name, Value: l.size[name]})
	}
	return gotorch.Dict{{Key: "files", Value: files}}, err
}

// End is of train.LogSink.
func (l *Log) End() error {
	if l.w == nil {
		return nil
	}
	err := l.w.Close()
	l.w = nil
	return err
}
