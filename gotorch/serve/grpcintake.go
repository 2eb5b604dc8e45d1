package serve

import (
	lists "container/list"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"gotorch.dev/gotorch/serve/internal/connlimit"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// Calls of gRPC while they are being received.
//
// grpc-go reads a message as a whole, unpacks it and decodes it before a handler sees it. So what comes is looked at below
// grpc-go, where the bytes of a connection are plain: the credentials of the server return a connection that follows the
// frames of HTTP/2 and, within the frames of DATA, the messages. Its Read returns what grpc-go asks for and no more (the
// server reads without a buffer of its own), and grpc-go calls the tap handle on the goroutine that reads, so the last block of
// headers that has been read is that of the call for which it is called. What a call has sent is taken from the budget
// until it is decoded, and decoding takes what it makes.
//
// The handlers of the service ask for a message themselves, so a call that is refused, or too slow, is answered without
// its message.

// GRPCLimits are the arguments of [GRPCOptions] that have defaults.
type GRPCLimits struct {
	// Credentials are those of the grpc.Server, as credentials.NewTLS(config). They are given here instead of by grpc.Creds,
	// because messages are counted as they come, below the server. Default: none, connections are plain.
	Credentials credentials.TransportCredentials
	// Connections is how many connections there may be. When one more comes, the one is closed that has made no progress
	// for the longest time, among those that have no whole call which is being answered. Default: any number.
	Connections int
	// RequestTime is how long a client may take to send a message, from the call's beginning for the first one.
	// Default: a minute.
	RequestTime time.Duration
	// WriteTime is how long a client may take to read an answer. Default: a minute.
	WriteTime time.Duration
	// Admit is asked for each call before any of its messages is read. What it returns goes to the client: an error of
	// package status refuses the call. ctx has the call's metadata and peer. It must not wait. Default: all calls are taken.
	Admit func(ctx context.Context, method string) error
}

// grpcIntake is what the options of a grpc.Server share.
type grpcIntake struct {
	server  *Server
	limits  GRPCLimits
	table   *connlimit.Table // nil: any number
	conns   sync.Map         // of *grpcConn, by the address of the peer
	reading deadlines
	writing deadlines
}

func newGRPCIntake(srv *Server, l GRPCLimits) *grpcIntake {
	if l.Credentials == nil {
		l.Credentials = insecure.NewCredentials()
	}
	if l.RequestTime <= 0 {
		l.RequestTime = time.Minute
	}
	if l.WriteTime <= 0 {
		l.WriteTime = time.Minute
	}
	in := &grpcIntake{server: srv, limits: l, reading: deadlines{limit: l.RequestTime}, writing: deadlines{limit: l.WriteTime}}
	if l.Connections > 0 {
		in.table = connlimit.New(l.Connections)
	}
	return in
}

// deadlines ends the calls that have waited for their clients for too long. All have the same limit, so those that wait are
// in the order of their ends, and one timer does.
type deadlines struct {
	limit time.Duration

	mutex sync.Mutex
	calls lists.List // of *grpcCall
	armed bool
}

// waiting is a call's place in a list of deadlines.
type waiting struct {
	at    *lists.Element
	since time.Time
}

func (d *deadlines) add(c *grpcCall, w *waiting) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if w.at != nil || c.over.Load() { // nobody removes one that has ended
		return
	}
	w.since = time.Now()
	w.at = d.calls.PushBack(c)
	if !d.armed {
		d.armed = true
		time.AfterFunc(d.limit, d.sweep)
	}
}

func (d *deadlines) remove(w *waiting) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if w.at != nil {
		d.calls.Remove(w.at)
		w.at = nil
	}
}

func (d *deadlines) sweep() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for first := d.calls.Front(); first != nil; first = d.calls.Front() {
		c := first.Value.(*grpcCall)
		w := c.placeIn(d)
		if left := d.limit - time.Since(w.since); left > 0 {
			time.AfterFunc(left, d.sweep)
			return
		}
		d.calls.Remove(first)
		w.at = nil
		c.tooSlow(d)
	}
	d.armed = false
}

// intakeCredentials are those of the server, whose connections are counted.
type intakeCredentials struct {
	credentials.TransportCredentials
	in *grpcIntake
}

func (c intakeCredentials) Clone() credentials.TransportCredentials {
	return intakeCredentials{c.TransportCredentials.Clone(), c.in}
}

func (c intakeCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := &grpcConn{in: c.in, calls: map[uint32]*grpcCall{}, preface: len(preface)}
	if c.in.table != nil {
		if conn.slot = c.in.table.Add(func() { raw.Close() }); conn.slot == nil {
			return nil, nil, errors.New("there are as many connections as may be, and all have calls that run")
		}
	}
	plain, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		conn.slot.Remove()
		return nil, nil, err
	}
	conn.Conn = plain
	// The address is how the tap handle finds the connection, so each has one of its own.
	switch a := plain.RemoteAddr().(type) {
	case *net.TCPAddr:
		own := *a
		conn.address = &own
	case *net.UnixAddr:
		own := *a
		conn.address = &own
	default:
		conn.address = &ownAddress{a}
	}
	return conn, info, nil
}

type ownAddress struct{ net.Addr }

// preface is what a client of HTTP/2 sends before its first frame.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const frameHeader = 9

// The types and flags of frames that are looked at: RFC 9113.
const (
	frameData    = 0
	frameHeaders = 1

	flagEndStream = 1
	flagPadded    = 8
)

// grpcConn is a connection of a client. What is below the line belongs to the goroutine that reads.
type grpcConn struct {
	net.Conn
	in      *grpcIntake
	slot    *connlimit.Conn
	address net.Addr
	close   sync.Once
	closed  atomic.Bool

	mutex sync.Mutex
	calls map[uint32]*grpcCall // by stream

	known    bool // it is among the intake's
	buffer   [32 << 10]byte
	at, end  int // of what grpc-go has not asked for yet
	preface  int // bytes of it that are still to come
	header   [frameHeader]byte
	have     int // bytes of the header
	left     int // bytes of the frame that are still to come
	padding  int // of them, at the end
	padded   bool
	data     *grpcCall // whose frame of DATA it is
	last     bool      // it is the last of its stream
	opened   uint32    // the stream of the last headers
	finished bool      // no messages follow those headers
}

func (c *grpcConn) RemoteAddr() net.Addr { return c.address }

func (c *grpcConn) Close() error {
	c.close.Do(func() {
		c.slot.Remove()
		c.closed.Store(true)
		c.in.conns.Delete(c.address)
	})
	return c.Conn.Close()
}

func (c *grpcConn) Write(p []byte) (int, error) {
	c.Conn.SetWriteDeadline(time.Now().Add(c.in.limits.WriteTime))
	return c.Conn.Write(p)
}

func (c *grpcConn) Read(p []byte) (int, error) {
	if !c.known { // not before, as grpc-go does not close one that ends between the handshake and its first read
		c.known = true
		c.in.conns.Store(c.address, c)
		if c.closed.Load() {
			c.in.conns.Delete(c.address)
		}
	}
	if c.at == c.end {
		n, err := c.Conn.Read(c.buffer[:])
		if n <= 0 {
			return 0, err
		}
		c.at, c.end = 0, n // an error comes again
	}
	n := copy(p, c.buffer[c.at:c.end])
	c.at += n
	c.scan(p[:n])
	return n, nil
}

// scan follows what grpc-go reads.
func (c *grpcConn) scan(b []byte) {
	if c.preface > 0 {
		n := min(c.preface, len(b))
		c.preface -= n
		b = b[n:]
	}
	for len(b) > 0 {
		if c.have < frameHeader {
			n := copy(c.header[c.have:], b)
			c.have += n
			b = b[n:]
			if c.have == frameHeader {
				c.frame()
			}
			continue
		}
		n := min(c.left, len(b))
		if c.data != nil {
			c.content(b[:n])
		}
		c.left -= n
		b = b[n:]
		c.endFrame()
	}
}

// frame is called when the header of a frame has come.
func (c *grpcConn) frame() {
	c.left = int(binary.BigEndian.Uint32(c.header[:4]) >> 8)
	kind, flags, stream := c.header[3], c.header[4], binary.BigEndian.Uint32(c.header[5:])&(1<<31-1)
	switch kind {
	case frameHeaders:
		c.opened, c.finished = stream, flags&flagEndStream != 0
	case frameData:
		c.mutex.Lock()
		c.data = c.calls[stream]
		c.mutex.Unlock()
		c.last = flags&flagEndStream != 0
		c.padded, c.padding = flags&flagPadded != 0, 0
		if c.data != nil {
			c.data.frame(c.left)
		}
	}
	c.endFrame()
}

func (c *grpcConn) endFrame() {
	if c.left > 0 {
		return
	}
	c.have = 0
	if c.data != nil {
		c.data.endFrame(c.last)
		c.data = nil
	}
}

// content is a piece of a frame of DATA, which may have its length before it and padding after.
func (c *grpcConn) content(b []byte) {
	after := c.left - len(b)
	if c.padded {
		c.padded, c.padding = false, int(b[0])
		b = b[1:]
	}
	if beyond := c.padding - after; beyond > 0 {
		b = b[:max(0, len(b)-beyond)]
	}
	c.data.bytes(b)
}

// messageHeader is how long the header of a message is: whether it is packed, and its length.
const messageHeader = 5

const (
	// callCost is what an open call takes besides its messages: goroutines, a stream of HTTP/2, buffers.
	callCost = 8 << 10
	// smallMessage is a message that comes whole into the window that each stream has before anybody reads it.
	smallMessage = 32 << 10
)

const grpcService = "/inference.GRPCInferenceService/"

// grpcCall is a call. What is below the line belongs to the goroutine that reads its connection.
type grpcCall struct {
	holding
	conn    *grpcConn
	stream  uint32
	ours    bool // a method of the service, whose handler asks for messages by receive
	serves  bool // while a message is handled its connection is not closed for others
	cancel  context.CancelCauseFunc
	reads   waiting // guarded by the deadlines
	writes  waiting
	mutex   sync.Mutex
	ready   int           // messages that have come and are not handled yet
	costs   []int64       // of those that are not decoded yet
	large   bool          // a message that is large is coming
	halfway bool          // no message follows
	refusal error         // why what comes is not read
	told    chan struct{} // gets a value when one of these changes; nil while nobody waits
	over    atomic.Bool   // the call has ended

	prefix   [messageHeader]byte
	got      int   // bytes of it
	left     int64 // bytes of the message that are still to come
	cost     int64 // of the message that is being received
	incoming int   // bytes in the frame
	short    bool  // there is no memory for the frame
	dropped  bool  // nothing more is looked at
}

type callKey struct{ *Server }

// tap is the grpc.Server's tap handle: it makes the call whose headers have just been read.
func (in *grpcIntake) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	of, ok := in.conns.Load(p.Addr)
	if !ok { // the server has got other credentials
		return ctx, nil
	}
	conn := of.(*grpcConn)
	c := &grpcCall{conn: conn, stream: conn.opened, ours: strings.HasPrefix(info.FullMethodName, grpcService),
		serves: !strings.HasPrefix(info.FullMethodName, "/grpc."), holding: holding{budget: &in.server.bytes}, halfway: conn.finished}
	c.end = func() { c.refuse(errMemory) }
	inner, cancel := context.WithCancelCause(ctx)
	c.cancel = cancel
	cost := int64(callCost)
	for key, values := range info.Header {
		for _, value := range values {
			cost += int64(len(key) + len(value))
		}
	}
	if !c.holding.take(cost) && c.ours {
		c.refusal = errMemory
	}
	if !conn.finished {
		c.waits(0)
		if c.ours && info.FullMethodName != pb.GRPCInferenceService_ModelStreamInfer_FullMethodName {
			in.reading.add(c, &c.reads)
		}
		conn.mutex.Lock()
		conn.calls[c.stream] = c
		conn.mutex.Unlock()
	}
	context.AfterFunc(inner, c.ends)
	return callContext{inner, c}, nil
}

// callContext is the context of a call. One that is canceled because its client is slow has passed its deadline.
type callContext struct {
	context.Context
	call *grpcCall
}

func (c callContext) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == errSlow {
		return context.DeadlineExceeded
	}
	return err
}

func (c callContext) Value(key any) any {
	if key == (callKey{c.call.conn.in.server}) {
		return c.call
	}
	return c.Context.Value(key)
}

// callOf returns the call that ctx belongs to; nil where the grpc.Server was made without GRPCOptions.
func (s *Server) callOf(ctx context.Context) *grpcCall {
	c, _ := ctx.Value(callKey{s}).(*grpcCall)
	return c
}

// ends is called when the call has ended for grpc-go.
func (c *grpcCall) ends() {
	c.conn.mutex.Lock()
	delete(c.conn.calls, c.stream)
	c.conn.mutex.Unlock()
	c.mutex.Lock()
	c.over.Store(true)
	if c.ready > 0 && c.serves {
		c.conn.slot.End()
	}
	c.ready = 0
	c.tell()
	c.mutex.Unlock()
	c.conn.in.reading.remove(&c.reads)
	c.conn.in.writing.remove(&c.writes)
	c.ended.Store(true) // first, as waits would else put it back
	c.holding.whole()
	c.holding.free()
}

// tell wakes up who waits in receive. The mutex is held.
func (c *grpcCall) tell() {
	if c.told != nil {
		close(c.told)
		c.told = nil
	}
}

// refuse says why nothing of the call is read any more.
func (c *grpcCall) refuse(why error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.refusal == nil {
		c.refusal = why
	}
	c.tell()
	if !c.ours {
		c.cancel(errSlow)
	}
}

func (c *grpcCall) placeIn(d *deadlines) *waiting {
	if d == &c.conn.in.reading {
		return &c.reads
	}
	return &c.writes
}

// errSlow is the cause of a context that has ended because its client is slow.
var errSlow = errors.New("the client is too slow")

func (c *grpcCall) tooSlow(d *deadlines) {
	if d == &c.conn.in.writing {
		c.cancel(errSlow)
		return
	}
	c.refuse(newError(DeadlineExceeded, "the request has not come within %v", d.limit))
}

// frame is called for a frame of DATA with so many bytes.
func (c *grpcCall) frame(n int) {
	if c.dropped || n == 0 {
		return
	}
	cost := int64(frameCost(n))
	c.incoming = n
	if c.short = !c.holding.take(cost); c.short {
		if c.got > 0 {
			c.drop()
		}
		return
	}
	c.cost += cost
}

func (c *grpcCall) drop() {
	c.dropped = true
	c.refuse(errMemory)
	c.holding.whole()
}

// frameCost is what grpc-go takes for a frame: a buffer, from a pool of few sizes, and its place in a list. So a client
// cannot make much of little by small frames.
func frameCost(n int) int {
	const place = 96
	switch {
	case n <= 1<<10:
		return n + place
	case n <= 4<<10:
		return 4<<10 + place
	}
	return 16<<10 + place
}

// bytes are those of messages, one after the other.
func (c *grpcCall) bytes(b []byte) {
	for len(b) > 0 && !c.dropped {
		if c.got < messageHeader {
			n := copy(c.prefix[c.got:], b)
			c.got += n
			b = b[n:]
			if c.got < messageHeader {
				return
			}
			c.left = int64(binary.BigEndian.Uint32(c.prefix[1:]))
			if !c.room(int64(len(b))) {
				c.drop()
				return
			}
		}
		n := min(c.left, int64(len(b)))
		c.left -= n
		b = b[n:]
		if c.left == 0 {
			c.message()
		}
	}
}

// room reports whether there is memory for a message of which so many bytes are here. One that is tiny and here is read
// in any case: it asks how the server is.
func (c *grpcCall) room(here int64) bool {
	if c.left > smallMessage {
		c.mutex.Lock()
		c.large = true
		c.tell()
		c.mutex.Unlock()
	}
	switch {
	case c.left <= min(here, 1<<10):
		return true
	case c.short:
		return false
	case c.left <= here || c.left > c.conn.in.server.maxBody: // grpc-go refuses that
		return true
	}
	return c.holding.fits(c.left - here)
}

// message is called when a message is there.
func (c *grpcCall) message() {
	c.conn.in.reading.remove(&c.reads)
	c.settled()
	c.mutex.Lock()
	c.large = false
	if c.ours {
		c.costs = append(c.costs, c.cost)
	} else {
		c.holding.give(c.cost)
	}
	c.got, c.cost = 0, 0
	if !c.over.Load() {
		if c.ready++; c.ready == 1 && c.serves {
			c.conn.slot.Begin()
		}
	}
	c.tell()
	c.mutex.Unlock()
}

// settled says that the call is not ended for the memory of others for now. One that asks for the server's health, or
// watches it, always may be.
func (c *grpcCall) settled() {
	if c.serves {
		c.holding.whole()
	}
}

// endFrame is called at the end of a frame, which may be the last of the stream.
func (c *grpcCall) endFrame(last bool) {
	c.short = false
	switch {
	case last:
		c.conn.in.reading.remove(&c.reads)
		c.settled()
		c.mutex.Lock()
		c.halfway = true
		c.tell()
		c.mutex.Unlock()
	case c.got > 0 && !c.dropped:
		c.conn.slot.Received(c.incoming)
		c.waits(int64(c.incoming))
		c.conn.in.reading.add(c, &c.reads)
	}
}

// inbound is a message that is received for a call.
type inbound struct {
	message any
	call    *grpcCall
	cost    int64 // of the call's holding, for what decoding has made
	decoded bool  // what it took while it came has been given back
	refusal error // why it was not decoded
}

// receive fills in by dec, which reads and decodes it. It does not wait longer than the call may take.
func (c *grpcCall) receive(in *inbound, dec func(any) error) error {
	for {
		c.mutex.Lock()
		if c.refusal != nil && c.ready == 0 {
			defer c.mutex.Unlock()
			return grpcError(c.refusal)
		}
		if c.ready > 0 || c.halfway || c.over.Load() {
			c.mutex.Unlock()
			return c.received(in, dec(in))
		}
		if c.large {
			c.mutex.Unlock()
			return c.receiveBeside(in, dec)
		}
		told := make(chan struct{})
		c.told = told
		c.mutex.Unlock()
		<-told // what ends the call tells it, too
	}
}

// received is called when a message was received, or not.
func (c *grpcCall) received(in *inbound, err error) error {
	if !in.decoded {
		c.holding.give(c.costOfNext())
	}
	if err == nil {
		err = grpcError(in.refusal)
	}
	return err
}

// costOfNext is what the next message has taken while it came.
func (c *grpcCall) costOfNext() (cost int64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.costs) > 0 {
		cost, c.costs = c.costs[0], c.costs[1:]
	}
	return cost
}

// decodes makes the holding be what the message takes when it is decoded, instead of what it took while it came.
func (in *inbound) decodes(cost int64) bool {
	came := in.call.costOfNext()
	in.decoded, in.cost = true, cost
	if more := cost - came; more > 0 {
		return in.call.holding.take(more)
	}
	in.call.holding.give(came - cost)
	return true
}

// receiveBeside is receive for a message of which grpc-go must read a part until the client sends the rest.
func (c *grpcCall) receiveBeside(in *inbound, dec func(any) error) error {
	read := make(chan error, 1)
	go func() { read <- dec(in) }() // ends with the call
	for {
		c.mutex.Lock()
		if c.refusal != nil && c.ready == 0 {
			defer c.mutex.Unlock()
			return grpcError(c.refusal)
		}
		told := make(chan struct{})
		c.told = told
		c.mutex.Unlock()
		select {
		case err := <-read:
			return c.received(in, err)
		case <-told:
		}
	}
}

// handled says that a message has been handled, and that an answer may go out.
func (c *grpcCall) handled() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.ready > 0 {
		if c.ready--; c.ready == 0 && c.serves {
			c.conn.slot.End()
		}
	}
}

// admit asks whether a call may be read.
func (c *grpcCall) admit(ctx context.Context, method string) error {
	if c.conn.in.limits.Admit == nil {
		return nil
	}
	return c.conn.in.limits.Admit(ctx, method)
}

// methodHandler is the type of grpc.MethodDesc.Handler.
type methodHandler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)

// receiving is a handler that looks at a call before it reads its message.
func (s *Server) receiving(method string, next methodHandler) methodHandler {
	return func(impl any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := s.callOf(ctx)
		if c == nil {
			return next(impl, ctx, dec, interceptor)
		}
		defer func() {
			c.handled()
			c.conn.in.writing.add(c, &c.writes)
		}()
		refusal := c.admit(ctx, method)
		if refusal == nil {
			out, err := next(impl, ctx, func(m any) error {
				refusal = c.receive(&inbound{message: m, call: c}, dec)
				return refusal
			}, interceptor)
			if refusal == nil {
				return out, err
			}
		}
		if interceptor == nil {
			return nil, refusal
		}
		// Interceptors are for calls that have come. They see the refusal, for their logs, with an empty message.
		var empty any
		next(impl, ctx, func(m any) error { empty = m; return refusal }, nil)
		return interceptor(ctx, empty, &grpc.UnaryServerInfo{Server: impl, FullMethod: method}, func(context.Context, any) (any, error) {
			return nil, refusal
		})
	}
}

// receivingStream is receiving for streams, whose interceptors see them before anything is read.
func (s *Server) receivingStream(method string, next grpc.StreamHandler) grpc.StreamHandler {
	return func(impl any, stream grpc.ServerStream) error {
		c := s.callOf(stream.Context())
		if c == nil {
			return next(impl, stream)
		}
		if err := c.admit(stream.Context(), method); err != nil {
			return err
		}
		return next(impl, &receivedStream{ServerStream: stream, call: c})
	}
}

type receivedStream struct {
	grpc.ServerStream
	call *grpcCall
	had  bool  // a message, which is handled until the next is asked for
	cost int64 // of it
}

func (s *receivedStream) RecvMsg(m any) error {
	if s.had {
		s.call.handled()
		s.call.holding.give(s.cost)
		s.had, s.cost = false, 0
	}
	s.call.waits(0) // one that is idle may be ended for others
	in := &inbound{message: m, call: s.call}
	err := s.call.receiveBeside(in, s.ServerStream.RecvMsg)
	if err == nil {
		s.call.holding.whole()
		s.had, s.cost = true, in.cost
	}
	return err
}

func (s *receivedStream) SendMsg(m any) error {
	s.call.conn.in.writing.add(s.call, &s.call.writes)
	defer s.call.conn.in.writing.remove(&s.call.writes)
	return s.ServerStream.SendMsg(m)
}
