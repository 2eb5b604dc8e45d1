package train

import "errors"

// NoHardLinks makes the file system one without hard links, until restore is called.
func NoHardLinks() (restore func()) {
	before := hardLink
	hardLink = func(string, string) error { return errors.ErrUnsupported }
	return func() { hardLink = before }
}
