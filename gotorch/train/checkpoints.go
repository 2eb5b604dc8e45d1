package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
	"gotorch.dev/gotorch/nn"
)

// Stateful is what can be saved and go on later: optimisers, schedulers, scalers, loaders, and types of your own.
// LoadStateDict changes nothing if it returns an error.
type Stateful interface {
	StateDict() gotorch.Dict
	LoadStateDict(dict gotorch.Dict) error
}

// part is something that checkpoints have.
type part struct {
	name   string
	value  any // an nn.Modular or a Stateful
	trains bool
}

// Add makes something known that the run changes, an nn.Modular or a [Stateful], by a name: [LoopOf.Checkpoints] saves
// its state under "name_state_dict", and modules are in training mode while the run goes on. NewLoop and NewLossLoop
// add "model" and "optimizer" themselves. It panics with a TypeError for anything else, and with a ValueError for a
// name that there is already.
func (l *LoopOf[B]) Add(name string, value any) { l.add(part{name, value, true}) }

func (l *LoopOf[B]) add(p part) {
	const op = "train.LoopOf.Add"
	switch p.value.(type) {
	case nn.Modular, Stateful:
	default:
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(
			"%q is a %T, where a module is required, or something with StateDict and LoadStateDict", p.name, p.value)})
	}
	if isNil(p.value) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("%q is nil", p.name)})
	}
	if p.name == "" || l.has(p.name) {
		panic(args.ValueError(op, "the name %q is empty or was given before", p.name))
	}
	l.parts = append(l.parts, p)
}

func (l *LoopOf[B]) has(name string) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool { return p.name == name })
}

// freeName returns name, or name_2 and so on.
func (l *LoopOf[B]) freeName(name string) string {
	free := name
	for i := 2; l.has(free); i++ {
		free = fmt.Sprintf("%s_%d", name, i)
	}
	return free
}

// Mode says which of two numbers is better.
type Mode int

const (
	Min Mode = iota // the smaller one
	Max             // the greater one
)

func (m Mode) better(x, than float64) bool {
	if math.IsNaN(than) {
		return !math.IsNaN(x)
	}
	if m == Max {
		return x > than
	}
	return x < than
}

// CheckpointsOptions say when [LoopOf.Checkpoints] saves, and what it keeps.
type CheckpointsOptions struct {
	Steps  int            // save after every so many steps besides; default: only after epochs
	Epochs gotorch.Scalar // save after every so many epochs; default: 1
	Keep   gotorch.Scalar // how many of the latest are kept, -1 for all; default: 1
	Best   string         // keep the best one as well, by a number of the epoch's record such as "val_loss", as best.pt
	Mode   Mode           // which is better; default: Min
	Resume bool           // go on from the latest one in the folder, if there is one
}

type checkpoints struct {
	folder        string
	steps, epochs int
	keep          int
	by            string
	mode          Mode
	goOn          bool

	best     float64
	bestStep int // after which the best one was
}

// Checkpoints saves all that a run needs to go on, in files of a folder, which is made: the states of what was added,
// random numbers, where in the data the run is, and the history. It does so after epochs, after every so many steps,
// at the end of the run and where its context is cancelled. A file is step-N.pt, after N steps; it is complete or not
// there, whatever ends the process, and Python reads it with torch.load. The best one is best.pt. Where a model is by
// distributed.FullyShard they are folders, step-N and best: see [LoopOf.Distributed].
//
// With Resume a run goes on from the latest file, and comes to the same numbers, bit for bit, as one that was never
// stopped. What is given to the loop must be made as it was then. Without it, a folder with the files of another run is
// an error of Run. A type of your own that has a state, such as a source of random numbers, is saved if
// [LoopOf.Add] knows it.
//
// It panics with a ValueError if a number is out of range.
func (l *LoopOf[B]) Checkpoints(folder string, opts ...CheckpointsOptions) {
	const op = "train.LoopOf.Checkpoints"
	o := args.Option(opts)
	c := &checkpoints{folder: folder, steps: o.Steps, by: o.Best, mode: o.Mode, goOn: o.Resume, best: math.NaN(),
		epochs: int(args.Int(op, "Epochs", o.Epochs, 1)), keep: int(args.Int(op, "Keep", o.Keep, 1))}
	switch {
	case folder == "":
		panic(args.ValueError(op, "the folder has no name"))
	case c.steps < 0:
		panic(args.ValueError(op, "Steps must not be negative, but is %d", c.steps))
	case c.epochs < 1:
		panic(args.ValueError(op, "Epochs must be positive, but is %d", c.epochs))
	case c.keep < 1 && c.keep != -1:
		panic(args.ValueError(op, "Keep must be positive, or -1 for all, but is %d", c.keep))
	}
	l.checkpoints = c
}

var checkpointName = regexp.MustCompile(`^step-(\d+)\.pt$`)

// LatestCheckpoint returns the path of the latest file or folder of [LoopOf.Checkpoints] in a folder, and "" if there is none. One
// that is not complete is none.
func LatestCheckpoint(folder string) (string, error) {
	saved, err := checkpointsIn(folder)
	if err != nil || len(saved) == 0 {
		return "", err
	}
	return filepath.Join(folder, saved[len(saved)-1].name), nil
}

func fileOf(step int) string { return fmt.Sprintf("step-%08d.pt", step) }

// saved is a checkpoint.
type saved struct {
	step int
	name string
}

// checkpointsIn returns the checkpoints of a folder, in order of their steps.
func checkpointsIn(folder string) (all []saved, err error) {
	err = eachCheckpoint(folder, func(s saved, complete bool) error {
		if complete {
			all = append(all, s)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b saved) int { return a.step - b.step })
	return all, err
}

// eachCheckpoint calls see with each checkpoint of a folder, also with those that nobody has completed.
func eachCheckpoint(folder string, see func(s saved, complete bool) error) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		names, nameOf := checkpointName, fileOf
		if e.IsDir() {
			names, nameOf = checkpointFolder, folderOf
		}
		m := names.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if step, err := strconv.Atoi(m[1]); err == nil && e.Name() == nameOf(step) {
			if err := see(saved{step, e.Name()}, !e.IsDir() || isComplete(filepath.Join(folder, e.Name()))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Saving -------------------------------------------------------------------------------------------

// stepCheckpoint is called after each step.
func (r *run[B]) stepCheckpoint() error {
	c := r.checkpoints
	if c == nil || c.steps == 0 || r.step.Number%c.steps != 0 {
		return nil
	}
	return r.save(false)
}

// epochCheckpoint is called after an epoch and its hooks.
func (r *run[B]) epochCheckpoint(e *Epoch, whole bool) error {
	c := r.checkpoints
	if c == nil {
		return nil
	}
	better := false
	if c.by != "" {
		value, err := e.recorded(c.by)
		if err != nil {
			return err
		}
		if better = c.mode.better(value, c.best); better {
			c.best, c.bestStep = value, r.step.Number
		}
	}
	if better && r.foldered {
		// It is written for itself, and before: where the job ends in between, it does this step once more.
		if err := r.write("best", whole); err != nil {
			return err
		}
		if !r.ranks.follows() {
			os.Remove(filepath.Join(c.folder, "best.pt")) // of a run of another kind
		}
		better = false
	}
	if better && !r.ranks.follows() {
		defer removeFolder(filepath.Join(c.folder, "best")) // of a run of another kind
	}
	if !whole {
		if better {
			return r.write("best.pt", false)
		}
		return nil
	}
	if r.at.epoch%c.epochs == 0 || better || r.ended || r.step.Number >= r.step.Total {
		if err := r.save(true); err != nil {
			return err
		}
	}
	if better && !r.ranks.follows() {
		return c.link(fileOf(r.step.Number), "best.pt")
	}
	return nil
}

// lastCheckpoint saves where a run ends, if that was not saved.
func (r *run[B]) lastCheckpoint() error {
	if r.checkpoints == nil || r.astray || r.saved == r.step.Number || r.step.Number == 0 || r.at.taken == 0 {
		return nil
	}
	return r.save(false)
}

// save writes a checkpoint, and removes those that are not kept.
func (r *run[B]) save(epochDone bool) error {
	c := r.checkpoints
	name := fileOf(r.step.Number)
	if r.foldered {
		name = folderOf(r.step.Number)
	}
	if err := r.write(name, epochDone); err != nil {
		return err
	}
	r.saved = r.step.Number
	if r.ranks.follows() {
		return nil
	}
	if r.foldered {
		// What ranks had begun that were killed. Nobody writes now.
		err := eachCheckpoint(c.folder, func(s saved, complete bool) error {
			if complete {
				return nil
			}
			return removeFolder(filepath.Join(c.folder, s.name))
		})
		if err != nil {
			return err
		}
	}
	if c.keep < 0 {
		return nil
	}
	all, err := checkpointsIn(c.folder)
	if err != nil {
		return err
	}
	for ; len(all) > c.keep; all = all[1:] {
		path := filepath.Join(c.folder, all[0].name)
		if all[0].name == folderOf(all[0].step) {
			err = removeFolder(path)
		} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hardLink is os.Link, which not every file system has.
var hardLink = os.Link

// link makes name lead to what file is, which may be removed then: a copy of it, where there are no links.
func (c *checkpoints) link(file, name string) error {
	file, name = filepath.Join(c.folder, file), filepath.Join(c.folder, name)
	if is, err := os.Stat(file); err == nil {
		// Renaming one of two links to a file does nothing.
		if was, err := os.Stat(name); err == nil && os.SameFile(is, was) {
			return nil
		}
	}
	temporary := name + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := hardLink(file, temporary); err == nil {
		return os.Rename(temporary, name)
	}
	from, _, err := regular.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	return replace.File(name, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
}

const formatVersion = 1

// write saves everything to a file of the folder.
func (r *run[B]) write(file string, epochDone bool) error {
	at := r.at
	at.elapsed += time.Since(at.begun)
	if epochDone {
		at = position{epoch: at.epoch + 1, first: r.step.Number}
	}
	states, err := r.share(true, at)
	if err == nil && r.foldered {
		return r.writeFolder(file, at, func() (gotorch.Dict, error) { return r.own(at, states) })
	}
	if err != nil || r.ranks.follows() {
		return err
	}
	if err := os.MkdirAll(r.checkpoints.folder, 0o777); err != nil {
		return err
	}
	var unsaved error
	err = gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			var dict gotorch.Dict
			for _, p := range r.parts {
				dict = append(dict, gotorch.DictItem{Key: p.key(), Value: p.state()})
			}
			mine, err := r.own(at, states)
			if err != nil {
				unsaved = err
				return
			}
			unsaved = gotorch.Save(filepath.Join(r.checkpoints.folder, file), append(dict, mine...))
		})
	})
	return errors.Join(err, unsaved)
}

// own is what the run itself has to save, of all ranks.
func (r *run[B]) own(at position, states []any) (gotorch.Dict, error) {
	marks, err := r.mark()
	if err != nil {
		return nil, err
	}
	mine := append(r.state(at, marks), r.rankState(at)...)
	if states != nil {
		mine = append(mine, gotorch.DictItem{Key: "ranks", Value: states})
	}
	return gotorch.Dict{{Key: "train", Value: mine}}, nil
}

func (p part) key() string { return p.name + "_state_dict" }

func (p part) state() gotorch.Dict {
	model, is := p.value.(nn.Modular)
	if !is {
		return p.value.(Stateful).StateDict()
	}
	return dictOf(model.StateDict())
}

// dictOf returns a state dict in the order of its names.
func dictOf(state nn.StateDict) (dict gotorch.Dict) {
	for _, name := range state.Names() {
		dict = append(dict, gotorch.DictItem{Key: name, Value: state[name]})
	}
	return dict
}

// state is what the run itself needs to go on from at, the same on all ranks.
func (r *run[B]) state(at position, marks gotorch.Dict) gotorch.Dict {
	dict := gotorch.Dict{
		{Key: "version", Value: formatVersion},
		{Key: "epoch", Value: at.epoch},
		{Key: "step", Value: r.step.Number},
		{Key: "taken", Value: at.taken},
		{Key: "first", Value: at.first},
		{Key: "ended", Value: r.ended},
		{Key: "elapsed", Value: at.elapsed.Seconds()},
		{Key: "history", Value: r.history.state()},
	}
	if len(marks) > 0 {
		dict = append(dict, gotorch.DictItem{Key: "logs", Value: marks})
	}
	if at.phase > 0 {
		dict = append(dict, gotorch.DictItem{Key: "phase", Value: at.phase})
	}
	if r.buckets != nil {
		dict = append(dict, gotorch.DictItem{Key: "buckets", Value: r.buckets})
	}
	if r.checkpoints.by != "" {
		dict = append(dict, gotorch.DictItem{Key: "best", Value: r.checkpoints.best}, gotorch.DictItem{Key: "best_step", Value: r.checkpoints.bestStep})
	}
	return dict
}

// rankState is the rest: what each rank has of its own.
func (r *run[B]) rankState(at position) gotorch.Dict {
	dict := gotorch.Dict{{Key: "random", Value: r.random()}}
	if loader, is := r.batches.(Stateful); is {
		dict = append(dict, gotorch.DictItem{Key: "batches", Value: loader.StateDict()})
	} else if at.random != nil {
		dict = append(dict, gotorch.DictItem{Key: "random_of_epoch", Value: at.random})
	}
	if r.sharded() != nil {
		dict = append(dict, r.shardState(at)...)
	} else if !r.step.Updated && r.model != nil && at.taken > 0 { // amid Accumulate
		var gradients []any
		for _, p := range r.model.Parameters() {
			if g := p.Grad(); g.Defined() {
				gradients = append(gradients, g)
			} else {
				gradients = append(gradients, nil)
			}
		}
		dict = append(dict, gotorch.DictItem{Key: "gradients", Value: gradients})
	}
	return dict
}

// generators are those whose numbers a run draws.
func (r *run[B]) generators() map[string]*gotorch.Generator {
	all := map[string]*gotorch.Generator{"cpu": gotorch.DefaultGenerator(gotorch.CPU)}
	if t := r.device.Type(); t != gotorch.DeviceTypeCPU && t != gotorch.DeviceTypeMeta {
		all[r.device.String()] = gotorch.DefaultGenerator(r.device)
	}
	return all
}

// random is the states of generators.
func (r *run[B]) random() (dict gotorch.Dict) {
	all := r.generators()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		dict = append(dict, gotorch.DictItem{Key: name, Value: all[name].State()})
	}
	return dict
}

// keepRandom notes the random numbers of the epoch's begin, where checkpoints will need them.
func (r *run[B]) keepRandom() {
	if _, is := r.batches.(Stateful); r.checkpoints != nil && !is {
		gotorch.Unscoped(func() { r.at.random = r.random() })
	}
}

// Going on -----------------------------------------------------------------------------------------

// lockFolder has the rank that writes lock the folder of checkpoints until the run ends: each of two runs would remove the other's. The
// system releases the lock of a process that dies.
func (r *run[B]) lockFolder() (err error) {
	if r.ranks.follows() {
		return nil
	}
	folder := r.checkpoints.folder
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	if r.lock, err = os.Open(folder); err != nil {
		return err
	}
	if err := replace.Lock(r.lock); errors.Is(err, syscall.EWOULDBLOCK) { // other errors are of file systems without locks
		return &gotorch.Error{Op: "train.LoopOf.Run", Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(
			"another run saves its checkpoints in %s: give Checkpoints another folder, or wait until that run ends", folder)}
	}
	return nil
}

// resume is called before the first step.
func (r *run[B]) resume() error {
	c := r.checkpoints
	from, path, err := r.latest()
	if err != nil || path == "" {
		return err
	}
	if err := r.load(from); err != nil {
		return fmt.Errorf("train: %s does not fit this run: %w", path, err)
	}
	if err := r.loadBuckets(from); err != nil {
		return fmt.Errorf("train: %s does not fit this run: %w", path, err)
	}
	if from.folder == "" && c.bestStep == r.step.Number && r.step.Number > 0 && !r.ranks.follows() { // the process may have ended before best.pt was this one
		return c.link(filepath.Base(path), "best.pt")
	}
	return nil
}

// load sets everything to what a checkpoint says, or returns an error and changes nothing.
func (r *run[B]) load(from source) (err error) {
	mine, ok := from.dict.Get("train").(gotorch.Dict)
	if !ok {
		return errors.New("it is no checkpoint of a loop")
	}
	d := &decoder{dict: mine}
	if v := d.int("version"); d.err == nil && v != formatVersion {
		return fmt.Errorf("it is of version %d, and this program reads version %d", v, formatVersion)
	}
	number := d.int("step")
	at := position{epoch: d.int("epoch"), taken: d.int("taken"), first: d.int("first"),
		elapsed: time.Duration(d.float("elapsed") * float64(time.Second))}
	if mine.Get("phase") != nil {
		at.phase = d.int("phase")
	}
	ended, _ := mine.Get("ended").(bool)
	history := loadHistory(d.dict_("history"), d)
	best, bestStep := math.NaN(), 0
	if r.checkpoints.by != "" && mine.Get("best") != nil {
		best = d.float("best")
		if mine.Get("best_step") != nil { // files of version 0.1 have none
			bestStep = d.int("best_step")
		}
	}
	if d.err != nil {
		return d.err
	}
	own, same, err := r.ofRank(mine)
	if err != nil {
		return err
	}
	var others []gotorch.Dict // what each rank of a job of another size had
	if !same {
		if others, err = r.ofAll(mine); err != nil {
			return err
		}
	}
	var random gotorch.Dict
	if own != nil {
		of := &decoder{dict: own}
		if random = of.dict_("random"); of.err != nil {
			return of.err
		}
	}
	if number < 0 || at.epoch < 1 || at.taken < 0 || at.phase < 0 || at.first < 0 || at.first > number || len(history.Losses) != number {
		return errors.New("its numbers contradict each other")
	}
	marks := gotorch.Dict{}
	if mine.Get("logs") != nil {
		if marks, ok = mine.Get("logs").(gotorch.Dict); !ok {
			return errors.New("its logs are no dict")
		}
	}
	var gradients []any
	if own != nil && same {
		if gradients, err = r.gradientsOf(r.rank(), own, from); err != nil {
			return err
		}
	}
	generators := r.generators()
	for name := range random.All() {
		if name, is := name.(string); !is || generators[name] == nil {
			return fmt.Errorf("it was made on another device: %v", name)
		}
	}

	undo, err := r.loadParts(from)
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	if err != nil {
		return err
	}
	placed := same
	if loader, is := r.batches.(interface {
		LoadRanks(states []gotorch.Dict) error
	}); is && !same {
		var states []gotorch.Dict
		for _, other := range others {
			state, _ := other.Get("batches").(gotorch.Dict)
			states = append(states, state)
		}
		// What cannot be shared out again is drawn once more.
		at.dealt = loader.LoadRanks(states) == nil
	}
	switch {
	case same:
		at.within = at.taken > 0 && isStateful(r.batches)
	case at.dealt && at.taken > 0:
		// The gradients that ranks have added up count as much as they would have: each rank goes on from their mean.
		gradients, err = meanGradients(len(others), func(rank int) ([]any, error) { return r.gradientsOf(rank, others[rank], from) })
		if err != nil {
			return err
		}
		if gradients != nil {
			at.phase = (at.phase + at.taken) % r.changes.accumulate
		} else {
			at.phase = 0
		}
		at.within, at.taken = true, 0
	default: // between two epochs, or the epoch begins again
		placed = !at.dealt && at.taken == 0 && own != nil
		at.dealt, at.taken, at.phase, gradients = false, 0, 0, nil
	}
	if loader, is := r.batches.(Stateful); is && placed {
		state, has := own.Get("batches").(gotorch.Dict)
		if !has {
			return errors.New("it has no state of the batches")
		}
		if err := loader.LoadStateDict(state); err != nil {
			return fmt.Errorf("the batches: %w", err)
		}
	}
	if at.within {
		at.length = r.batches.Len()
	}
	if !isStateful(r.batches) && at.taken > 0 {
		if at.random, ok = own.Get("random_of_epoch").(gotorch.Dict); !ok {
			return errors.New("it was made with batches of another kind, which had a state of their own")
		}
	}
	return gotorch.Try0(func() {
		if gradients != nil {
			if err := r.setGradients(gradients); err != nil {
				panic(err)
			}
		}
		if err := r.loadShardState(own, same); err != nil {
			panic(err)
		}
		for name, state := range random.All() {
			t, is := state.(gotorch.Tensor)
			if !is {
				panic(args.ValueError("train.LoopOf.Run", "the random numbers of %v are no tensor", name))
			}
			generators[name.(string)].SetState(t)
		}
		r.at, r.history, r.step.Number, r.saved, r.ended, r.marks = at, history, number, number, ended, marks
		r.checkpoints.best, r.checkpoints.bestStep = best, bestStep
		r.resumed, r.resized, r.shared = true, !same, number
	})
}

// loadBuckets has DataParallel reduce gradients in the buckets that a checkpoint has. All ranks do so together, when each has loaded its own.
func (r *run[B]) loadBuckets(from source) error {
	model, is := r.model.(*distributed.DistributedDataParallel)
	if !is || r.ranks == nil {
		return nil
	}
	mine, _ := from.dict.Get("train").(gotorch.Dict)
	var buckets [][]string
	if err := gotorch.Assign(&buckets, mine.Get("buckets"), "the checkpoint's buckets"); err != nil {
		return err
	}
	for _, names := range buckets {
		if len(names) == 0 {
			return errors.New("a bucket of the checkpoint has no parameters")
		}
	}
	if buckets == nil || !trains(model, buckets) {
		return nil
	}
	return r.together(func(*distributed.Group) error {
		model.SetBuckets(buckets)
		return nil
	})
}

// trains reports whether the buckets have the parameters that the model trains. Otherwise the run is another one, and lays out its own.
func trains(model *distributed.DistributedDataParallel, buckets [][]string) bool {
	var trained []string
	for name, p := range model.Net.NamedParameters() {
		if p.RequiresGrad() {
			trained = append(trained, name)
		}
	}
	slices.Sort(trained)
	return slices.Equal(trained, slices.Sorted(slices.Values(slices.Concat(buckets...))))
}

func isStateful(v any) bool {
	_, is := v.(Stateful)
	return is
}

// loadParts sets parts to what a checkpoint says. undo sets those back that were set.
func (l *LoopOf[B]) loadParts(from source) (undo func() error, err error) {
	var set []func() error
	undo = func() (err error) {
		for _, back := range slices.Backward(set) {
			err = errors.Join(err, back())
		}
		return err
	}
	// Modules last: what they had is copied to be kept.
	modules := func(p part) int {
		if _, is := p.value.(nn.Modular); is {
			return 1
		}
		return 0
	}
	for _, p := range l.parts {
		if _, is := from.dict.Get(p.key()).(gotorch.Dict); !is && from.folder == "" {
			return undo, fmt.Errorf("it has no dict %s", p.key())
		}
	}
	for _, p := range slices.SortedStableFunc(slices.Values(l.parts), func(p, q part) int { return modules(p) - modules(q) }) {
		back := p.keep()
		if err := l.loadPart(p, from); err != nil {
			set = append(set, back) // of a folder some of it may be set
			return undo, fmt.Errorf("%s: %w", p.key(), err)
		}
		set = append(set, back)
	}
	return undo, nil
}

// keep returns what puts the part's state back.
func (p part) keep() func() error {
	if model, is := p.value.(nn.Modular); is {
		state := nn.StateDict{}
		for name, t := range model.StateDict() {
			state[name] = t.Detach().Clone()
		}
		return func() error { return model.LoadStateDict(state) }
	}
	var before gotorch.Dict
	if shared, is := p.value.(interface{ LocalStateDict() gotorch.Dict }); is {
		before = shared.LocalStateDict()
	} else {
		before = p.value.(Stateful).StateDict()
	}
	return func() error { return p.value.(Stateful).LoadStateDict(before) }
}

// stateOf returns a dict as the state of a module.
func stateOf(dict gotorch.Dict) (nn.StateDict, error) {
	state := nn.StateDict{}
	for key, value := range dict.All() {
		name, ok1 := key.(string)
		t, ok2 := value.(gotorch.Tensor)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("it holds %v, a %T, where only named tensors may be", key, value)
		}
		state[name] = t
	}
	return state, nil
}

// all are the batches of an epoch, of a loader until the run's context ends. What has a loader within may have an All of its
// own, and is asked for that.
func (r *run[B]) all() iter.Seq2[B, error] {
	if loader, is := r.batches.(*data.Loader[B]); is {
		ctx := r.ctx
		if r.ranks != nil { // all ranks take the next step before they stop
			ctx = context.WithoutCancel(ctx)
		}
		return loader.AllContext(ctx)
	}
	return r.batches.All()
}

// left are the batches of the epoch that the run has not seen.
func (r *run[B]) left() iter.Seq2[B, error] {
	seen := r.at.taken
	if isStateful(r.batches) && seen == 0 && r.resumed && !r.at.dealt {
		// Where it was saved after the last batch of an epoch, the rest of that one is empty. What another number of ranks has begun may
		// have no rest, too, and is over then.
		return func(yield func(B, error) bool) {
			empty := true
			for batch, err := range r.all() {
				empty = false
				if !yield(batch, err) {
					return
				}
			}
			if empty {
				r.all()(yield)
			}
		}
	}
	if seen == 0 || isStateful(r.batches) {
		return r.all()
	}
	return func(yield func(B, error) bool) {
		// They are drawn as they were drawn then, and what was drawn since is as it is now.
		now := r.random()
		set := func(random gotorch.Dict) {
			generators := r.generators()
			for name, state := range random.All() {
				generators[name.(string)].SetState(state.(gotorch.Tensor))
			}
		}
		set(r.at.random)
		passed := 0
		for batch, err := range r.all() {
			if passed < seen && err == nil {
				if passed++; passed == seen {
					set(now)
				}
				if c, is := any(batch).(interface{ Close() }); is {
					c.Close()
				}
				continue
			}
			if !yield(batch, err) {
				return
			}
		}
	}
}

// decoder reads a dict, and keeps the first error.
type decoder struct {
	dict gotorch.Dict
	err  error
}

func (d *decoder) fail(key any, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("%v is a %T, where %s is expected", key, d.dict.Get(key), want)
	}
}

func (d *decoder) int(key any) int {
	switch v := d.dict.Get(key).(type) {
	case int:
		return v
	case int64:
		return int(v)
	}
	d.fail(key, "an integer")
	return 0
}

func (d *decoder) float(key any) float64 {
	if v, is := d.dict.Get(key).(float64); is {
		return v
	}
	d.fail(key, "a number")
	return 0
}

func (d *decoder) dict_(key any) gotorch.Dict {
	v, is := d.dict.Get(key).(gotorch.Dict)
	if !is {
		d.fail(key, "a dict")
	}
	return v
}

func (d *decoder) floats(key any) []float64 {
	if t, is := d.dict.Get(key).(gotorch.Tensor); is && t.DType() == gotorch.Float64 && t.Dim() == 1 {
		return gotorch.ToSlice[float64](t)
	}
	d.fail(key, "a tensor of float64 with one dimension")
	return nil
}
