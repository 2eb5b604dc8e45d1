package parquet

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	format "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/testhelp"
)

// fast is a row of the tables that benchmarks read. Its names are those of the benchmarks.
type fast struct {
	I64       int64    `parquet:"i64"`
	I64Dict   int64    `parquet:"i64_dict,dict"`
	I64Delta  int64    `parquet:"i64_delta,delta"`
	I64Null   *int64   `parquet:"i64_null,optional"`
	I32       int32    `parquet:"i32"`
	I32Dict   int32    `parquet:"i32_dict,dict"`
	I32Delta  int32    `parquet:"i32_delta,delta"`
	F32       float32  `parquet:"f32"`
	F32Dict   float32  `parquet:"f32_dict,dict"`
	F32Null   *float32 `parquet:"f32_null,optional"`
	F32Split  float32  `parquet:"f32_split,split"`
	F64       float64  `parquet:"f64"`
	F64Dict   float64  `parquet:"f64_dict,dict"`
	F64Null   *float64 `parquet:"f64_null,dict,optional"`
	F64Split  float64  `parquet:"f64_split,split"`
	Bool      bool     `parquet:"bool"`
	TextDict  string   `parquet:"text_dict,dict"`
	TextPlain string   `parquet:"text_plain"`
}

const fastRows = 1 << 20

func fastTable(b *testing.B, codec compress.Codec) []byte {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var file bytes.Buffer
	w := format.NewGenericWriter[fast](&file, format.Compression(codec), format.MaxRowsPerRowGroup(1<<18))
	rows := make([]fast, 1<<14)
	for range fastRows / len(rows) {
		for i := range rows {
			few := rng.IntN(1000)
			rows[i] = fast{
				I64: rng.Int64(), I64Dict: int64(few), I64Delta: int64(i)*1000 + int64(few), I32: int32(rng.Uint32()), I32Dict: int32(few), I32Delta: int32(i)*1000 + int32(few),
				F32: rng.Float32(), F32Dict: float32(few) / 8, F32Split: rng.Float32(), F64: rng.Float64(), F64Dict: float64(few) / 8, F64Split: rng.Float64(),
				Bool: few%2 == 1, TextDict: texts3[few%3], TextPlain: texts3[few%3],
			}
			if few%10 != 0 {
				rows[i].I64Null, rows[i].F32Null, rows[i].F64Null = new(rng.Int64()), new(rng.Float32()), new(float64(few))
			}
		}
		_, err := w.Write(rows)
		testhelp.Must(b, err)
	}
	testhelp.Must(b, w.Close())
	return file.Bytes()
}

// BenchmarkColumn decodes a column of 1<<20 rows: as a Table does (ours), as the module's reader gives the values of its pages
// (values), and as it gives the pages (pages), of which those with a dictionary have only places in it.
//
//	go test ./gotorch/data/parquet -run '^$' -bench Column
//
// With PARQUET_DIR it leaves the tables there, for another program to read.
func BenchmarkColumn(b *testing.B) {
	for name, codec := range map[string]compress.Codec{"none": &format.Uncompressed, "snappy": &format.Snappy, "zstd": &format.Zstd} {
		b.Run(name, func(b *testing.B) {
			file := fastTable(b, codec)
			path := filepath.Join(b.TempDir(), name+".parquet")
			testhelp.Must(b, os.WriteFile(path, file, 0o666))
			if dir := os.Getenv("PARQUET_DIR"); dir != "" {
				testhelp.Must(b, os.WriteFile(filepath.Join(dir, name+".parquet"), file, 0o666))
			}
			for _, column := range format.SchemaOf(fast{}).Columns() {
				b.Run(column[0], func(b *testing.B) {
					for name, read := range map[string]func(*testing.B, string, string){"ours": ourColumn, "values": theirValues, "pages": theirPages} {
						b.Run(name, func(b *testing.B) {
							b.SetBytes(fastRows) // a MB/s is a million values
							before := cpuTime()
							read(b, path, column[0])
							b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
						})
					}
				})
			}
		})
	}
}

// cpuTime is what the program has taken, in nanoseconds, which other programs matter less to.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func ourColumn(b *testing.B, path, name string) {
	c := tabular.Column{Name: name, Missing: -7}
	if strings.HasPrefix(name, "text") {
		c.Classes = texts3
	}
	set, err := Open([]string{path}, tabular.Layout{Inputs: []tabular.Column{}, Targets: []tabular.Column{c}})
	testhelp.Must(b, err)
	defer set.Close()
	var all []values
	for b.Loop() {
		for _, g := range set.groups { // as a Stream does
			all, err = set.decode(g, all)
			testhelp.Must(b, err)
		}
	}
}

func theirPages(b *testing.B, path, name string) {
	theirs(b, path, name, func(format.Page) (int, error) { return 0, nil })
}

func theirValues(b *testing.B, path, name string) {
	i32, i64, f32, f64 := make([]int32, 1<<18), make([]int64, 1<<18), make([]float32, 1<<18), make([]float64, 1<<18)
	all := make([]format.Value, 1<<10)
	theirs(b, path, name, func(p format.Page) (n int, err error) {
		switch r := p.Values().(type) {
		case format.Int32Reader:
			return r.ReadInt32s(i32)
		case format.Int64Reader:
			return r.ReadInt64s(i64)
		case format.FloatReader:
			return r.ReadFloats(f32)
		case format.DoubleReader:
			return r.ReadDoubles(f64)
		default:
			for {
				k, err := r.ReadValues(all)
				if n += k; err != nil {
					return n, err
				}
			}
		}
	})
}

func theirs(b *testing.B, path, name string, read func(format.Page) (int, error)) {
	f, err := os.Open(path)
	testhelp.Must(b, err)
	defer f.Close()
	info, err := f.Stat()
	testhelp.Must(b, err)
	opened, err := format.OpenFile(f, info.Size())
	testhelp.Must(b, err)
	at := opened.Root().Column(name).Index()
	for b.Loop() {
		for _, g := range opened.RowGroups() {
			pages := g.ColumnChunks()[at].Pages()
			for {
				p, err := pages.ReadPage()
				if err == io.EOF {
					break
				}
				testhelp.Must(b, err)
				if _, err := read(p); err != nil && err != io.EOF {
					b.Fatal(err)
				}
				format.Release(p)
			}
			testhelp.Must(b, pages.Close())
		}
	}
}
