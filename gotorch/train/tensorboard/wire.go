package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Event files are sequences of framed protocol buffers of TensorFlow's. The few messages that are written are put
// together here, field by field: https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto and,
// for what plugins add, tensorboard/plugins/*/*.proto.

// message is the encoding of a protocol buffer.
type message []byte

func (m message) varint(field protowire.Number, v int64) message {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(v))
}

// float adds a number also where it is zero: one of several.
func (m message) float(field protowire.Number, v float64) message {
	return protowire.AppendFixed32(protowire.AppendTag(m, field, protowire.Fixed32Type), math.Float32bits(float32(v)))
}

func (m message) double(field protowire.Number, v float64) message {
	return protowire.AppendFixed64(protowire.AppendTag(m, field, protowire.Fixed64Type), math.Float64bits(v))
}

func (m message) bytes(field protowire.Number, v []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), v)
}

// text adds a string, which readers refuse if it is not UTF-8.
func (m message) text(field protowire.Number, v string) message {
	if v == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), valid(v))
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (m message) doubles(field protowire.Number, values []float64) message {
	return packed(m, field, values, func(b []byte, v float64) []byte { return protowire.AppendFixed64(b, math.Float64bits(v)) })
}

func (m message) floats(field protowire.Number, values []float32) message {
	return packed(m, field, values, func(b []byte, v float32) []byte { return protowire.AppendFixed32(b, math.Float32bits(v)) })
}

func (m message) varints(field protowire.Number, values []int64) message {
	return packed(m, field, values, func(b []byte, v int64) []byte { return protowire.AppendVarint(b, uint64(v)) })
}

// packed adds numbers one behind the other; none where there are none.
func packed[T any](m message, field protowire.Number, values []T, add func([]byte, T) []byte) message {
	if len(values) == 0 {
		return m
	}
	var all []byte
	for _, v := range values {
		all = add(all, v)
	}
	return m.bytes(field, all)
}

// The polynomial is Castagnoli's, and the sum is turned, because files of sums may be summed again.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// framed returns a record of an event file: length, its sum, the data, their sum.
func framed(data []byte) []byte {
	record := make([]byte, 12, len(data)+16)
	binary.LittleEndian.PutUint64(record, uint64(len(data)))
	binary.LittleEndian.PutUint32(record[8:], masked(record[:8]))
	record = append(record, data...)
	return binary.LittleEndian.AppendUint32(record, masked(data))
}

// unframed returns the data of the record that file begins with, and false where there is no whole one.
func unframed(file []byte) ([]byte, bool) {
	if len(file) < 16 || binary.LittleEndian.Uint32(file[8:]) != masked(file[:8]) {
		return nil, false
	}
	n := binary.LittleEndian.Uint64(file)
	if n > uint64(len(file)-16) {
		return nil, false
	}
	data := file[12 : 12+n]
	return data, binary.LittleEndian.Uint32(file[12+n:]) == masked(data)
}

// Data types of TensorFlow's.
const (
	dtFloat = iota + 1
	dtDouble
	dtInt32
	dtUint8
	dtInt16
	dtInt8
	dtString
	dtComplex64
	dtInt64
	dtBool
	dtBFloat16   = 14
	dtUint16     = 17
	dtComplex128 = 18
	dtHalf       = 19
	dtUint32     = 22
	dtUint64     = 23
)

// shape is a TensorShapeProto.
func shape(sizes ...int64) (m message) {
	for _, n := range sizes {
		m = m.bytes(2, message{}.varint(1, n))
	}
	return m
}

// metadata is a SummaryMetadata that names the plugin which shows a value.
func metadata(plugin string, content message) message {
	data := message{}.text(1, plugin)
	if len(content) > 0 {
		data = data.bytes(2, content)
	}
	return message{}.bytes(1, data)
}

// summaryOf is a Summary of one value.
func summaryOf(tag string, value message) message {
	return message{}.bytes(1, append(message{}.text(1, tag), value...))
}
