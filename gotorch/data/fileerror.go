package data

import (
	"errors"
	"io/fs"

	"gotorch.dev/gotorch"
)

// FileError says what is wrong with a file of samples, and where in it. The readers below this package
// return it for everything that a file has in it and should not.
//
//	var broken *data.FileError
//	if errors.As(err, &broken) {
//		log.Printf("%s, %s: %v", broken.Path, broken.Where, broken.Err)
//	}
//
// errors.Is tells what kind of error it is as for a [gotorch.Error]: a [gotorch.ValueError], unless what is
// behind it is of another kind, and a [gotorch.OSError] where the file cannot be read.
type FileError struct {
	Path  string // the file, archive or folder
	Where string // which sample of it: "line 12", "row 3", "cats/7.jpg"; "" for all of it
	Err   error  // what is wrong
}

// Error returns the path, the place and what is wrong: "a.csv: line 3: ValueError: ...".
func (e *FileError) Error() string {
	text := e.Path + ": "
	if e.Where != "" {
		text += e.Where + ": "
	}
	return text + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// Is reports whether target is the error's kind.
func (e *FileError) Is(target error) bool {
	kind, ok := target.(gotorch.ErrorKind)
	if !ok {
		return false
	}
	var typed *gotorch.Error
	var path *fs.PathError
	switch {
	case errors.As(e.Err, &typed):
		return false // Unwrap leads to it
	case errors.As(e.Err, &path):
		return kind == gotorch.OSError
	}
	return kind == gotorch.ValueError
}
