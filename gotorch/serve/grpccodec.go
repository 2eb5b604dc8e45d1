package serve

import (
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// grpcCodec is gRPC's codec for messages of package protobuf. What a client makes small on the wire may be large when it
// is decoded: an empty input is two bytes, and 80 in memory. So a message of the service is looked at before: how many
// things it has, and what they take.
type grpcCodec struct{ encoding.CodecV2 }

func newGRPCCodec() grpcCodec { return grpcCodec{encoding.GetCodecV2("proto")} }

func (c grpcCodec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*inbound)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if data.Len() >= largeDecoding {
		decodingNow <- struct{}{}
		defer func() { <-decodingNow }()
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	text := whole.ReadOnlyData()
	message := in.message.(proto.Message)
	cost, err := messageCost(text, message.ProtoReflect().Descriptor())
	switch {
	case err != nil:
		in.refusal = err
	case !in.decodes(cost):
		in.refusal = errMemory
	default:
		return proto.Unmarshal(text, message)
	}
	return nil
}

// While a message is decoded it is there up to three times: as it came, in one piece, and decoded. What counts is one of
// them, so only few large ones are decoded at a time.
const largeDecoding = 1 << 20

var decodingNow = make(chan struct{}, 2)

// What decoding takes besides the bytes of texts, about: a message, an entry of a map, an element of a list of texts.
const (
	structCost = 256
	entryCost  = 128
	textCost   = 24
)

// messageCost says what a message takes when it is decoded, or that it has more of something than a request may have. A
// text that is no message costs nothing from where on it is none: decoding says so.
func messageCost(text []byte, of protoreflect.MessageDescriptor) (int64, error) {
	cost := int64(structCost)
	var counts [16]int // of the fields that are lists and maps of messages, by number
	fields := of.Fields()
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return cost, nil
		}
		field := fields.ByNumber(number)
		value := text[n:]
		if field == nil || kind != protowire.BytesType {
			size := protowire.ConsumeFieldValue(number, kind, value)
			if size < 0 {
				return cost, nil
			}
			cost += int64(n + size) // unknown, and kept
			if field != nil && field.IsList() {
				cost += 16 // lists grow by doubling
			}
			text = value[size:]
			continue
		}
		content, size := protowire.ConsumeBytes(value)
		if size < 0 {
			return cost, nil
		}
		text = value[size:]
		message := field.Message()
		switch {
		case message != nil || number == rawInputContents && field.IsList() && field.Kind() == protoreflect.BytesKind:
			if (field.IsList() || field.IsMap()) && number < protowire.Number(len(counts)) {
				if counts[number]++; counts[number] > maxTensors {
					return 0, newError(InvalidArgument, "there are more than %d %s in the message", maxTensors, field.Name())
				}
			}
			if message == nil {
				cost += textCost + int64(len(content))
				continue
			}
			if field.IsMap() {
				cost += entryCost
			}
			inner, err := messageCost(content, message)
			if err != nil {
				return 0, err
			}
			cost += inner
		case field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind:
			cost += textCost + int64(len(content))
		default: // numbers, of which each is a byte or more
			cost += packedCost(content, field.Kind())
		}
	}
	return cost, nil
}

// rawInputContents is the field of a request whose elements are counted, though they are no messages.
const rawInputContents = 7

// packedCost is what numbers take that are one after the other.
func packedCost(content []byte, kind protoreflect.Kind) int64 {
	size := int64(8)
	switch kind {
	case protoreflect.FloatKind, protoreflect.DoubleKind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind,
		protoreflect.Sfixed32Kind, protoreflect.Sfixed64Kind:
		return int64(len(content))
	case protoreflect.BoolKind:
		size = 1
	case protoreflect.Int32Kind, protoreflect.Uint32Kind, protoreflect.Sint32Kind, protoreflect.EnumKind:
		size = 4
	}
	count := int64(0)
	for _, b := range content {
		if b < 0x80 {
			count++
		}
	}
	return count * size
}

// Unpacking of messages. grpc-go does it on the goroutine of the call, as many at a time as there are calls, and what comes
// out is counted when it is decoded. So only few are unpacked at a time; none of them waits for a client.

var unpackingNow = make(chan struct{}, 2)

func init() {
	for _, name := range []string{"gzip", "deflate"} {
		if c := encoding.GetCompressor(name); c != nil {
			encoding.RegisterCompressor(unpackedInTurn{c})
		}
	}
}

type unpackedInTurn struct{ encoding.Compressor }

func (c unpackedInTurn) Decompress(r io.Reader) (io.Reader, error) {
	unpackingNow <- struct{}{}
	unpacked, err := c.Compressor.Decompress(r)
	if err != nil {
		<-unpackingNow
		return nil, err
	}
	return &turn{Reader: unpacked}, nil
}

type turn struct {
	io.Reader
	once sync.Once
}

func (t *turn) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if err != nil {
		t.Close()
	}
	return n, err
}

// Close ends the turn; grpc-go calls it, also where it has not read all.
func (t *turn) Close() error {
	t.once.Do(func() { <-unpackingNow })
	return nil
}
