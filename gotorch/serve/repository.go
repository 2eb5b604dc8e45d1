package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
	"gotorch.dev/gotorch/graph"
	"gotorch.dev/gotorch/internal/regular"
)

// A folder of models, which is watched.
//
// A scan lists the folder and looks at what it finds with stat: a model is loaded where what is there is not what was
// there when it was last tried. So whatever is tried is tried once, and a folder that is still being copied again when
// there is more of it. What does not load leaves what is in service as it is.

// RepositoryOptions are the arguments of [Server.AddRepository] that have defaults.
type RepositoryOptions struct {
	// Poll is how often the folder is looked at for changes; negative: never, but when a client loads a model. Default: 2s.
	Poll time.Duration
	// Only are the names of the models that are served. Default: all.
	Only []string
}

// AddRepository serves the models in a folder, and goes on to do so when it changes, until ctx ends or the server is
// closed:
//
//	models/digits/1/       a version: a folder of pb.export_model, or one with an AOTInductor package, of any name that
//	models/digits/2/         ends in .pt2
//	models/digits/config.json
//	models/scale/          a model without versions, which is version 1
//
// Names that begin with a dot are nothing, and nor is lost+found. A version that appears, or whose files change, is loaded beside what is in
// service, run for warm-up if the configuration says so, and then takes its place as [Server.Add] does it: no request is
// dropped. One that is gone for two looks is removed as by [Server.Remove], and its requests end as they would have. One
// that is damaged, or not yet there as a whole, changes nothing, nor does one that cannot be read: it is tried again when
// its files have changed, the log has it once, and the index of models says why it is not in service.
//
// Requests are joined where the manifest says that the rows of the model are independent, unless config.json has batching of
// its own ({"batching": {"max": 0}} joins none); one with more rows than a batch has runs alone.
//
// config.json has the options of Add, as {"batching": {"max": 64, "delay": "2ms"}, "instances": 2}; see
// docs/serving.md. What it does not know is an error. A client that may load a model has its folder looked at then.
//
// The error is an [*Error] of code InvalidArgument where an option is wrong, Unavailable where the server is closed,
// and that of the operating system where the folder cannot be read. A model that cannot be loaded is none.
//
// Loading a model runs its code, with the rights of the program: who may write to the folder may do all that it may.
func (s *Server) AddRepository(ctx context.Context, dir string, opts ...RepositoryOptions) error {
	var opt RepositoryOptions
	switch len(opts) {
	case 0:
	case 1:
		opt = opts[0]
	default:
		return newError(InvalidArgument, "AddRepository takes one RepositoryOptions, not %d", len(opts))
	}
	if opt.Poll == 0 {
		opt.Poll = 2 * time.Second
	}
	for _, name := range opt.Only {
		if err := checkName("name", name); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.ReadDir(dir); err != nil {
		return err
	}
	r := &repository{server: s, dir: dir, only: slices.Clone(opt.Only), entries: map[entryKey]*entry{}}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	s.mutex.Lock()
	if s.closing {
		s.mutex.Unlock()
		cancel()
		return errClosed()
	}
	s.repositories = append(s.repositories, r)
	r.cancel, r.done = cancel, done
	s.mutex.Unlock()
	r.scan(ctx, "")
	if opt.Poll < 0 || ctx.Err() != nil {
		close(done)
		return nil
	}
	go func() {
		defer close(done)
		ticker := time.NewTicker(opt.Poll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				r.scan(ctx, "")
			}
		}
	}()
	return nil
}

type repository struct {
	server *Server
	dir    string
	only   []string
	cancel context.CancelFunc
	done   chan struct{} // closed when nobody watches any more

	mutex   sync.Mutex // held while the folder is looked at
	entries map[entryKey]*entry
	unread  string // why the folder could not be read, if it could not

	started bool // the folder has been looked at

	seen         sync.Mutex        // guards what the index and CheckReady say: of entries, and what follows
	unreadModels map[string]string // why what is in the folder under a name could not be read
	emptyModels  map[string]bool   // folders without a version
	looked       bool              // all of the folder has been looked at
	settled      bool              // and once all of it was in service
}

type entryKey struct{ model, version string }

// entry is a version that is, or was, in the folder.
type entry struct {
	print   string  // what was there when it was tried
	failed  string  // why that is not in service; "" if it is
	said    string  // what the log has of it
	digest  string  // of what is in service
	config  string  // its configuration
	mapped  bool    // its weights are the file's
	version *loaded // what is in service
	loaded  bool    // whether there is that
	missing int     // looks without it
}

type loaded struct{ model Model }

// scan looks at the folder, or at one model in it; then it tries what failed again.
func (r *repository) scan(ctx context.Context, only string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	names, err := os.ReadDir(r.dir)
	if err != nil {
		// A file system that is away for a while takes no model out of service.
		if text := err.Error(); text != r.unread {
			r.unread = text
			r.server.log.Error("serve: the folder of models cannot be read; what is in service stays", "folder", r.dir, "error", err)
		}
		return
	}
	r.unread = ""
	defer func() { r.started = true }()
	served, unread, empty := map[entryKey]bool{}, map[string]string{}, map[string]bool{}
	for _, name := range names {
		model := name.Name()
		if only != "" && model != only || len(r.only) > 0 && !slices.Contains(r.only, model) ||
			strings.HasPrefix(model, ".") || model == lostAndFound || checkName("name", model) != nil {
			continue
		}
		all, most, err := r.versions(name)
		if err != nil {
			unread[model] = r.tellable(err)
			continue
		}
		if len(all) == 0 {
			empty[model], _ = isFolder(name, filepath.Join(r.dir, model))
		}
		// The highest first, as only what is loaded tells which of the lower ones are needed.
		loaded := 0
		for _, one := range slices.Backward(all) {
			if most > 0 && loaded >= most {
				break
			}
			if ctx.Err() != nil {
				return
			}
			key := entryKey{model, one.version}
			served[key] = true
			if r.look(ctx, key, one, only != ""); r.entries[key].version != nil {
				loaded++
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.setUnread(only, unread, empty)
	for _, key := range slices.SortedFunc(maps.Keys(r.entries), compareKeys) {
		e := r.entries[key]
		if unread[key.model] != "" {
			e.missing = 0
			continue
		}
		if served[key] || only != "" && key.model != only {
			continue
		}
		// One look may fall between the two renames that replace a folder.
		if e.missing++; e.missing < 2 && only == "" {
			continue
		}
		r.remove(key, e)
	}
}

// lostAndFound is where a file system keeps what it has found, at the root of a volume: no model.
const lostAndFound = "lost+found"

// setUnread notes which models could not be read, and which have no version, of all or of one, and logs what is new.
func (r *repository) setUnread(only string, unread map[string]string, empty map[string]bool) {
	r.seen.Lock()
	defer r.seen.Unlock()
	for _, model := range slices.Sorted(maps.Keys(unread)) {
		if r.unreadModels[model] != unread[model] {
			r.server.log.Error("serve: a model of the folder cannot be read; what is in service stays", "model", model,
				"folder", filepath.Join(r.dir, model), "error", unread[model])
		}
	}
	if only == "" {
		r.looked = true
	} else {
		for model, why := range r.unreadModels {
			if model != only {
				unread[model] = why
			}
		}
		for model, is := range r.emptyModels {
			if model != only {
				empty[model] = is
			}
		}
	}
	r.unreadModels, r.emptyModels = unread, empty
}

func compareKeys(a, b entryKey) int {
	if a.model != b.model {
		return strings.Compare(a.model, b.model)
	}
	return compareVersions(a.version, b.version)
}

// isFolder reports whether a name is that of a folder, or of a link to one. One that is gone is none; the error says that
// it could not be found out.
func isFolder(name os.DirEntry, path string) (bool, error) {
	if !name.IsDir() && name.Type()&fs.ModeSymlink == 0 {
		return false, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// source is where a version is, and what is there.
type source struct {
	version, dir string
	configPath   string
	print        string
	young        bool // a file has changed this moment
	problem      error
}

// quiet is how long nothing has happened to the files of a version before it is tried. The times of files are exact to
// some milliseconds alone: what changes once more in that time looks the same.
const quiet = 20 * time.Millisecond

// versions lists the versions of a model, the highest last, and says how many of the highest that load are served; 0: all.
// The error says why the folder cannot be read; what is no folder, or none any more, has no versions.
func (r *repository) versions(model os.DirEntry) (all []source, most int, err error) {
	at := filepath.Join(r.dir, model.Name())
	configPath := filepath.Join(at, configFile)
	if is, err := isFolder(model, at); !is {
		return nil, 0, err
	}
	names, err := os.ReadDir(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	add := func(version, dir string) {
		print, young, err := fingerprint(dir, configPath)
		all = append(all, source{version, dir, configPath, print, young, err})
	}
	if isVersion(names) {
		add("1", at)
		return all, 0, nil
	}
	for _, name := range names {
		version := name.Name()
		if strings.HasPrefix(version, ".") || checkName("version", version) != nil {
			continue
		}
		dir := filepath.Join(at, version)
		is, err := isFolder(name, dir)
		if err != nil {
			all = append(all, source{version, dir, configPath, err.Error(), false, err})
		} else if is {
			add(version, dir)
		}
	}
	slices.SortFunc(all, func(a, b source) int { return compareVersions(a.version, b.version) })
	if text, err := readConfig(configPath); err == nil && text != nil {
		// A wrong configuration is said of each version that it is for.
		if c, err := parseConfig(text); err == nil {
			most = c.Versions
		}
	}
	return all, most, nil
}

// isVersion reports whether a folder is a version itself.
func isVersion(names []os.DirEntry) bool {
	return slices.ContainsFunc(names, func(e os.DirEntry) bool {
		return e.Name() == graph.ManifestFile || strings.HasSuffix(e.Name(), ".pt2") && !strings.HasPrefix(e.Name(), ".")
	})
}

// fingerprint is what stat says of the files of a version: it changes when one of them does. young says that one has
// this moment.
func fingerprint(dir, configPath string) (print string, young bool, err error) {
	var b strings.Builder
	now := time.Now()
	add := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		id, changed := changedAt(info)
		young = young || now.Sub(changed).Abs() < quiet
		fmt.Fprintf(&b, "%s %d %s %v %s\n", filepath.Base(path), info.Size(), info.ModTime(), info.IsDir(), id)
		return nil
	}
	fmt.Fprintln(&b, dir) // an empty folder is something, too
	names, err := os.ReadDir(dir)
	if err != nil {
		return b.String(), false, err
	}
	if !isVersion(names) {
		err = fmt.Errorf("%s has neither a %s, as pb.export_model writes it, nor a package that ends in .pt2", dir, graph.ManifestFile)
	}
	for _, name := range names {
		path := filepath.Join(dir, name.Name())
		if !strings.HasPrefix(name.Name(), ".") && path != configPath {
			if failed := add(path); failed != nil {
				fmt.Fprintln(&b, failed)
			}
		}
	}
	if failed := add(configPath); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
		fmt.Fprintln(&b, failed)
	}
	return b.String(), young, err
}

func readConfig(path string) ([]byte, error) {
	f, size, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxConfig {
		return nil, fmt.Errorf("%s has %d bytes, and may have %d", path, size, maxConfig)
	}
	return io.ReadAll(io.LimitReader(f, maxConfig))
}

// look loads a version if it is not what is in service. asked says that a client wants it.
func (r *repository) look(ctx context.Context, key entryKey, at source, asked bool) {
	e := r.entries[key]
	if e == nil {
		e = &entry{}
		r.seen.Lock()
		r.entries[key] = e
		r.seen.Unlock()
	}
	e.missing = 0
	if e.print == at.print && (e.failed == "" || !asked) {
		return
	}
	if e.version != nil && !asked && r.server.isUnloaded(key.model, key.version, e.version.model) {
		return // until a client loads it
	}
	if e.print = at.print; at.young {
		if !asked && r.started {
			e.print = ""
			return
		}
		e.print += "young" // it is looked at again
	}
	err := at.problem
	if err == nil {
		err = r.load(ctx, key, at, e)
	}
	if ctx.Err() != nil {
		return
	}
	r.seen.Lock()
	defer r.seen.Unlock()
	e.loaded = e.version != nil
	if err == nil {
		e.failed, e.said = "", ""
		return
	}
	e.failed = r.tellable(err)
	// While a folder is copied its errors differ in sizes and sums alone.
	what := numbers.ReplaceAllString(e.failed, "#")
	level := slog.LevelDebug
	if what != e.said {
		e.said, level = what, slog.LevelError
	}
	r.server.log.Log(ctx, level, "serve: a model of the folder is not loaded", "model", key.model, "version", key.version,
		"folder", at.dir, "in service", e.version != nil, "error", err)
}

// tellable is an error as clients may see it: paths begin in the folder, and of others there is the last name, as where
// things are is the operator's. All of it is text, as one entry of the index that is none would be the end of the whole
// answer over gRPC.
func (r *repository) tellable(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if r.dir != "/" {
		text = strings.ReplaceAll(text, r.dir+"/", "")
	}
	return foldersOfPaths.ReplaceAllString(text, "$1")
}

// foldersOfPaths are the folders of an absolute path in a text.
var foldersOfPaths = regexp.MustCompile(`(^|[\s"'` + "`" + `(\[=:,])/(?:[^\s"'` + "`" + `()\[\]:,;/]+/)+`)

var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// load loads what is in a folder, and puts it into service.
func (r *repository) load(ctx context.Context, key entryKey, at source, e *entry) (err error) {
	defer func() {
		if p := recover(); p != nil { // code of the folder's
			err = fmt.Errorf("panic while the model was loaded: %v", p)
		}
	}()
	text, err := readConfig(at.configPath)
	if err != nil {
		return err
	}
	c := &modelConfig{}
	if text != nil {
		if c, err = parseConfig(text); err != nil {
			return err
		}
	}
	if !r.server.mayAdd(key.model, key.version, e.version) {
		return errors.New("the program has added a model of this name and version itself")
	}
	model, err := openModel(at.dir, c)
	if err != nil {
		return err
	}
	added := false
	defer func() {
		if closer, ok := model.(io.Closer); ok && !added {
			closer.Close()
		}
	}()
	digest := ""
	if g, ok := model.(*graphModel); ok {
		digest = g.model.Digest()
	}
	if e.version != nil && digest != "" && digest == e.digest && string(text) == e.config && !e.mapped &&
		!r.server.isUnloaded(key.model, key.version, e.version.model) {
		return nil // only touched, or copied over itself
	}
	if err := warmUp(ctx, model, c.Warmup); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	options := append(c.options(), Version(key.version))
	if g, ok := model.(*graphModel); ok && len(g.state) > 0 && c.Sequences == nil {
		options = append(options, Sequences{})
	}
	if g, ok := model.(*graphModel); ok && c.Batching == nil && c.Sequences == nil && len(c.Ragged) == 0 {
		options = append(options, joining(g.model.Sizes(), g.model.IndependentRows()))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.server.Add(key.model, model, options...); err != nil {
		return err
	}
	added = true
	e.version, e.digest, e.config, e.mapped = &loaded{model}, digest, string(text), c.MapWeights
	return nil
}

// openModel loads the model in a folder.
func openModel(dir string, c *modelConfig) (model Model, err error) {
	if _, err := os.Lstat(filepath.Join(dir, graph.ManifestFile)); err == nil {
		m, err := graph.Open(dir, graph.OpenOptions{Map: c.MapWeights, AnyTorch: c.AnyTorch})
		if err != nil {
			return nil, err
		}
		tryErr := gotorch.Try0(func() { model = FromGraph(m) })
		if tryErr == nil && len(c.Outputs) > 0 {
			tryErr = errors.New(configFile + ": outputs are for AOTInductor packages alone: the manifest has this model's")
		}
		if tryErr != nil {
			m.Close()
			return nil, tryErr
		}
		return model, nil
	}
	names, err := filepath.Glob(filepath.Join(quoteGlob(dir), "[^.]*.pt2"))
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("%s has %d packages that end in .pt2, and must have one", dir, len(names))
	}
	if c.MapWeights || c.AnyTorch {
		return nil, errors.New(configFile + ": map_weights and any_torch are for folders of export_model alone")
	}
	var load aoti.LoadOptions
	if c.Instances != nil {
		load.NumRunners = *c.Instances
	}
	m, err := aoti.Load(names[0], load)
	if err != nil {
		return nil, err
	}
	var outputs []Spec
	for _, o := range c.Outputs {
		outputs = append(outputs, Spec(o))
	}
	if err := gotorch.Try0(func() { model = FromAOTI(m, outputs...) }); err != nil {
		m.Close()
		return nil, err
	}
	return model, nil
}

// quoteGlob makes a path a pattern that matches it alone.
func quoteGlob(path string) string {
	return regexp.MustCompile(`[*?\[\]\\]`).ReplaceAllString(path, `\$0`)
}

// warmUp runs a model on zeros of each of the shapes. Open sizes that are not said are 1.
func warmUp(ctx context.Context, model Model, runs []map[string][]int64) error {
	signature := model.Signature()
	for _, shapes := range runs {
		in := &Request{}
		for name, shape := range shapes {
			i := slices.IndexFunc(signature.Inputs, func(s Spec) bool { return s.Name == name })
			if i < 0 || !signature.Inputs[i].fits(shape) {
				return fmt.Errorf("shape %v is for input %q; the model has %v", shape, name, signature.Inputs)
			}
			if n, ok := elements(shape); !ok || n > 1<<28 {
				return fmt.Errorf("shape %v of input %q is too large", shape, name)
			}
		}
		var err error
		tryErr := gotorch.Try0(func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				gotorch.InferenceMode(func() {
					rows := 0
					for _, spec := range signature.Inputs {
						shape, ok := shapes[spec.Name]
						if !ok {
							for _, n := range spec.Shape {
								shape = append(shape, max(n, -n))
							}
						}
						if len(shape) > 0 {
							rows = int(shape[0])
						}
						if spec.Type == BYTES {
							n, _ := elements(shape)
							in.Inputs = append(in.Inputs, Value{Name: spec.Name, Bytes: make([][]byte, n), Shape: shape})
							continue
						}
						t := gotorch.Zeros(append([]int64{}, shape...), gotorch.TensorOptions{DType: spec.Type.DType()})
						in.Inputs = append(in.Inputs, Value{Name: spec.Name, Tensor: t})
					}
					sequence := &Sequence{ID: "warm-up", Start: true, End: true}
					in.Sequences, in.Rows = []*Sequence{sequence}, []int{rows}
					defer func() {
						sequence.discard()
						if c, ok := sequence.State.(io.Closer); ok {
							c.Close()
						}
					}()
					_, err = model.Run(ctx, in)
				})
			})
		})
		if err == nil {
			err = tryErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remove forgets a version whose folder is gone.
func (r *repository) remove(key entryKey, e *entry) {
	r.seen.Lock()
	delete(r.entries, key)
	r.seen.Unlock()
	if e.version == nil || !r.server.mayAdd(key.model, key.version, e.version) {
		return
	}
	// Nobody waits for its requests: they end when they end.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	r.server.Remove(ended, key.model, key.version)
}

// mayAdd reports whether a version is not there, or is what mine is.
func (s *Server) mayAdd(name, id string, mine *loaded) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	v := s.models[name][id]
	return v == nil || mine != nil && v.model == mine.model
}

// isUnloaded reports whether a version was put out of service.
func (s *Server) isUnloaded(name, id string, model Model) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	v := s.models[name][id]
	return v == nil || v.model == model && v.queue == nil
}

// reload looks at the folders of a model, and says why it is not loaded from any, if it is from none.
func (s *Server) reload(name, version string) error {
	s.mutex.RLock()
	repositories := slices.Clone(s.repositories)
	s.mutex.RUnlock()
	for _, r := range repositories {
		r.scan(context.Background(), name)
		for _, one := range r.failures() {
			if one.Name == name && (version == "" || one.Version == version || one.Version == "") {
				return of(name, one.Version, newError(Unavailable, "the model in the folder is not loaded: %s", one.Reason))
			}
		}
	}
	return nil
}

// failures are the versions whose folders are not in service as they are. One without a version is a model that cannot be
// read, and of which nothing has been loaded.
func (r *repository) failures() []indexed {
	r.seen.Lock()
	defer r.seen.Unlock()
	var all []indexed
	known := map[string]bool{}
	for key, e := range r.entries {
		known[key.model] = true
		if why := cmp.Or(r.unreadModels[key.model], e.failed); why != "" {
			all = append(all, indexed{key.model, key.version, "UNAVAILABLE", why})
		}
	}
	for model, why := range r.unreadModels {
		if !known[model] {
			all = append(all, indexed{model, "", "UNAVAILABLE", why})
		}
	}
	for model, is := range r.emptyModels {
		if is && !known[model] {
			all = append(all, indexed{model, "", "UNAVAILABLE", "the folder has no version: neither a folder of a version, nor a " + graph.ManifestFile + ", nor a package that ends in .pt2"})
		}
	}
	return all
}

// addFailures tells the index of models what of folders is not in service.
func (s *Server) addFailures(all []indexed, ready bool) []indexed {
	for _, r := range s.repositories {
		for _, failed := range r.failures() {
			i := slices.IndexFunc(all, func(one indexed) bool { return one.Name == failed.Name && one.Version == failed.Version })
			if i >= 0 {
				all[i].Reason = "an older content of the folder is in service: " + failed.Reason
			} else if !ready {
				all = append(all, failed)
			}
		}
	}
	return all
}

// stopRepositories ends the watching; the channels are closed when nothing is loaded any more. The mutex is held.
func (s *Server) stopRepositories() []<-chan struct{} {
	var waits []<-chan struct{}
	for _, r := range s.repositories {
		r.cancel()
		waits = append(waits, r.done)
	}
	return waits
}
