package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	meta "github.com/parquet-go/parquet-go/format"
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

// column is a column of the table, with all that may be within it.
type column struct {
	*meta.SchemaElement
	chunk int // which of a group's columns it is
}

func (c column) optional() bool { return c.RepetitionType.V == meta.Optional }

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
		if n > uint64(len(*b)) { // each has a byte at least
			return fmt.Errorf("%d values should be in %d bytes: %w", n, len(*b), io.ErrUnexpectedEOF)
		}
		for range n {
			for _, kind := range kinds {
				if err := b.skip(kind, depth+1); err != nil {
					return err
				}
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

// columns returns the columns of the table.
func (f *footer) columns() ([]column, error) {
	var columns []column
	chunks := 0
	if len(f.Schema) == 0 {
		return nil, errors.New("it has no schema")
	}
	rest := f.Schema[1:]
	for len(rest) > 0 {
		columns = append(columns, column{&rest[0], chunks})
		for open := 1; open > 0; open-- { // it, and what is within it
			if len(rest) == 0 {
				return nil, errors.New("its schema lacks columns")
			}
			switch within := int(rest[0].NumChildren.V); {
			case rest[0].Type.Valid:
				chunks++
			case within < 0 || within > len(rest)-1:
				return nil, fmt.Errorf("column %.60q should have %d columns within it", rest[0].Name, within)
			default:
				open += within
			}
			rest = rest[1:]
		}
	}
	if n := f.Schema[0].NumChildren.V; int(n) != len(columns) {
		return nil, fmt.Errorf("it should have %d columns, and has %d", n, len(columns))
	}
	for i, g := range f.RowGroups {
		if len(g.Columns) != chunks {
			return nil, fmt.Errorf("row group %d has %d columns, and the schema %d", i, len(g.Columns), chunks)
		}
	}
	return columns, nil
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
	if t := c.logical(); t != nil {
		return t.String()
	}
	return c.Type.V.String()
}

// unsigned reports whether a column's integers have no sign.
func (c column) unsigned() bool {
	t, is := c.logical().(*meta.IntType)
	return is && !t.IsSigned
}

// check says why a column cannot be read.
func (c column) check(classes bool) error {
	number := false
	switch t := c.logical(); c.Type.V {
	case meta.Int32, meta.Int64:
		switch t.(type) {
		case nil, *meta.IntType, *meta.DateType, *meta.TimeType, *meta.TimestampType:
			number = true
		}
	case meta.Boolean, meta.Float, meta.Double:
		number = t == nil
	}
	_, decimal := c.logical().(*meta.DecimalType)
	switch text := c.Type.V == meta.ByteArray; {
	case !c.Type.Valid:
		return errors.New("it has columns within it, and only plain ones are read")
	case c.RepetitionType.V == meta.Repeated:
		return errors.New("it is a list in each row, and only plain columns are read")
	case decimal:
		return fmt.Errorf("it is of type %s, which is not read: write it as a float or an integer", c)
	case classes && !text:
		return fmt.Errorf("it is of type %s, and Classes are for text", c)
	case !classes && text:
		return errors.New("it is text, and Classes should say what it can be")
	case !classes && !number:
		return fmt.Errorf("it is of type %s, which is no number", c)
	}
	return nil
}
