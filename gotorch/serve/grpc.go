package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // which clients may pack their messages with
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"gotorch.dev/gotorch/internal/args"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// RegisterGRPC adds the protocol's service, inference.GRPCInferenceService, to a grpc.Server.
//
//	g := grpc.NewServer(serve.GRPCOptions(srv)...)
//	serve.RegisterGRPC(g, srv)
//	err := g.Serve(listener)
//
// Inputs may be in raw_input_contents or in the typed contents; outputs are always in raw_output_contents. Requests of a
// stream are answered one after the other, each by one response, whose parameter triton_final_response is true; a message
// that is refused before it is decoded ends the stream. Messages may be packed with gzip or deflate, the bounds are for what they are then, and the answer is packed too. A server that
// answers grpcurl and its like adds google.golang.org/grpc/reflection.
//
// A program that also imports other Go code generated for this protocol has the messages twice, which package protobuf
// refuses when it starts: https://protobuf.dev/reference/go/faq#namespace-conflict.
func RegisterGRPC(g grpc.ServiceRegistrar, srv *Server) {
	desc := pb.GRPCInferenceService_ServiceDesc
	desc.Methods, desc.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i, m := range desc.Methods {
		desc.Methods[i].Handler = srv.receiving(grpcService+m.MethodName, m.Handler)
	}
	for i, m := range desc.Streams {
		desc.Streams[i].Handler = srv.receivingStream(grpcService+m.StreamName, m.Handler)
	}
	g.RegisterService(&desc, &grpcServer{srv: srv})
}

// GRPCOptions returns the options of a grpc.Server for package serve. With them messages may be as large as
// Options.MaxRequestBytes; a larger one is refused with RESOURCE_EXHAUSTED before it is read. What calls have sent, and what it
// becomes when it is decoded, counts for Options.MaxBytes from the first byte, and [GRPCLimits] hold. The server must not
// be given grpc.Creds, grpc.InTapHandle, grpc.ReadBufferSize or a codec besides. Calls run on goroutines that stay, whose
// stacks have grown already.
func GRPCOptions(srv *Server, limits ...GRPCLimits) []grpc.ServerOption {
	return newGRPCIntake(srv, args.Option(limits)).options()
}

func (in *grpcIntake) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(min(in.server.maxBody, math.MaxInt32))),
		grpc.NumStreamWorkers(uint32(4 * runtime.GOMAXPROCS(0))),
		grpc.Creds(intakeCredentials{in.limits.Credentials, in}),
		grpc.InTapHandle(in.tap),
		grpc.ReadBufferSize(0),
		grpc.ForceServerCodecV2(newGRPCCodec()),
	}
}

type grpcServer struct {
	pb.UnimplementedGRPCInferenceServiceServer
	srv *Server
}

// grpcError is err with its status.
func grpcError(err error) error {
	if err == nil {
		return nil
	}
	e := asError(err)
	return status.Error(grpcCodes[e.Code.known()], e.told())
}

func (g *grpcServer) ServerLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: true}, nil
}

func (g *grpcServer) ServerReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: g.srv.IsReady()}, nil
}

func (g *grpcServer) ModelReady(_ context.Context, r *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	_, _, err := g.srv.find(r.Name, r.Version)
	if errors.Is(err, NotFound) {
		return nil, grpcError(err)
	}
	return &pb.ModelReadyResponse{Ready: err == nil}, nil
}

func (g *grpcServer) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return &pb.ServerMetadataResponse{Name: g.srv.options.Name, Version: g.srv.options.Version, Extensions: extensions}, nil
}

func (g *grpcServer) ModelMetadata(_ context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	v, _, err := g.srv.find(r.Name, r.Version)
	if err != nil {
		return nil, grpcError(err)
	}
	of := func(specs []Spec) []*pb.ModelMetadataResponse_TensorMetadata {
		var all []*pb.ModelMetadataResponse_TensorMetadata
		for _, d := range describe(specs) {
			all = append(all, &pb.ModelMetadataResponse_TensorMetadata{Name: d.Name, Datatype: d.Datatype, Shape: d.Shape})
		}
		return all
	}
	return &pb.ModelMetadataResponse{Name: v.name, Versions: g.srv.loaded(v.name), Platform: platform,
		Inputs: of(v.signature.Inputs), Outputs: of(v.signature.Outputs)}, nil
}

func (g *grpcServer) ModelConfig(_ context.Context, r *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	v, _, err := g.srv.find(r.Name, r.Version)
	if err != nil {
		return nil, grpcError(err)
	}
	config := &pb.ModelConfig{Name: v.name, Platform: platform, Backend: platform, MaxBatchSize: int32(min(v.queueOf.max, math.MaxInt32)),
		InstanceGroup: []*pb.ModelInstanceGroup{{Name: v.name, Kind: pb.ModelInstanceGroup_KIND_CPU, Count: int32(v.queueOf.instances)}}}
	for _, s := range v.signature.Inputs {
		config.Input = append(config.Input, &pb.ModelInput{Name: s.Name, DataType: pb.DataType(pb.DataType_value[configType(s.Type)]), Dims: v.configDims(s)})
	}
	for _, s := range v.signature.Outputs {
		config.Output = append(config.Output, &pb.ModelOutput{Name: s.Name, DataType: pb.DataType(pb.DataType_value[configType(s.Type)]), Dims: v.configDims(s)})
	}
	if v.queueOf.max > 0 {
		config.DynamicBatching = &pb.ModelDynamicBatching{MaxQueueDelayMicroseconds: uint64(v.queueOf.delay.Microseconds()),
			PriorityLevels: uint64(v.options.queue.Levels), DefaultPriorityLevel: uint64(v.options.queue.DefaultLevel),
			DefaultQueuePolicy: &pb.ModelQueuePolicy{DefaultTimeoutMicroseconds: uint64(v.options.queue.Timeout.Microseconds()),
				AllowTimeoutOverride: true, MaxQueueSize: uint32(v.queueOf.limit)}}
		for _, n := range v.queueOf.preferred {
			config.DynamicBatching.PreferredBatchSize = append(config.DynamicBatching.PreferredBatchSize, int32(n))
		}
	}
	return &pb.ModelConfigResponse{Config: config}, nil
}

func (g *grpcServer) ModelStatistics(_ context.Context, r *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	all, err := g.srv.Statistics(r.Name, r.Version)
	if err != nil {
		return nil, grpcError(err)
	}
	total := func(t Total) *pb.StatisticDuration { return &pb.StatisticDuration{Count: t.Count, Ns: uint64(t.Time)} }
	out := &pb.ModelStatisticsResponse{}
	for _, s := range all {
		m := &pb.ModelStatistics{Name: s.Name, Version: s.Version, LastInference: uint64(lastInference(s)), InferenceCount: s.Inferences,
			ExecutionCount: s.Executions, InferenceStats: &pb.InferStatistics{Success: total(s.Success), Fail: total(s.Fail),
				Queue: total(s.Queue), ComputeInput: total(s.ComputeInput), ComputeInfer: total(s.ComputeInfer),
				ComputeOutput: total(s.ComputeOutput), CacheHit: total(Total{}), CacheMiss: total(Total{})}}
		for _, b := range s.Batches {
			m.BatchStats = append(m.BatchStats, &pb.InferBatchStatistics{BatchSize: uint64(b.Size), ComputeInput: total(b.ComputeInput),
				ComputeInfer: total(b.ComputeInfer), ComputeOutput: total(b.ComputeOutput)})
		}
		out.ModelStats = append(out.ModelStats, m)
	}
	return out, nil
}

func (g *grpcServer) RepositoryIndex(_ context.Context, r *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	out := &pb.RepositoryIndexResponse{}
	for _, m := range g.srv.index(r.Ready) {
		out.Models = append(out.Models, &pb.RepositoryIndexResponse_ModelIndex{Name: m.Name, Version: m.Version, State: m.State, Reason: m.Reason})
	}
	return out, nil
}

func (g *grpcServer) RepositoryModelLoad(ctx context.Context, r *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	for name := range r.Parameters {
		if err := checkLoadParameter(name); err != nil && g.srv.options.Control {
			return nil, grpcError(of(r.ModelName, "", err))
		}
	}
	if err := g.srv.control(ctx, r.ModelName, true); err != nil {
		return nil, grpcError(err)
	}
	return &pb.RepositoryModelLoadResponse{}, nil
}

func (g *grpcServer) RepositoryModelUnload(ctx context.Context, r *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	if err := g.srv.control(ctx, r.ModelName, false); err != nil {
		return nil, grpcError(err)
	}
	return &pb.RepositoryModelUnloadResponse{}, nil
}

func (g *grpcServer) ModelInfer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	out, err := g.infer(ctx, r)
	return out, grpcError(err)
}

func (g *grpcServer) ModelStreamInfer(stream pb.GRPCInferenceService_ModelStreamInferServer) error {
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &pb.ModelStreamInferResponse{}
		answer.InferResponse, err = g.infer(stream.Context(), r)
		if err != nil {
			answer.ErrorMessage = asError(err).told()
			answer.InferResponse = &pb.ModelInferResponse{ModelName: r.ModelName, ModelVersion: r.ModelVersion, Id: r.Id}
		}
		answer.InferResponse.Parameters = finalResponse
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (g *grpcServer) infer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	if g.srv.tracer == nil {
		return g.answer(ctx, r)
	}
	ctx, span := g.srv.receive(metadataOf(ctx), ctx, "gRPC", r.ModelName, r.ModelVersion)
	out, err := g.answer(ctx, r)
	endSpan(span, err)
	return out, err
}

func (g *grpcServer) answer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	begin := time.Now()
	v, _, err := g.srv.find(r.ModelName, r.ModelVersion)
	if err != nil {
		g.srv.count(nil, nil, err, begin)
		return nil, err
	}
	b := &body{holding: holding{budget: &g.srv.bytes}}
	req, err := g.request(ctx, b, r)
	if err != nil {
		b.free()
		g.srv.count(v, nil, err, begin)
		return nil, of(r.ModelName, r.ModelVersion, err)
	}
	req.free = b.free
	res, err := g.srv.infer(ctx, req)
	if err != nil {
		return nil, err
	}
	defer res.release()
	out := &pb.ModelInferResponse{ModelName: res.model, ModelVersion: res.version, Id: res.id,
		Outputs:           make([]*pb.ModelInferResponse_InferOutputTensor, len(res.job.out)),
		RawOutputContents: make([][]byte, len(res.job.out))}
	for i := range res.job.out {
		o := &res.job.out[i]
		out.Outputs[i] = &pb.ModelInferResponse_InferOutputTensor{Name: o.name, Datatype: string(o.typ), Shape: o.shape}
		raw := make([]byte, 0, o.size()) // grpc writes it after this has returned
		if o.typ == BYTES {
			raw = appendTexts(raw, o.bytes)
		} else {
			raw = append(raw, o.raw...)
		}
		out.RawOutputContents[i] = raw
	}
	return out, nil
}

// request is grpcRequest within the server's bounds.
func (g *grpcServer) request(ctx context.Context, b *body, r *pb.ModelInferRequest) (*request, error) {
	counted := g.srv.callOf(ctx) != nil // when the message was decoded
	if !counted {
		size := int64(proto.Size(r))
		if size > g.srv.maxBody { // grpc.Server may take more
			return nil, errTooLarge
		}
		if err := b.take(size); err != nil {
			return nil, err
		}
	}
	return grpcRequest(r, counted, b.take)
}

// grpcParameters are parameters as the rest of the package has them.
func grpcParameters(in map[string]*pb.InferParameter) (Parameters, error) {
	if len(in) == 0 {
		return nil, nil
	}
	if len(in) > maxParameters {
		return nil, newError(InvalidArgument, "there are more than %d parameters", maxParameters)
	}
	p := make(Parameters, len(in))
	for name, value := range in {
		switch v := value.GetParameterChoice().(type) {
		case *pb.InferParameter_BoolParam:
			p[name] = v.BoolParam
		case *pb.InferParameter_Int64Param:
			p[name] = v.Int64Param
		case *pb.InferParameter_Uint64Param:
			p[name] = v.Uint64Param
		case *pb.InferParameter_DoubleParam:
			p[name] = v.DoubleParam
		case *pb.InferParameter_StringParam:
			p[name] = v.StringParam
		default:
			return nil, newError(InvalidArgument, "parameter %q has no value", name)
		}
	}
	return p, nil
}

// grpcRequest makes a request of a message. Its data is the message's; what is made besides is asked for by take, and what
// its typed contents are in memory, unless that is counted already.
func grpcRequest(r *pb.ModelInferRequest, counted bool, take func(int64) error) (*request, error) {
	req := &request{model: r.ModelName, version: r.ModelVersion, id: r.Id, free: func() {}}
	var err error
	if req.params, err = grpcParameters(r.Parameters); err != nil {
		return nil, err
	}
	delete(req.params, "binary_data_output") // it is always binary
	if err := req.reserved(); err != nil {
		return nil, err
	}
	if len(r.Inputs) > maxTensors || len(r.Outputs) > maxTensors {
		return nil, newError(InvalidArgument, "there are more than %d inputs or outputs", maxTensors)
	}
	raws := r.RawInputContents
	if len(raws) > 0 && len(raws) != len(r.Inputs) {
		return nil, newError(InvalidArgument, "there are %d raw_input_contents for %d inputs: all inputs have theirs there, or none", len(raws), len(r.Inputs))
	}
	req.inputs = make([]input, len(r.Inputs))
	for i, from := range r.Inputs {
		in := &req.inputs[i]
		*in = input{name: from.GetName(), typ: DataType(from.GetDatatype()), shape: from.GetShape()}
		if in.name == "" {
			return nil, newError(InvalidArgument, "input %d has no name", i)
		}
		if !in.typ.known() {
			return nil, newError(InvalidArgument, "input %q is of datatype %.40q, which is none", in.name, string(in.typ))
		}
		if len(in.shape) > deepest {
			return nil, newError(InvalidArgument, "input %q has more than %d dimensions", in.name, deepest)
		}
		n, ok := elements(in.shape)
		if !ok {
			return nil, newError(InvalidArgument, "input %q has shape %s, which no tensor can have", in.name, shapeText(in.shape))
		}
		for _, name := range []string{"shared_memory_region", "shared_memory_byte_size"} {
			if _, ok := from.Parameters[name]; ok {
				return nil, newError(InvalidArgument, "input %q: shared memory is not supported: send the data itself", in.name)
			}
		}
		switch {
		case len(raws) == 0:
			err = in.contents(from.GetContents(), n, counted, take)
		case from.GetContents() != nil:
			err = newError(InvalidArgument, "input %q has contents, and there are raw_input_contents", in.name)
		case in.typ == BYTES:
			if err = take(textHeader * int64(min(n, len(raws[i])/4))); err != nil {
				return nil, err
			}
			if in.bytes, err = parseTexts(raws[i], n); err != nil {
				err = newError(InvalidArgument, "input %q: %s", in.name, asError(err).Msg)
			}
		default:
			in.raw = raws[i]
			err = checkRaw(in.name, in.typ, n, in.raw)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, out := range r.Outputs {
		for name := range out.GetParameters() {
			if err := checkOutputParameter(name); err != nil {
				return nil, err
			}
		}
		req.outputs = append(req.outputs, out.GetName())
	}
	return req, nil
}

// contents takes n elements from the typed contents. Of these the wire may have a byte each, where the message has more.
func (in *input) contents(c *pb.InferTensorContents, n int, counted bool, take func(int64) error) error {
	have, each := 0, 0
	switch in.typ {
	case BOOL:
		have, each = len(c.GetBoolContents()), 1
	case INT8, INT16, INT32:
		have, each = len(c.GetIntContents()), 4
	case UINT8, UINT16, UINT32:
		have, each = len(c.GetUintContents()), 4
	case INT64:
		have, each = len(c.GetInt64Contents()), 8
	case UINT64:
		have, each = len(c.GetUint64Contents()), 8
	case FP32:
		have, each = len(c.GetFp32Contents()), 4
	case FP64:
		have, each = len(c.GetFp64Contents()), 8
	case BYTES:
		have, each = len(c.GetBytesContents()), int(textHeader)
	default:
		if n > 0 {
			return newError(InvalidArgument, "input %q is %s, which goes into raw_input_contents only", in.name, in.typ)
		}
	}
	if have != n {
		return newError(InvalidArgument, "input %q has %d elements in the contents of its type, where shape %s has %d", in.name, have, shapeText(in.shape), n)
	}
	if counted {
		each = 0
	}
	size := in.typ.Size()
	if err := take(int64(have) * int64(each+size)); err != nil {
		return err
	}
	if in.typ == BYTES {
		in.bytes = c.GetBytesContents()
		return nil
	}
	little := binary.LittleEndian
	fits := true
	in.raw = make([]byte, 0, have*size)
	switch in.typ {
	case BOOL:
		for _, b := range c.GetBoolContents() {
			bit := byte(0)
			if b {
				bit = 1
			}
			in.raw = append(in.raw, bit)
		}
	case INT8, INT16, INT32:
		for _, v := range c.GetIntContents() {
			shift := 32 - 8*size
			fits = fits && v<<shift>>shift == v
			in.raw = append(in.raw, little.AppendUint32(nil, uint32(v))[:size]...)
		}
	case UINT8, UINT16, UINT32:
		for _, v := range c.GetUintContents() {
			shift := 32 - 8*size
			fits = fits && v<<shift>>shift == v
			in.raw = append(in.raw, little.AppendUint32(nil, v)[:size]...)
		}
	case INT64:
		for _, v := range c.GetInt64Contents() {
			in.raw = little.AppendUint64(in.raw, uint64(v))
		}
	case UINT64:
		for _, v := range c.GetUint64Contents() {
			in.raw = little.AppendUint64(in.raw, v)
		}
	case FP32:
		for _, v := range c.GetFp32Contents() {
			in.raw = little.AppendUint32(in.raw, math.Float32bits(v))
		}
	case FP64:
		for _, v := range c.GetFp64Contents() {
			in.raw = little.AppendUint64(in.raw, math.Float64bits(v))
		}
	}
	if !fits {
		return newError(InvalidArgument, "the contents of input %q have numbers that no %s holds", in.name, in.typ)
	}
	return nil
}
