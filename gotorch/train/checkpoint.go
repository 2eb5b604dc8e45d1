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
	state := model.StateDict()
	var dict gotorch.Dict
	for _, name := range state.Names() {
		dict = append(dict, gotorch.DictItem{Key: name, Value: state[name]})
	}
	return gotorch.Save(path, gotorch.Dict{
		{Key: "model_state_dict", Value: dict},
		{Key: "optimizer_state_dict", Value: opt.StateDict()},
	})
}

// LoadCheckpoint reads a file of [SaveCheckpoint], or of Python under the same keys. If it does not fit
// it returns an error that says why, and changes nothing.
func LoadCheckpoint(path string, model nn.Modular, opt optim.Optimizer) error {
	value, err := gotorch.Load(path)
	if err != nil {
		return err
	}
	dict, _ := value.(gotorch.Dict)
	modelState, ok1 := dict.Get("model_state_dict").(gotorch.Dict)
	optState, ok2 := dict.Get("optimizer_state_dict").(gotorch.Dict)
	if !ok1 || !ok2 {
		return fmt.Errorf("train: %s has no dicts model_state_dict and optimizer_state_dict", path)
	}
	state := nn.StateDict{}
	for key, value := range modelState.All() {
		name, ok1 := key.(string)
		t, ok2 := value.(gotorch.Tensor)
		if !ok1 || !ok2 {
			return fmt.Errorf("train: model_state_dict of %s holds other things than named tensors", path)
		}
		state[name] = t
	}
	// The optimiser first: what it had costs no copy to keep, and is put back if the model does not fit.
	before := opt.StateDict()
	if err := opt.LoadStateDict(optState); err != nil {
		return err
	}
	if err := model.LoadStateDict(state); err != nil {
		if broken := opt.LoadStateDict(before); broken != nil {
			return errors.Join(err, broken)
		}
		return err
	}
	return nil
}
