package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
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
	"gotorch.dev/gotorch/jit"
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
//	models/digits/2/         ends in .pt2, or a file of TorchScript, which ends in .pt
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
		opt.Poll = defaultPoll
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
	r := &repository{server: s, dir: dir, only: slices.Clone(opt.Only), patience: opt.Poll, done: make(chan struct{}),
		entries: map[entryKey]*entry{}, turns: map[string]chan struct{}{}, pending: map[string]bool{},
		unreadModels: map[string]string{}, emptyModels: map[string]bool{}}
	if r.patience < 0 {
		r.patience = defaultPoll
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	s.mutex.Lock()
	if s.closing {
		s.mutex.Unlock()
		r.cancel()
		return errClosed()
	}
	s.repositories = append(s.repositories, r)
	s.mutex.Unlock()
	first := make(chan []<-chan struct{}, 1)
	go r.watch(opt.Poll, first)
	for _, look := range <-first {
		select {
		case <-look:
		case <-r.ctx.Done():
		}
	}
	return nil
}

const defaultPoll = 2 * time.Second

type repository struct {
	server   *Server
	dir      string
	only     []string
	patience time.Duration // how long a model may hold up those that are looked at after it
	ctx      context.Context
	cancel   context.CancelFunc
	looks    sync.WaitGroup
	done     chan struct{} // closed when nobody watches, and nothing is being loaded any more

	seen         sync.Mutex // guards what follows, and what the index and CheckReady say of entries
	entries      map[entryKey]*entry
	turns        map[string]chan struct{} // by model; filled while its folder is looked at, by whom its entries belong to
	pending      map[string]bool          // models whose first look has not ended
	listed       bool                     // the folder has been listed
	started      bool                     // all that was in it then has been begun
	ended        bool                     // nothing is looked at any more
	unread       string                   // why the folder could not be read, if it could not
	unreadModels map[string]string        // why what is in the folder under a name could not be read
	emptyModels  map[string]bool          // folders without a version
	settled      bool                     // once all of it was in service
}

type entryKey struct{ model, version string }

// entry is a version that is, or was, in the folder.
type entry struct {
	print   string          // what was there when it was tried
	failed  string          // why that is not in service; "" if it is
	said    string          // what the log has of it
	digest  string          // of what is in service
	config  string          // its configuration
	mapped  bool            // its weights are the file's
	version *loaded         // what is in service
	loaded  bool            // whether there is that
	loading bool            // something is being loaded to take its place
	missing int             // looks without it
	hung    <-chan struct{} // closed when a warm-up that took longer than it may has returned; nil for none
}

type loaded struct{ model Model }

// watch looks at the folder until the context ends. first gets the looks of the first time.
func (r *repository) watch(poll time.Duration, first chan<- []<-chan struct{}) {
	defer close(r.done)
	defer r.looks.Wait()
	first <- r.scan()
	var tick <-chan time.Time
	if poll > 0 {
		ticker := time.NewTicker(poll)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-r.ctx.Done():
			r.seen.Lock()
			r.ended = true
			r.seen.Unlock()
			return
		case <-tick:
			r.scan()
		}
	}
}

// list returns what is in the folder by the names of models, and nothing for models that were and are not any more.
// all says that all of it is looked at next.
func (r *repository) list(all bool) map[string]os.DirEntry {
	names, err := os.ReadDir(r.dir)
	r.seen.Lock()
	defer r.seen.Unlock()
	if err != nil {
		// A file system that is away for a while takes no model out of service.
		if text := err.Error(); text != r.unread {
			r.unread = text
			r.server.log.Error("serve: the folder of models cannot be read; what is in service stays", "folder", r.dir, "error", err)
		}
		return nil
	}
	r.unread = ""
	found := map[string]os.DirEntry{}
	for key := range r.entries {
		found[key.model] = nil
	}
	for _, known := range []iter.Seq[string]{maps.Keys(r.unreadModels), maps.Keys(r.emptyModels)} {
		for model := range known {
			found[model] = nil
		}
	}
	for _, name := range names {
		model := name.Name()
		if len(r.only) > 0 && !slices.Contains(r.only, model) || strings.HasPrefix(model, ".") || model == lostAndFound ||
			checkName("name", model) != nil {
			continue
		}
		found[model] = name
		if r.turns[model] == nil {
			r.turns[model] = make(chan struct{}, 1)
			if all {
				r.pending[model] = true
			}
		}
	}
	r.listed = r.listed || all
	return found
}

// scan looks at the folder, and returns the looks that it has begun. Those that go on are of models that take long.
func (r *repository) scan() (looks []<-chan struct{}) {
	r.seen.Lock()
	again := r.started
	r.seen.Unlock()
	found := r.list(true)
	for _, model := range slices.Sorted(maps.Keys(found)) {
		select {
		case r.turn(model) <- struct{}{}:
		default:
			continue // the last look goes on
		}
		look := r.begin(model, found[model], again, false)
		looks = append(looks, look)
		late := time.NewTimer(r.patience)
		select {
		case <-look:
		case <-late.C:
		case <-r.ctx.Done():
		}
		if late.Stop(); r.ctx.Err() != nil {
			return looks
		}
	}
	if found != nil {
		r.seen.Lock()
		r.started = true
		r.seen.Unlock()
	}
	return looks
}

// ask looks at a model for a client, and tries what failed again. The error is that of the client, who does not wait any longer.
func (r *repository) ask(ctx context.Context, model string) error {
	found := r.list(false)
	name, ok := found[model]
	if !ok {
		return nil
	}
	select {
	case r.turn(model) <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return nil
	}
	select {
	case <-r.begin(model, name, false, true):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *repository) turn(model string) chan struct{} {
	r.seen.Lock()
	defer r.seen.Unlock()
	return r.turns[model]
}

// begin looks at a model on a goroutine of its own, as that may take any time, and gives back its turn, which the caller has. The
// channel is closed then. name is what is in the folder, or nil; again says that it will soon be looked at again.
func (r *repository) begin(model string, name os.DirEntry, again, asked bool) <-chan struct{} {
	done := make(chan struct{})
	r.seen.Lock()
	defer r.seen.Unlock()
	turn := r.turns[model]
	if r.ended {
		<-turn
		close(done)
		return done
	}
	r.looks.Add(1)
	go func() {
		defer func() { // also where the model ends the goroutine
			r.seen.Lock()
			delete(r.pending, model)
			r.seen.Unlock()
			<-turn
			r.looks.Done()
			close(done)
		}()
		r.lookAt(model, name, again, asked)
	}()
	return done
}

// lookAt looks at a model.
func (r *repository) lookAt(model string, name os.DirEntry, again, asked bool) {
	var all []source
	var most int
	if name != nil {
		var err error
		if all, most, err = r.versions(name); err != nil {
			for _, e := range r.entriesOf(model) {
				e.missing = 0
			}
			r.note(model, r.tellable(err), false)
			return
		}
	}
	empty := false
	if name != nil && len(all) == 0 {
		empty, _ = isFolder(name, filepath.Join(r.dir, model))
	}
	served := map[string]bool{}
	// The highest first, as only what is loaded tells which of the lower ones are needed.
	loaded := 0
	for _, one := range slices.Backward(all) {
		if most > 0 && loaded >= most {
			break
		}
		if r.ctx.Err() != nil {
			return
		}
		served[one.version] = true
		if e := r.look(entryKey{model, one.version}, one, again, asked); e.version != nil {
			loaded++
		}
	}
	if r.ctx.Err() != nil {
		return
	}
	r.note(model, "", empty)
	for version, e := range r.entriesOf(model) {
		if served[version] {
			continue
		}
		// One look may fall between the two renames that replace a folder.
		if e.missing++; e.missing >= 2 || asked {
			r.remove(entryKey{model, version}, e)
		}
	}
}

// entriesOf returns the versions of a model.
func (r *repository) entriesOf(model string) map[string]*entry {
	r.seen.Lock()
	defer r.seen.Unlock()
	of := map[string]*entry{}
	for key, e := range r.entries {
		if key.model == model {
			of[key.version] = e
		}
	}
	return of
}

// lostAndFound is where a file system keeps what it has found, at the root of a volume: no model.
const lostAndFound = "lost+found"

// note notes why a model could not be read, if it could not, and whether it has no version, and logs what is new.
func (r *repository) note(model, unread string, empty bool) {
	r.seen.Lock()
	defer r.seen.Unlock()
	if unread != "" && r.unreadModels[model] != unread {
		r.server.log.Error("serve: a model of the folder cannot be read; what is in service stays", "model", model,
			"folder", filepath.Join(r.dir, model), "error", unread)
	}
	delete(r.unreadModels, model)
	delete(r.emptyModels, model)
	if unread != "" {
		r.unreadModels[model] = unread
	}
	if empty {
		r.emptyModels[model] = true
	}
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
	return slices.ContainsFunc(names, func(e os.DirEntry) bool { return isModel(e.Name()) })
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
		err = fmt.Errorf("%s has no model: neither a %s, as pb.export_model writes it, nor a package of AOTInductor (.pt2), nor a file of TorchScript (.pt)", dir, graph.ManifestFile)
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

// look loads a version if it is not what is in service. again says that it will be looked at again, so that what is being written may
// wait; asked that a client wants it.
func (r *repository) look(key entryKey, at source, again, asked bool) *entry {
	r.seen.Lock()
	e := r.entries[key]
	if e == nil {
		e = &entry{}
		r.entries[key] = e
	}
	r.seen.Unlock()
	e.missing = 0
	if e.print == at.print && (e.failed == "" || !asked || e.hangs()) {
		return e
	}
	if e.version != nil && !asked && r.server.isUnloaded(key.model, key.version, e.version.model) {
		return e // until a client loads it
	}
	if e.print = at.print; at.young {
		if again {
			e.print = ""
			return e
		}
		e.print += "young" // it is looked at again
	}
	err := at.problem
	if err == nil {
		r.setLoading(e, true)
		defer r.setLoading(e, false) // also where the model ends the goroutine
		err = r.load(key, at, e, asked)
	}
	if r.ctx.Err() != nil {
		return e
	}
	r.seen.Lock()
	defer r.seen.Unlock()
	e.loaded = e.version != nil
	if err == nil {
		e.failed, e.said = "", ""
		return e
	}
	e.failed = r.tellable(err, at.dir)
	// While a folder is copied its errors differ in sizes and sums alone.
	what := numbers.ReplaceAllString(e.failed, "#")
	level := slog.LevelDebug
	if what != e.said {
		e.said, level = what, slog.LevelError
	}
	r.server.log.Log(r.ctx, level, "serve: a model of the folder is not loaded", "model", key.model, "version", key.version,
		"folder", at.dir, "in service", e.version != nil, "error", err)
	return e
}

func (r *repository) setLoading(e *entry, loading bool) {
	r.seen.Lock()
	defer r.seen.Unlock()
	e.loading = loading
}

// hangs reports whether a warm-up of it still runs that took longer than it may. Another try would only be one more.
func (e *entry) hangs() bool {
	if e.hung == nil {
		return false
	}
	select {
	case <-e.hung:
		return false
	default:
		return true
	}
}

// tellable is an error as clients may see it: paths begin in the folder, and of others there is the last name, as where
// things are is the operator's. at are other folders that it may be about. All of it is text, as one entry of the index that is
// none would be the end of the whole answer over gRPC.
func (r *repository) tellable(err error, at ...string) string {
	valid := func(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
	folders := append(at, r.dir, os.TempDir())
	for _, path := range pathsOf(err) {
		folders = append(folders, filepath.Dir(path))
	}
	for _, folder := range slices.Clone(folders) {
		if real, err := filepath.EvalSymlinks(folder); err == nil {
			folders = append(folders, real)
		}
	}
	// The repository's own first: what is left of a path begins there. Then the longest.
	slices.SortFunc(folders, func(a, b string) int { return len(b) - len(a) })
	real, _ := filepath.EvalSymlinks(r.dir)
	text := valid(err.Error())
	for _, folder := range append([]string{r.dir, real}, folders...) {
		if len(folder) > 1 && folder[0] == '/' {
			begin := regexp.MustCompile(`(^|[^\pL\pN_.\-/])` + regexp.QuoteMeta(valid(folder)) + "/") // and not the middle of a path
			text = begin.ReplaceAllString(text, "$1")
		}
	}
	return foldersOfPaths.ReplaceAllString(text, "$1")
}

// pathsOf are the paths that an error says it is about.
func pathsOf(err error) (paths []string) {
	switch e := err.(type) {
	case *fs.PathError:
		paths = append(paths, e.Path)
	case *os.LinkError:
		paths = append(paths, e.Old, e.New)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			paths = append(paths, pathsOf(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			paths = append(paths, pathsOf(inner)...)
		}
	}
	return paths
}

// foldersOfPaths are the folders of an absolute path in a text. A name may have spaces, so that a path ends at its last slash before a
// sign: better too much is left out than too little.
var foldersOfPaths = regexp.MustCompile(`(^|[\s"'` + "`" + `(\[{<>=:,;|])/[^\s"'` + "`" + `()\[\]{}<>:,;|/][^\n"'` + "`" + `()\[\]{}<>:,;|]*/`)

var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// load loads what is in a folder, and puts it into service.
func (r *repository) load(key entryKey, at source, e *entry, asked bool) (err error) {
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
	given, _, err := r.server.modelOptions(c.options()) // before what is large is loaded
	if err != nil {
		return of(key.model, key.version, err)
	}
	model, err := openModel(at.dir, c)
	if err != nil {
		return err
	}
	added := false
	var late <-chan struct{}
	defer func() {
		closer, ok := model.(io.Closer)
		switch {
		case added || !ok:
		case late == nil:
			closer.Close()
		default:
			go func() {
				<-late
				closer.Close()
				r.server.log.Warn("serve: a run for warm-up that took longer than it may has returned", "model", key.model, "version", key.version)
			}()
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
	if late, err = r.warm(model, c.Warmup, given.runTimeout); err != nil {
		e.hung = late
		return fmt.Errorf("warm-up: %w", err)
	}
	options := append(c.options(), Version(key.version))
	if g, ok := model.(*graphModel); ok && len(g.state) > 0 && c.Sequences == nil {
		options = append(options, Sequences{})
	}
	if g, ok := model.(*graphModel); ok && c.Batching == nil && c.Sequences == nil && len(c.Ragged) == 0 {
		options = append(options, joining(g.model.Sizes(), g.model.IndependentRows()))
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if e.version != nil && !asked && r.server.isUnloaded(key.model, key.version, e.version.model) {
		e.print = "" // a client has unloaded it meanwhile; it is looked at again when one loads it
		return nil
	}
	if err := r.server.Add(key.model, model, options...); err != nil {
		return err
	}
	added = true
	e.version, e.digest, e.config, e.mapped = &loaded{model}, digest, string(text), c.MapWeights
	return nil
}

// openModel loads the model in a folder.
func openModel(dir string, c *modelConfig) (Model, error) {
	file, err := modelFile(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, file)
	isGraph, isScript := file == graph.ManifestFile, strings.HasSuffix(file, scriptEnd)
	wrong := func(text string) (Model, error) { return nil, errors.New(configFile + ": " + text) }
	switch {
	case !isGraph && (c.MapWeights || c.AnyTorch):
		return wrong("map_weights and any_torch are for folders of export_model alone")
	case isGraph && len(c.Outputs) > 0:
		return wrong("outputs are for AOTInductor packages and TorchScript: the manifest has this model's")
	case !isScript && len(c.Inputs) > 0:
		return wrong("inputs are for TorchScript: other models say theirs")
	case isGraph:
		m, err := graph.Open(dir, graph.OpenOptions{Map: c.MapWeights, AnyTorch: c.AnyTorch})
		if err != nil {
			return nil, err
		}
		return orClose(func() { m.Close() }, func() Model { return FromGraph(m) })
	case isScript:
		m, err := jit.Load(path)
		if err != nil {
			return nil, err
		}
		return orClose(m.Close, func() Model { return newScript("TorchScript", m, specsOf(c.Inputs), specsOf(c.Outputs)) })
	}
	var load aoti.LoadOptions
	if c.Instances != nil {
		load.NumRunners = *c.Instances
	}
	m, err := aoti.Load(path, load)
	if err != nil {
		return nil, err
	}
	return orClose(m.Close, func() Model { return FromAOTI(m, specsOf(c.Outputs)...) })
}

// orClose makes a model, and closes what it would be made of where it cannot be.
func orClose(close func(), of func() Model) (Model, error) {
	model, err := gotorch.Try(of)
	if err != nil {
		close()
		return nil, err
	}
	return model, nil
}

func specsOf(list []modelSpec) (specs []Spec) {
	for _, s := range list {
		specs = append(specs, Spec(s))
	}
	return specs
}

const packageEnd, scriptEnd = ".pt2", ".pt"

// isModel reports whether a file of a version is its model: the manifest of a folder of export_model, a package of AOTInductor or
// a file of TorchScript.
func isModel(name string) bool {
	return name == graph.ManifestFile || !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, packageEnd) || strings.HasSuffix(name, scriptEnd))
}

// modelFile returns the name of a version's model.
func modelFile(dir string) (string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range all {
		if e.Name() == graph.ManifestFile {
			return e.Name(), nil
		}
		if isModel(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("%s has %d files that end in %s or %s, and must have one", dir, len(names), packageEnd, scriptEnd)
	}
	return names[0], nil
}

// warm runs a model before it goes into service, and waits for each run for as long as one may take. If one takes longer, late is
// closed when it has returned, and the model is in use until then.
func (r *repository) warm(model Model, runs []map[string][]int64, limit time.Duration) (late <-chan struct{}, err error) {
	for _, shapes := range runs {
		ctx, cancel := context.WithCancel(r.ctx)
		returned := make(chan struct{})
		err := error(errExited) // unless warmUp returns
		go func() {
			defer close(returned)
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("the model panicked: %v", p)
				}
			}()
			err = sound(warmUp(ctx, model, shapes))
		}()
		var over <-chan time.Time
		if limit > 0 {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-returned:
		case <-over:
			cancel()
			return returned, newError(DeadlineExceeded, "the model has run for longer than %v, which is all that it may", limit)
		}
		if cancel(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// warmUp runs a model on zeros of the shapes. Open sizes that are not said are 1.
func warmUp(ctx context.Context, model Model, shapes map[string][]int64) error {
	signature := model.Signature()
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
	return err
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

// reload looks at the folders of a model, and says why it is not loaded from any, if it is from none. left says that the client
// does not wait any longer.
func (s *Server) reload(ctx context.Context, name, version string) (failed error, left bool) {
	s.mutex.RLock()
	repositories := slices.Clone(s.repositories)
	s.mutex.RUnlock()
	for _, r := range repositories {
		if err := r.ask(ctx, name); err != nil {
			return of(name, "", &Error{Code: asError(err).Code, Msg: "the model is still being loaded", cause: err}), true
		}
		for _, one := range r.failures() {
			if one.Name == name && one.State != loading && (version == "" || one.Version == version || one.Version == "") {
				return of(name, one.Version, newError(Unavailable, "the model in the folder is not loaded: %s", one.Reason)), false
			}
		}
	}
	return nil, false
}

// loading is the state of a version that may soon be in service.
const loading = "LOADING"

// failures are the versions whose folders are not in service as they are. One without a version is a model that cannot be
// read, and of which nothing has been loaded.
func (r *repository) failures() []indexed {
	r.seen.Lock()
	defer r.seen.Unlock()
	return r.failed()
}

// failed is failures with seen held.
func (r *repository) failed() []indexed {
	var all []indexed
	known := map[string]bool{}
	for key, e := range r.entries {
		known[key.model] = true
		if why := cmp.Or(r.unreadModels[key.model], e.failed); why != "" && !e.loading {
			all = append(all, indexed{key.model, key.version, "UNAVAILABLE", why})
		} else if e.loading && !e.loaded {
			all = append(all, indexed{key.model, key.version, loading, "it is being loaded"})
		}
	}
	for model, why := range r.unreadModels {
		if !known[model] {
			all = append(all, indexed{model, "", "UNAVAILABLE", why})
		}
	}
	for model, is := range r.emptyModels {
		if is && !known[model] {
			all = append(all, indexed{model, "", "UNAVAILABLE", "the folder has no version: neither a folder of a version, nor a " + graph.ManifestFile + ", nor a file that ends in .pt2 or .pt"})
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
