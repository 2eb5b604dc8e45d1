package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// floats are FP32 in the order of little-endian memory.
func floats(raw []byte) []float32 {
	all := make([]float32, len(raw)/4)
	for i := range all {
		all[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return all
}

// httpClient has a connection, which stays open, and requests that are ready to be sent.
type httpClient struct {
	address string
	conn    net.Conn
	used    time.Time // when its last answer had come
	in      *bufio.Reader
	cases   *cases
	numbers func(h http.Header, body []byte) ([]float32, error)
	body    []byte
	header  http.Header
}

func dialHTTP(j *job, c *cases, path string, request func(input []byte) (header string, body []byte),
	numbers func(h http.Header, body []byte) ([]float32, error)) (client, error) {
	h := &httpClient{address: j.Address, cases: c, numbers: numbers, header: http.Header{}}
	if err := h.dial(); err != nil {
		return nil, err
	}
	for _, input := range c.inputs[len(c.requests):] {
		header, body := request(input)
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n", path, j.Address, header, len(body))
		c.requests = append(c.requests, append([]byte(head), body...))
	}
	return h, nil
}

// silence is how long an answer may take.
const silence = 60 * time.Second

// idle is how long a connection may go unused before a server may be about to close it.
const idle = time.Second

func (h *httpClient) dial() (err error) {
	if h.conn, err = net.Dial("tcp", h.address); err == nil {
		h.in = bufio.NewReaderSize(h.conn, 64<<10)
		h.used = time.Now()
	}
	return err
}

func (h *httpClient) do(i int) error {
	code, err := h.ask(i)
	if err != nil && time.Since(h.used) > idle && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		// A server closes connections that nobody uses; a client asks again, as any would.
		h.conn.Close()
		if err = h.dial(); err == nil {
			code, err = h.ask(i)
		}
	}
	if err != nil {
		return err
	}
	h.used = time.Now()
	if code != "200" {
		return fmt.Errorf("answered with %s: %.200s", code, h.body)
	}
	got, err := h.numbers(h.header, h.body)
	if err != nil {
		return err
	}
	return h.cases.check(i, got)
}

func (h *httpClient) ask(i int) (code string, err error) {
	h.conn.SetDeadline(time.Now().Add(silence))
	if _, err := h.conn.Write(h.cases.requests[i%len(h.cases.requests)]); err != nil {
		return "", err
	}
	return h.answer()
}

var wanted = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Inference-Header-Content-Length": true}

// answer reads no more of an answer's head than is needed: net/http's client would take longer than some servers.
func (h *httpClient) answer() (code string, err error) {
	line, err := h.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return "", fmt.Errorf("answered with %q", line)
	}
	code = string(fields[1])
	clear(h.header)
	for {
		line, err := h.in.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if name := http.CanonicalHeaderKey(string(name)); wanted[name] {
			h.header.Set(name, string(bytes.TrimSpace(value)))
		}
	}
	h.body = h.body[:0]
	if h.header.Get("Transfer-Encoding") == "" {
		n, err := strconv.Atoi(h.header.Get("Content-Length"))
		if err != nil {
			return "", errors.New("an answer does not say how long it is")
		}
		return code, h.piece(n)
	}
	for {
		line, err := h.in.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return "", err
		}
		if err := h.piece(int(n)); err != nil {
			return "", err
		}
		if _, err := h.in.Discard(2); err != nil {
			return "", err
		}
		if n == 0 {
			return code, nil
		}
	}
}

func (h *httpClient) piece(n int) error {
	start := len(h.body)
	if cap(h.body) < start+n {
		h.body = append(make([]byte, 0, 2*(start+n)), h.body...)
	}
	h.body = h.body[:start+n]
	_, err := io.ReadFull(h.in, h.body[start:])
	return err
}

func (h *httpClient) connect() error { return nil } // it is
func (h *httpClient) close()         { h.conn.Close() }

func (j *job) v2Path() string { return "/v2/models/" + j.Model + "/infer" }

// batchShape is the shape of a batch of one.
func (j *job) batchShape() []int64 { return append([]int64{1}, j.Shape...) }

// dialV2 speaks the Open Inference Protocol with binary tensors.
func dialV2(j *job, c *cases) (client, error) {
	shape, _ := json.Marshal(j.batchShape())
	return dialHTTP(j, c, j.v2Path(), func(input []byte) (string, []byte) {
		head := fmt.Sprintf(`{"inputs":[{"name":%q,"datatype":%q,"shape":%s,"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`,
			j.Input, j.Type, shape, len(input))
		return fmt.Sprintf("Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n", len(head)), append([]byte(head), input...)
	}, func(h http.Header, body []byte) ([]float32, error) {
		n, err := strconv.Atoi(h.Get("Inference-Header-Content-Length"))
		if err != nil || n > len(body) {
			return nil, fmt.Errorf("the answer is not binary: %.200q", body)
		}
		return floats(body[n:]), nil
	})
}

// numbersOf writes an input as numbers.
func (j *job) numbersOf(input []byte) string {
	var numbers any = floats(input)
	if j.Type == "INT64" {
		whole := make([]int64, len(input)/8)
		for i := range whole {
			whole[i] = int64(binary.LittleEndian.Uint64(input[8*i:]))
		}
		numbers = whole
	}
	text, err := json.Marshal(numbers)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// dialV2JSON is dialV2 with JSON alone.
func dialV2JSON(j *job, c *cases) (client, error) {
	shape, _ := json.Marshal(j.batchShape())
	return dialHTTP(j, c, j.v2Path(), func(input []byte) (string, []byte) {
		return "Content-Type: application/json\r\n", fmt.Appendf(nil, `{"inputs":[{"name":%q,"datatype":%q,"shape":%s,"data":%s}]}`,
			j.Input, j.Type, shape, j.numbersOf(input))
	}, func(_ http.Header, body []byte) ([]float32, error) {
		var answer struct{ Outputs []struct{ Data []float32 } }
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, err
		}
		if len(answer.Outputs) != 1 {
			return nil, fmt.Errorf("there are %d outputs", len(answer.Outputs))
		}
		return answer.Outputs[0].Data, nil
	})
}

// dialRaw sends the bytes of an input, and gets those of the output.
func dialRaw(j *job, c *cases) (client, error) {
	return dialHTTP(j, c, j.Path, octets, func(_ http.Header, body []byte) ([]float32, error) { return floats(body), nil })
}

func octets(input []byte) (string, []byte) {
	return "Content-Type: application/octet-stream\r\n", input
}

// dialRawJSON sends the bytes of an input, and gets numbers as JSON.
func dialRawJSON(j *job, c *cases) (client, error) {
	return dialHTTP(j, c, j.Path, octets, func(_ http.Header, body []byte) ([]float32, error) {
		var numbers []float32
		err := json.Unmarshal(body, &numbers)
		return numbers, err
	})
}

// grpcClient has a connection of its own. Messages are bytes: what protobuf would take is not the server's time.
type grpcClient struct {
	conn  *grpc.ClientConn
	cases *cases
}

type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// The numbers of the fields of the protocol that are needed.
const (
	fieldModel    = 1 // ModelInferRequest.model_name
	fieldInputs   = 5
	fieldRaw      = 7
	fieldName     = 1 // InferInputTensor.name
	fieldDatatype = 2
	fieldShape    = 3
	fieldRawOut   = 6 // ModelInferResponse.raw_output_contents
)

// dialGRPC speaks the Open Inference Protocol over gRPC.
func dialGRPC(j *job, c *cases) (client, error) {
	conn, err := grpc.NewClient("passthrough:///"+j.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	g := &grpcClient{conn: conn, cases: c}
	field := func(to []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), value)
	}
	for _, input := range c.inputs[len(c.requests):] {
		var shape, tensor, message []byte
		for _, n := range j.batchShape() {
			shape = protowire.AppendVarint(shape, uint64(n))
		}
		tensor = field(tensor, fieldName, []byte(j.Input))
		tensor = field(tensor, fieldDatatype, []byte(j.Type))
		tensor = field(tensor, fieldShape, shape)
		message = field(message, fieldModel, []byte(j.Model))
		message = field(message, fieldInputs, tensor)
		c.requests = append(c.requests, field(message, fieldRaw, input))
	}
	return g, nil
}

func (g *grpcClient) connect() error {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	g.conn.Connect()
	for state := g.conn.GetState(); state != connectivity.Ready; state = g.conn.GetState() {
		if state == connectivity.TransientFailure || !g.conn.WaitForStateChange(ctx, state) {
			return errors.New("the server takes no connection for gRPC")
		}
	}
	return nil
}

func (g *grpcClient) do(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	var answer []byte
	if err := g.conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", g.cases.requests[i%len(g.cases.requests)], &answer); err != nil {
		return err
	}
	for len(answer) > 0 {
		number, kind, n := protowire.ConsumeTag(answer)
		if n < 0 {
			return protowire.ParseError(n)
		}
		answer = answer[n:]
		if n = protowire.ConsumeFieldValue(number, kind, answer); n < 0 {
			return protowire.ParseError(n)
		}
		if number == fieldRawOut && kind == protowire.BytesType {
			raw, _ := protowire.ConsumeBytes(answer)
			return g.cases.check(i, floats(raw))
		}
		answer = answer[n:]
	}
	return errors.New("the answer has no raw_output_contents")
}

func (g *grpcClient) close() { g.conn.Close() }
