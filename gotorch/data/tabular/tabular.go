// Package tabular says which columns of a table are the inputs of a model, and which the targets. The readers of tables,
// packages csvdata and parquet, take it.
//
//	layout := tabular.Layout{
//		Inputs: []tabular.Column{
//			{Name: "age"},
//			{Name: "fare", Missing: 0},                            // an empty field counts as 0
//			{Name: "sex", Classes: []string{"female", "male"}},    // 0 and 1
//		},
//		Targets: []tabular.Column{{Name: "survived"}},
//		TargetDType: gotorch.Int64,
//	}
//	set, err := csvdata.Open("titanic.csv", layout)
//
// A sample is a data.Pair: Input has the shape (number of inputs), and Target the same for targets; where there is one
// target, it is a number, of no dimensions. A batch has one more dimension in front.
package tabular

import "gotorch.dev/gotorch"

// Column is a column of a table, and how it is a number.
type Column struct {
	Name string // in the header, or in the schema
	// Missing is the number for a field that is empty, or has none of a number; math.NaN() is one, too. Default: such a
	// field is an error.
	Missing gotorch.Scalar
	// Classes are the texts that may stand in the column, each of which is the number of its place in the list, from 0.
	// Default: the fields are numbers.
	Classes []string
}

// Columns are columns of numbers, by their names.
func Columns(names ...string) []Column {
	columns := make([]Column, len(names))
	for i, name := range names {
		columns[i].Name = name
	}
	return columns
}

// Layout is what of a table is for what.
type Layout struct {
	Inputs      []Column      // default: all columns that are no targets, in their order
	Targets     []Column      // there must be one at least
	InputDType  gotorch.DType // Float32, Float64 or Int64; default: gotorch.Float32
	TargetDType gotorch.DType // the same; default: gotorch.Float32
}
