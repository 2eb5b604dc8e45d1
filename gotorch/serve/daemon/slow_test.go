package daemon

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// Clients that send little, slowly, or what becomes much.

// rawClient is a connection of HTTP/2 that sends what it is told to.
type rawClient struct {
	net.Conn
	*http2.Framer
	headers *hpack.Encoder
	block   bytes.Buffer
	next    uint32
}

func dialRaw(t testing.TB, address string, settings ...http2.Setting) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	c := &rawClient{Conn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	c.headers = hpack.NewEncoder(&c.block)
	c.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(conn, http2.ClientPreface)
	c.WriteSettings(settings...)
	return c
}

// call opens a call of a method and returns its stream.
func (c *rawClient) call(method string, more ...string) uint32 {
	c.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		c.headers.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for i := 0; i < len(more); i += 2 {
		c.headers.WriteField(hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	stream := c.next
	c.next += 2
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.block.Bytes(), EndHeaders: true})
	return stream
}

// announce sends the header of a message of so many bytes.
func (c *rawClient) announce(stream uint32, size int) {
	c.WriteData(stream, false, binary.BigEndian.AppendUint32([]byte{0}, uint32(size)))
}

// status waits for the end of a stream and returns the code of gRPC that it has.
func (c *rawClient) status(t testing.TB, stream uint32) string {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return err.Error()
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.StreamID == stream {
			for _, f := range h.Fields {
				if f.Name == "grpc-status" {
					return f.Value
				}
			}
		}
	}
}

const (
	inferMethod  = "/inference.GRPCInferenceService/ModelInfer"
	streamMethod = "/inference.GRPCInferenceService/ModelStreamInfer"
	watchMethod  = "/grpc.health.v1.Health/Watch"
)

// metric reads a metric that has no labels.
func metric(t testing.TB, at Addresses, name string) float64 {
	t.Helper()
	res, err := http.Get("http://" + at.Metrics.String() + "/metrics")
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(line, 64)
	must(t, err)
	return value
}

// asks makes sure that a client that behaves is answered over gRPC and REST, each on a connection of its own.
func asks(t *testing.T, at Addresses) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := dial(t, at.GRPC.String(), nil)
	defer conn.Close()
	if _, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(ctx, inferRequest("double", 1), grpc.WaitForReady(true)); err != nil {
		t.Errorf("a call that comes then: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	if code, text, err := post(client, "http://"+at.HTTP.String()+"/v2/models/double", 1); code != 200 || err != nil {
		t.Errorf("a request that comes then: %d %s %v", code, text, err)
	}
}

func TestConnectionsThatDoNotGoOnKeepNobodyOut(t *testing.T) {
	const most = 5
	at := serving(t, func(c *Config) { c.Limits.Connections = most }) // the other limits are minutes
	calls := map[string]func(*rawClient){
		"nothing":  func(*rawClient) {},
		"headers":  func(c *rawClient) { c.call(inferMethod) },
		"unknown":  func(c *rawClient) { c.call("/nobody/Nothing") },
		"stream":   func(c *rawClient) { c.call(streamMethod) },
		"announce": func(c *rawClient) { c.announce(c.call(inferMethod), 100) },
		"a part": func(c *rawClient) {
			stream := c.call(streamMethod)
			c.announce(stream, 1000)
			c.WriteData(stream, false, []byte{1})
		},
		"watch": func(c *rawClient) {
			stream := c.call(watchMethod)
			c.announce(stream, 0)
		},
		"an answer that is not read": func(c *rawClient) {
			c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			text, err := proto.Marshal(inferRequest("double", 1))
			must(t, err)
			stream := c.call(inferMethod)
			c.WriteData(stream, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...))
			time.Sleep(20 * time.Millisecond) // until it is made
		},
		"half a frame": func(c *rawClient) { c.Conn.Write([]byte{0, 0, 1}) },
	}
	requests := map[string]string{
		"nothing": "", "a letter": "G", "half a line": "POST /v2/mod", "half the headers": "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\n",
		"a byte":  "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
		"a chunk": "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"wanted":  "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
		"index":   "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
	}
	for what, attack := range calls {
		for range 2 * most {
			attack(dialRaw(t, at.GRPC.String()))
		}
		asks(t, at)
		if t.Failed() {
			t.Fatalf("after calls of gRPC that are %s", what)
		}
	}
	for what, text := range requests {
		for range 2 * most {
			c, err := net.Dial("tcp", at.HTTP.String())
			must(t, err)
			defer c.Close()
			io.WriteString(c, text)
		}
		asks(t, at)
		if t.Failed() {
			t.Fatalf("after requests that are %s", what)
		}
	}
}

func TestWhatIsServedIsNotCutOffForOthers(t *testing.T) {
	const most = 5
	at := serving(t, func(c *Config) { c.Limits.Connections = most })
	done := make(chan error, 4)
	for i := range 4 {
		go func() {
			if i%2 == 0 {
				conn := dial(t, at.GRPC.String(), nil)
				_, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(context.Background(), inferRequest("slow", 2))
				done <- err
				return
			}
			code, text, err := post(&http.Client{Transport: &http.Transport{}}, "http://"+at.HTTP.String()+"/v2/models/slow", 2)
			if code != 200 && err == nil {
				err = errors.New(text)
			}
			done <- err
		}()
	}
	time.Sleep(500 * time.Millisecond)
	for range 4 * most {
		dialRaw(t, at.GRPC.String()).call(inferMethod)
		c, err := net.Dial("tcp", at.HTTP.String())
		must(t, err)
		defer c.Close()
		io.WriteString(c, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
		time.Sleep(5 * time.Millisecond)
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestARefusedRequestIsAnsweredWithoutItsBody(t *testing.T) {
	tokens := write(t, "tokens", "web infer infer-token-0123456789\n")
	at := serving(t, func(c *Config) { c.Auth.Tokens = tokens }) // bodies may take a minute
	for _, c := range []struct{ what, head, code string }{
		{"no token", "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\n", "401"},
		{"a wrong token", "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong-token-0123456789\r\n", "401"},
		{"a wrong role", "POST /v2/repository/models/double/load HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer infer-token-0123456789\r\n", "403"},
		{"another site", "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\nOrigin: https://evil.example\r\n", "403"},
		{"no such model", "POST /v2/models/none/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer infer-token-0123456789\r\n", "404"},
		{"no such page", "POST /none HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer infer-token-0123456789\r\n", "404"},
		{"too large", "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer infer-token-0123456789\r\nX: ", "413"},
	} {
		for _, body := range []string{"Content-Length: 1000\r\n\r\n{", "Content-Length: 1000000000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			if c.code == "413" {
				body = "\r\nContent-Length: 1000000000\r\n\r\n{"
			}
			conn, err := net.Dial("tcp", at.HTTP.String())
			must(t, err)
			io.WriteString(conn, c.head+body)
			must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			text, err := io.ReadAll(conn) // until it is closed
			if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 "+c.code) {
				t.Errorf("%s, %q: %.100q, %v", c.what, body, text, err)
			}
			conn.Close()
		}
	}
	// One whose body has come keeps its connection.
	conn, err := net.Dial("tcp", at.HTTP.String())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	for range 3 {
		io.WriteString(conn, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{} ")
		buffer := make([]byte, 4096)
		n, err := conn.Read(buffer)
		if err != nil || !strings.HasPrefix(string(buffer[:n]), "HTTP/1.1 401") {
			t.Fatalf("%.100q, %v", buffer[:n], err)
		}
	}
	// Neither is a message of gRPC waited for.
	raw := dialRaw(t, at.GRPC.String())
	for _, method := range []string{inferMethod, streamMethod} {
		if code := raw.status(t, raw.call(method)); code != fmt.Sprint(int(codes.Unauthenticated)) {
			t.Errorf("%s without a token: %s", method, code)
		}
	}
}

func TestCallsThatAreNeverFinishedEnd(t *testing.T) {
	at := serving(t, func(c *Config) {
		c.Limits.RequestTime, c.Limits.AllBytes, c.Limits.RequestBytes = time.Second, 8<<20, 4<<20
	})
	used := func() float64 { return metric(t, at, "gotorch_serve_request_bytes") }
	for round := range 2 {
		var clients []*rawClient
		var streams []uint32
		for i := range 30 {
			c := dialRaw(t, at.GRPC.String())
			stream := c.call([]string{inferMethod, streamMethod}[i%2])
			c.announce(stream, 3<<20)
			for range 60 {
				c.WriteData(stream, false, make([]byte, 1000)) // what the window of a stream lets through
			}
			clients, streams = append(clients, c), append(streams, stream)
		}
		asks(t, at)
		for i, c := range clients {
			if code := c.status(t, streams[i]); code != fmt.Sprint(int(codes.DeadlineExceeded)) {
				t.Errorf("call %d: %s", i, code)
			}
		}
		for begin := time.Now(); used() != 0; time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("round %d: %v bytes count for ever", round, used())
			}
		}
	}
}

func TestWhoHasStoppedSendingGivesWay(t *testing.T) {
	at := serving(t, func(c *Config) { c.Limits.AllBytes, c.Limits.RequestBytes = 4<<20, 2<<20 }) // requests may take a minute
	for range 100 {                                                                               // all that there is, and more
		c := dialRaw(t, at.GRPC.String())
		stream := c.call(inferMethod)
		c.announce(stream, 2<<20-100)
		for range 60 {
			c.WriteData(stream, false, make([]byte, 1000)) // what the window of a stream lets through
		}
	}
	for range 20 {
		c, err := net.Dial("tcp", at.HTTP.String())
		must(t, err)
		defer c.Close()
		io.WriteString(c, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n{\"id\":\""+strings.Repeat("x", 600<<10))
	}
	time.Sleep(1500 * time.Millisecond)
	large := inferRequest("double", 1)
	large.Id = strings.Repeat("x", 1500<<10)
	conn := dial(t, at.GRPC.String(), nil)
	_, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(context.Background(), large)
	if err != nil {
		t.Error(err)
	}
	asks(t, at)
}

func TestOpenCallsThatDoNothingGiveWay(t *testing.T) {
	at := serving(t, func(c *Config) { c.Limits.AllBytes, c.Limits.RequestBytes = 1<<20, 64<<10 })
	for what, open := range map[string]func(*rawClient){
		"calls": func(c *rawClient) { c.call(inferMethod) },
		"watches": func(c *rawClient) {
			c.announce(c.call(watchMethod), 0)
		},
		"streams": func(c *rawClient) {
			stream := c.call(streamMethod)
			c.announce(stream, 0) // a request for no model, which is answered
		},
		"large headers": func(c *rawClient) { c.call(streamMethod, "x-a", strings.Repeat("x", 10<<10)) },
	} {
		raw := dialRaw(t, at.GRPC.String())
		for range 200 { // of 8 KiB each
			open(raw)
		}
		go io.Copy(io.Discard, raw.Conn)
		time.Sleep(1500 * time.Millisecond)
		asks(t, at)
		if t.Failed() {
			t.Fatalf("after 200 %s", what)
		}
		raw.Close()
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

func TestALittleDoesNotBecomeMuch(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	at := serving(t, func(c *Config) { c.Limits.AllBytes, c.Limits.RequestBytes = 64<<20, 16<<20 })
	conn := dial(t, at.GRPC.String(), nil)
	field := func(number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	random := rand.New(rand.NewPCG(1, 2))
	entries := func(number protowire.Number) []byte {
		var all []byte
		for i := range 200_000 {
			all = append(all, field(number, field(1, fmt.Append(nil, i)))...)
		}
		return all
	}
	many := func(one []byte) []byte { return bytes.Repeat(one, 12<<20/len(one)) }
	cases := map[string][]byte{
		"empty inputs": many(field(5, nil)), "empty outputs": many(field(6, nil)), "empty data": many(field(7, nil)),
		"the same parameter": many(field(4, nil)), "parameters": entries(4),
		"parameters of an input": field(5, entries(4)), "parameters of an output": field(6, entries(2)),
		"empty texts": field(5, field(5, many(field(8, nil)))), "empty contents": field(5, many(field(5, nil))),
		"packed numbers": field(5, field(5, field(3, make([]byte, 12<<20)))), "numbers": field(5, field(5, many([]byte{3 << 3, 0}))),
		"a shape": field(5, field(3, make([]byte, 12<<20))), "models": many(field(1, nil)), "unknown": many(field(100, nil)),
		"groups": bytes.Repeat([]byte{101<<3&0x7f | 3 | 0x80, 6}, 1<<20), "a half": []byte{5<<3 | 2, 200},
	}
	for i := range 10 { // and what is made of them
		var all []byte
		for range 1 + random.IntN(30) {
			inner := bytes.Repeat(field(protowire.Number(1+random.IntN(9)), nil), 1+random.IntN(200_000))
			if random.IntN(2) == 0 {
				inner = field(protowire.Number(1+random.IntN(9)), inner)
			}
			all = append(all, field(protowire.Number(4+random.IntN(4)), inner)...)
		}
		cases[fmt.Sprint("random ", i)] = all[:min(len(all), 12<<20)]
	}
	for what, text := range cases {
		for _, packed := range []bool{false, true} {
			var options []grpc.CallOption
			if packed {
				options = append(options, grpc.UseCompressor("gzip"))
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := conn.Invoke(context.Background(), inferMethod, text, new([]byte), append(options, grpc.ForceCodecV2(rawCodec{}))...)
			runtime.ReadMemStats(&after)
			if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted && code != codes.Internal && code != codes.NotFound {
				t.Errorf("%s: %v", what, err)
			}
			// The client packs it, the server unpacks and copies it, and decodes what the budget has room for.
			if made := int64(after.TotalAlloc - before.TotalAlloc); made > 2*64<<20+10*int64(len(text)) {
				t.Errorf("%s: %d MB are made of %d MB, packed: %v: %v", what, made>>20, len(text)>>20, packed, err)
			}
		}
	}
	asks(t, at)
}

func TestManySmallPackedMessagesDoNotBecomeMuch(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	at := serving(t, func(c *Config) { c.Limits.AllBytes, c.Limits.RequestBytes = 64<<20, 32<<20 })
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(make([]byte, 30<<20))
	z.Close()
	message := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(packed.Len())), packed.Bytes()...)
	peak := uint64(0)
	var stats runtime.MemStats
	var clients []*rawClient
	for range 30 {
		c := dialRaw(t, at.GRPC.String())
		s := c.call(inferMethod, "grpc-encoding", "gzip")
		for rest := message; len(rest) > 0; rest = rest[min(len(rest), 16<<10):] {
			c.WriteData(s, false, rest[:min(len(rest), 16<<10)])
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		code := c.status(t, 1)
		runtime.ReadMemStats(&stats)
		peak = max(peak, stats.HeapInuse)
		if code != fmt.Sprint(int(codes.ResourceExhausted)) && code != fmt.Sprint(int(codes.Internal)) && code != fmt.Sprint(int(codes.InvalidArgument)) {
			t.Errorf("the call ends with %s", code)
		}
	}
	if peak > 800<<20 { // without turns it would be two gigabytes
		t.Errorf("%d MB are in use", peak>>20)
	}
}
