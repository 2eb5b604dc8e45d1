package nn

import "gotorch.dev/gotorch/internal/args"

// checkP panics with a ValueError unless p is a probability.
func checkP(op string, p float64) {
	if !(p >= 0 && p <= 1) {
		panic(args.ValueError(op, "dropout probability has to be between 0 and 1, but got %v", p))
	}
}

func (m *DropoutModule) check(op string)             { checkP(op, m.P) }
func (m *Dropout1dModule) check(op string)           { checkP(op, m.P) }
func (m *Dropout2dModule) check(op string)           { checkP(op, m.P) }
func (m *Dropout3dModule) check(op string)           { checkP(op, m.P) }
func (m *AlphaDropoutModule) check(op string)        { checkP(op, m.P) }
func (m *FeatureAlphaDropoutModule) check(op string) { checkP(op, m.P) }
