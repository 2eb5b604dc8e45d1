//go:build race

package gotorch_test

const raceEnabled = true
