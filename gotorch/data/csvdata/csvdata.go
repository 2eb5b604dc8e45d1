// Package csvdata reads tables of text, CSV and its relatives, that may be larger than memory.
//
//	layout := tabular.Layout{
//		Inputs:      tabular.Columns("sepal_length", "sepal_width", "petal_length", "petal_width"),
//		Targets:     []tabular.Column{{Name: "species", Classes: []string{"setosa", "versicolor", "virginica"}}},
//		TargetDType: gotorch.Int64,
//	}
//	set, err := csvdata.Open("iris.csv", layout)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 16, Shuffle: true})
//
// [Open] reads the file once from end to end, to learn where rows begin, and keeps of it an index that is at most a
// sixteenth as large. Rows are read, and their fields made numbers, when they are asked for. [NewStream] reads files from
// the beginning, those packed by gzip too, and knows where it is.
//
// A list may be written as JSON, as Python's and NumPy's lists are, or without brackets: "1;2;3". A field of a struct is a column
// of its own, "address.zip", or the column "address" has JSON objects.
//
// A field may stand in double quotes, and have line ends in it. Lines without a character are passed by. A row with too
// few or too many fields, and a field that is no number, is a *data.FileError with the file, the row and the line, for
// that row alone.
package csvdata

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"sync"
	"unicode/utf8"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/columns"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Options say how a table is written.
type Options struct {
	Comma         string         // what separates fields, one character; default: ","
	Comment       string         // a character that begins lines to pass by; default: there is none
	Names         []string       // of the columns, of a file without a header; default: the first row has them
	MissingValues []string       // fields that are as good as empty ones; default: NA, N/A, NaN, nan, null, NULL, None
	MaxRow        gotorch.Scalar // bytes of the longest row that is taken; default: 1<<24
}

var missingValues = []string{"NA", "N/A", "NaN", "nan", "null", "NULL", "None"}

// format is options that were checked.
type format struct {
	comma, comment rune
	names          []string
	missing        map[string]bool
	maxRow         int64
}

func (o Options) format(op string) format {
	f := format{comma: ',', names: o.Names, missing: map[string]bool{"": true}, maxRow: args.Int(op, "MaxRow", o.MaxRow, 1<<24)}
	if o.MissingValues == nil {
		o.MissingValues = missingValues
	}
	for _, text := range o.MissingValues {
		f.missing[text] = true
	}
	for _, c := range []struct {
		name, given string
		to          *rune
	}{{"Comma", o.Comma, &f.comma}, {"Comment", o.Comment, &f.comment}} {
		if c.given == "" {
			continue
		}
		r, n := utf8.DecodeRuneInString(c.given)
		if n != len(c.given) || r == utf8.RuneError || r == '"' || r == '\n' || r == '\r' || r == 0 {
			panic(args.ValueError(op, "%s must be one character, and no quote or line end, but got %q", c.name, c.given))
		}
		*c.to = r
	}
	if f.comma == f.comment {
		panic(args.ValueError(op, "Comma and Comment must differ, but both are %q", f.comma))
	}
	if f.maxRow < 1 {
		panic(args.ValueError(op, "MaxRow must be positive, but got %d", f.maxRow))
	}
	return f
}

// rows reads a table's rows.
type rows struct {
	*csv.Reader
	from   *bounded
	maxRow int64
	line   int64 // before the place where it began
	offset int64
}

// bounded gives no more of a row than is left. It gives a line at a time, so that nothing is read ahead of the row, and
// does not count the lines before it that are passed by: how many of them there are says nothing of the row.
type bounded struct {
	r       *bufio.Reader
	comment rune
	left    int64
	begun   bool // the row
	within  bool // a line
	counts  bool // what the line has
}

var errLong = errors.New("the row is too long")

// row says that a row of at most so many bytes is next. The end of its line does not count.
func (b *bounded) row(most int64) { b.left, b.begun = min(most, math.MaxInt64-2)+2, false }

func (b *bounded) Read(to []byte) (int, error) {
	// As many bytes as tell a line that is passed by. At the end of the file there are fewer.
	if start, err := b.r.Peek(utf8.UTFMax); len(start) == 0 {
		return 0, err
	} else if !b.within {
		first, _ := utf8.DecodeRune(start)
		blank := start[0] == '\n' || bytes.HasPrefix(start, []byte("\r\n"))
		b.begun = b.begun || !blank && (b.comment == 0 || first != b.comment)
		b.counts = b.begun
	}
	part, _ := b.r.Peek(min(b.r.Buffered(), len(to)))
	if end := bytes.IndexByte(part, '\n'); end >= 0 {
		part = part[:end+1]
	}
	if b.counts {
		if b.left -= int64(len(part)); b.left < 0 {
			return 0, errLong
		}
	}
	n := copy(to, part)
	b.within = n > 0 && part[n-1] != '\n'
	return b.r.Discard(n)
}

// rows begins at a row, which lies at an offset and behind so many lines.
func (f *format) rows(r io.Reader, offset, line int64) *rows {
	from := &bounded{r: bufio.NewReader(r), comment: f.comment}
	c := csv.NewReader(from)
	c.Comma, c.Comment, c.ReuseRecord, c.FieldsPerRecord = f.comma, f.comment, true, -1
	return &rows{c, from, f.maxRow, line, offset}
}

// next reads a row; io.EOF after the last one. fatal is an error after which there is no next row.
func (r *rows) next() (fields []string, err error, fatal bool) {
	r.from.row(r.maxRow)
	fields, err = r.Read()
	var syntax *csv.ParseError
	switch {
	case err == nil:
		return fields, nil, false
	case errors.Is(err, errLong):
		return nil, &gotorch.Error{Kind: gotorch.ValueError, Msg: fmt.Sprintf("the row has more than %d bytes: a quote does not end, or set MaxRow", r.maxRow)}, true
	case errors.As(err, &syntax):
		return nil, &gotorch.Error{Kind: gotorch.ValueError, Msg: fmt.Sprintf("line %d, byte %d: %v", r.line+int64(syntax.Line), syntax.Column, syntax.Err)}, false
	}
	return nil, err, true
}

// at returns where the next row begins, or what stands before it.
func (r *rows) at() int64 { return r.offset + r.InputOffset() }

// lineOf returns the line of the row that was read, from 1.
func (r *rows) lineOf() int64 {
	line, _ := r.FieldPos(0)
	return r.line + int64(line)
}

// header reads the names of the columns, or takes those of the options.
func (f *format) header(path string, r *rows) ([]string, error) {
	if f.names != nil {
		return f.names, nil
	}
	fields, err, _ := r.next()
	if errors.Is(err, io.EOF) {
		return nil, files.Errorf(path, "", "the file is empty, and its first row should have the columns' names")
	}
	if err != nil {
		return nil, files.Wrap(path, "header", err)
	}
	return slices.Clone(fields), nil
}

// byteOrderMark is how programs such as Excel begin a file in UTF-8. It is no part of the first field, which may be quoted.
const byteOrderMark = "\ufeff"

// add adds a row to those gathered.
func (f *format) add(to *columns.Rows, fields []string, width int) error {
	if len(fields) != width {
		return &gotorch.Error{Kind: gotorch.ValueError, Msg: fmt.Sprintf("the row has %d fields, and the table %d columns", len(fields), width)}
	}
	err := to.Add(func(c *columns.Column, to []columns.Number) ([]columns.Number, error) {
		return c.Text(to, fields[c.At], f.missing)
	})
	if err != nil {
		return &gotorch.Error{Kind: gotorch.ValueError, Msg: err.Error()}
	}
	return nil
}

// where says which row of a table, from 0, and which line.
func where(row, line int64) string { return fmt.Sprintf("row %d (line %d)", row, line) }

// apart is how many bytes are at least between two rows whose places are remembered.
const apart = 512

type mark struct{ row, line, offset int64 }

// Table is a file whose rows can be read in any order. It is a data.Dataset[data.Pair], and makes batches itself. All
// methods may be called from several goroutines.
type Table struct {
	path   string
	format format
	names  []string
	plan   *columns.Plan
	n      int64
	size   int64
	marks  []mark

	mutex sync.RWMutex
	file  *os.File // nil: closed
}

// Open reads through a table and opens it. It panics with a ValueError or TypeError for a layout or options that do not
// fit. It returns an *fs.PathError if the file cannot be read, and a *data.FileError if a column is not there, if it is
// packed, which is for [NewStream], or if a row is longer than MaxRow. What else is wrong with a row is an error of At.
func Open(path string, layout tabular.Layout, opts ...Options) (*Table, error) {
	const op = "csvdata.Open"
	f := args.Option(opts).format(op)
	file, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	t := &Table{path: path, format: f, file: file, size: size}
	if err := t.index(op, layout); err != nil {
		file.Close()
		return nil, err
	}
	return t, nil
}

func (t *Table) index(op string, layout tabular.Layout) error {
	var start [len(byteOrderMark)]byte
	n, _ := t.file.ReadAt(start[:], 0)
	if n >= 2 && start[0] == 0x1f && start[1] == 0x8b {
		return files.Errorf(t.path, "", "a table that is packed by gzip can only be read from its beginning: unpack it, or use NewStream")
	}
	var first int64
	if string(start[:n]) == byteOrderMark {
		first = int64(n)
	}
	r := t.format.rows(io.NewSectionReader(t.file, first, t.size-first), first, 0)
	var err error
	if t.names, err = t.format.header(t.path, r); err != nil {
		return err
	}
	if t.plan, err = columns.Of(op, layout, t.names); err != nil {
		return files.Errorf(t.path, "", "%v", err)
	}
	lines := &counter{r: io.NewSectionReader(t.file, 0, t.size)}
	for {
		begin := r.at()
		_, err, fatal := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if fatal {
			return files.Wrap(t.path, fmt.Sprintf("row %d", t.n), err)
		}
		if n := len(t.marks); n == 0 || begin-t.marks[n-1].offset >= apart {
			line, err := lines.before(begin)
			if err != nil {
				return err
			}
			t.marks = append(t.marks, mark{t.n, line, begin})
		}
		t.n++
	}
	t.marks = slices.Clip(t.marks)
	return nil
}

// counter counts lines.
type counter struct {
	r      io.Reader
	buffer []byte
	at, n  int64
}

// before returns how many lines end before an offset. Offsets must not go back.
func (c *counter) before(offset int64) (int64, error) {
	if c.buffer == nil {
		c.buffer = make([]byte, 1<<16)
	}
	for c.at < offset {
		n, err := c.r.Read(c.buffer[:min(int64(len(c.buffer)), offset-c.at)])
		for _, b := range c.buffer[:n] {
			if b == '\n' {
				c.n++
			}
		}
		c.at += int64(n)
		if err != nil && n == 0 {
			return 0, err
		}
	}
	return c.n, nil
}

// Names returns the names of the columns.
func (t *Table) Names() []string { return slices.Clone(t.names) }

// Len returns the number of rows, with those that are broken.
func (t *Table) Len() int { return int(t.n) }

// At reads the i-th row, from 0. The error is a *data.FileError if it does not fit the layout.
func (t *Table) At(i int) (data.Pair, error) {
	rows := t.plan.Rows(1)
	if err := t.read(rows, []int{i}); err != nil {
		return data.Pair{}, err
	}
	return rows.One()
}

// Batch reads the rows at indices. Rows that follow each other are read in one go.
func (t *Table) Batch(indices []int, _ *rand.Rand) (data.Pair, error) {
	rows := t.plan.Rows(len(indices))
	if err := t.read(rows, indices); err != nil {
		return data.Pair{}, err
	}
	return rows.Batch()
}

func (t *Table) read(to *columns.Rows, indices []int) error {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	if t.file == nil {
		return files.Closed(t.path)
	}
	var r *rows
	next := int64(-1) // the row that r comes to
	for _, i := range indices {
		if i < 0 || int64(i) >= t.n {
			return files.OutOfRange("csvdata.Table", "row", i, int(t.n))
		}
		if r == nil || int64(i) != next {
			m := t.marks[sort.Search(len(t.marks), func(k int) bool { return t.marks[k].row > int64(i) })-1]
			r = t.format.rows(io.NewSectionReader(t.file, m.offset, t.size-m.offset), m.offset, m.line)
			next = m.row
		}
		for ; ; next++ {
			fields, err, fatal := r.next()
			if err == nil && next == int64(i) {
				if err = t.format.add(to, fields, len(t.names)); err != nil {
					return &data.FileError{Path: t.path, Where: where(next, r.lineOf()), Err: err}
				}
			}
			if errors.Is(err, io.EOF) {
				return files.Errorf(t.path, fmt.Sprintf("row %d", i), "the file ends before it: it was changed since it was opened")
			}
			if err != nil && (fatal || next == int64(i)) {
				return files.Wrap(t.path, fmt.Sprintf("row %d", next), err)
			}
			if next == int64(i) {
				next++
				break
			}
		}
	}
	return nil
}

// Close closes the file. At returns an error then.
func (t *Table) Close() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}

// Stream is the rows of tables, one after the other, each with its own header. It is used by one goroutine at a time.
type Stream struct {
	paths  []string
	layout tabular.Layout
	format format
	at     files.Position
}

// NewStream makes a stream of the rows of tables. None is opened yet. It panics with a ValueError or TypeError for a layout
// or options that do not fit.
func NewStream(paths []string, layout tabular.Layout, opts ...Options) *Stream {
	const op = "csvdata.NewStream"
	// Columns may stand in another order in each table; what is wrong with the layout itself shows here.
	named := layout
	var all []string
	for _, c := range slices.Concat(layout.Inputs, layout.Targets) {
		if !slices.Contains(all, c.Name) {
			all = append(all, c.Name)
		}
	}
	_, _ = columns.Of(op, named, all)
	return &Stream{paths: slices.Clone(paths), layout: layout, format: args.Option(opts).format(op), at: files.Position{Kind: "csvdata.Stream", Files: len(paths)}}
}

// All yields the rows of an epoch: all of them, or after LoadStateDict the rest of the epoch that the state is in. A loop that is left
// early changes nothing for the next one.
//
// A *data.FileError about one row comes in the place of the row, and the next row follows, if the loop goes on. One about a
// table as a whole is followed by the next table.
func (s *Stream) All() iter.Seq2[data.Pair, error] {
	return files.All(&s.at, s.walk)
}

// From yields the rows of an epoch from a place on, as data.Seekable says: those before are read and dropped. It leaves the
// stream's state alone, and may be called by several goroutines.
func (s *Stream) From(start data.Start) iter.Seq2[data.Pair, error] {
	return files.From(&s.at, start, s.walk)
}

func (s *Stream) walk(at *files.Position, skip int, yield func(data.Pair, error) bool) bool {
	for at.File < len(s.paths) {
		if !s.table(s.paths[at.File], at, &skip, yield) {
			return false
		}
	}
	return true
}

func (s *Stream) table(path string, at *files.Position, skip *int, yield func(data.Pair, error) bool) bool {
	ends := func(err error) bool {
		at.Begin(at.File + 1)
		if err != nil && *skip > 0 {
			*skip--
			return true
		}
		return err == nil || yield(data.Pair{}, err)
	}
	file, err := files.Open(path)
	if err != nil {
		return ends(err)
	}
	defer file.Close()
	if start, _ := file.Peek(len(byteOrderMark)); string(start) == byteOrderMark {
		_, _ = file.Discard(len(start))
	}
	r := s.format.rows(file.Reader, 0, 0)
	names, err := s.format.header(path, r)
	if err != nil {
		return ends(err)
	}
	plan, err := columns.Of("csvdata.Stream", s.layout, names)
	if err != nil {
		return ends(files.Errorf(path, "", "%v", err))
	}
	for row := int64(0); ; row++ {
		fields, err, fatal := r.next()
		if errors.Is(err, io.EOF) {
			return ends(nil)
		}
		if fatal {
			return ends(files.Wrap(path, fmt.Sprintf("row %d", row), err))
		}
		if row < at.Sample {
			continue
		}
		at.Sample++
		if *skip > 0 {
			*skip--
			continue
		}
		pair := data.Pair{}
		if err != nil {
			err = files.Wrap(path, fmt.Sprintf("row %d", row), err)
		} else {
			one := plan.Rows(1)
			if err = s.format.add(one, fields, len(names)); err != nil {
				err = &data.FileError{Path: path, Where: where(row, r.lineOf()), Err: err}
			} else {
				pair, err = one.One()
			}
		}
		if !yield(pair, err) {
			return false
		}
	}
}

// StateDict returns where the stream is: behind the last row that was yielded.
func (s *Stream) StateDict() gotorch.Dict { return s.at.StateDict() }

// LoadStateDict makes the stream go on from where another of the same tables was: it passes by the rows before. It returns
// a ValueError if the state is of something else.
func (s *Stream) LoadStateDict(dict gotorch.Dict) error { return s.at.LoadStateDict(dict) }
