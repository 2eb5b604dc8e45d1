// Package fileformat knows in which format a file is saved, by its name.
package fileformat

import "path/filepath"

// Format is how tensors lie in a file.
type Format int

const (
	Unknown     Format = iota
	Safetensors        // that of the library of this name
	Archive            // that of torch.save
)

var endings = map[string]Format{
	".safetensors": Safetensors,
	".pt":          Archive,
	".pth":         Archive,
	".bin":         Archive,
	".ckpt":        Archive,
}

// Of returns the format that a file is saved in, Unknown if its name does not say.
func Of(path string) Format { return endings[filepath.Ext(path)] }
