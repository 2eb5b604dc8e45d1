// Package parquet reads tables in the Parquet format, which may be larger than memory: only the columns that are asked
// for, and a group of rows at a time.
//
//	layout := tabular.Layout{
//		Inputs:  tabular.Columns("x1", "x2"),
//		Targets: []tabular.Column{{Name: "class", Classes: []string{"no", "yes"}}},
//	}
//	set, err := parquet.Open([]string{"a.parquet", "b.parquet"}, layout)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	for pair, err := range set.Stream().All() { // or data.NewLoader(set, ...)
//		...
//	}
//
// Columns of numbers and bools are read, and of text those with Classes. Dates and times are the integers that they are
// stored as. Decimals, 16-bit floats, INT96 and columns within others (lists, maps, structs) are refused when the table is
// opened, and so is a file whose columns are of other types than those of the first: a *data.FileError says which.
//
// At decodes the whole group of rows that a row is in, and remembers the last few groups. Rows in random order from all
// over a large table would have each group decoded many times: write such tables in random order, with small groups, or
// go through the Stream.
package parquet

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"

	format "github.com/parquet-go/parquet-go"
	meta "github.com/parquet-go/parquet-go/format"

	"github.com/parquet-go/parquet-go/encoding/thrift"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/columns"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Options bound the memory that a table takes.
type Options struct {
	Groups  gotorch.Scalar // groups of rows that are remembered; default: 4
	MaxRows gotorch.Scalar // rows of the largest group that is read; default: 1<<24
	MaxPage gotorch.Scalar // bytes of the largest page, a part of a column, packed or not; default: 1<<28
}

// Table is the rows of files. It is a data.Dataset[data.Pair], and makes batches itself. All methods may be called from
// several goroutines.
type Table struct {
	files   []*file
	plan    *columns.Plan
	groups  []group
	n       int64
	keep    int
	maxRows int64
	maxPage int64

	mutex  sync.Mutex
	cache  map[int]*decoded // by the group
	recent []int            // the groups in cache, the last used at the end
	closed bool
}

type file struct {
	path string
	file *os.File
	*format.File
	kinds []string
}

// group is a group of rows of a file.
type group struct {
	file, index int
	begin, rows int64
}

// decoded is a group's columns, by their place in used.
type decoded struct {
	once    sync.Once
	columns []values
	err     error
}

// values is a column of a group.
type values struct {
	ints    []int64
	floats  []float64
	missing []bool // nil: none is
	big     []bool // unsigned numbers above the largest int64, which are in floats
}

// Open opens files of one table, and reads what they say of themselves. It panics with a ValueError or TypeError for a
// layout or options that do not fit. It returns an *fs.PathError if a file cannot be read, and a *data.FileError if one is
// no Parquet file, lacks a column, has one that is no number, or another type in a column than the first.
func Open(paths []string, layout tabular.Layout, opts ...Options) (*Table, error) {
	const op = "parquet.Open"
	opt := args.Option(opts)
	t := &Table{
		keep: int(args.Int(op, "Groups", opt.Groups, 4)), maxRows: args.Int(op, "MaxRows", opt.MaxRows, 1<<24),
		maxPage: args.Int(op, "MaxPage", opt.MaxPage, 1<<28), cache: map[int]*decoded{},
	}
	switch {
	case len(paths) == 0:
		panic(args.ValueError(op, "there are no files"))
	case t.keep < 1 || t.maxRows < 1 || t.maxPage < 1:
		panic(args.ValueError(op, "Groups, MaxRows and MaxPage must be positive, but got %d, %d and %d", t.keep, t.maxRows, t.maxPage))
	}
	for _, path := range paths {
		if err := t.add(op, path, layout); err != nil {
			t.Close()
			return nil, err
		}
	}
	return t, nil
}

// safely calls what is not ours, and makes errors of its panics.
func safely[R any](fn func() (R, error)) (result R, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the file is damaged: its decoder failed with %v", r)
		}
	}()
	return fn()
}

func (t *Table) add(op, path string, layout tabular.Layout) error {
	opened, size, err := regular.Open(path)
	if err != nil {
		return err
	}
	f := &file{path: path, file: opened}
	t.files = append(t.files, f) // Close closes it
	if err := checkFooter(opened, size); err != nil {
		return files.Wrap(path, "", err)
	}
	f.File, err = safely(func() (*format.File, error) {
		return format.OpenFile(opened, size, format.SkipPageIndex(true), format.SkipBloomFilters(true), format.ReadBufferSize(1<<16))
	})
	if err != nil {
		return files.Wrap(path, "", fmt.Errorf("it is no valid Parquet file: %w", err))
	}
	leaves := f.Root().Columns()
	names := make([]string, len(leaves))
	for i, leaf := range leaves {
		names[i] = leaf.Name()
	}
	if t.plan == nil {
		if t.plan, err = columns.Of(op, layout, names); err != nil {
			return files.Errorf(path, "", "%v", err)
		}
	}
	plan := t.plan
	for i := range slices.Concat(plan.Inputs, plan.Targets) {
		c := plan.Column(i)
		at := slices.Index(names, c.Name)
		if at < 0 {
			return files.Errorf(path, "", "there is no column %q, which %s has", c.Name, t.files[0].path)
		}
		// A column may say that it is of a type that only columns with others in them are, of which Kind panics.
		kind, err := safely(func() (string, error) { return kindOf(leaves[at], c.Classes != nil) })
		if err != nil {
			return files.Errorf(path, fmt.Sprintf("column %q", c.Name), "%v", err)
		}
		f.kinds = append(f.kinds, kind)
		if first := t.files[0].kinds[i]; first != kind {
			return files.Errorf(path, fmt.Sprintf("column %q", c.Name), "it is %s, and in %s it is %s", kind, t.files[0].path, first)
		}
	}
	for i, g := range f.Metadata().RowGroups {
		if g.NumRows < 0 || g.NumRows > t.maxRows {
			return files.Errorf(path, fmt.Sprintf("row group %d", i), "it has %d rows, and MaxRows allows %d", g.NumRows, t.maxRows)
		}
		if g.NumRows > 0 {
			t.groups = append(t.groups, group{len(t.files) - 1, i, t.n, g.NumRows})
			t.n += g.NumRows
		}
	}
	return nil
}

// checkFooter refuses a file that says it has a longer footer than it has bytes, before memory is taken for it.
func checkFooter(f *os.File, size int64) error {
	var end [8]byte
	if size < 12 {
		return errors.New("it is no Parquet file: it is too short")
	}
	if _, err := f.ReadAt(end[:], size-8); err != nil {
		return err
	}
	length := int64(end[0]) | int64(end[1])<<8 | int64(end[2])<<16 | int64(end[3])<<24
	if string(end[4:]) != "PAR1" {
		return fmt.Errorf("it is no Parquet file, or cut short, or encrypted: it ends with %q", end[4:])
	}
	if length > size-12 {
		return fmt.Errorf("it is no valid Parquet file: its footer should have %d bytes, and it has %d in all", length, size)
	}
	return nil
}

// kindOf says what a column is, or why it cannot be read.
func kindOf(c *format.Column, classes bool) (string, error) {
	if !c.Leaf() {
		return "", errors.New("it has columns within it, and only plain ones are read")
	}
	kind := c.Type().String()
	switch physical := c.Type().Kind(); {
	case c.Repeated():
		return "", errors.New("it is a list in each row, and only plain columns are read")
	case strings.HasPrefix(kind, "DECIMAL"):
		return "", fmt.Errorf("it is of type %s, which is not read: write it as a float or an integer", kind)
	case classes && physical != format.ByteArray:
		return "", fmt.Errorf("it is of type %s, and Classes are for text", kind)
	case classes:
	case physical == format.Boolean, physical == format.Int32, physical == format.Int64, physical == format.Float, physical == format.Double:
	case physical == format.ByteArray:
		return "", errors.New("it is text, and Classes should say what it can be")
	default:
		return "", fmt.Errorf("it is of type %s, which is no number", kind)
	}
	return kind, nil
}

// Len returns the number of rows.
func (t *Table) Len() int { return int(t.n) }

// At reads the i-th row, from 0. The error is a *data.FileError if the row does not fit the layout, or its file is damaged.
func (t *Table) At(i int) (data.Pair, error) {
	rows := t.plan.Rows(1)
	if err := t.read(rows, i); err != nil {
		return data.Pair{}, err
	}
	return rows.One()
}

// Batch reads the rows at indices.
func (t *Table) Batch(indices []int, _ *rand.Rand) (data.Pair, error) {
	rows := t.plan.Rows(len(indices))
	for _, i := range indices {
		if err := t.read(rows, i); err != nil {
			return data.Pair{}, err
		}
	}
	return rows.Batch()
}

func (t *Table) read(to *columns.Rows, i int) error {
	if i < 0 || int64(i) >= t.n {
		return files.OutOfRange("parquet.Table", "row", i, int(t.n))
	}
	at := sort.Search(len(t.groups), func(k int) bool { return t.groups[k].begin > int64(i) }) - 1
	d, err := t.decoded(at)
	if err != nil {
		return err
	}
	g := t.groups[at]
	if err := t.row(to, d, int64(i)-g.begin); err != nil {
		return t.broken(g, int64(i)-g.begin, err)
	}
	return nil
}

// broken is the error for a row of a group.
func (t *Table) broken(g group, row int64, err error) error {
	var before int64
	for _, other := range t.groups {
		if other.file == g.file && other.index < g.index {
			before += other.rows
		}
	}
	return files.Errorf(t.files[g.file].path, fmt.Sprintf("row %d", before+row), "%v", err)
}

// row adds a row of a group.
func (t *Table) row(to *columns.Rows, d *decoded, row int64) error {
	k := -1
	return to.Add(func(c *columns.Column) (columns.Number, error) {
		k++
		v := &d.columns[k]
		switch {
		case v.missing != nil && v.missing[row]:
			return c.Missing()
		case v.floats != nil && v.ints != nil && !v.big[row], v.floats == nil:
			if c.Classes != nil && v.ints[row] < 0 {
				return columns.Number{}, fmt.Errorf("the text is none of the column's %d classes", len(c.Classes))
			}
			return columns.OfInt(v.ints[row]), nil
		}
		return columns.OfFloat(v.floats[row]), nil
	})
}

// decoded returns a group's columns, which several goroutines may wait for.
func (t *Table) decoded(at int) (*decoded, error) {
	t.mutex.Lock()
	if t.closed {
		t.mutex.Unlock()
		return nil, files.Closed(t.files[0].path)
	}
	d, known := t.cache[at]
	if !known {
		d = &decoded{}
		t.cache[at] = d
	}
	t.recent = append(slices.DeleteFunc(t.recent, func(k int) bool { return k == at }), at)
	if len(t.recent) > t.keep {
		delete(t.cache, t.recent[0])
		t.recent = t.recent[1:]
	}
	t.mutex.Unlock()
	d.once.Do(func() { d.columns, d.err = t.decode(t.groups[at]) })
	return d, d.err
}

// decode reads the columns of a group that are needed.
func (t *Table) decode(g group) ([]values, error) {
	f := t.files[g.file]
	n := len(t.plan.Inputs) + len(t.plan.Targets)
	all := make([]values, n)
	for i := range n {
		c := t.plan.Column(i)
		where := fmt.Sprintf("row group %d, column %q", g.index, c.Name)
		v, err := safely(func() (values, error) {
			leaf := f.Root().Column(c.Name)
			if err := t.checkPages(f, g, leaf.Index()); err != nil {
				return values{}, err
			}
			return t.column(f, g, leaf, c)
		})
		if err != nil {
			return nil, files.Wrap(f.path, where, err)
		}
		all[i] = v
	}
	return all, nil
}

// checkPages goes over the pages of a column and checks what their headers say, before memory is taken for it.
func (t *Table) checkPages(f *file, g group, column int) error {
	groups := f.Metadata().RowGroups
	chunks := groups[g.index].Columns
	if column < 0 || column >= len(chunks) {
		return errors.New("the group lacks the column")
	}
	m := &chunks[column].MetaData
	begin := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		begin = m.DictionaryPageOffset
	}
	size := f.Size()
	if begin < 0 || m.TotalCompressedSize < 0 || begin > size || m.TotalCompressedSize > size-begin {
		return fmt.Errorf("it should lie at byte %d with %d bytes, and the file has %d", begin, m.TotalCompressedSize, size)
	}
	end := begin + m.TotalCompressedSize
	var values int64
	var protocol thrift.CompactProtocol
	for at := begin; at < end && values < g.rows; {
		var header meta.PageHeader
		var length int64
		// The header's length is not known: most have some dozen bytes.
		for window := int64(1 << 10); ; window <<= 4 {
			window = min(window, end-at)
			buffer := make([]byte, window)
			if _, err := f.file.ReadAt(buffer, at); err != nil {
				return err
			}
			n, err := safely(func() (int64, error) {
				header = meta.PageHeader{}
				r := protocol.NewReaderFromBytes(buffer)
				err := thrift.NewDecoder(r).Decode(&header)
				return int64(r.BytesRead()), err
			})
			if err == nil {
				length = n
				break
			}
			if window == end-at || window > 1<<20 {
				return fmt.Errorf("the header of the page at byte %d is damaged: %w", at, err)
			}
		}
		packed, unpacked := int64(header.CompressedPageSize), int64(header.UncompressedPageSize)
		count := int64(0)
		switch header.Type {
		case meta.DataPage:
			count = int64(header.DataPageHeader.V.NumValues)
			values += count
		case meta.DataPageV2:
			count = int64(header.DataPageHeaderV2.V.NumValues)
			values += count
		case meta.DictionaryPage:
			count = int64(header.DictionaryPageHeader.V.NumValues)
		}
		switch {
		case packed < 0 || unpacked < 0 || count < 0:
			return fmt.Errorf("the page at byte %d has sizes below zero", at)
		case packed > t.maxPage || unpacked > t.maxPage:
			return fmt.Errorf("the page at byte %d has %d bytes, unpacked %d, and MaxPage allows %d", at, packed, unpacked, t.maxPage)
		case packed > end-at-length:
			return fmt.Errorf("the page at byte %d should have %d bytes, and the column ends after %d", at, packed, end-at-length)
		case count > g.rows:
			return fmt.Errorf("the page at byte %d has %d values, and the group %d rows", at, count, g.rows)
		}
		if err := checkPacked(f.file, m.Codec, &header, at+length); err != nil {
			return fmt.Errorf("the page at byte %d is damaged: %w", at, err)
		}
		at += length + packed
	}
	if values != g.rows {
		return fmt.Errorf("its pages have %d values, and the group %d rows", values, g.rows)
	}
	return nil
}

// column decodes a column of a group.
func (t *Table) column(f *file, g group, leaf *format.Column, c *columns.Column) (v values, err error) {
	kind := leaf.Type().Kind()
	unsigned := strings.HasSuffix(leaf.Type().String(), ",false)") && strings.HasPrefix(leaf.Type().String(), "INT(")
	add := func(value format.Value) {
		var n int64
		switch {
		case value.IsNull():
		case kind == format.Boolean:
			if value.Boolean() {
				n = 1
			}
		case kind == format.Int32 && unsigned:
			n = int64(value.Uint32())
		case kind == format.Int32:
			n = int64(value.Int32())
		case kind == format.Int64:
			n = value.Int64()
		case kind == format.ByteArray:
			class, ok := c.Classes[string(value.ByteArray())]
			if n = int64(class); !ok {
				n = -1
			}
		}
		v.ints = append(v.ints, n)
		if kind == format.Int64 && unsigned {
			v.floats = append(v.floats, float64(uint64(n)))
			v.big = append(v.big, n < 0)
		}
	}
	if kind == format.Float || kind == format.Double {
		add = func(value format.Value) {
			x := 0.0
			switch {
			case value.IsNull():
			case kind == format.Float:
				x = float64(value.Float())
			default:
				x = value.Double()
			}
			v.floats = append(v.floats, x)
		}
	}

	pages := f.RowGroups()[g.index].ColumnChunks()[leaf.Index()].Pages()
	defer pages.Close()
	buffer := make([]format.Value, 512)
	count := int64(0)
	for count < g.rows {
		page, err := pages.ReadPage()
		if err != nil {
			return v, err
		}
		for r := page.Values(); ; {
			n, err := r.ReadValues(buffer)
			for _, value := range buffer[:n] {
				if count == g.rows {
					format.Release(page)
					return v, errors.New("it has more values than the group has rows")
				}
				if value.IsNull() && v.missing == nil {
					v.missing = make([]bool, count, max(count, 64))
				}
				if v.missing != nil {
					v.missing = append(v.missing, value.IsNull())
				}
				add(value)
				count++
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil && n == 0 {
				err = errors.New("a page has no end")
			}
			if err != nil {
				format.Release(page)
				return v, err
			}
		}
		format.Release(page)
	}
	return v, nil
}

// Close closes the files. At returns an error then. It must not be called while others read.
func (t *Table) Close() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.closed {
		return nil
	}
	t.closed, t.cache, t.recent = true, nil, nil
	var all []error
	for _, f := range t.files {
		all = append(all, f.file.Close())
	}
	return errors.Join(all...)
}

// Stream is the rows of a table in order, of which a group is in memory at a time. It is used by one goroutine at a time.
type Stream struct {
	table *Table
	next  int64 // row
}

// Stream makes a stream of the table's rows.
func (t *Table) Stream() *Stream { return &Stream{table: t} }

// All yields the rows from where the stream is to the end; the stream is at the beginning then. A loop that is left early
// is gone on with by the next All, behind the last row that was yielded.
//
// A *data.FileError about one row comes in the place of the row, and the next row follows, if the loop goes on. One about a
// group of rows is followed by the next group.
func (s *Stream) All() iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		t := s.table
		for _, g := range t.groups {
			if s.next >= g.begin+g.rows {
				continue
			}
			t.mutex.Lock()
			closed := t.closed
			t.mutex.Unlock()
			if closed {
				yield(data.Pair{}, files.Closed(t.files[0].path))
				return
			}
			columns, err := t.decode(g)
			if err != nil {
				s.next = g.begin + g.rows
				if !yield(data.Pair{}, err) {
					return
				}
				continue
			}
			d := &decoded{columns: columns}
			for s.next < g.begin+g.rows {
				row := s.next - g.begin
				rows := t.plan.Rows(1)
				pair := data.Pair{}
				err := t.row(rows, d, row)
				if err != nil {
					err = t.broken(g, row, err)
				} else {
					pair, err = rows.One()
				}
				s.next++
				if !yield(pair, err) {
					return
				}
			}
		}
		s.next = 0
	}
}

const kind = "parquet.Stream"

// StateDict returns where the stream is: behind the last row that was yielded.
func (s *Stream) StateDict() gotorch.Dict {
	return files.Position{Sample: s.next}.Dict(kind, len(s.table.files))
}

// LoadStateDict makes the stream go on from where another of the same table was. It returns a ValueError if the state is of
// something else.
func (s *Stream) LoadStateDict(dict gotorch.Dict) error {
	at, err := files.PositionOf(dict, kind, len(s.table.files))
	if err == nil && at.Sample > s.table.n {
		err = &gotorch.Error{Op: kind, Kind: gotorch.ValueError, Msg: fmt.Sprintf("the state is at row %d, and the table has %d", at.Sample, s.table.n)}
	}
	if err == nil {
		s.next = at.Sample
	}
	return err
}
