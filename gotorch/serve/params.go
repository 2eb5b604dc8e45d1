package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// told is a parameter's value as an error names it: "true" as text is not true.
func told(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("the text %.40q", v)
	case float64:
		return fmt.Sprintf("the float %v", v)
	}
	return fmt.Sprint(value)
}

// reservedPrefix begins the names of parameters that are the protocol's: no model sees them.
const reservedPrefix = "triton_"

// takeTriton takes the parameters that begin with triton_ from the others. A client that wants empty final responses is
// understood, and gets none: a request has one response, which is the final one.
func (r *request) takeTriton() error {
	const wantsEmpty = "triton_enable_empty_final_response"
	for _, name := range slices.Sorted(maps.Keys(r.params)) {
		if !strings.HasPrefix(name, reservedPrefix) {
			continue
		}
		if name != wantsEmpty {
			return newError(InvalidArgument, "parameter %.100q: names that begin with %s are reserved, and this server understands %s alone",
				name, reservedPrefix, wantsEmpty)
		}
		if _, ok := r.params[name].(bool); !ok {
			return newError(InvalidArgument, "parameter %s is %s, and must be true or false", name, told(r.params[name]))
		}
		delete(r.params, name)
	}
	return nil
}

// checkOutputParameter refuses what would make another answer than the output itself.
func checkOutputParameter(name string) *Error {
	switch name {
	case "classification":
		return newError(InvalidArgument, "the parameter classification of an output is not supported: ask for the output, and take its largest elements")
	case "shared_memory_region":
		return newError(InvalidArgument, "the parameter shared_memory_region of an output is not supported: shared memory is not, the answer has the data")
	}
	return nil
}
