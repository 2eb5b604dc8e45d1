package train

import (
	"errors"
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// SaveCheckpoint writes all that is needed to go on with a training: the state of the model and of the
// optimiser. Python reads the file with torch.load, as a dict with the keys model_state_dict and
// optimizer_state_dict. A file at path is replaced when the new one is complete, and not before.
//
// For the model alone use [nn.Save].
func SaveCheckpoint(path string, model nn.Modular, opt optim.Optimizer) error {
	var dict gotorch.Dict
	for _, p := range modelAndOptimizer(model, opt) {
		dict = append(dict, gotorch.DictItem{Key: p.key(), Value: p.state()})
	}
	return gotorch.Save(path, dict)
}

func modelAndOptimizer(model nn.Modular, opt optim.Optimizer) []part {
	return []part{{name: "model", value: model}, {name: "optimizer", value: opt}}
}

// LoadCheckpoint reads a file of [SaveCheckpoint] or of [LoopOf.Checkpoints], or of Python under the same keys. If it does not fit
// it returns an error that says why, and changes nothing.
func LoadCheckpoint(path string, model nn.Modular, opt optim.Optimizer) error {
	value, err := gotorch.Load(path)
	if err != nil {
		return err
	}
	dict, _ := value.(gotorch.Dict)
	undo, err := loadParts(modelAndOptimizer(model, opt), dict)
	if err != nil {
		return fmt.Errorf("train: %s: %w", path, errors.Join(err, undo()))
	}
	return nil
}
