package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	meta "github.com/parquet-go/parquet-go/format"

	"gotorch.dev/gotorch/data/internal/columns"
)

// What a file says of itself is decoded by the module, but opened here: in some hundred kilobytes there is room for columns
// within columns, each of which the module gives its whole path, and for structures within structures, until the stack has
// no more. So nothing is given to the module before it has been walked through, and of what it decodes only what is
// needed is kept.

// footer is what is needed of what stands at a file's end.
type footer struct {
	Schema    []meta.SchemaElement `thrift:"2,required"`
	RowGroups []rowGroup           `thrift:"4,required"`
}

type rowGroup struct {
	Columns []chunk `thrift:"1,required"`
	NumRows int64   `thrift:"3,required"`
}

// chunk is a column of a group.
type chunk struct {
	FilePath string     `thrift:"1,optional"`
	MetaData *chunkMeta `thrift:"3,optional"` // nil: it is encrypted
}

type chunkMeta struct {
	Codec                meta.CompressionCodec `thrift:"4,required"`
	TotalCompressedSize  int64                 `thrift:"7,required"`
	DataPageOffset       int64                 `thrift:"9,required"`
	DictionaryPageOffset int64                 `thrift:"11,optional"`
}

// column is a column with values, which may lie in structs and lists.
type column struct {
	*meta.SchemaElement
	chunk int    // which of a group's columns it is
	name  string // with those of the structs that it is in
	nesting
}

// nesting is what the levels of values mean, which say what of their column there is: each optional structure that is there
// adds one to the definition level, and each list that has elements.
type nesting struct {
	repetition, definition int // the highest levels: there is a value
	list                   int // the definition level of an element of the innermost list; 0: the column is in no list
	empty                  int // the definition level of an outermost list without elements; lower ones are null
}

func (n *nesting) add(r meta.FieldRepetitionType) {
	switch r {
	case meta.Repeated:
		if n.repetition == 0 {
			n.empty = n.definition
		}
		n.repetition++
		n.definition++
		n.list = n.definition
	case meta.Optional:
		n.definition++
	}
}

// readFooter reads what a file says of itself.
func readFooter(f io.ReaderAt, size int64) (*footer, error) {
	var end [8]byte
	if size < 12 {
		return nil, errors.New("it is no Parquet file: it is too short")
	}
	if _, err := f.ReadAt(end[:4], 0); err != nil {
		return nil, err
	}
	if string(end[:4]) != "PAR1" {
		return nil, fmt.Errorf("it is no valid Parquet file: it begins with %q", end[:4])
	}
	if _, err := f.ReadAt(end[:], size-8); err != nil {
		return nil, err
	}
	if string(end[4:]) != "PAR1" {
		return nil, fmt.Errorf("it is no Parquet file, or cut short, or encrypted: it ends with %q", end[4:])
	}
	length := int64(binary.LittleEndian.Uint32(end[:4]))
	if length > size-12 {
		return nil, fmt.Errorf("it is no valid Parquet file: its footer should have %d bytes, and it has %d in all", length, size)
	}
	content := make([]byte, length) // the file has as many
	if _, err := f.ReadAt(content, size-8-length); err != nil {
		return nil, err
	}
	foot := &footer{}
	n, err := decode(content, foot)
	if err == nil && n != len(content) {
		err = fmt.Errorf("%d bytes are left of it, as where it is signed", len(content)-n)
	}
	if err != nil {
		return nil, fmt.Errorf("it is no valid Parquet file: its footer: %w", err)
	}
	return foot, nil
}

// decode decodes a structure that lies at the beginning of b, and returns how many bytes it has. Texts in it keep b.
func decode(b []byte, into any) (int, error) {
	rest := bits(b)
	if err := rest.skip(structure, 0); err != nil {
		return 0, err
	}
	n := len(b) - len(rest)
	return safely(func() (int, error) {
		var protocol thrift.CompactProtocol
		r := protocol.NewReaderFromBytes(b[:n])
		err := thrift.NewDecoder(r).Decode(into)
		if err == nil && r.BytesRead() != n {
			err = fmt.Errorf("its decoder took %d bytes of %d", r.BytesRead(), n)
		}
		return n, err
	})
}

// The types of values in Thrift's compact protocol.
const (
	yes = iota + 1
	no
	int8s
	int16s
	int32s
	int64s
	float64s
	binaries
	list
	set
	mapping
	structure
	uuid
)

// The decoder allocates a list's elements before it reads them, and one of a schema is 30 times as long there as the fewest bytes
// that it has in a file. So a list has as many elements as Arrow reads by default, and a structure in a list its fewest bytes:
// a field, its value, which is no bool in any of the format's, and its end.
const mostElements, fewestBytes = 1_000_000, 3

// deepest is how many structures and lists may lie within each other; those of the format are nine.
const deepest = 32

// skip takes a value of a type that is no field: it has all the bytes and all the values that it says it has, and nothing
// in it lies too deep.
func (b *bits) skip(kind byte, depth int) error {
	if depth > deepest {
		return fmt.Errorf("more than %d structures lie within each other", deepest)
	}
	take := func(n int) error {
		_, err := b.take(n)
		return err
	}
	many := func(n uint64, kinds ...byte) error {
		fewest := 1
		if kinds[0] == structure {
			fewest = fewestBytes
		}
		if n > uint64(len(*b)/fewest) {
			return fmt.Errorf("%d values should be in %d bytes: %w", n, len(*b), io.ErrUnexpectedEOF)
		}
		if n > mostElements {
			return fmt.Errorf("a list has %d elements, and %d are the most that are read", n, mostElements)
		}
		for range n {
			before := len(*b)
			for _, kind := range kinds {
				if err := b.skip(kind, depth+1); err != nil {
					return err
				}
			}
			if before-len(*b) < fewest {
				return errors.New("a structure in a list lacks its fields")
			}
		}
		return nil
	}
	switch kind {
	case yes, no, int8s:
		return take(1)
	case int16s, int32s, int64s:
		_, err := b.uvarint()
		return err
	case float64s:
		return take(8)
	case uuid:
		return take(16)
	case binaries:
		n, err := b.uvarint()
		if err == nil && n > uint64(len(*b)) {
			err = fmt.Errorf("%d bytes should follow, and %d do: %w", n, len(*b), io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		return take(int(n))
	case list, set:
		head, err := b.take(1)
		if err != nil {
			return err
		}
		n := uint64(head[0] >> 4)
		if n == 15 {
			if n, err = b.uvarint(); err != nil {
				return err
			}
		}
		return many(n, head[0]&15)
	case mapping:
		n, err := b.uvarint()
		if err != nil || n == 0 {
			return err
		}
		kinds, err := b.take(1)
		if err != nil {
			return err
		}
		return many(n, kinds[0]>>4, kinds[0]&15)
	case structure:
		for {
			head, err := b.take(1)
			if err != nil || head[0] == 0 {
				return err
			}
			if head[0]>>4 == 0 { // the field's number follows
				if _, err := b.uvarint(); err != nil {
					return err
				}
			}
			if kind := head[0] & 15; kind != yes && kind != no { // which are their own value
				if err := b.skip(kind, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return fmt.Errorf("there is no type %d", kind)
}

// deepestColumn is how many structs and lists a column may be in, and longestNames how long all names may be together, beyond
// some times those in the file: those of structs are in the names of all their columns.
const deepestColumn, longestNames = 32, 1 << 18

// columns returns the columns of the table that have values.
func (f *footer) columns() ([]column, error) {
	if len(f.Schema) == 0 {
		return nil, errors.New("it has no schema")
	}
	s := schema{rest: f.Schema[1:], names: longestNames}
	for _, e := range f.Schema {
		s.names += 16 * len(e.Name)
	}
	n := 0
	for ; len(s.rest) > 0; n++ {
		if err := s.add("", nesting{}, false, false, 0); err != nil {
			return nil, err
		}
	}
	if want := f.Schema[0].NumChildren.V; int(want) != n {
		return nil, fmt.Errorf("it should have %d columns, and has %d", want, n)
	}
	for i, g := range f.RowGroups {
		if len(g.Columns) != len(s.columns) {
			return nil, fmt.Errorf("row group %d has %d columns, and the schema %d", i, len(g.Columns), len(s.columns))
		}
	}
	return s.columns, nil
}

// schema is what is left of a schema, and the columns that were found in it.
type schema struct {
	rest    []meta.SchemaElement
	columns []column
	names   int // bytes that are left for names
}

// add adds the next element and those within it. One that is only there because a list is (unnamed) has the list's name.
func (s *schema) add(name string, n nesting, unnamed, inList bool, depth int) error {
	if len(s.rest) == 0 {
		return errors.New("its schema lacks columns")
	}
	if depth > deepestColumn {
		return fmt.Errorf("more than %d columns lie within each other", deepestColumn)
	}
	e := &s.rest[0]
	s.rest = s.rest[1:]
	if !unnamed {
		if name != "" {
			name += "."
		}
		name += e.Name
		if s.names -= len(name); s.names < 0 {
			return errors.New("the names of its columns are too long")
		}
	}
	if e.RepetitionType.Valid {
		n.add(e.RepetitionType.V)
	}
	if e.Type.Valid {
		s.columns = append(s.columns, column{e, len(s.columns), name, n})
		return nil
	}
	within := int(e.NumChildren.V)
	if within < 0 || within > len(s.rest) {
		return fmt.Errorf("column %.60q should have %d columns within it", e.Name, within)
	}
	repeated := func(e *meta.SchemaElement) bool { return e.RepetitionType.Valid && e.RepetitionType.V == meta.Repeated }
	of := (column{SchemaElement: e}).logical()
	_, list := of.(*meta.ListType)
	_, mapping := of.(*meta.MapType)
	switch unnamed = false; {
	case within != 1:
	case list || mapping: // whose elements are in a group of their own
		unnamed = repeated(&s.rest[0])
	case inList && repeated(e): // that group, but in old files, where it is the element
		unnamed = e.Name != "array" && !strings.HasSuffix(e.Name, "_tuple") && !repeated(&s.rest[0])
	}
	for range within {
		if err := s.add(name, n, unnamed, list, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// logical is what a column's values stand for, which old files say in another way; nil: for themselves.
func (c column) logical() meta.LogicalTypeValue {
	if c.LogicalType.Value != nil || !c.ConvertedType.Valid {
		return c.LogicalType.Value
	}
	milliseconds, microseconds := meta.TimeUnit{Value: &meta.MilliSeconds{}}, meta.TimeUnit{Value: &meta.MicroSeconds{}}
	switch t := c.ConvertedType.V; t {
	case deprecated.UTF8:
		return &meta.StringType{}
	case deprecated.Map, deprecated.MapKeyValue:
		return &meta.MapType{}
	case deprecated.List:
		return &meta.ListType{}
	case deprecated.Enum:
		return &meta.EnumType{}
	case deprecated.Decimal:
		return &meta.DecimalType{Scale: c.Scale.V, Precision: c.Precision.V}
	case deprecated.Date:
		return &meta.DateType{}
	case deprecated.TimeMillis:
		return &meta.TimeType{IsAdjustedToUTC: true, Unit: milliseconds}
	case deprecated.TimeMicros:
		return &meta.TimeType{IsAdjustedToUTC: true, Unit: microseconds}
	case deprecated.TimestampMillis:
		return &meta.TimestampType{IsAdjustedToUTC: true, Unit: milliseconds}
	case deprecated.TimestampMicros:
		return &meta.TimestampType{IsAdjustedToUTC: true, Unit: microseconds}
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		return &meta.IntType{BitWidth: 8 << (t - deprecated.Uint8)}
	case deprecated.Int8, deprecated.Int16, deprecated.Int32, deprecated.Int64:
		return &meta.IntType{BitWidth: 8 << (t - deprecated.Int8), IsSigned: true}
	case deprecated.Json:
		return &meta.JsonType{}
	case deprecated.Bson:
		return &meta.BsonType{}
	}
	return nil
}

// String names a column's type.
func (c column) String() string {
	text := c.Type.V.String()
	if t := c.logical(); t != nil {
		text = t.String()
	}
	if c.repetition > 0 {
		return "list of " + text
	}
	return text
}

// unsigned reports whether a column's integers have no sign.
func (c column) unsigned() bool {
	t, is := c.logical().(*meta.IntType)
	return is && !t.IsSigned
}

// widest is how many bytes the integer of a decimal may have, and the most digits behind its point; those of 256 bits are
// the widest that are written.
const widestDecimal, longestScale = 64, 100

// check says why a column of the file is not what a layout's can be made of.
func (c column) check(w *columns.Column) error {
	kind, logical := c.Type.V, c.logical()
	bytes := kind == meta.ByteArray || kind == meta.FixedLenByteArray
	integer, number, time := false, kind == meta.Int96, kind == meta.Int96
	switch t := logical.(type) {
	case nil:
		integer = kind == meta.Int32 || kind == meta.Int64 || kind == meta.Boolean
		number = number || integer || kind == meta.Float || kind == meta.Double
	case *meta.IntType:
		integer, number = kind == meta.Int32 || kind == meta.Int64, true
	case *meta.DateType:
		number, time = kind == meta.Int32, true
	case *meta.TimeType, *meta.TimestampType:
		number, time = kind == meta.Int32 || kind == meta.Int64, true
	case *meta.DecimalType:
		if t.Scale < 0 || t.Scale > longestScale || kind == meta.FixedLenByteArray && c.TypeLength.V > widestDecimal {
			return fmt.Errorf("it is of type %s in %d bytes, which is not read", c, c.TypeLength.V)
		}
		number, bytes = bytes || kind == meta.Int32 || kind == meta.Int64, false
	case *meta.Float16Type:
		if kind != meta.FixedLenByteArray || c.TypeLength.V != 2 {
			return fmt.Errorf("it is of type %s in %d bytes, and not in two", c, c.TypeLength.V)
		}
		number, bytes = true, false
	}
	switch {
	case kind == meta.FixedLenByteArray && c.TypeLength.V < 1:
		return fmt.Errorf("its values have %d bytes", c.TypeLength.V)
	case c.repetition > 0 && w.Encode != nil:
		return errors.New("it is a list in each row, and Encode is for a text")
	case c.repetition > 0 && !w.List:
		return errors.New("it is a list in each row: say by Size how many elements it has")
	case c.repetition == 0 && w.List && w.Encode == nil:
		return fmt.Errorf("it is of type %s, and Size is for lists and Encode", c)
	case w.Encode != nil && !bytes:
		return fmt.Errorf("it is of type %s, and Encode is for text", c)
	case w.Classes != nil && !bytes && !integer:
		return fmt.Errorf("it is of type %s, and Classes are for text, integers and bools", c)
	case w.Unit != 0 && !bytes && !time:
		return fmt.Errorf("it is of type %s, and Unit is for dates, times and text", c)
	case w.Encode != nil || w.Classes != nil || w.Unit != 0:
		return nil
	case bytes:
		return errors.New("it is text, and Classes should say what it can be, or Encode make numbers of it")
	case !number:
		return fmt.Errorf("it is of type %s, which is no number", c)
	}
	return nil
}
