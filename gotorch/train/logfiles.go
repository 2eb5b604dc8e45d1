package train

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/logfile"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// FileLogOptions are the arguments of [CSVLog] and [JSONLog] that have defaults.
type FileLogOptions struct {
	Overwrite bool // begin anew where the file has something that is not of this run; default: an error of Run
	NoTime    bool // leave the time out, so that two runs with the same numbers write the same file
}

// CSVLog returns a log that is a file of comma-separated values: a line for each step and each epoch, with the columns
// step, epoch, time (seconds since 1970) and one for each name; one that comes up later is added, and the file written
// anew. What is not known in a line is empty there. Numbers are read back to the bit, or nan, inf or -inf. The folder is
// made. Others may read the file meanwhile: its lines are whole, and at most a second late.
//
// A file with lines of another run is an error of Run, unless it is to be overwritten.
func CSVLog(path string, opts ...FileLogOptions) LogSink {
	return &csvLog{path: path, FileLogOptions: args.Option(opts)}
}

type csvLog struct {
	path string
	FileLogOptions
	f       *logfile.File
	columns []string
	rows    int // data rows in the file
	lost    int // entries that came when a column could not be added
}

var errOther = errors.New("it has a log already: give the option Overwrite, or another file")

// begins makes the folder of a log, and returns the size of what is there.
func begins(path string) (size int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%s is not a regular file", path)
	}
	return info.Size(), nil
}

func (c *csvLog) Begin(start LogStart) error {
	c.columns, c.rows, c.lost = nil, 0, 0
	size, err := begins(c.path)
	if err != nil {
		return err
	}
	keep := int64(0)
	if start.Mark != nil && size > 0 {
		d := &decoder{dict: start.Mark}
		rows := d.int("rows")
		if d.err != nil {
			return fmt.Errorf("%s: what the checkpoint says of it: %w", c.path, d.err)
		}
		if keep, err = c.seek(rows); err != nil && !c.Overwrite {
			return fmt.Errorf("%s: %w: give the option Overwrite to begin anew, or another file", c.path, err)
		} else if err != nil {
			keep, c.columns, c.rows = 0, nil, 0
		}
	} else if d := (&decoder{dict: start.Mark}); start.Mark != nil && d.int("rows") > 0 && !c.Overwrite {
		return fmt.Errorf("%s: the file is gone, in which %d lines were: give the option Overwrite to begin anew, or another file", c.path, d.int("rows"))
	} else if size > 0 && !c.Overwrite && !(start.Resumes && start.Step == 0) {
		return fmt.Errorf("%s: %w", c.path, errOther)
	}
	c.f, err = logfile.Open(c.path, keep, 0)
	return err
}

// seek finds where the lines of a number of entries end.
func (c *csvLog) seek(rows int) (size int64, err error) {
	f, _, err := regular.Open(c.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if rows == 0 {
		return 0, nil
	}
	lines := csv.NewReader(f)
	header, err := lines.Read()
	if err != nil || len(header) < 2 || header[0] != "step" {
		return 0, errors.New("it is no log of a run")
	}
	c.columns = slices.Clone(header)
	lines.ReuseRecord = true
	for c.rows < rows {
		if _, err := lines.Read(); err != nil {
			return 0, fmt.Errorf("it has %d whole lines, where %d were written", c.rows, rows)
		}
		c.rows++
	}
	return lines.InputOffset(), nil
}

// column is the name of a value where "step", "epoch" and "time" have another meaning.
func column(name string) string {
	switch name {
	case "step", "epoch", "time", "when", "text":
		return "_" + name
	}
	return name
}

func (c *csvLog) Log(e LogEntry) error {
	if c.f == nil {
		return os.ErrClosed
	}
	wanted := c.columns
	if wanted == nil {
		wanted = []string{"step", "epoch"}
		if !c.NoTime {
			wanted = append(wanted, "time")
		}
	}
	for _, v := range e.Values {
		if name := column(v.Name); !slices.Contains(wanted, name) {
			wanted = append(wanted[:len(wanted):len(wanted)], name)
		}
	}
	if len(wanted) != len(c.columns) {
		if err := c.widen(wanted); err != nil {
			return err
		}
	}
	fields := make([]string, len(c.columns))
	fields[0], fields[1] = strconv.Itoa(e.Step), strconv.Itoa(e.Epoch)
	if len(c.columns) > 2 && c.columns[2] == "time" {
		fields[2] = strconv.FormatFloat(float64(e.Time.UnixMicro())/1e6, 'f', 6, 64)
	}
	for _, v := range e.Values {
		fields[slices.Index(c.columns, column(v.Name))] = number(v.Value)
	}
	err := c.f.Append(csvLine(fields))
	if !errors.Is(err, logfile.ErrDropped) {
		c.rows++
	}
	return err
}

// number is a number as Python and Go read it.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func csvLine(fields []string) []byte {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(fields) // a Builder does not fail
	w.Flush()
	return []byte(b.String())
}

// widen adds columns. The file is written anew, and replaced when that is done.
func (c *csvLog) widen(columns []string) error {
	if c.columns == nil {
		if err := c.f.Append(csvLine(columns)); err != nil {
			return err
		}
		c.columns = columns
		return nil
	}
	if c.lost++; c.lost&(c.lost-1) != 0 { // it takes long to write it all, for nothing
		return fmt.Errorf("%s: columns could not be added", c.path)
	}
	if err := c.f.Flush(); err != nil {
		return err
	}
	err := replace.File(c.path, func(w io.Writer) error {
		f, _, err := regular.Open(c.path)
		if err != nil {
			return err
		}
		defer f.Close()
		from, to := csv.NewReader(f), csv.NewWriter(w)
		from.ReuseRecord = true
		empty := make([]string, len(columns)-len(c.columns))
		for first := true; ; first = false {
			fields, err := from.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if first {
				err = to.Write(columns)
			} else {
				err = to.Write(append(fields[:len(fields):len(fields)], empty...))
			}
			if err != nil {
				return err
			}
		}
		to.Flush()
		return to.Error()
	})
	if err != nil {
		return err
	}
	f, err := logfile.Open(c.path, -1, 0)
	if err != nil {
		return err
	}
	old := c.f
	c.f, c.columns, c.lost = f, columns, 0
	return old.Close()
}

func (c *csvLog) Mark() (gotorch.Dict, error) {
	if c.f == nil {
		return nil, os.ErrClosed
	}
	_, err := c.f.Sync()
	return gotorch.Dict{{Key: "rows", Value: max(0, c.rows-c.f.Waiting())}}, err
}

func (c *csvLog) End() error {
	if c.f == nil {
		return nil
	}
	err := c.f.Close()
	c.f = nil
	return err
}

// String returns "step" or "epoch".
func (w When) String() string {
	if w == PerEpoch {
		return "epoch"
	}
	return "step"
}

// JSONLog returns a log that is a file of JSON values, one a line, with the keys when ("step" or "epoch"), step, epoch,
// time and one for each name. NaN and infinity, which JSON has not, are the strings "NaN", "Infinity" and "-Infinity".
// Texts are lines of their own. The folder is made. Others may read the file meanwhile: its lines are whole, and at most
// a second late.
//
// A file with lines of another run is an error of Run, unless it is to be overwritten.
func JSONLog(path string, opts ...FileLogOptions) LogSink {
	return &jsonLog{path: path, FileLogOptions: args.Option(opts)}
}

type jsonLog struct {
	path string
	FileLogOptions
	f *logfile.File
}

func (j *jsonLog) Begin(start LogStart) error {
	size, err := begins(j.path)
	if err != nil {
		return err
	}
	keep := int64(0)
	switch {
	case j.Overwrite && (start.Mark == nil || size == 0):
	case start.Mark != nil:
		d := &decoder{dict: start.Mark}
		if keep = int64(d.int("size")); d.err != nil || keep < 0 {
			return fmt.Errorf("%s: what the checkpoint says of it is no size: %v", j.path, start.Mark)
		}
		if size < keep && !j.Overwrite {
			return fmt.Errorf("%s: it has %d bytes, where %d were written: give the option Overwrite to begin anew, or another file", j.path, size, keep)
		}
		if size < keep {
			keep = 0
		}
	case size > 0 && !(start.Resumes && start.Step == 0):
		return fmt.Errorf("%s: %w", j.path, errOther)
	}
	j.f, err = logfile.Open(j.path, keep, 0)
	return err
}

func (j *jsonLog) head(when string, step, epoch int, at time.Time) []byte {
	b := fmt.Appendf(nil, `{"when":%q,"step":%d`, when, step)
	if epoch > 0 {
		b = fmt.Appendf(b, `,"epoch":%d`, epoch)
	}
	if !j.NoTime {
		b = fmt.Appendf(b, `,"time":%q`, at.UTC().Format(time.RFC3339Nano))
	}
	return b
}

func (j *jsonLog) Log(e LogEntry) error {
	if j.f == nil {
		return os.ErrClosed
	}
	b := j.head(e.When.String(), e.Step, e.Epoch, e.Time)
	for _, v := range e.Values {
		b = appendJSON(append(b, ','), column(v.Name))
		b = append(b, ':')
		switch {
		case math.IsNaN(v.Value):
			b = append(b, `"NaN"`...)
		case math.IsInf(v.Value, 1):
			b = append(b, `"Infinity"`...)
		case math.IsInf(v.Value, -1):
			b = append(b, `"-Infinity"`...)
		default:
			b = strconv.AppendFloat(b, v.Value, 'g', -1, 64)
		}
	}
	return j.f.Append(append(b, "}\n"...))
}

func appendJSON(b []byte, s string) []byte {
	encoded, err := json.Marshal(s)
	if err != nil { // a string cannot fail
		panic(err)
	}
	return append(b, encoded...)
}

// LogText adds a line with the text under its name.
func (j *jsonLog) LogText(step int, name, text string) error {
	if j.f == nil {
		return os.ErrClosed
	}
	b := append(j.head("text", step, 0, time.Now()), `,"text":{`...)
	b = append(appendJSON(b, name), ':')
	return j.f.Append(append(appendJSON(b, text), "}}\n"...))
}

func (j *jsonLog) Mark() (gotorch.Dict, error) {
	if j.f == nil {
		return nil, os.ErrClosed
	}
	size, err := j.f.Sync()
	return gotorch.Dict{{Key: "size", Value: size}}, err
}

func (j *jsonLog) End() error {
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}

// SlogLog returns a log that is records of log/slog, at the level Info: "step" and "epoch", with the attributes step,
// epoch and one for each name. What was said cannot be taken back, so that a run that goes on may say a step twice. It
// panics with a TypeError if logger is nil.
func SlogLog(logger *slog.Logger) LogSink {
	if logger == nil {
		panic(&gotorch.Error{Op: "train.SlogLog", Kind: gotorch.TypeError, Msg: "the logger is nil"})
	}
	return slogLog{logger.Handler()}
}

type slogLog struct{ handler slog.Handler }

func (s slogLog) Begin(LogStart) error        { return nil }
func (s slogLog) Mark() (gotorch.Dict, error) { return nil, nil }
func (s slogLog) End() error                  { return nil }

func (s slogLog) Log(e LogEntry) error {
	attrs := []slog.Attr{slog.Int("step", e.Step), slog.Int("epoch", e.Epoch)}
	for _, v := range e.Values {
		attrs = append(attrs, slog.Float64(column(v.Name), v.Value))
	}
	return s.say(e.Time, e.When.String(), attrs...)
}

func (s slogLog) LogText(step int, name, text string) error {
	return s.say(time.Now(), "text", slog.Int("step", step), slog.String(column(name), text))
}

// say is Logger.LogAttrs, but returns the handler's error.
func (s slogLog) say(at time.Time, message string, attrs ...slog.Attr) error {
	ctx := context.Background()
	if !s.handler.Enabled(ctx, slog.LevelInfo) {
		return nil
	}
	record := slog.NewRecord(at, slog.LevelInfo, message, 0)
	record.AddAttrs(attrs...)
	return s.handler.Handle(ctx, record)
}
