package serve

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// listening serves srv over gRPC and returns how calls are taken in, and a function that connects a client.
func listening(t *testing.T, srv *Server, limits GRPCLimits) (*grpcIntake, func() *grpc.ClientConn) {
	t.Helper()
	in := newGRPCIntake(srv, limits)
	g := grpc.NewServer(in.options()...)
	RegisterGRPC(g, srv)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return in, func() *grpc.ClientConn {
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		testhelp.Must(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// Nothing stays of calls that their clients have given up, however far they had come: neither in the lists of those that
// wait, which last for a minute, nor in the budget.
func TestNothingStaysOfACallThatIsCanceled(t *testing.T) {
	srv := New()
	defer srv.Close(context.Background())
	gate := make(chan struct{})
	defer close(gate)
	testhelp.Must(t, srv.Add("m", FromModel(func(x gotorch.Tensor) gotorch.Tensor { <-gate; return x }), Instances(1)))
	in, dial := listening(t, srv, GRPCLimits{})
	conn := dial()
	client := pb.NewGRPCInferenceServiceClient(conn)
	request := &pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: []int64{1},
		Contents: &pb.InferTensorContents{Fp32Contents: []float32{1}}}}}
	const each = 20
	var clients sync.WaitGroup
	for i := range each {
		clients.Go(func() { // calls that wait for the model
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+10*i)*time.Millisecond)
			defer cancel()
			if _, err := client.ModelInfer(ctx, request); status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
		})
		clients.Go(func() { // calls of which the message has not come
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, pb.GRPCInferenceService_ModelInfer_FullMethodName)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(10*i) * time.Millisecond)
		})
		clients.Go(func() { // streams that wait for the model
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+10*i)*time.Millisecond)
			defer cancel()
			stream, err := client.ModelStreamInfer(ctx)
			if err == nil {
				err = stream.Send(request)
			}
			if err == nil {
				_, err = stream.Recv()
			}
			if err == nil { // the server has seen the deadline first, and answers
				return
			}
			if status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	left := func() string {
		count := func(m *sync.Mutex, n func() int) int {
			m.Lock()
			defer m.Unlock()
			return n()
		}
		return fmt.Sprint(count(&in.reading.mutex, in.reading.calls.Len), count(&in.writing.mutex, in.writing.calls.Len), count(&srv.bytes.mutex, srv.bytes.slow.Len))
	}
	for end := time.Now().Add(20 * time.Second); left() != "0 0 0"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("calls that wait for a message, for a client that reads, and for bytes: %s", left())
		}
	}
}

// All bytes of a budget come back, also where a request ends while its connection is read.
func TestABudgetIsWholeWhenARequestEndsWhileItIsRead(t *testing.T) {
	b := &budget{limit: 1 << 40}
	for range 5000 {
		h := &holding{budget: b, end: func() {}}
		var both sync.WaitGroup
		for range 3 {
			both.Go(func() {
				for h.take(1) {
					h.waits(1)
				}
			})
		}
		both.Go(func() {
			h.ended.Store(true)
			h.whole()
			h.free()
		})
		both.Wait()
		if n := b.used.Load(); n != 0 {
			t.Fatalf("%d bytes are left", n)
		}
		if n := b.slow.Len(); n != 0 {
			t.Fatalf("%d requests are left", n)
		}
	}
}

// A connection is not closed for another one while the first message of a stream is handled, also where that came before
// the handler asked for it.
func TestAStreamWhoseFirstMessageIsHandledIsNotCutOff(t *testing.T) {
	srv := New()
	defer srv.Close(context.Background())
	runs, gate := make(chan struct{}), make(chan struct{})
	testhelp.Must(t, srv.Add("m", FromModel(func(x gotorch.Tensor) gotorch.Tensor { runs <- struct{}{}; <-gate; return x })))
	var came sync.Mutex // held until the message has come
	came.Lock()
	in, dial := listening(t, srv, GRPCLimits{Connections: 1, Admit: func(context.Context, string) error {
		came.Lock()
		defer came.Unlock()
		return nil
	}})
	stream, err := pb.NewGRPCInferenceServiceClient(dial()).ModelStreamInfer(t.Context())
	testhelp.Must(t, err)
	testhelp.Must(t, stream.Send(&pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: []int64{1},
		Contents: &pb.InferTensorContents{Fp32Contents: []float32{1}}}}}))
	ready := func() (n int) {
		in.conns.Range(func(_, of any) bool {
			conn := of.(*grpcConn)
			conn.mutex.Lock()
			defer conn.mutex.Unlock()
			for _, c := range conn.calls {
				c.mutex.Lock()
				n += c.ready
				c.mutex.Unlock()
			}
			return true
		})
		return n
	}
	for ready() == 0 {
		time.Sleep(time.Millisecond)
	}
	came.Unlock()
	<-runs
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := pb.NewGRPCInferenceServiceClient(dial()).ServerLive(ctx, &pb.ServerLiveRequest{}); err == nil {
		t.Error("a second connection was taken, where there may be one, and it has a call that runs")
	}
	close(gate)
	answer, err := stream.Recv()
	if err != nil || answer.ErrorMessage != "" {
		t.Error(answer, err)
	}
}

// grpc-go does not close what a handshake has returned where the connection ends before its first read. Nothing keeps it then.
func TestNothingStaysOfAConnectionThatIsNeverRead(t *testing.T) {
	srv := New()
	defer srv.Close(context.Background())
	in := newGRPCIntake(srv, GRPCLimits{Connections: 2})
	known := func() (n int) {
		in.conns.Range(func(any, any) bool { n++; return true })
		return n
	}
	for _, c := range []struct {
		reads, closes bool
		want          int
	}{{false, false, 0}, {true, false, 1}, {true, true, 0}, {false, true, 0}} {
		client, raw := net.Pipe()
		conn, _, err := intakeCredentials{in.limits.Credentials, in}.ServerHandshake(raw)
		testhelp.Must(t, err)
		if c.reads {
			go client.Write([]byte(preface))
			_, err := conn.Read(make([]byte, len(preface)))
			testhelp.Must(t, err)
		}
		if c.closes {
			conn.Close()
			conn.Read(make([]byte, 1))
		}
		if n := known(); n != c.want {
			t.Errorf("read %v, closed %v: %d connections are known, where %d were expected", c.reads, c.closes, n, c.want)
		}
		conn.Close()
		client.Close()
	}
}
