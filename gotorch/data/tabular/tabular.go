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
// A sample is a data.Pair: Input has the shape (numbers of the inputs), where a column has one number or Size of them, and
// Target the same for targets; where there is one target without a Size, it is a number, of no dimensions. A batch has one
// more dimension in front.
package tabular

import (
	"time"

	"gotorch.dev/gotorch"
)

// Column is a column of a table, and how its fields become numbers. CSV and Parquet take the same columns: a number, a bool, a
// decimal and a float16 need only a Name, the other fields are for what follows.
//
//	{Name: "city", Classes: cities, Unknown: -1}               // categories, others are -1
//	{Name: "bought", Unit: 24 * time.Hour}                     // days since 1970
//	{Name: "address.zip"}                                      // a field of a struct
//	{Name: "embedding", Size: 768}                             // a list of 768 numbers
//	{Name: "tokens", Size: 128, Pad: 0}                        // a list of at most 128
//	{Name: "review", Size: 128, Encode: encode}                // text
type Column struct {
	// Name is the column's name in the header or in the schema. A field of a struct has the names of the structs before its
	// own, with dots: "address.zip". In CSV such a field is a column of this name, or is in a column "address" of JSON objects.
	// The keys of a map are "map.key", and its values "map.value".
	Name string
	// Missing is the number for a field that is empty or null; math.NaN() is one, too. In a list it is the number for an element
	// that is null, and for each of a list that is. Default: such a field is an error.
	Missing gotorch.Scalar
	// Classes are the texts that may stand in the column. The number of a text is its index in Classes. Integers and bools of
	// Parquet are compared as the texts "12", "true" and "false". Default: the fields are numbers.
	Classes []string
	// Unknown is the number for a text that is none of Classes. Default: such a text is an error.
	Unknown gotorch.Scalar
	// Size is how many numbers there are in each row: those of a list, or those of Encode. The lists of lists are joined in
	// their order. A list of another length is an error. Default: the column has one number in each row, and is no list.
	Size int
	// Pad is the number that fills lists that are shorter than Size, and where Encode begins. Default: a shorter list is an
	// error, and Encode begins with 0.
	Pad gotorch.Scalar
	// Encode makes numbers of a text, as a tokenizer does. It sets as many elements of to as it needs, of which there are Size,
	// or one if Size is 0. An error or a panic is an error of the row. Several goroutines may call it. Parquet's columns of bytes are texts,
	// too. A field that is missing is not given to Encode if Missing is set, and is an empty text in CSV else.
	Encode func(to []float64, text string) error
	// Unit makes numbers of dates and times: a date or a timestamp is how many units it is after 1970-01-01 00:00 UTC, a time
	// of day how many it is after midnight. A text is in ISO 8601 ("2024-01-31", "2024-01-31 12:30:00.5+02:00", "12:30"), and
	// in UTC if it does not say in which zone. Default: they are the integers that a Parquet file has, nanoseconds for INT96.
	Unit time.Duration
	// TimeFormat is how texts of a column with a Unit are written, as package time describes it. Default: ISO 8601.
	TimeFormat string
}

// Columns are columns of numbers, by their names.
func Columns(names ...string) []Column {
	columns := make([]Column, len(names))
	for i, name := range names {
		columns[i].Name = name
	}
	return columns
}

// Layout assigns the columns of a table to inputs and targets.
type Layout struct {
	Inputs      []Column      // default: all columns that are no targets, in their order, and the fields of structs
	Targets     []Column      // there must be one at least
	InputDType  gotorch.DType // Float32, Float64 or Int64; default: gotorch.Float32
	TargetDType gotorch.DType // the same; default: gotorch.Float32
}
