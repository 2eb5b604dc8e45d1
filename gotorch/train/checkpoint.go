package train

import (
	"cmp"
	"errors"
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// SaveCheckpoint writes all that is needed to go on with a training: the state of the model and of the
// optimiser. Python reads the file with torch.load, as a dict with the keys model_state_dict and
// optimizer_state_dict. A file at path is replaced when the new one is complete, and not before.
//
// Of a model by distributed.FullyShard all ranks must call it: rank 0 writes the whole, and the others get a [*RankError] where that
// fails.
//
// For the model alone use [nn.Save].
func SaveCheckpoint(path string, model nn.Modular, opt optim.Optimizer) error {
	if sharded, is := model.(*distributed.FullySharded); is {
		return byRankZero(sharded, func() (save func() error) {
			whole := distributed.FullStateOptions{RankZeroOnly: true}
			state, of := sharded.FullStateDict(whole), sharded.FullOptimStateDict(opt, whole)
			return func() error {
				return gotorch.Save(path, gotorch.Dict{{Key: "model_state_dict", Value: dictOf(state)}, {Key: "optimizer_state_dict", Value: of}})
			}
		})
	}
	var dict gotorch.Dict
	for _, p := range modelAndOptimizer(model, opt) {
		dict = append(dict, gotorch.DictItem{Key: p.key(), Value: p.state()})
	}
	return gotorch.Save(path, dict)
}

// byRankZero has all ranks gather what a model is, and rank 0 save it. All have an error where it fails.
func byRankZero(model *distributed.FullySharded, gather func() (save func() error)) error {
	g := model.Group()
	var failed error
	err := gotorch.Try0(func() {
		if save := gather(); g.Rank() == 0 {
			failed = save()
		}
	})
	if err != nil {
		return err
	}
	said := ""
	if failed != nil {
		said = failed.Error()
	}
	said, err = distributed.BroadcastObject(g, said, 0)
	if err == nil && failed == nil && said != "" {
		err = &RankError{Rank: 0, Msg: "could not save: " + said}
	}
	return cmp.Or(failed, err)
}

func modelAndOptimizer(model nn.Modular, opt optim.Optimizer) []part {
	return []part{{name: "model", value: model}, {name: "optimizer", value: opt}}
}

// LoadCheckpoint reads a file of [SaveCheckpoint], a file or folder of [LoopOf.Checkpoints], or a file of Python under the same keys. If
// it does not fit it returns an error that says why, and changes nothing. Of a sharded model each rank takes its part.
func LoadCheckpoint(path string, model nn.Modular, opt optim.Optimizer) error {
	from, err := openSource(path)
	if err != nil {
		return err
	}
	undo, err := (&Loop{parts: modelAndOptimizer(model, opt)}).loadParts(from)
	if err != nil {
		return fmt.Errorf("train: %s: %w", path, errors.Join(err, undo()))
	}
	return nil
}
