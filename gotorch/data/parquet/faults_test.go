package parquet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	format "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	meta "github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/columns"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %q", err, text)
	}
}

func TestWhatAPageCannotHaveIsSaid(t *testing.T) {
	for _, c := range []struct {
		kind     meta.Type
		encoding meta.Encoding
		content  []byte
		text     string
	}{
		{meta.Int64, meta.RLEDictionary, []byte{1, 18, 0}, "a run has 9 values, and 8 are left"},
		{meta.Int64, meta.RLEDictionary, []byte{9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff}, "8 numbers of 9 bits should be in 2 bytes"},
		{meta.Int64, meta.RLEDictionary, []byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, ""}, // the first one, 8 times
		{meta.Int64, meta.RLEDictionary, []byte{1, 65, 0x55}, ""},
		{meta.Int64, meta.RLEDictionary, []byte{3, 16, 9}, "a run is of 9, which has more than 3 bits"},
		{meta.Int64, meta.RLEDictionary, []byte{3, 16, 3}, "a value is the dictionary's 3, which has 3"},
		{meta.Int64, meta.RLEDictionary, []byte{2, 8, 1, 8}, "1 bytes are missing"},
		{meta.Int64, meta.DeltaBinaryPacked, slices.Concat([]byte{0x80, 1, 4, 8, 0}, []byte{0, 65, 0, 0, 0}, make([]byte, 300)), "numbers of 65 bits are none"},
		{meta.Int64, meta.ByteStreamSplit, make([]byte, 65), "8 values should have 64 bytes, and have 65"},
		{meta.Int64, meta.Plain, make([]byte, 63), "8 values should have 64 bytes, and have 63"},
		{meta.Int32, meta.DeltaByteArray, make([]byte, 63), "which is not read"},
		{meta.Int96, meta.DeltaBinaryPacked, make([]byte, 96), "which is not read"},
	} {
		v, err := newValues(plainColumn(c.kind, false), &columns.Column{Size: 1}, gotorch.Float32, 1<<20)
		if err != nil {
			wantText(t, err, c.text)
			continue
		}
		v.begin(8, 8, nesting{})
		testhelp.Must(t, v.setDictionary(dictionaryOf3(c.kind), 3, 1<<20))
		err = v.data(c.content, nil, nil, c.encoding, 8, 1<<20)
		if c.text == "" {
			testhelp.Must(t, err)
			continue
		}
		wantText(t, err, c.text)
	}
}

func TestAPageIsWhatItsHeaderSays(t *testing.T) {
	table := &Table{maxPage: 1 << 20}
	plain := binary.LittleEndian.AppendUint64(nil, 7)
	v1 := &meta.PageHeader{Type: meta.DataPage, UncompressedPageSize: 8, CRC: 1, DataPageHeader: thrift.New(meta.DataPageHeader{NumValues: 1})}
	wantText(t, table.page(of(t, meta.Int64), v1, meta.Uncompressed, plain, &buffers{}, nesting{}, 5), "not what its checksum is of")
	// Levels of what cannot repeat are passed over; what says so is not packed, in a column that is.
	head := meta.DataPageHeaderV2{NumValues: 2, RepetitionLevelsByteLength: 3, DefinitionLevelsByteLength: 2, IsCompressed: thrift.New(false)}
	v2 := &meta.PageHeader{Type: meta.DataPageV2, UncompressedPageSize: 13, DataPageHeaderV2: thrift.New(head)}
	v := of(t, meta.Int64).(*typed[int64])
	testhelp.Must(t, table.page(v, v2, meta.Zstd, slices.Concat([]byte{4, 0, 0}, []byte{3, 2}, plain), &buffers{}, nesting{definition: 1}, 5))
	if len(v.all) != 2 || v.all[1] != 7 || !slices.Equal(v.there, []uint8{0, 1}) {
		t.Errorf("got %v, there %v", v.all, v.there)
	}
	wantText(t, table.checkSizes(&meta.PageHeader{CompressedPageSize: 9}, 8), "it should have 9 bytes, and the column ends after 8")
}

func TestWhatAPageUnpacksToHasABound(t *testing.T) {
	packed := filestest.Gzip(make([]byte, 1<<22))
	for _, c := range []struct {
		codec   meta.CompressionCodec
		content []byte
		size    int64
		fits    bool
	}{
		{meta.Gzip, packed, 1 << 22, true},
		{meta.Gzip, packed, 1<<22 - 1, false},
		{meta.Gzip, packed, 100, false},
		{meta.Snappy, []byte{0x80, 0x80, 0x80, 2, 0}, 1 << 22, false},
		{meta.Lz4Raw, []byte{0}, 1 << 22, false},
		{meta.Lz4, []byte{0}, 1 << 22, false},
		{meta.Lz4, []byte{0, 0x40, 0, 0, 0, 0, 0, 1, 0}, 1 << 22, false},
	} {
		var err error
		n := filestest.Allocated(func() { _, err = unpack(new([]byte), c.codec, c.content, c.size) })
		if (err == nil) != c.fits || !c.fits && c.size != 1<<22-1 && n > 1<<20 {
			t.Errorf("%s to %d bytes: got %v, and %d bytes were allocated", c.codec, c.size, err, n)
		}
	}
}

// LZ4 of files of before 2021 is what Hadoop makes, blocks with their sizes, or one block.
func TestLZ4OfOldFiles(t *testing.T) {
	content := bytes.Repeat([]byte("some text. "), 100)
	packed := make([]byte, lz4.CompressBlockBound(len(content)))
	block := func(b []byte) []byte {
		n, err := lz4.CompressBlock(b, packed, nil)
		testhelp.Must(t, err)
		return bytes.Clone(packed[:n])
	}
	sizes := func(b []byte) []byte {
		p := block(b)
		return slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(b))), binary.BigEndian.AppendUint32(nil, uint32(len(p))), p)
	}
	for what, file := range map[string][]byte{
		"a block": block(content), "a block of Hadoop": sizes(content), "two blocks of Hadoop": slices.Concat(sizes(content[:500]), sizes(content[500:])),
	} {
		got, err := unpack(new([]byte), meta.Lz4, file, int64(len(content)))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
		for n := range file {
			if got, err := unpack(new([]byte), meta.Lz4, file[:n], int64(len(content))); err == nil {
				t.Fatalf("%s: the first %d bytes are %q", what, n, got)
			}
		}
	}
}

// changed is a file that says something else of itself.
func changed(t *testing.T, file []byte, change func(m *meta.FileMetaData)) []byte {
	t.Helper()
	opened, err := format.OpenFile(bytes.NewReader(file), int64(len(file)))
	testhelp.Must(t, err)
	m := opened.Metadata()
	change(m)
	foot, err := thrift.Marshal(new(thrift.CompactProtocol), m)
	testhelp.Must(t, err)
	length := len(file) - 8 - int(binary.LittleEndian.Uint32(file[len(file)-8:]))
	return slices.Concat(file[:length], foot, binary.LittleEndian.AppendUint32(nil, uint32(len(foot))), []byte("PAR1"))
}

// element returns a column of a schema.
func element(m *meta.FileMetaData, name string) *meta.SchemaElement {
	return &m.Schema[slices.IndexFunc(m.Schema, func(e meta.SchemaElement) bool { return e.Name == name })]
}

func TestWhatAFooterCannotSayIsAnError(t *testing.T) {
	rows := random(rand.New(rand.NewPCG(11, 12)), 20)
	file := written(t, rows, format.Compression(&format.Uncompressed))
	first := filestest.Write(t, "first.parquet", file)
	for text, change := range map[string]func(m *meta.FileMetaData){
		`column "i32": ValueError: it is a list in each row`: func(m *meta.FileMetaData) { element(m, "i32").RepetitionType = thrift.New(meta.Repeated) },
		`column "i32" should have -1 columns within it`: func(m *meta.FileMetaData) {
			element(m, "i32").Type, element(m, "i32").NumChildren = thrift.Null[meta.Type]{}, thrift.New[int32](-1)
		},
		"it is DATE, and in":                     func(m *meta.FileMetaData) { element(m, "i32").LogicalType.Value = &meta.DateType{} },
		"it is INT(32,true), and":                func(m *meta.FileMetaData) { element(m, "i32").Type = thrift.New(meta.Int64) },
		`there are two columns "i32"`:            func(m *meta.FileMetaData) { element(m, "bool").Name = "i32" },
		`there is no column "bool", which`:       func(m *meta.FileMetaData) { element(m, "bool").Name = "boole" },
		"it lies in another file, \"b.parquet\"": func(m *meta.FileMetaData) { m.RowGroups[0].Columns[0].FilePath = "b.parquet" },
		"it should lie at byte 4 with": func(m *meta.FileMetaData) {
			m.RowGroups[0].Columns[0].MetaData.TotalCompressedSize = int64(len(file))
		},
		"its pages have 20 values, and the group 21 rows": func(m *meta.FileMetaData) { m.RowGroups[0].NumRows = 21 },
		"the page at byte 4: it has 20 values, and 19":    func(m *meta.FileMetaData) { m.RowGroups[0].NumRows = 19 },
	} {
		path := filestest.Write(t, "a.parquet", changed(t, file, change))
		set, err := Open([]string{first, path}, all)
		if err == nil {
			_, err = set.At(20)
			testhelp.Must(t, set.Close())
		}
		filestest.WantBroken(t, err, path, text)
	}
	lying := slices.Clone(file)
	binary.LittleEndian.PutUint32(lying[len(lying)-8:], uint32(len(lying)-11))
	path := filestest.Write(t, "a.parquet", lying)
	_, err := Open([]string{path}, all)
	filestest.WantBroken(t, err, path, "its footer should have")
}

func TestAnEncryptedColumnIsNotRead(t *testing.T) {
	f := &file{groups: []rowGroup{{Columns: []chunk{{}}, NumRows: 1}}}
	err := (&Table{}).column(f, group{rows: 1}, column{SchemaElement: &meta.SchemaElement{}}, of(t, meta.Int64), &buffers{})
	wantText(t, err, "it is encrypted")
}

// Files of before 2017 say by another field what their integers are.
func TestTypesOfOldFilesAreThoseOfNewOnes(t *testing.T) {
	for want, converted := range map[string]deprecated.ConvertedType{
		"STRING": deprecated.UTF8, "MAP": deprecated.MapKeyValue, "LIST": deprecated.List, "ENUM": deprecated.Enum, "DECIMAL(9,2)": deprecated.Decimal,
		"DATE": deprecated.Date, "TIME(isAdjustedToUTC=true,unit=MILLIS)": deprecated.TimeMillis, "TIME(isAdjustedToUTC=true,unit=MICROS)": deprecated.TimeMicros,
		"TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS)": deprecated.TimestampMillis, "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)": deprecated.TimestampMicros,
		"INT(8,false)": deprecated.Uint8, "INT(16,false)": deprecated.Uint16, "INT(32,false)": deprecated.Uint32, "INT(64,false)": deprecated.Uint64,
		"INT(8,true)": deprecated.Int8, "INT(16,true)": deprecated.Int16, "INT(32,true)": deprecated.Int32, "INT(64,true)": deprecated.Int64,
		"JSON": deprecated.Json, "BSON": deprecated.Bson, "INT64": deprecated.Interval,
	} {
		e := &meta.SchemaElement{Type: thrift.New(meta.Int64), ConvertedType: thrift.New(converted), Precision: thrift.New[int32](9), Scale: thrift.New[int32](2)}
		if got := (column{SchemaElement: e}).String(); got != want {
			t.Errorf("%d is %s, want %s", converted, got, want)
		}
	}
	rows := make([]record, 3)
	for i := range rows {
		rows[i].U32Dict, rows[i].Text = 1<<32-1-uint32(i), "red"
	}
	file := changed(t, written(t, rows), func(m *meta.FileMetaData) {
		element(m, "u32_dict").LogicalType.Value, element(m, "u32_dict").ConvertedType = nil, thrift.New(deprecated.Uint32)
	})
	set, err := Open([]string{filestest.Write(t, "a.parquet", file)}, tabular.Layout{Targets: tabular.Columns("u32_dict"), Inputs: tabular.Columns("i32"), TargetDType: gotorch.Int64})
	testhelp.Must(t, err)
	defer set.Close()
	pair, err := set.At(2)
	testhelp.Must(t, err)
	if got := gotorch.Item[int64](pair.Target); got != 1<<32-3 {
		t.Errorf("got %d", got)
	}
}

func TestColumnsBesideNestedOnesAreFound(t *testing.T) {
	type nested struct {
		Before struct{ X, Y int64 }
		Z      int64
		Lists  []struct{ A, B []int32 }
		Last   float64
	}
	var file bytes.Buffer
	w := format.NewGenericWriter[nested](&file, format.Compression(compress.Codec(&format.Snappy)))
	for i := range 10 {
		row := nested{Z: int64(i), Last: float64(i) / 2}
		row.Before.X, row.Before.Y = 100, 200
		_, err := w.Write([]nested{row})
		testhelp.Must(t, err)
		if i%4 == 3 {
			testhelp.Must(t, w.Flush())
		}
	}
	testhelp.Must(t, w.Close())
	set, err := Open([]string{filestest.Write(t, "a.parquet", file.Bytes())}, tabular.Layout{Inputs: tabular.Columns("Last", "Z"), Targets: tabular.Columns("Z")}, Options{Groups: 1})
	testhelp.Must(t, err)
	defer set.Close()
	for i := range 10 {
		pair, err := set.At(i)
		testhelp.Must(t, err)
		if got := gotorch.ToSlice[float64](pair.Input); !slices.Equal(got, []float64{float64(i) / 2, float64(i)}) {
			t.Errorf("row %d is %v", i, got)
		}
		if len(set.cache) != 1 || len(set.recent) != 1 {
			t.Errorf("%d groups are remembered", len(set.cache))
		}
	}
	stream := set.Stream()
	for range 2 { // at the end it is at the beginning
		n := 0
		for _, err := range stream.All() {
			testhelp.Must(t, err)
			n++
		}
		if n != 10 {
			t.Errorf("got %d rows", n)
		}
	}
	state := stream.StateDict()
	for i := range state {
		if state[i].Key == "sample" {
			state[i].Value = int64(11)
		}
	}
	wantText(t, stream.LoadStateDict(state), "the state is at row 11, and the table has 10")
}
