package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	format "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	meta "github.com/parquet-go/parquet-go/format"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/columns"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// record is a row with a column in each encoding, of values that may be missing and that may not. Zero is as missing, where
// a column may be and is no pointer.
type record struct {
	I32       int32    `parquet:"i32"`
	I32Dict   int32    `parquet:"i32_dict,dict"`
	I32Delta  int32    `parquet:"i32_delta,delta,optional"`
	I32Split  int32    `parquet:"i32_split,split"`
	I64       *int64   `parquet:"i64,optional"`
	I64Dict   *int64   `parquet:"i64_dict,dict,optional"`
	I64Delta  int64    `parquet:"i64_delta,delta"`
	U32Dict   uint32   `parquet:"u32_dict,dict"`
	U64Delta  uint64   `parquet:"u64_delta,delta"`
	F32Split  float32  `parquet:"f32_split,split"`
	F32Dict   *float32 `parquet:"f32_dict,dict,optional"`
	F64Split  float64  `parquet:"f64_split,split,optional"`
	F64       float64  `parquet:"f64"`
	Bool      *bool    `parquet:"bool,optional"`
	Text      string   `parquet:"text"`
	TextDict  *string  `parquet:"text_dict,dict,optional"`
	TextDelta string   `parquet:"text_delta,delta,optional"`
	TextLong  string   `parquet:"text_long,delta"`
}

var texts3 = []string{"", "red", "redder than red"}

var codecs = []compress.Codec{&format.Uncompressed, &format.Snappy, &format.Gzip, &format.Brotli, &format.Zstd, &format.Lz4Raw}

// random draws rows; in some, values are from few and long the same, as runs are.
func random(rng *rand.Rand, n int) []record {
	rows := make([]record, n)
	few, missing := rng.IntN(2) == 0, []float64{0, 0.3, 1}[rng.IntN(3)]
	word := rng.Uint64()
	next := func() uint64 {
		if !few || rng.IntN(20) == 0 {
			word = rng.Uint64() >> rng.IntN(64)
		}
		return word
	}
	for i := range rows {
		text := func() string { return texts3[next()%3] }
		r := record{
			I32: int32(next()), I32Dict: int32(next()), I32Split: int32(next()), I64Delta: int64(next()), U32Dict: uint32(next()), U64Delta: next(),
			F32Split: float32(next()), F64: math.Inf(1), Text: text(), TextLong: text(),
		}
		for _, set := range []func(){
			func() { r.I32Delta = int32(next()) }, func() { r.I64 = new(int64(next())) }, func() { r.I64Dict = new(int64(next())) },
			func() { r.F32Dict = new(float32(next())) }, func() { r.F64Split = float64(next()) }, func() { r.Bool = new(next()%2 == 1) },
			func() { r.TextDict = new(text()) }, func() { r.TextDelta = text() },
		} {
			if rng.Float64() >= missing {
				set()
			}
		}
		rows[i] = r
	}
	return rows
}

// numbers is what a row is as float64s, -7 where a value is missing.
func (r record) numbers() []float64 {
	number := func(v any) float64 {
		switch v := v.(type) {
		case *int32:
			if v != nil {
				return float64(*v)
			}
		case *int64:
			if v != nil {
				return float64(*v)
			}
		case *float32:
			if v != nil {
				return float64(*v)
			}
		case *float64:
			if v != nil {
				return *v
			}
		case *bool:
			if v != nil && *v {
				return 1
			} else if v != nil {
				return 0
			}
		case *string:
			if v != nil {
				return float64(slices.Index(texts3, *v))
			}
		}
		return -7
	}
	return []float64{
		float64(r.I32), float64(r.I32Dict), number(orNil(r.I32Delta)), float64(r.I32Split), number(r.I64), number(r.I64Dict), float64(r.I64Delta),
		float64(r.U32Dict), float64(r.U64Delta), float64(r.F32Split), number(r.F32Dict), number(orNil(r.F64Split)), r.F64, number(r.Bool),
		number(&r.Text), number(r.TextDict), number(orNil(r.TextDelta)), number(&r.TextLong),
	}
}

func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// all has every column.
var all = func() (l tabular.Layout) {
	for _, column := range format.SchemaOf(record{}).Columns() {
		c := tabular.Column{Name: column[0], Missing: -7}
		if strings.HasPrefix(c.Name, "text") {
			c.Classes = texts3
		}
		l.Inputs = append(l.Inputs, c)
	}
	l.Targets, l.InputDType = tabular.Columns("f64"), gotorch.Float64
	return l
}()

func written(tb testing.TB, rows []record, options ...format.WriterOption) []byte {
	tb.Helper()
	var file bytes.Buffer
	w := format.NewGenericWriter[record](&file, options...)
	_, err := w.Write(rows)
	testhelp.Must(tb, err)
	testhelp.Must(tb, w.Close())
	return file.Bytes()
}

func TestEveryEncodingIsReadAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range testhelp.Rounds(60) {
		rows := random(rng, []int{1, 7, 8, 9, 129, 1000}[rng.IntN(6)])
		file := written(t, rows, format.Compression(codecs[i%len(codecs)]), format.DataPageVersion(1+rng.IntN(2)), format.PageBufferSize([]int{64, 1 << 16}[rng.IntN(2)]))
		set, err := Open([]string{filestest.Write(t, "a.parquet", file)}, all)
		testhelp.Must(t, err)
		defer set.Close()
		k := 0
		for pair, err := range set.Stream().All() {
			testhelp.Must(t, err)
			if got, want := gotorch.ToSlice[float64](pair.Input), rows[k].numbers(); !slices.Equal(got, want) {
				t.Fatalf("file %d: row %d of %d is\n%v, want\n%v", i, k, len(rows), got, want)
			}
			pair.Close()
			k++
		}
		if k != len(rows) {
			t.Errorf("file %d: got %d of %d rows", i, k, len(rows))
		}
	}
}

// A run of four thousand million values takes six bytes.
func TestARunOfMoreValuesThanItsPageIsAnErrorAndCostsNoMemory(t *testing.T) {
	rows := random(rand.New(rand.NewPCG(5, 6)), 1000)
	for i := range rows {
		rows[i].I64Dict, rows[i].TextDelta, rows[i].I64 = new(int64(i)), "red", nil
		if i%2 == 0 {
			rows[i].I64 = new(int64(1))
		}
	}
	many := binary.AppendUvarint(nil, math.MaxUint32<<1)
	delta := func(n uint64) []byte { return append(binary.AppendUvarint([]byte{0x80, 1, 4}, n), 0) }
	for version := 1; version <= 2; version++ {
		whole := written(t, rows, format.Compression(&format.Uncompressed), format.DataPageVersion(version), format.PageBufferSize(1<<20))
		file, err := format.OpenFile(bytes.NewReader(whole), int64(len(whole)))
		testhelp.Must(t, err)
		for _, c := range []struct {
			column, text string
			levels       bool // change them, rather than the values
			content      []byte
		}{
			{"i64", "its levels: a run has 4294967295 values, and 1000 are left", true, append(many, 1)},
			{"i64_dict", "a run has 4294967295 values, and 1000 are left", false, append([]byte{10}, append(many, 1, 0)...)},
			{"i64_dict", "1000 numbers of 10 bits should be in ", false, append([]byte{10}, binary.AppendUvarint(nil, math.MaxUint32<<1|1)...)},
			{"i32_dict", "numbers of 33 bits are none", false, []byte{33, 0xff, 0xff}},
			{"i64_delta", "it says that it has 4294967295 values, and should have 1000", false, delta(math.MaxUint32)},
			{"i64_delta", "blocks of 128 values in 0 parts", false, []byte{0x80, 1, 0, 0xe8, 7, 0}},
			{"text_delta", "it says that it has 4294967295 values, and should have 1000", false, delta(math.MaxUint32)},
			{"text_delta", "text 1 should have 2147483648 more bytes", false, append(steps(1000, 0, 0), steps(1000, 0, 1<<31)...)},
		} {
			b := lying(t, whole, file, c.column, version, c.levels, c.content)
			path := filestest.Write(t, "a.parquet", b)
			set, err := Open([]string{path}, all)
			testhelp.Must(t, err)
			n := filestest.Allocated(func() { _, err = set.At(0) })
			filestest.WantBroken(t, err, path, c.text)
			filestest.WantBroken(t, err, path, fmt.Sprintf("column %q", c.column))
			if n > 4<<20 {
				t.Errorf("%s, version %d: %d bytes were allocated", c.column, version, n)
			}
			testhelp.Must(t, set.Close())
		}
	}
}

// lying is a file with another beginning of the levels, or the values, of a column's page.
func lying(t *testing.T, whole []byte, file *format.File, column string, version int, levels bool, content []byte) []byte {
	t.Helper()
	b := slices.Clone(whole)
	leaf := file.Root().Column(column)
	m := file.Metadata().RowGroups[0].Columns[leaf.Index()].MetaData
	head, length, err := readHeader(bytes.NewReader(b), m.DataPageOffset, int64(len(b)))
	testhelp.Must(t, err)
	at := m.DataPageOffset + length
	switch {
	case levels && version == 1:
		at += 4
	case leaf.Optional() && version == 1:
		at += 4 + int64(binary.LittleEndian.Uint32(b[at:]))
	case leaf.Optional() && !levels:
		at += int64(head.DataPageHeaderV2.V.DefinitionLevelsByteLength)
	}
	page := b[m.DataPageOffset+length:][:head.CompressedPageSize]
	if !levels {
		clear(b[at:][:len(page)-int(at-m.DataPageOffset-length)])
	}
	copy(b[at:], content)
	for { // until the header has the same length with another checksum
		page[len(page)-1]++
		head.CRC = int32(crc32.ChecksumIEEE(page))
		header, err := thrift.Marshal(new(thrift.CompactProtocol), head)
		testhelp.Must(t, err)
		if len(header) == int(length) {
			copy(b[m.DataPageOffset:], header)
			break
		}
	}
	return b
}

// The module's own reader would be less code than ours. It takes memory for what a run says, what a text repeats and what a page
// unpacks to: as long as this test passes, it has none of the bounds that ours has.
func TestTheModulesReaderHasNoBounds(t *testing.T) {
	rows := random(rand.New(rand.NewPCG(5, 6)), 1000)
	for i := range rows {
		rows[i].I64Dict, rows[i].TextLong = new(int64(i)), "red"
	}
	const most = 1 << 22 // values that a page of a thousand says it has
	run := binary.AppendUvarint(nil, most<<1)
	whole := written(t, rows, format.Compression(&format.Uncompressed), format.PageBufferSize(1<<20), format.DataPageVersion(1))
	file, err := format.OpenFile(bytes.NewReader(whole), int64(len(whole)))
	testhelp.Must(t, err)
	for _, c := range []struct {
		column  string
		content []byte
	}{
		{"i64_dict", append([]byte{10}, append(run, 1, 0)...)},
		{"i64_delta", append(binary.AppendUvarint([]byte{0x80, 1, 4}, most), 0)},
		{"text_long", slices.Concat(steps(1000, 0, 4), steps(1000, 4, 0))}, // of 4, 8, 12 and so on bytes
	} {
		b := lying(t, whole, file, c.column, 1, false, c.content)
		theirs := filestest.Allocated(func() {
			file, err := format.OpenFile(bytes.NewReader(b), int64(len(b)))
			testhelp.Must(t, err)
			_, _ = safely(func() (int, error) {
				pages := file.RowGroups()[0].ColumnChunks()[file.Root().Column(c.column).Index()].Pages()
				defer pages.Close()
				_, err := pages.ReadPage()
				return 0, err
			})
		})
		ours := filestest.Allocated(func() {
			set, err := Open([]string{filestest.Write(t, "a.parquet", b)}, all, Options{MaxPage: 1 << 16})
			testhelp.Must(t, err)
			defer set.Close()
			if _, err := set.At(0); err == nil {
				t.Errorf("%s is read", c.column)
			}
		})
		t.Logf("%s: the module allocates %d bytes, and we %d, for %d", c.column, theirs, ours, len(b))
		if theirs < 1<<21 {
			t.Errorf("%s: the module allocates %d bytes: its reader may be bounded now", c.column, theirs)
		}
	}
}

// steps is n integers, each so much more than the one before.
func steps(n uint64, first, step int64) []byte {
	b := binary.AppendVarint(binary.AppendUvarint([]byte{0x80, 1, 4}, n), first)
	for range (n + 126) / 128 {
		b = append(binary.AppendVarint(b, step), 0, 0, 0, 0)
	}
	return b
}

func TestTextsThatBeginAsTheOnesBeforeHaveABound(t *testing.T) {
	page := func(prefixes, lengths []byte) bits { return slices.Concat(prefixes, lengths, make([]byte, 1000)) }
	for _, c := range []struct {
		b    bits
		most int64
		text string
	}{
		{page(steps(1000, 0, 1), steps(1000, 1, 0)), 500500, ""}, // 1, 2, 3 and so on to 1000 bytes
		{page(steps(1000, 0, 1), steps(1000, 1, 0)), 500499, "more bytes than MaxPage allows"},
		{page(steps(1000, 1, 0), steps(1000, 1, 0)), 1 << 20, "text 0 should begin with 1 bytes of the one before, which has 0"},
		{page(steps(1000, 0, 2), steps(1000, 1, 0)), 1 << 20, "text 1 should begin with 2 bytes of the one before, which has 1"},
		{page(steps(1000, 0, -1), steps(1000, 1, 0)), 1 << 20, "text 1 should begin with -1 bytes"},
		{page(steps(1000, 0, 0), steps(1000, 1, -1)), 1 << 20, "text 2 should have -1 more bytes"},
		{page(steps(1000, 0, 0), steps(1000, 2, 0)), 1 << 20, "text 500 should have 2 more bytes, and the page has 0"},
	} {
		n, sum := 0, 0
		err := texts(c.b, meta.DeltaByteArray, 1000, c.most, new([]int64), func(text []byte) { n, sum = n+1, sum+len(text) })
		switch {
		case c.text == "" && (err != nil || n != 1000 || sum != 500500):
			t.Errorf("got %d texts of %d bytes, and %v", n, sum, err)
		case c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)):
			t.Errorf("got %v, want %q", err, c.text)
		}
	}
}

// few is a list of Thrift's compact protocol with n structures of the same bytes.
func few(n int, each ...byte) []byte {
	return slices.Concat(binary.AppendUvarint([]byte{0xfc}, uint64(n)), bytes.Repeat(each, n))
}

// A stack that is too deep ends a program, as memory does that is not there, and no recover helps.
func TestAFooterOfStructuresWithinOthersEndsNoProgram(t *testing.T) {
	const version, schema, rows, groups, end = "\x15\x02", "\x19", "\x16\x00", "\x19", "\x00"
	join := func(parts ...any) (b []byte) {
		for _, part := range parts {
			b = fmt.Appendf(b, "%s", part)
		}
		return b
	}
	long := "\x48" + string(binary.AppendUvarint(nil, 1<<16)) + strings.Repeat("x", 1<<16) + "\x15\xd0\x86\x03\x00" // a struct of 25,000
	leaf, inner, root := "\x15\x02\x38\x00\x00", "\x48\x00\x15\x02\x00", "\x48\x00\x15\xd0\x86\x03\x00"             // which has 25,000 columns
	for text, foot := range map[string][]byte{
		"more than 32 structures lie within":            bytes.Repeat([]byte{0x1c}, 6<<20),
		"more than 32 structures lie within each other": bytes.Repeat([]byte{0x19}, 9<<20),
		"there is no type":                              bytes.Repeat([]byte{0x1f}, 1<<20),
		// The path of each has those of all the ones that it is within.
		"more than 32 columns lie within each other": join(version, schema, few(1<<16, []byte(inner)...), rows, groups, "\x0c", end),
		// So the name of the struct is in all of them.
		"the names of its columns are too long": join(version, schema, "\xfc", binary.AppendUvarint(nil, 25002), "\x48\x00\x15\x02\x00", long,
			strings.Repeat(leaf, 25000), rows, groups, "\x0c", end),
		// Each group says that it has no columns.
		"row group 0 has 0 columns, and the schema 25000": join(version, schema, "\xfc", binary.AppendUvarint(nil, 25001), root,
			strings.Repeat(leaf, 25000), rows, groups, few(25000, []byte("\x19\x0c\x16\x00\x16\x00\x00")...), end),
		// Elements without a name, or anything.
		"a structure in a list lacks its fields":                   join(version, schema, few(300_000, 0), rows, groups, "\x0c", end, strings.Repeat("x", 1<<20)),
		"3500000 values should be in":                              join(version, schema, few(3_500_000, 0), rows, groups, "\x0c", end),
		"a structure in a list lacks":                              join(version, schema, few(900_000, 0x11, 0), rows, groups, "\x0c", end, strings.Repeat("x", 1<<20)),
		"1000001 elements, and 1000000 are the most that are read": join(version, schema, few(1_000_001, 0x48, 0, 0), rows, groups, "\x0c", end),
		"2147483647 values should be in":                           join(version, schema, "\xfc", binary.AppendUvarint(nil, math.MaxInt32)),
		"it should have 2 columns, and has 1":                      join(version, schema, "\x2c\x48\x00\x15\x04\x00", leaf, rows, groups, "\x0c", end),
		"it has no schema":                                         join(version, schema, "\x0c", rows, groups, "\x0c", end),
		"3 bytes are left of it":                                   join(version, schema, "\x0c", rows, groups, "\x0c", end, "abc"),
	} {
		path := filestest.Write(t, "a.parquet", join("PAR1", foot, binary.LittleEndian.AppendUint32(nil, uint32(len(foot))), "PAR1"))
		var err error
		n := filestest.Allocated(func() { _, err = Open([]string{path}, all) })
		filestest.WantBroken(t, err, path, text)
		if most := 8*uint64(len(foot)) + 16<<20; n > most {
			t.Errorf("%s: %d bytes were allocated for %d", text, n, len(foot))
		}
	}
	if _, _, err := readHeader(bytes.NewReader(bytes.Repeat([]byte{0x1c}, 6<<20)), 0, 6<<20); err == nil {
		t.Error("the header of a page may be as deep")
	}
}

func TestAColumnHasOneDictionaryAndPagesOfNothingAreNotUnpacked(t *testing.T) {
	v, b := of(t, meta.Int64), &buffers{}
	table := &Table{maxPage: 1 << 20}
	dictionary := &meta.PageHeader{Type: meta.DictionaryPage, DictionaryPageHeader: thrift.New(meta.DictionaryPageHeader{})}
	testhelp.Must(t, table.page(v, dictionary, meta.Uncompressed, nil, b, nesting{}, 5))
	if err := table.page(v, dictionary, meta.Uncompressed, nil, b, nesting{}, 5); err == nil || !strings.Contains(err.Error(), "the column has one") {
		t.Errorf("got %v", err)
	}
	for _, nothing := range []*meta.PageHeader{
		{Type: meta.DataPage, UncompressedPageSize: 1 << 20, DataPageHeader: thrift.New(meta.DataPageHeader{})},
		{Type: meta.DataPageV2, UncompressedPageSize: 1 << 20, DataPageHeaderV2: thrift.New(meta.DataPageHeaderV2{})},
		{Type: meta.IndexPage, UncompressedPageSize: 1 << 20},
	} {
		testhelp.Must(t, table.page(v, nothing, meta.Zstd, []byte("no frame"), b, nesting{definition: 1}, 5))
	}
}

func TestDamagedPagesAreErrorsAndCostNoMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var files [][]byte // to write one takes much longer than to read it
	for i := range 2 * len(codecs) {
		files = append(files, written(t, random(rng, 200), format.Compression(codecs[i/2]), format.DataPageVersion(1+i%2)))
	}
	for i := range testhelp.Rounds(300) {
		codec := codecs[i%len(files)/2]
		b := slices.Clone(files[i%len(files)])
		for range 1 + rng.IntN(3) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		path := filestest.Write(t, "a.parquet", b)
		var err error
		n := filestest.Allocated(func() {
			var set *Table
			if set, err = Open([]string{path}, all, Options{MaxRows: 1 << 16, MaxPage: 1 << 20}); err != nil {
				return
			}
			defer set.Close()
			for pair, broken := range set.Stream().All() {
				if err = broken; err != nil {
					return
				}
				pair.Close()
			}
		})
		var broken *data.FileError
		if err != nil && !errors.As(err, &broken) {
			t.Errorf("got %T: %v", err, err)
		}
		if n > 32<<20 {
			t.Errorf("file %d, packed by %s: %d bytes were allocated: %v", i, codec, n, err)
		}
	}
}

// FuzzTable looks for a file that is neither refused nor read. Its files are small, so that many can be tried: of each
// encoding, nullability, page's version and codec there is one to begin with.
func FuzzTable(f *testing.F) {
	rng := rand.New(rand.NewPCG(9, 10))
	for i, codec := range codecs {
		f.Add(written(f, random(rng, 9), format.Compression(codec), format.DataPageVersion(1+i%2), format.CreatedBy("", "", "")))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		set, err := Open([]string{filestest.Write(t, "a.parquet", b)}, all, Options{MaxRows: 1 << 12, MaxPage: 1 << 20})
		if err == nil {
			defer set.Close()
			for i := range set.groups {
				if _, e := set.Batch([]int{int(set.groups[i].begin)}, nil); e != nil {
					err = e
				}
			}
		}
		var broken *data.FileError
		if err != nil && !errors.As(err, &broken) {
			t.Fatalf("got %T: %v", err, err)
		}
	})
}

// plainColumn is a column that lies in no other.
func plainColumn(kind meta.Type, unsigned bool) column {
	c := column{SchemaElement: &meta.SchemaElement{Type: thrift.New(kind), TypeLength: thrift.New[int32](2)}}
	if unsigned {
		c.LogicalType.Value = &meta.IntType{BitWidth: 64}
	}
	return c
}

// of returns a column without values yet.
func of(tb testing.TB, kind meta.Type) values {
	tb.Helper()
	v, err := newValues(plainColumn(kind, false), &columns.Column{Size: 1}, gotorch.Float32, 1<<20)
	testhelp.Must(tb, err)
	return v
}

// dictionaryOf3 is the page of a dictionary that has three values.
func dictionaryOf3(kind meta.Type) bits {
	switch kind {
	case meta.ByteArray:
		return bits("\x03\x00\x00\x00red\x00\x00\x00\x00\x01\x00\x00\x00x")
	case meta.Boolean:
		return bits{5}
	}
	return slices.Repeat([]byte{0, 0, 0x80, 0x40, 0, 0, 0, 0, 0, 0, 0, 0}, 3)
}

// plan3 has a column in which values may be missing.
var plan3 = func() *columns.Plan {
	p, err := columns.Of("test", tabular.Layout{Targets: []tabular.Column{{Name: "a", Missing: 3}}}, []string{"a"})
	if err != nil {
		panic(err)
	}
	return p
}()

func TestTheMemoryOfAColumnIsUsedAgain(t *testing.T) {
	v := of(t, meta.Int64).(*typed[int64])
	var all *int64
	var there *uint8
	for i := range 3 {
		v.begin(100, 100, nesting{})
		if v.count() != 0 || v.there != nil {
			t.Fatalf("at the beginning there are %d values, there %v", v.count(), v.there)
		}
		// A page of 50 values that are there, and one of 50 that are missing.
		plain := slices.Repeat([]byte{byte(i + 1), 0, 0, 0, 0, 0, 0, 0}, 50)
		testhelp.Must(t, v.data(plain, nil, bits{100, 1}, meta.Plain, 50, 1<<20))
		testhelp.Must(t, v.data(nil, nil, bits{100, 0}, meta.Plain, 50, 1<<20))
		if v.all[0] != int64(i+1) || v.all[49] != int64(i+1) || v.there[49] != 1 || v.there[50] != 0 {
			t.Errorf("got %v, there %v", v.all, v.there)
		}
		if i > 0 && (&v.all[0] != all || &v.there[0] != there) {
			t.Error("the memory is another")
		}
		all, there = &v.all[0], &v.there[0]
	}
}

// FuzzPage looks for a page of which no values come out, or others than it should have. No checksum keeps it from what
// decodes them, and no recover hides what that does.
func FuzzPage(f *testing.F) {
	for encoding := range 10 {
		for kind := range 7 {
			f.Add(append(steps(9, 1, 1), 4, 0, 0, 0, 3, 0, 0, 0, 'r', 'e', 'd'), []byte{18, 1}, byte(kind), byte(encoding), uint16(9), false, kind == 1)
			f.Add([]byte{2, 18, 1, 18, 2, 3, 0xff, 0xff}, []byte{3, 0x55, 2, 1}, byte(kind), byte(encoding), uint16(9), true, kind == 2)
		}
	}
	f.Fuzz(func(t *testing.T, b, levels []byte, kind, encoding byte, n uint16, optional, unsigned bool) {
		v, err := newValues(plainColumn(meta.Type(kind), unsigned), &columns.Column{Size: 1, Classes: map[string]int{"red": 1}}, gotorch.Float32, 1<<20)
		if err != nil {
			return
		}
		of := nesting{}
		if optional {
			of.definition = 1
		}
		v.begin(int(n), int(n), of)
		if err := v.setDictionary(dictionaryOf3(meta.Type(kind)), 3, 1<<20); err != nil {
			t.Fatal(err)
		}
		there := bits(nil)
		if optional {
			there = append(bits{}, levels...)
		}
		err = v.data(b, nil, there, meta.Encoding(encoding), int(n), 1<<20)
		if err != nil {
			return
		}
		if v.count() != int(n) {
			t.Fatalf("%d values came out, and %d should", v.count(), n)
		}
		c := plan3.Column(0)
		for i := range int(n) { // each is there, or not
			if _, err := v.numbersOf(c, nil, i); err != nil && !strings.Contains(err.Error(), "none of the column's") {
				t.Fatalf("value %d: %v", i, err)
			}
		}
	})
}
