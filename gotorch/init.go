package gotorch

import "gotorch.dev/gotorch/internal/ctorch"

// TorchVersion returns the version of the PyTorch that is loaded, "2.15.0+cu132".
func TorchVersion() string {
	if v := ctorch.GoString(ctorch.TorchLoaded()); v != "" {
		return v
	}
	return ctorch.GoString(ctorch.TorchBuilt())
}

// TorchLib returns the folder of the PyTorch library that is loaded.
func TorchLib() string { return ctorch.GoString(ctorch.TorchLib()) }
