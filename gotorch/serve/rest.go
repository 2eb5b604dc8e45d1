package serve

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"gotorch.dev/gotorch"
)

// HTTP returns a handler for the protocol over REST, with the extensions for binary tensor data, statistics, model
// configuration and the model repository. Its paths begin with /v2:
//
//	GET  /v2, /v2/health/live, /v2/health/ready, /v2/openapi.json
//	GET  /v2/models, /v2/models/NAME[/versions/VERSION], and below the latter /ready, /config, /stats
//	POST /v2/models/NAME[/versions/VERSION]/infer
//	GET  /v2/models/stats
//	POST /v2/repository/index, /v2/repository/models/NAME/load, /v2/repository/models/NAME/unload
//
// A failure is {"error": "..."} with the status of its [Code]. A method that a path does not have is 405, with those that it
// has in the header Allow. GET /v2/openapi.json describes all of this for programs. Give your http.Server a ReadTimeout or ReadHeaderTimeout
// and an IdleTimeout: a client that sends slowly holds a connection, and memory for what it has sent.
func (s *Server) HTTP() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				writeError(w, asError(err))
			}
		})
	}
	handle("GET /v2", s.restServer)
	handle("GET /v2/{$}", s.restServer)
	handle("GET /v2/openapi.json", s.restOpenAPI)
	handle("GET /v2/health/live", s.restLive)
	handle("GET /v2/health/ready", s.restReady)
	handle("GET /v2/models", s.restModels)
	for _, of := range []string{"/v2/models/{name}", "/v2/models/{name}/versions/{version}"} {
		handle("GET "+of, s.restModel)
		handle("GET "+of+"/ready", s.restModelReady)
		handle("GET "+of+"/config", s.restConfig)
		handle("GET "+of+"/stats", s.restStats)
		handle("POST "+of+"/infer", s.restTraced(s.restInfer))
	}
	handle("GET /v2/models/stats", s.restStats)
	handle("POST /v2/repository/index", s.restIndex)
	handle("POST /v2/repository/models/{name}/load", func(_ http.ResponseWriter, r *http.Request) error {
		if s.options.Control { // else it is refused, whatever it has
			if err := checkLoad(r.Body); err != nil {
				return of(r.PathValue("name"), "", err)
			}
		}
		return s.control(r.Context(), r.PathValue("name"), true)
	})
	handle("POST /v2/repository/models/{name}/unload", func(_ http.ResponseWriter, r *http.Request) error {
		return s.control(r.Context(), r.PathValue("name"), false)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { writeError(w, notThere(w, r, mux)) })
	return mux
}

// control loads or unloads a model for a client.
func (s *Server) control(ctx context.Context, name string, load bool) error {
	if !s.options.Control {
		return newError(PermissionDenied, "this server lets no client load and unload models; serve.Options.Control does")
	}
	if load {
		return s.Load(ctx, name, "")
	}
	waits, err := s.unload(name, "")
	if err != nil {
		return err
	}
	// A request that hangs must not hold the client for ever: the index says that it still runs.
	ctx, cancel := context.WithTimeout(ctx, mostUnloading)
	defer cancel()
	waitAll(ctx, waits, name)
	return nil
}

// mostUnloading is how long a client who unloads a model waits for its requests to end. It is put out of service at once.
var mostUnloading = 10 * time.Second

// checkLoad says what is wrong with the body of a request to load a model.
func checkLoad(body io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(body, maxConfig+1))
	if err != nil {
		return readError(err, int64(len(text)), "")
	}
	if len(text) > maxConfig { // of files, then
		return &Error{Code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, Msg: "the body is larger than one that asks to load a model"}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var wanted struct{ Parameters map[string]any }
	if err := json.Unmarshal(text, &wanted); err != nil {
		return newError(InvalidArgument, "the body asks to load no model: %v", jsonError(err))
	}
	for name := range wanted.Parameters {
		if err := checkLoadParameter(name); err != nil {
			return err
		}
	}
	return nil
}

// jsonError is an error of encoding/json without the names of Go's types.
func jsonError(err error) error {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return err
	}
	of := "it"
	if e.Field != "" {
		of = strings.ToLower(e.Field)
	}
	expected := "an object"
	if e.Type.Kind() == reflect.Bool {
		expected = "true or false"
	}
	return fmt.Errorf("%s is a JSON %s, where %s was expected", of, e.Value, expected)
}

// checkLoadParameter refuses what would load another model than the one that is there.
func checkLoadParameter(name string) error {
	if name == "config" || strings.HasPrefix(name, "file:") {
		return newError(Unimplemented, "a model is loaded as its folder is: the parameter %.100q is not supported", name)
	}
	return nil
}

func writeError(w http.ResponseWriter, e *Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch {
	case e.Code == ResourceExhausted && e.status == 0:
		h.Set("Retry-After", "1")
	case e.status == http.StatusRequestTimeout:
		h.Set("Connection", "close") // the rest of the body may still come
	case e.status == http.StatusUnsupportedMediaType:
		h.Set("Accept-Encoding", "gzip, deflate")
	}
	body := append(appendString([]byte(`{"error":`), e.told()), '}')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.httpStatus())
	w.Write(body)
}

func writeJSON(w http.ResponseWriter, v any) error { return writeStatus(w, http.StatusOK, v) }

func writeStatus(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
	return nil
}

// extensions are those of the protocol that a server has.
var extensions = []string{"binary_tensor_data", "model_configuration", "model_repository", "parameters", "schedule_policy",
	"sequence", "sequence(string_id)", "statistics"}

func (s *Server) restServer(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{s.options.Name, s.options.Version, extensions})
}

// platform is what models are said to run on.
const platform = "gotorch"

// described is what metadata says of an input or output.
type described struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

func describe(specs []Spec) []described {
	all := make([]described, len(specs))
	for i, s := range specs {
		all[i] = described{s.Name, string(s.Type), s.Shape}
		if s.Shape == nil {
			all[i].Shape = []int64{-1}
		}
	}
	return all
}

// loaded returns the versions of a model that are in service.
func (s *Server) loaded(name string) []string {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	ids := []string{}
	for id, v := range s.models[name] {
		if v.queue != nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareVersions)
	return ids
}

func (s *Server) restModel(w http.ResponseWriter, r *http.Request) error {
	v, _, err := s.find(r.PathValue("name"), r.PathValue("version"))
	if err != nil {
		return err
	}
	return writeJSON(w, struct {
		Name     string      `json:"name"`
		Versions []string    `json:"versions"`
		Platform string      `json:"platform"`
		Inputs   []described `json:"inputs"`
		Outputs  []described `json:"outputs"`
	}{v.name, s.loaded(v.name), platform, describe(v.signature.Inputs), describe(v.signature.Outputs)})
}

// configured is what a configuration says of an input or output.
type configured struct {
	Name string  `json:"name"`
	Type string  `json:"data_type"`
	Dims []int64 `json:"dims"`
}

// configType is a type's name in configurations.
func configType(t DataType) string {
	switch t {
	case BYTES:
		return "TYPE_STRING"
	case "":
		return "TYPE_INVALID" // the protocol's word for one that is not said
	}
	return "TYPE_" + string(t)
}

// configDims is a shape without the batch.
func (v *version) configDims(s Spec) []int64 {
	switch {
	case s.Shape == nil:
		return []int64{-1}
	case v.options.batching.Max > 0:
		return append([]int64{}, s.Shape[1:]...)
	}
	return append([]int64{}, s.Shape...)
}

func (s *Server) restConfig(w http.ResponseWriter, r *http.Request) error {
	v, _, err := s.find(r.PathValue("name"), r.PathValue("version"))
	if err != nil {
		return err
	}
	specs := func(specs []Spec) []configured {
		all := make([]configured, len(specs))
		for i, s := range specs {
			all[i] = configured{s.Name, configType(s.Type), v.configDims(s)}
		}
		return all
	}
	type queuePolicy struct {
		Timeout uint64 `json:"default_timeout_microseconds"`
		May     bool   `json:"allow_timeout_override"`
		Max     int    `json:"max_queue_size"`
	}
	type batching struct {
		Preferred []int       `json:"preferred_batch_size"`
		Delay     int64       `json:"max_queue_delay_microseconds"`
		Levels    int         `json:"priority_levels"`
		Level     int         `json:"default_priority_level"`
		Policy    queuePolicy `json:"default_queue_policy"`
	}
	type group struct {
		Name  string `json:"name"`
		Kind  string `json:"kind"`
		Count int    `json:"count"`
	}
	config := struct {
		Name     string       `json:"name"`
		Platform string       `json:"platform"`
		Backend  string       `json:"backend"`
		MaxBatch int          `json:"max_batch_size"`
		Input    []configured `json:"input"`
		Output   []configured `json:"output"`
		Groups   []group      `json:"instance_group"`
		Batching *batching    `json:"dynamic_batching,omitempty"`
	}{Name: v.name, Platform: platform, Backend: platform, MaxBatch: v.queueOf.max, Input: specs(v.signature.Inputs),
		Output: specs(v.signature.Outputs), Groups: []group{{v.name, "KIND_CPU", v.queueOf.instances}}}
	if v.queueOf.max > 0 {
		config.Batching = &batching{append([]int{}, v.queueOf.preferred...), v.queueOf.delay.Microseconds(), v.options.queue.Levels,
			v.options.queue.DefaultLevel, queuePolicy{uint64(v.options.queue.Timeout.Microseconds()), true, v.queueOf.limit}}
	}
	return writeJSON(w, config)
}

// restTotal is a Total.
type restTotal struct {
	Count uint64 `json:"count"`
	NS    int64  `json:"ns"`
}

func total(t Total) restTotal { return restTotal{t.Count, int64(t.Time)} }

func (s *Server) restStats(w http.ResponseWriter, r *http.Request) error {
	all, err := s.Statistics(r.PathValue("name"), r.PathValue("version"))
	if err != nil {
		return err
	}
	type inference struct {
		Success restTotal `json:"success"`
		Fail    restTotal `json:"fail"`
		Queue   restTotal `json:"queue"`
		Input   restTotal `json:"compute_input"`
		Infer   restTotal `json:"compute_infer"`
		Output  restTotal `json:"compute_output"`
		Hit     restTotal `json:"cache_hit"`
		Miss    restTotal `json:"cache_miss"`
	}
	type batch struct {
		Size   int       `json:"batch_size"`
		Input  restTotal `json:"compute_input"`
		Infer  restTotal `json:"compute_infer"`
		Output restTotal `json:"compute_output"`
	}
	type model struct {
		Name       string    `json:"name"`
		Version    string    `json:"version"`
		Last       int64     `json:"last_inference"`
		Inferences uint64    `json:"inference_count"`
		Executions uint64    `json:"execution_count"`
		Inference  inference `json:"inference_stats"`
		Batches    []batch   `json:"batch_stats"`
		Memory     []string  `json:"memory_usage"` // of a model the server does not know
	}
	models := []model{}
	for _, one := range all {
		m := model{one.Name, one.Version, lastInference(one), one.Inferences, one.Executions, inference{
			total(one.Success), total(one.Fail), total(one.Queue), total(one.ComputeInput), total(one.ComputeInfer),
			total(one.ComputeOutput), restTotal{}, restTotal{}}, []batch{}, []string{}}
		for _, b := range one.Batches {
			m.Batches = append(m.Batches, batch{b.Size, total(b.ComputeInput), total(b.ComputeInfer), total(b.ComputeOutput)})
		}
		models = append(models, m)
	}
	return writeJSON(w, map[string][]model{"model_stats": models})
}

// lastInference is the time in milliseconds since 1970, as the protocol has it; 0 for none.
func lastInference(s Statistics) int64 {
	if s.LastInference.IsZero() {
		return 0
	}
	return s.LastInference.UnixMilli()
}

// indexed is an entry of the repository's index.
type indexed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

// index lists models; with ready those in service.
func (s *Server) index(ready bool) []indexed {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	all := []indexed{}
	for _, versions := range s.models {
		for _, v := range versions {
			one := indexed{v.name, v.id, "READY", v.reason}
			switch {
			case v.queue == nil && len(v.queues) > 0:
				one.State, one.Reason = "UNAVAILABLE", v.reason+", and requests of it still run"
			case v.queue == nil:
				one.State = "UNAVAILABLE"
			case v.queue.hangs():
				one.State, one.Reason = "UNAVAILABLE", fmt.Sprintf("it hangs: it has run for longer than %v", v.options.runTimeout)
			}
			if one.State == "READY" || !ready {
				all = append(all, one)
			}
		}
	}
	all = s.addFailures(all, ready)
	slices.SortFunc(all, func(a, b indexed) int {
		if a.Name != b.Name {
			return strings.Compare(a.Name, b.Name)
		}
		return compareVersions(a.Version, b.Version)
	})
	return all
}

func (s *Server) restIndex(w http.ResponseWriter, r *http.Request) error {
	var wanted struct{ Ready bool }
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return readError(err, int64(len(body)), "")
	}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, &wanted); err != nil {
			return newError(InvalidArgument, "the body is no index request: %v", jsonError(err))
		}
	}
	return writeJSON(w, s.index(wanted.Ready))
}

// Requests for inference --------------------------------------------------------------------------------

// body reads a request's body, no more than is allowed, and accounts for its memory.
type body struct {
	r     io.Reader
	most  int64 // that it may have
	whole int64 // that it has, as its header says; -1 where that is not known
	got   int64
	// packed is what r unpacks; nil for a body that is not packed.
	packed *bounded
	holding
	arenas  []*[]byte
	tensors []gotorch.Tensor
}

var errTooLarge = &Error{Code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, Msg: "the body is larger than the server takes"}

func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.got == b.most { // is there one byte more?
		var one [1]byte
		n, err := b.r.Read(one[:])
		if n > 0 {
			err = errTooLarge
		}
		return 0, err
	}
	// What a client has sent is accounted for, not what it announces: else few could hold up all.
	p = p[:min(int64(len(p)), b.most-b.got, mostRead)]
	n, err := b.r.Read(p)
	b.got += int64(n)
	b.waiting(n, err)
	if full := b.take(int64(n)); full != nil {
		return n, full
	}
	return n, err
}

// take accounts for memory that the request has.
func (b *body) take(n int64) error {
	if !b.holding.take(n) {
		return errMemory
	}
	return nil
}

var errMemory = newError(ResourceExhausted, "requests that are being read or run take all of the memory that they may: try again later")

// textHeader is what Go has for each text besides its bytes.
const textHeader = int64(unsafe.Sizeof([]byte{}))

// bounded is a packed body, of which no more bytes are read than a request may have: it may unpack to nothing for ever.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		n, err = int(b.left), errTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// free gives all memory back.
func (b *body) free() {
	b.holding.free()
	for _, a := range b.arenas {
		freeArena(a)
	}
	for _, t := range b.tensors {
		t.Close()
	}
	b.arenas, b.tensors = nil, nil
}

func (b *body) arena(size int) *[]byte {
	a := newArena(size)
	b.arenas = append(b.arenas, a)
	return a
}

// Memory for a body grows as it comes: what a header says of its length is no reason to take more.
const (
	firstPiece = 64 << 10
	mostRead   = 256 << 10
)

// upTo reads n bytes, or all that come with n < 0, and appends them to a.
func (b *body) upTo(a *[]byte, n int64, what string) ([]byte, error) {
	start := len(*a)
	for n < 0 || int64(len(*a)-start) < n {
		room := cap(*a) - len(*a)
		if room == 0 {
			*a = slices.Grow(*a, max(firstPiece, len(*a)))
			room = cap(*a) - len(*a)
		}
		if n >= 0 {
			room = int(min(int64(room), n-int64(len(*a)-start)))
		}
		got, err := b.Read((*a)[len(*a) : len(*a)+room])
		*a = (*a)[:len(*a)+got]
		if err == io.EOF && n < 0 {
			break
		}
		if err != nil && (n < 0 || int64(len(*a)-start) < n) {
			return nil, b.failed(err, what)
		}
	}
	return (*a)[start:len(*a):len(*a)], nil
}

// full fills p.
func (b *body) full(p []byte, what string) error {
	if _, err := io.ReadFull(b, p); err != nil {
		return b.failed(err, what)
	}
	return nil
}

func (b *body) failed(err error, what string) error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return err
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return newError(InvalidArgument, "the body ends after %d bytes, in %s", b.got, what)
	}
	came := b.got
	if b.packed != nil {
		came = b.most - b.packed.left
	}
	return readError(err, came, what)
}

// wanted is an output that a request asks for.
type wanted struct {
	name   string
	binary bool
}

func (s *Server) restInfer(w http.ResponseWriter, r *http.Request) error {
	begin := time.Now()
	b := s.newBody(w, r)
	req := &request{model: r.PathValue("name"), version: r.PathValue("version"), free: b.free}
	v, _, err := s.find(req.model, req.version)
	if err != nil { // before a body is read for nothing
		s.count(nil, nil, err, begin)
		return err
	}
	outputs, allBinary, err := b.request(r, req, v.rawShape)
	b.holding.whole()
	if b.ended.Load() { // while it was read
		err = errMemory
	}
	if err != nil {
		b.free()
		s.count(v, nil, err, begin)
		return of(req.model, req.version, err)
	}
	res, err := s.infer(r.Context(), req)
	if err != nil {
		return err
	}
	defer res.release()
	return res.write(w, r, outputs, allBinary)
}

// request reads a request. raw returns the input that the whole body is, where it has no JSON.
func (b *body) request(r *http.Request, req *request, raw func(size int64) (input, error)) (outputs []wanted, allBinary bool, err error) {
	if r.ContentLength > b.most {
		return nil, false, errTooLarge
	}
	if err := b.unpack(r.Header); err != nil {
		return nil, false, err
	}
	head := int64(-1)
	if text := r.Header.Get("Inference-Header-Content-Length"); text != "" {
		head, err = strconv.ParseInt(text, 10, 64)
		if err != nil || head < 0 {
			return nil, false, newError(InvalidArgument, "the header Inference-Header-Content-Length is %.40q, which is no length", text)
		}
		if err := b.announced(head, "the header Inference-Header-Content-Length says that the JSON has"); err != nil {
			return nil, false, err
		}
	}
	if head == 0 {
		if err := b.raw(req, raw); err != nil {
			return nil, false, err
		}
		return nil, true, b.over(head)
	}
	first := head
	if first < 0 {
		first = r.ContentLength + 1 // and the end of it
	}
	text, err := b.upTo(b.arena(int(min(max(first, 512), firstPiece))), head, "the JSON")
	if err != nil {
		return nil, false, err
	}
	p := restParser{reader: reader{text: text}, request: req, body: b, hasBinary: head >= 0}
	if err := p.parse(); err != nil {
		return nil, false, err
	}
	for i := range req.inputs {
		if p.sizes[i] >= 0 {
			if err := b.binary(&req.inputs[i], p.sizes[i]); err != nil {
				return nil, false, err
			}
		}
	}
	if head >= 0 {
		if err := b.over(head); err != nil {
			return nil, false, err
		}
	}
	req.outputs = nil
	if p.outputs != nil {
		req.outputs = make([]string, len(p.outputs))
		for i := range p.outputs {
			req.outputs[i] = p.outputs[i].name
		}
	}
	return p.outputs, p.allBinary, nil
}

// over reads the end of a body of which all has been read. Who counts connections and time learns from that that it has come.
func (b *body) over(head int64) error {
	var one [1]byte
	switch n, err := io.ReadFull(b, one[:]); {
	case n > 0:
		return newError(InvalidArgument, "the body goes on after the %d bytes of JSON and the binary data that it announces", head)
	case err != io.EOF:
		return b.failed(err, "the end")
	}
	return nil
}

// largeInput is from where on data is read into a tensor, instead of being copied into one before it runs.
const largeInput = 64 << 10

// binary reads an input's binary data.
func (b *body) binary(in *input, size int64) error {
	n, ok := elements(in.shape)
	if !ok {
		return newError(InvalidArgument, "input %q has shape %s, which no tensor can have", in.name, shapeText(in.shape))
	}
	what := "the data of input " + strconv.Quote(in.name)
	if err := b.announced(size, "the binary data of input "+strconv.Quote(in.name)+" has"); err != nil {
		return err
	}
	if in.typ == BYTES {
		raw, err := b.upTo(b.arena(int(min(size, firstPiece))), size, what)
		if err != nil {
			return err
		}
		if err := b.take(textHeader * min(int64(n), size/4)); err != nil {
			return err
		}
		in.bytes, err = parseTexts(raw, n)
		if err != nil {
			return of("", "", newError(InvalidArgument, "input %q: %s", in.name, asError(err).Msg))
		}
		return nil
	}
	if want := int64(n) * int64(in.typ.Size()); size != want {
		return newError(InvalidArgument, "input %q has %d bytes of data, where %s of shape %s has %d", in.name, size, in.typ, shapeText(in.shape), want)
	}
	if size > b.most-b.got { // before memory is taken for it
		return errTooLarge
	}
	if size < largeInput {
		raw, err := b.upTo(b.arena(int(size)), size, what)
		in.raw = raw
		if err != nil {
			return err
		}
	} else {
		t, err := gotorch.Try(func() gotorch.Tensor {
			return gotorch.Empty(append([]int64{}, in.shape...), gotorch.TensorOptions{DType: in.typ.DType()})
		})
		if err != nil {
			return err
		}
		b.tensors = append(b.tensors, t)
		in.tensor, in.raw = t, gotorch.RawData(t)
		if err := b.full(in.raw, what); err != nil {
			return err
		}
	}
	return checkRaw(in.name, in.typ, n, in.raw)
}

// restParser reads the JSON of a request.
type restParser struct {
	reader
	request   *request
	body      *body
	hasBinary bool
	sizes     []int64 // of the inputs' binary data; -1 for none
	outputs   []wanted
	explicit  []bool // whether an output says itself how it is wanted
	allBinary bool
	arena     *[]byte
	scratch   Parameters // of an input; what it says is taken at once
}

const maxTensors = 1000

func (p *restParser) parse() error {
	var seen uint
	first := func(bit uint, key string) error {
		if seen&bit != 0 {
			return p.wrong("%q is there twice", key)
		}
		seen |= bit
		return nil
	}
	err := p.object("the request", func(key string) (err error) {
		switch key {
		case "id":
			if err = first(1, key); err == nil && !p.null() {
				p.request.id, err = p.str("id")
			}
		case "parameters":
			if err = first(2, key); err == nil && !p.null() {
				p.request.params, err = p.parameters("parameters")
			}
		case "inputs":
			if err = first(4, key); err == nil {
				err = p.array("inputs", p.input)
			}
		case "outputs":
			if err = first(8, key); err == nil && !p.null() {
				err = p.array("outputs", p.output)
			}
		default:
			err = p.skip(1)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	if seen&4 == 0 {
		return newError(InvalidArgument, "the request has no inputs")
	}
	if binary, ok := p.request.params["binary_data_output"]; ok {
		p.allBinary, ok = binary.(bool)
		if !ok {
			return newError(InvalidArgument, "parameter binary_data_output is %s, and must be true or false", told(binary))
		}
		delete(p.request.params, "binary_data_output")
	}
	for i := range p.outputs {
		if !p.explicit[i] {
			p.outputs[i].binary = p.allBinary
		}
	}
	return p.request.reserved()
}

// reserved takes from the parameters what the server itself understands.
func (r *request) reserved() error {
	whole := func(name string) (int64, error) {
		value, ok := r.params[name]
		if !ok {
			return 0, nil
		}
		n, ok := value.(int64)
		if u, unsigned := value.(uint64); unsigned && u <= math.MaxInt64 {
			n, ok = int64(u), true
		}
		if !ok || n < 0 {
			return 0, newError(InvalidArgument, "parameter %s is %s, and must be an integer that is not negative", name, told(value))
		}
		delete(r.params, name)
		return n, nil
	}
	priority, err := whole("priority")
	if err != nil {
		return err
	}
	timeout, err := whole("timeout")
	if err != nil {
		return err
	}
	r.priority = priority
	r.timeout = time.Duration(min(timeout, math.MaxInt64/1000)) * time.Microsecond
	if err := r.takeTriton(); err != nil {
		return err
	}
	return r.takeSequence()
}

func (p *restParser) shape() ([]int64, error) {
	shape := make([]int64, 0, 4)
	err := p.array("a shape", func() error {
		if len(shape) == deepest {
			return p.wrong("a shape has more than %d dimensions", deepest)
		}
		n, err := p.integer("a size")
		shape = append(shape, n)
		return err
	})
	return shape, err
}

func (p *restParser) input() error {
	if len(p.sizes) == maxTensors {
		return p.wrong("there are more than %d inputs", maxTensors)
	}
	const name, shape, datatype, parameters, datum = 1, 2, 4, 8, 16
	in := input{}
	size := int64(-1)
	seen, later := 0, -1
	first := func(bit int, key string) error {
		if seen&bit != 0 {
			return p.wrong("%q is there twice in an input", key)
		}
		seen |= bit
		return nil
	}
	err := p.object("an input", func(key string) (err error) {
		switch key {
		case "name":
			if err = first(name, key); err == nil {
				in.name, err = p.str("an input's name")
			}
		case "shape":
			if err = first(shape, key); err == nil {
				in.shape, err = p.shape()
			}
		case "datatype":
			if err = first(datatype, key); err == nil {
				var text string
				text, err = p.str("a datatype")
				if in.typ = DataType(text); err == nil && !in.typ.known() {
					err = p.wrong("an input is of datatype %.40q, which is none", text)
				}
			}
		case "parameters":
			if err = first(parameters, key); err == nil && !p.null() {
				size, err = p.inputParameters()
			}
		case "data":
			if p.null() {
				return nil
			}
			if err = first(datum, key); err != nil {
				return err
			}
			if seen&(name|shape|datatype) == name|shape|datatype {
				return p.data(&in)
			}
			p.peek()
			later = p.at
			err = p.skip(2)
		default:
			err = p.skip(2)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case seen&name == 0 || in.name == "":
		return p.wrong("an input has no name")
	case seen&shape == 0:
		return p.wrong("input %q has no shape", in.name)
	case seen&datatype == 0:
		return p.wrong("input %q has no datatype", in.name)
	case seen&datum == 0 && size < 0:
		return p.wrong("input %q has no data: neither data nor the parameter binary_data_size", in.name)
	case seen&datum != 0 && size >= 0:
		return p.wrong("input %q has data, and the parameter binary_data_size", in.name)
	case size >= 0 && !p.hasBinary:
		return p.wrong("input %q has binary data, and there is no header Inference-Header-Content-Length", in.name)
	}
	if later >= 0 {
		end := p.at
		p.at = later
		if err := p.data(&in); err != nil {
			return err
		}
		p.at = end
	}
	p.request.inputs = append(p.request.inputs, in)
	p.sizes = append(p.sizes, size)
	return nil
}

func (p *restParser) data(in *input) error {
	if p.arena == nil {
		p.arena = p.body.arena(min(len(p.text), firstPiece))
	}
	// What a short text becomes may be many times as long: 0, is two bytes, and eight as a double. It is no more than what
	// the shape says and the text has room for.
	n, _ := elements(in.shape)
	n = min(n, (len(p.text)-p.at)/2+1)
	var texts [][]byte
	memory := int64(n) * int64(in.typ.Size())
	if in.typ == BYTES {
		memory = int64(n) * textHeader
	}
	if err := p.body.take(memory); err != nil {
		return err
	}
	if in.typ == BYTES {
		texts = make([][]byte, 0, n)
	} else {
		*p.arena = slices.Grow(*p.arena, int(memory))
	}
	start := len(*p.arena)
	out, texts, err := p.reader.data(in.name, in.typ, in.shape, *p.arena, texts)
	if err != nil {
		return err
	}
	*p.arena = out
	in.raw, in.bytes = out[start:len(out):len(out)], texts
	return nil
}

// inputParameters returns binary_data_size, -1 where it is not there.
func (p *restParser) inputParameters() (int64, error) {
	if p.scratch == nil {
		p.scratch = Parameters{}
	}
	params := p.scratch
	clear(params)
	if err := p.parametersInto(params, "an input's parameters"); err != nil {
		return 0, err
	}
	if _, ok := params["shared_memory_region"]; ok {
		return 0, p.wrong("shared memory is not supported: send the data itself")
	}
	value, ok := params["binary_data_size"]
	if !ok {
		return -1, nil
	}
	size, ok := value.(int64)
	if !ok || size < 0 {
		return 0, p.wrong("binary_data_size is %s, and must be an integer that is not negative", told(value))
	}
	return size, nil
}

func (p *restParser) output() error {
	if len(p.outputs) == maxTensors {
		return p.wrong("there are more than %d outputs", maxTensors)
	}
	out := wanted{}
	explicit := false
	err := p.object("an output", func(key string) error {
		switch key {
		case "name":
			name, err := p.str("an output's name")
			out.name = name
			return err
		case "parameters":
			if p.null() {
				return nil
			}
			params, err := p.parameters("an output's parameters")
			if err != nil {
				return err
			}
			if value, ok := params["binary_data"]; ok {
				if out.binary, ok = value.(bool); !ok {
					return p.wrong("binary_data is %s, and must be true or false", told(value))
				}
				explicit = true
			}
			for name := range params {
				if err := checkOutputParameter(name); err != nil {
					return p.wrong("%s", err.Msg)
				}
			}
			return nil
		}
		return p.skip(2)
	})
	if err == nil && out.name == "" {
		err = p.wrong("an output has no name")
	}
	p.outputs = append(p.outputs, out)
	p.explicit = append(p.explicit, explicit)
	return err
}

// Values of headers that all answers share. Nothing writes into them: what is added to a header goes into a new slice.
var (
	typeBinary = []string{"application/octet-stream"}
	typeJSON   = []string{"application/json"}
	vary       = []string{"Accept-Encoding"}
)

// write writes a response.
func (res *response) write(w http.ResponseWriter, r *http.Request, outputs []wanted, allBinary bool) error {
	out := res.job.out
	isBinary := func(i int) bool {
		if outputs == nil {
			return allBinary
		}
		return outputs[i].binary
	}
	binary, binarySize := false, 0
	guess := 256
	for i := range out {
		if isBinary(i) {
			binary = true
			binarySize += out[i].size()
		} else {
			guess += 12 * (out[i].size() / max(1, out[i].typ.Size()))
		}
		guess += 128
	}
	a := newArena(min(guess+binarySize, largestArena))
	defer func() { freeArena(a) }()
	text := *a
	text = appendString(append(text, `{"model_name":`...), res.model)
	text = appendString(append(text, `,"model_version":`...), res.version)
	if res.id != "" {
		text = appendString(append(text, `,"id":`...), res.id)
	}
	text = append(text, `,"outputs":[`...)
	for i := range out {
		o := &out[i]
		if i > 0 {
			text = append(text, ',')
		}
		text = appendString(append(text, `{"name":`...), o.name)
		text = append(append(text, `,"datatype":"`...), o.typ...)
		text = appendShape(append(text, `","shape":`...), o.shape)
		if isBinary(i) {
			text = strconv.AppendInt(append(text, `,"parameters":{"binary_data_size":`...), int64(o.size()), 10)
			text = append(text, "}}"...)
		} else {
			var err error
			if text, err = appendData(append(text, `,"data":`...), o); err != nil {
				return of(res.model, res.version, err)
			}
			text = append(text, '}')
		}
	}
	text = append(text, "]}"...)
	h := w.Header()
	if binary {
		h.Set("Inference-Header-Content-Length", strconv.Itoa(len(text)))
		h["Content-Type"] = typeBinary
	} else {
		h["Content-Type"] = typeJSON
	}
	if len(h["Vary"]) == 0 {
		h["Vary"] = vary
	} else {
		h.Add("Vary", vary[0])
	}
	length := len(text) + binarySize
	pieces := [][]byte{}
	*a = text
	for i := range out {
		switch {
		case !isBinary(i):
		case out[i].typ == BYTES:
			text = appendTexts(text, out[i].bytes)
		case len(pieces) == 0 && length <= firstPiece:
			text = append(text, out[i].raw...)
		default:
			pieces = append(pieces, text, out[i].raw)
			text = text[len(text):]
		}
	}
	pieces = append(pieces, text)
	if length >= 1024 {
		if encoding := accepted(r.Header.Get("Accept-Encoding")); encoding != "" {
			h.Set("Content-Encoding", encoding)
			var packed io.WriteCloser
			if encoding == "gzip" {
				packed, _ = gzip.NewWriterLevel(w, gzip.BestSpeed)
			} else {
				packed, _ = zlib.NewWriterLevel(w, zlib.BestSpeed)
			}
			for _, piece := range pieces {
				packed.Write(piece)
			}
			packed.Close()
			return nil
		}
	}
	h.Set("Content-Length", strconv.Itoa(length))
	for _, piece := range pieces {
		if _, err := w.Write(piece); err != nil {
			return nil // the client has gone
		}
	}
	return nil
}

// size returns the bytes of o as binary data.
func (o *output) size() int {
	if o.typ == BYTES {
		return textsSize(o.bytes)
	}
	return len(o.raw)
}

// accepted returns the first encoding that a client takes and the server knows.
func accepted(header string) string {
	for part := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(part, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "x-gzip" {
			name = "gzip"
		}
		if name != "gzip" && name != "deflate" {
			continue
		}
		if q, ok := strings.CutPrefix(strings.TrimSpace(quality), "q="); ok {
			if f, err := strconv.ParseFloat(q, 64); err != nil || f == 0 {
				continue
			}
		}
		return name
	}
	return ""
}
