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
// Columns of all types are read: of lists those with a Size, and of text those with Classes, Encode or Unit, as tabular.Column
// says. A column that does not fit the layout is refused when the table is opened, and so is a file whose columns are of other
// types than those of the first: a *data.FileError says which.
//
// At decodes the whole group of rows that a row is in, and remembers the last few groups; a number takes the bytes of its
// type, of a bool one and of a class four, and one more where values may be missing. Elements of lists, fields of structs, and what is
// made of decimals, 16-bit floats and by Encode, Unit and Unknown take the bytes of the tensor's type, and one more. A batch has each group decoded once. Rows
// in random order from all over a large table have each group decoded for nearly every batch: write such tables in random
// order, with small groups, or go through the Stream.
package parquet

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"sync"

	meta "github.com/parquet-go/parquet-go/format"

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
	Groups  gotorch.Scalar // groups of rows that are remembered, beside the memory of one that was; default: 4
	MaxRows gotorch.Scalar // rows of the largest group that is read, times the largest Size of a column; default: 1<<24
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
	spare  []values         // of a group that was forgotten: memory for another one
	closed bool
}

type file struct {
	path    string
	file    *os.File
	size    int64
	groups  []rowGroup
	columns []column // those of the plan
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

	users     int // that may read columns; guarded by the table's mutex, as is what follows
	forgotten bool
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
	f := &file{path: path, file: opened, size: size}
	t.files = append(t.files, f) // Close closes it
	foot, err := readFooter(opened, size)
	if err != nil {
		return files.Wrap(path, "", err)
	}
	all, err := foot.columns()
	if err != nil {
		return files.Wrap(path, "", fmt.Errorf("it is no valid Parquet file: %w", err))
	}
	f.groups = foot.RowGroups
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	if t.plan == nil {
		if t.plan, err = columns.Of(op, layout, names); err != nil {
			return files.Errorf(path, "", "%v", err)
		}
	}
	for i := range t.plan.Columns() {
		c := t.plan.Column(i)
		at := slices.Index(names, c.Name)
		if c.Within != nil {
			return files.Errorf(path, "", "there is no column %q, and %q has none within it", c.Name, names[c.At])
		}
		if at < 0 {
			return files.Errorf(path, "", "there is no column %q, which %s has", c.Name, t.files[0].path)
		}
		if slices.Contains(names[at+1:], c.Name) {
			return files.Errorf(path, "", "there are two columns %q", c.Name)
		}
		where := fmt.Sprintf("column %q", c.Name)
		if err := all[at].check(c); err != nil {
			return files.Errorf(path, where, "%v", err)
		}
		f.columns = append(f.columns, all[at])
		if first := t.files[0].columns[i]; first.String() != all[at].String() || first.Type.V != all[at].Type.V || first.TypeLength != all[at].TypeLength {
			return files.Errorf(path, where, "it is %s, and in %s it is %s", all[at], t.files[0].path, first)
		}
	}
	for i, g := range f.groups {
		if g.NumRows < 0 || g.NumRows > t.maxRows {
			return files.Errorf(path, fmt.Sprintf("row group %d", i), "it has %d rows, and MaxRows allows %d", g.NumRows, t.maxRows)
		}
		if size := t.plan.LargestSize(); g.NumRows > t.maxRows/size {
			return files.Errorf(path, fmt.Sprintf("row group %d", i), "it has %d rows with %d numbers in a column, and MaxRows allows %d together", g.NumRows, size, t.maxRows)
		}
		if g.NumRows > 0 {
			t.groups = append(t.groups, group{len(t.files) - 1, i, t.n, g.NumRows})
			t.n += g.NumRows
		}
	}
	return nil
}

// Len returns the number of rows.
func (t *Table) Len() int { return int(t.n) }

// At reads the i-th row, from 0. The error is a *data.FileError if the row does not fit the layout, or its file is damaged.
func (t *Table) At(i int) (data.Pair, error) {
	rows, err := t.read([]int{i})
	if err != nil {
		return data.Pair{}, err
	}
	return rows.One()
}

// Batch reads the rows at indices, of each group of rows together.
func (t *Table) Batch(indices []int, _ *rand.Rand) (data.Pair, error) {
	rows, err := t.read(indices)
	if err != nil {
		return data.Pair{}, err
	}
	return rows.Batch()
}

// read reads rows. The error is the one of the first that has one.
func (t *Table) read(indices []int) (*columns.Rows, error) {
	var failed error
	first := len(indices) // where failed is
	fails := func(at int, err error) {
		if at < first {
			first, failed = at, err
		}
	}
	order, of := []int{}, map[int][]columns.Place{} // the groups, and what is wanted of them
	last := -1
	for k, i := range indices {
		if i < 0 || int64(i) >= t.n {
			fails(k, files.OutOfRange("parquet.Table", "row", i, int(t.n)))
			break
		}
		if last < 0 || int64(i) < t.groups[last].begin || int64(i) >= t.groups[last].begin+t.groups[last].rows {
			last = sort.Search(len(t.groups), func(k int) bool { return t.groups[k].begin > int64(i) }) - 1
		}
		if of[last] == nil {
			order = append(order, last)
		}
		of[last] = append(of[last], columns.Place{From: i - int(t.groups[last].begin), To: k})
	}
	rows := t.plan.Block(len(indices))
	for _, at := range t.rememberedFirst(order) {
		places := of[at]
		if places[0].To > first {
			continue // what is wrong comes before
		}
		if k, err := t.fromGroup(rows, at, places); err != nil {
			fails(places[k].To, err)
		}
	}
	if failed != nil {
		return nil, failed
	}
	return rows, nil
}

// fromGroup fills rows of a group. The error is about the first of the places that has one, which it says.
func (t *Table) fromGroup(to *columns.Rows, at int, places []columns.Place) (int, error) {
	d, err := t.decoded(at)
	if d != nil {
		defer t.release(d)
	}
	if err != nil {
		return 0, err
	}
	return t.fill(to, t.groups[at], d.columns, places)
}

// rememberedFirst is the order in which groups are read, so that none is forgotten that is still needed.
func (t *Table) rememberedFirst(groups []int) []int {
	if len(groups) < 2 {
		return groups
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	slices.SortStableFunc(groups, func(a, b int) int {
		switch _, left := t.cache[a]; {
		case left == (t.cache[b] != nil):
			return 0
		case left:
			return -1
		}
		return 1
	})
	return groups
}

// fill puts rows of a group where they belong. The error is about the first of the places that has one, which it says.
func (t *Table) fill(to *columns.Rows, g group, all []values, places []columns.Place) (int, error) {
	first := len(places)
	for k, v := range all {
		first = min(first, v.fillBlock(to, k, places[:first]))
	}
	if first == len(places) {
		return first, nil
	}
	row, k := places[first].From, -1
	err := t.plan.Rows(1).Add(func(c *columns.Column, to []columns.Number) ([]columns.Number, error) {
		k++
		return all[k].numbersOf(c, to, row)
	})
	return first, t.broken(g, int64(row), err)
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

// decoded returns a group's columns, which several goroutines may wait for. They are read until the group is released.
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
	d.users++
	t.recent = append(slices.DeleteFunc(t.recent, func(k int) bool { return k == at }), at)
	if len(t.recent) > t.keep {
		old := t.cache[t.recent[0]]
		delete(t.cache, t.recent[0])
		t.recent = t.recent[1:]
		old.forgotten = true
		t.recycle(old)
	}
	var spare []values
	if !known { // or two goroutines might take it, of which one decodes
		spare, t.spare = t.spare, nil
	}
	t.mutex.Unlock()
	d.once.Do(func() { d.columns, d.err = t.decode(t.groups[at], spare) })
	return d, d.err
}

// release is called for what decoded returned, also with an error, when it is not read any more.
func (t *Table) release(d *decoded) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	d.users--
	t.recycle(d)
}

// recycle keeps the memory of a group that nobody will read again. The mutex is held.
func (t *Table) recycle(d *decoded) {
	if d.forgotten && d.users == 0 && d.columns != nil && !t.closed {
		t.spare, d.columns = d.columns, nil
	}
}

// decode reads the columns of a group that are needed, in the memory of those of another group, if there are any.
func (t *Table) decode(g group, spare []values) ([]values, error) {
	f := t.files[g.file]
	all := make([]values, len(f.columns))
	b := buffersPool.Get().(*buffers)
	defer b.put()
	for i, c := range f.columns {
		where := fmt.Sprintf("row group %d, column %q", g.index, c.name)
		v, err := safely(func() (v values, err error) {
			if spare != nil {
				v = spare[i]
			} else if v, err = newValues(c, t.plan.Column(i), t.plan.DType(i), t.maxRows); err != nil {
				return nil, err
			}
			return v, t.column(f, g, c, v, b)
		})
		if err != nil {
			return nil, files.Wrap(f.path, where, err)
		}
		all[i] = v
	}
	return all, nil
}

// column decodes a column of a group, page by page.
func (t *Table) column(f *file, g group, col column, v values, b *buffers) error {
	c := &f.groups[g.index].Columns[col.chunk]
	m := c.MetaData
	switch {
	case c.FilePath != "":
		return fmt.Errorf("it lies in another file, %.60q, which is not read", c.FilePath)
	case m == nil:
		return errors.New("it is encrypted, which is not read")
	}
	begin := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		begin = m.DictionaryPageOffset
	}
	if begin < 0 || m.TotalCompressedSize < 0 || begin > f.size || m.TotalCompressedSize > f.size-begin {
		return fmt.Errorf("it should lie at byte %d with %d bytes, and the file has %d", begin, m.TotalCompressedSize, f.size)
	}
	// A value has a bit at least, but for those of runs: memory for all is taken as far as there is as much of the file.
	v.begin(int(g.rows), int(min(g.rows, 8*m.TotalCompressedSize)), col.nesting)
	end := begin + m.TotalCompressedSize
	for at := begin; at < end && (col.repetition > 0 || int64(v.count()) < g.rows); { // a list may go on in the next page
		header, length, err := readHeader(f.file, at, end)
		if err != nil {
			return fmt.Errorf("the header of the page at byte %d is damaged: %w", at, err)
		}
		packed := int64(header.CompressedPageSize)
		err = t.checkSizes(header, end-at-length)
		if err == nil {
			content := sized(&b.packed, packed) // the file has as many
			if _, err = f.file.ReadAt(content, at+length); err == nil {
				left := int(g.rows) - v.count()
				if col.repetition > 0 {
					left = int(t.maxRows)
				}
				err = t.page(v, header, m.Codec, content, b, col.nesting, left)
			}
		}
		if err != nil {
			return fmt.Errorf("the page at byte %d: %w", at, err)
		}
		at += length + packed
	}
	if n := int64(v.count()); n != g.rows {
		return fmt.Errorf("its pages have %d values, and the group %d rows", n, g.rows)
	}
	v.done()
	return nil
}

// readHeader reads the header of the page at a byte, and returns how long it is.
func readHeader(f io.ReaderAt, at, end int64) (*meta.PageHeader, int64, error) {
	// Its length is not known: most have some dozen bytes.
	for window := int64(1 << 10); ; window <<= 4 {
		window = min(window, end-at)
		buffer := make([]byte, window)
		if _, err := f.ReadAt(buffer, at); err != nil {
			return nil, 0, err
		}
		header := &meta.PageHeader{}
		length, err := decode(buffer, header)
		if !errors.Is(err, io.ErrUnexpectedEOF) || window == end-at || window > 1<<20 {
			return header, int64(length), err
		}
	}
}

// checkSizes checks what the header of a page says, behind which so many bytes are left of the column.
func (t *Table) checkSizes(header *meta.PageHeader, left int64) error {
	packed, unpacked := int64(header.CompressedPageSize), int64(header.UncompressedPageSize)
	switch {
	case packed < 0 || unpacked < 0:
		return errors.New("it has sizes below zero")
	case packed > t.maxPage || unpacked > t.maxPage:
		return fmt.Errorf("it has %d bytes, unpacked %d, and MaxPage allows %d", packed, unpacked, t.maxPage)
	case packed > left:
		return fmt.Errorf("it should have %d bytes, and the column ends after %d", packed, left)
	}
	return nil
}

// page decodes a page to v, which lacks so many values.
func (t *Table) page(v values, header *meta.PageHeader, codec meta.CompressionCodec, content []byte, b *buffers, of nesting, left int) error {
	if header.CRC != 0 && crc32.ChecksumIEEE(content) != uint32(header.CRC) {
		return errors.New("it is damaged: it is not what its checksum is of")
	}
	count := func(n int32) (int, error) {
		if n < 0 || int(n) > left {
			return 0, fmt.Errorf("it has %d values, and %d rows of the group are left", n, left)
		}
		return int(n), nil
	}
	unpacked := int64(header.UncompressedPageSize)
	v1, v2, dictionary := header.DataPageHeader, header.DataPageHeaderV2, header.DictionaryPageHeader
	switch {
	case header.Type == meta.DataPage && v1.Valid:
		n, err := count(v1.V.NumValues)
		if err != nil || n == 0 {
			return err
		}
		if content, err = unpack(&b.unpacked, codec, content, unpacked); err != nil {
			return err
		}
		rest := bits(content)
		var levels [2]bits
		for i, of := range []struct {
			most     int
			encoding meta.Encoding
		}{{of.repetition, v1.V.RepetitionLevelEncoding}, {of.definition, v1.V.DefinitionLevelEncoding}} {
			if of.most == 0 {
				continue
			}
			if of.encoding != meta.RLE {
				return fmt.Errorf("its levels are encoded as %s, which is not read", of.encoding)
			}
			if levels[i], err = rest.prefixed(); err != nil {
				return err
			}
		}
		return v.data(rest, levels[0], levels[1], v1.V.Encoding, n, t.maxPage)
	case header.Type == meta.DataPageV2 && v2.Valid: // levels come first, and are never packed
		n, err := count(v2.V.NumValues)
		if err != nil || n == 0 {
			return err
		}
		repetitions, definitions := int64(v2.V.RepetitionLevelsByteLength), int64(v2.V.DefinitionLevelsByteLength)
		begin := repetitions + definitions
		if repetitions < 0 || definitions < 0 || begin > int64(len(content)) || begin > unpacked {
			return fmt.Errorf("it should have levels of %d and %d bytes, and has %d", repetitions, definitions, len(content))
		}
		levels := bits(nil)
		if of.definition > 0 {
			levels = content[repetitions:begin]
		}
		if compressed := v2.V.IsCompressed; compressed.Valid && !compressed.V || begin == int64(len(content)) {
			codec = meta.Uncompressed
		}
		rest, err := unpack(&b.unpacked, codec, content[begin:], unpacked-begin)
		if err != nil {
			return err
		}
		return v.data(rest, content[:repetitions], levels, v2.V.Encoding, n, t.maxPage)
	case header.Type == meta.DictionaryPage && dictionary.Valid:
		n := int(dictionary.V.NumValues) // which may be more than there are rows: some are in no row
		var err error
		if content, err = unpack(&b.unpacked, codec, content, unpacked); err != nil {
			return err
		}
		if e := dictionary.V.Encoding; e != meta.Plain && e != plainDictionary {
			return fmt.Errorf("the dictionary is encoded as %s, which is not read", e)
		}
		return v.setDictionary(content, n, t.maxPage)
	case header.Type == meta.IndexPage: // of a column, which no one writes
		return nil
	}
	return fmt.Errorf("it is a %s, or not what its header says", header.Type)
}

// Close closes the files. At returns an error then. It must not be called while others read.
func (t *Table) Close() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.closed {
		return nil
	}
	t.closed, t.cache, t.recent, t.spare = true, nil, nil, nil
	var all []error
	for _, f := range t.files {
		all = append(all, f.file.Close())
	}
	return errors.Join(all...)
}

// Stream is the rows of a table in order, of which a group is in memory at a time. It is used by one goroutine at a time.
type Stream struct {
	table *Table
	at    files.Position // Sample: the row, of all files
}

// Stream makes a stream of the table's rows.
func (t *Table) Stream() *Stream {
	return &Stream{t, files.Position{Kind: "parquet.Stream", Files: len(t.files)}}
}

// All yields the rows of an epoch: all of them, or after LoadStateDict the rest of the epoch that the state is in. A loop that is left
// early changes nothing for the next one.
//
// A *data.FileError about one row comes in the place of the row, and the next row follows, if the loop goes on. One about a
// group of rows is followed by the next group.
func (s *Stream) All() iter.Seq2[data.Pair, error] { return files.All(&s.at, s.walk) }

// From yields the rows of an epoch from a place on, as data.Seekable says: those before are decoded, as a group of them may be
// broken, and dropped. It leaves the stream's state alone, and may be called by several goroutines.
func (s *Stream) From(start data.Start) iter.Seq2[data.Pair, error] {
	return files.From(&s.at, start, s.walk)
}

func (s *Stream) walk(at *files.Position, skip int, yield func(data.Pair, error) bool) bool {
	t := s.table
	var all []values
	for _, g := range t.groups {
		if at.Sample >= g.begin+g.rows {
			continue
		}
		t.mutex.Lock()
		closed := t.closed
		t.mutex.Unlock()
		if closed {
			yield(data.Pair{}, files.Closed(t.files[0].path))
			return false
		}
		var err error
		if all, err = t.decode(g, all); err != nil {
			at.Sample = g.begin + g.rows
			if skip > 0 {
				skip--
			} else if !yield(data.Pair{}, err) {
				return false
			}
			continue
		}
		passed := min(int64(skip), g.begin+g.rows-at.Sample)
		skip -= int(passed)
		for at.Sample += passed; at.Sample < g.begin+g.rows; {
			rows, pair := t.plan.Block(1), data.Pair{}
			_, err := t.fill(rows, g, all, []columns.Place{{From: int(at.Sample - g.begin)}})
			if err == nil {
				pair, err = rows.One()
			}
			at.Sample++
			if !yield(pair, err) {
				return false
			}
		}
	}
	return true
}

// StateDict returns where the stream is: behind the last row that was yielded.
func (s *Stream) StateDict() gotorch.Dict { return s.at.StateDict() }

// LoadStateDict makes the stream go on from where another of the same table was. It returns a ValueError if the state is of
// something else.
func (s *Stream) LoadStateDict(dict gotorch.Dict) error {
	at := s.at
	if err := at.LoadStateDict(dict); err != nil {
		return err
	}
	if at.Sample > s.table.n {
		return args.ValueError(at.Kind, "the state is at row %d, and the table has %d", at.Sample, s.table.n)
	}
	s.at = at
	return nil
}
