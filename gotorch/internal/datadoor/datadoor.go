// Package datadoor is how package train reaches what package data has for it alone. data fills the variable when the
// program starts.
package datadoor

// KeepPlace keeps where a data.Loader is, and is false for anything else. restore sets it back: what is begun next is what
// would have been, and a loop that is under way goes on. A state as of StateDict does not say whether the epoch that was
// left is to be begun anew or gone on with.
var KeepPlace = func(loader any) (restore func() error, is bool) { return nil, false }
