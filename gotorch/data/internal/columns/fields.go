package columns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Missing appends the numbers of a field that has none.
func (c *Column) Missing(to []Number) ([]Number, error) {
	if c.missing == nil {
		return to, errors.New("the field is missing: say by Missing what it counts as")
	}
	for range c.Size {
		to = append(to, *c.missing)
	}
	return to, nil
}

// Element returns the number of an element of a list that has none.
func (c *Column) Element() (Number, error) {
	if c.missing == nil {
		return Number{}, errors.New("an element of the list is missing: say by Missing what it counts as")
	}
	return *c.missing, nil
}

// Padded completes a list, of which there are so many elements. to has the first of them, as many as there is room for.
func (c *Column) Padded(to []Number, n int) ([]Number, error) {
	switch {
	case n > c.Size:
		return to, fmt.Errorf("the list has %d elements, and Size is %d", n, c.Size)
	case n < c.Size && c.pad == nil:
		return to, fmt.Errorf("the list has %d elements, and Size is %d: say by Pad what fills it", n, c.Size)
	}
	for ; n < c.Size; n++ {
		to = append(to, *c.pad)
	}
	return to, nil
}

// Encoded appends what Encode makes of a text.
func (c *Column) Encoded(to []Number, text string) ([]Number, error) {
	all := make([]float64, c.Size)
	if c.pad != nil && c.pad.Float != 0 {
		for i := range all {
			all[i] = c.pad.Float
		}
	}
	err := func() (err error) {
		defer func() { // or a reader of files would call the file damaged
			if r := recover(); r != nil {
				err = fmt.Errorf("it panicked: %v", r)
			}
		}()
		return c.Encode(all, text)
	}()
	if err != nil {
		return to, fmt.Errorf("its Encode: %w", err)
	}
	for _, f := range all {
		to = append(to, OfFloat(f))
	}
	return to, nil
}

// Class returns the number of a text of a column with Classes.
func (c *Column) Class(text string) (Number, error) {
	if n, ok := c.Classes[text]; ok {
		return OfInt(int64(n)), nil
	}
	if c.unknown != nil {
		return *c.unknown, nil
	}
	return Number{}, c.NoClass(fmt.Sprintf("%.60q", text))
}

// NoClass is the error for a text without a class.
func (c *Column) NoClass(text string) error {
	return fmt.Errorf("%s is none of the column's %d classes: say by Unknown what others count as", text, len(c.Classes))
}

// HasUnknown reports whether texts may stand in the column that are none of its classes.
func (c *Column) HasUnknown() bool { return c.unknown != nil }

// timeFormats are those of ISO 8601 and RFC 3339. Any number of digits may follow seconds.
var timeFormats = []string{
	"2006-01-02", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04:05Z07:00",
	"2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02 15:04Z07:00", "2006-01-02T15:04Z07:00", "15:04:05", "15:04",
}

// TimeText returns the number of a text that is a date or a time.
func (c *Column) TimeText(text string) (Number, error) {
	text = strings.TrimSpace(text)
	for _, format := range c.timeFormats {
		if t, err := time.Parse(format, text); err == nil {
			if t.Year() == 0 && !strings.Contains(format, "06") { // of the day
				return c.Time(int64(t.Hour()*3600+t.Minute()*60+t.Second()), int64(t.Nanosecond())), nil
			}
			return c.Time(t.Unix(), int64(t.Nanosecond())), nil
		}
	}
	if len(c.timeFormats) == 1 {
		return Number{}, fmt.Errorf("%.60q is no time as TimeFormat says, %q", text, c.timeFormats[0])
	}
	return Number{}, fmt.Errorf("%.60q is no date or time of ISO 8601: say by TimeFormat how they are written", text)
}

// Text appends the numbers of a field of text. missing are the texts that are as good as none.
func (c *Column) Text(to []Number, text string, missing map[string]bool) ([]Number, error) {
	if c.Within != nil {
		inner, is, err := within(text, c.Within, missing)
		if err != nil {
			return to, err
		}
		if !is {
			return c.Missing(to)
		}
		text = inner
	}
	_, class := c.Classes[text]
	switch {
	case c.Encode != nil && (c.missing == nil || !missing[text]):
		return c.Encoded(to, text)
	case missing[text] && !class:
		return c.Missing(to)
	case !c.List:
		n, err := c.text(text)
		return append(to, n), err
	}
	n := 0
	err := elements(text, func(element string, is bool) (err error) {
		if n++; n > c.Size {
			return nil // Padded has how many there are
		}
		var number Number
		if _, class := c.Classes[element]; !is || missing[element] && !class {
			number, err = c.Element()
		} else {
			number, err = c.text(element)
		}
		to = append(to, number)
		return err
	})
	if err != nil {
		return to, err
	}
	return c.Padded(to, n)
}

// text returns the number of a text.
func (c *Column) text(text string) (Number, error) {
	switch {
	case c.Classes != nil:
		return c.Class(text)
	case c.Unit != 0:
		return c.TimeText(text)
	}
	text = strings.TrimSpace(text)
	switch text {
	case "true", "True", "TRUE":
		return OfInt(1), nil
	case "false", "False", "FALSE":
		return OfInt(0), nil
	}
	digits := text
	if whole, rest, ok := strings.Cut(text, "."); ok && len(whole) > 15 && strings.Trim(rest, "0") == "" {
		digits = whole // a decimal that is an integer, which a float may not hold
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && (n != 0 || text[0] != '-') { // a float's zero has a sign
		return OfInt(n), nil
	}
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n > math.MaxInt64 {
		return OfUint(n), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(text, "_xX") {
		return Number{}, fmt.Errorf("%.60q is no number", text)
	}
	if _, rest, ok := strings.Cut(text, "."); ok && strings.Trim(rest, "0") != "" && !strings.ContainsAny(rest, "eE") {
		return fraction(f), nil // also where the float next to it is an integer
	}
	return OfFloat(f), nil
}

// within returns what is at a path of a JSON object; false: nothing, or null.
func within(text string, path []string, missing map[string]bool) (string, bool, error) {
	raw := json.RawMessage(text)
	if missing[text] {
		return "", false, nil
	}
	for _, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return "", false, fmt.Errorf("%.60q is no JSON object, in which %q should be", text, strings.Join(path, "."))
		}
		raw = object[name]
		if raw == nil || string(raw) == "null" {
			return "", false, nil
		}
	}
	var inner string
	if raw[0] == '"' {
		err := json.Unmarshal(raw, &inner)
		return inner, true, err
	}
	return string(raw), true, nil
}

// elements gives the elements of a list that is a text: JSON, Python's list or tuple, NumPy's array, or without brackets. Where
// there is a comma, semicolon or bar they stand between elements, and else spaces do. Lists in the list are joined. An element
// in quotes is as Python writes it. false: null.
func elements(text string, give func(element string, is bool) error) error {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "[") && json.Valid([]byte(text)) {
		return jsonElements(text, give)
	}
	opening, closing := spaces, spaces
	if text != "" && strings.IndexByte("[(", text[0]) >= 0 { // else they are of the elements
		if strings.IndexByte("])", text[len(text)-1]) < 0 {
			return fmt.Errorf("the list %.60q has no end", text)
		}
		opening, closing = opening+"[(", closing+"])"
	}
	separators := separatorsOf(text)
	for text != "" {
		text = strings.TrimLeft(text, opening)
		var element string
		if text != "" && isQuote(text[0]) {
			inner, rest, ends := quoted(text)
			if !ends {
				return fmt.Errorf("a quote does not end in the list %.60q", text)
			}
			element, text = inner, strings.TrimLeft(rest, closing)
			switch {
			case text == "" || separators == spaces && len(text) < len(rest):
			case strings.IndexByte(separators, text[0]) >= 0:
				text = text[1:]
			default:
				return fmt.Errorf("something follows the text %.60q of the list", element)
			}
		} else {
			end := strings.IndexAny(text, separators)
			if end < 0 {
				end = len(text)
			}
			element, text = text[:end], text[min(len(text), end+1):]
			if closing != spaces {
				element = closed(element)
			}
			element = strings.Trim(element, spaces)
			if element == "" && (separators == spaces || end > 0 && text == "") {
				continue // the end, as behind the comma of (1,)
			}
			if element == "None" {
				if err := give("", false); err != nil {
					return err
				}
				continue
			}
		}
		if err := give(element, true); err != nil {
			return err
		}
	}
	return nil
}

const spaces = " \t\r\n"

func isQuote(c byte) bool { return c == '\'' || c == '"' }

// separatorsOf returns what stands between the elements of a list, which is not what stands in quotes.
func separatorsOf(text string) string {
	const separators = ",;|"
	var found [len(separators)]bool
	begins := true // an element, perhaps
	for text != "" {
		if begins && isQuote(text[0]) {
			if _, rest, ends := quoted(text); ends {
				text, begins = rest, false
				continue
			}
		}
		at := strings.IndexByte(separators, text[0])
		if at >= 0 {
			found[at] = true
		}
		begins = at >= 0 || strings.IndexByte(spaces+"[(", text[0]) >= 0
		text = text[1:]
	}
	for at, is := range found {
		if is {
			return separators[at : at+1]
		}
	}
	return spaces
}

// closed returns an element without the brackets that end the lists it is in, of which it has no beginning.
func closed(element string) string {
	n := 0
	for _, c := range []byte(element) {
		switch c {
		case '(', '[':
			n--
		case ')', ']':
			n++
		}
	}
	for ; n > 0; n-- {
		element = strings.TrimRight(element, spaces)
		if element == "" || strings.IndexByte(")]", element[len(element)-1]) < 0 {
			break
		}
		element = element[:len(element)-1]
	}
	return element
}

// quoted takes a text in quotes, as Python writes it, from the beginning of another; false: it does not end.
func quoted(text string) (inner, rest string, ends bool) {
	quote := text[0]
	var b strings.Builder
	for text = text[1:]; text != ""; {
		switch {
		case text[0] == quote:
			return b.String(), text[1:], true
		case text[0] != '\\':
		case len(text) > 1 && isQuote(text[1]):
			text = text[1:]
		default:
			if r, _, tail, err := strconv.UnquoteChar(text, 0); err == nil { // else Python, too, leaves the backslash
				b.WriteRune(r)
				text = tail
				continue
			}
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	return "", "", false
}

// jsonElements gives the elements of a list in JSON.
func jsonElements(text string, give func(element string, is bool) error) error {
	tokens := json.NewDecoder(strings.NewReader(text))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch v := token.(type) {
		case nil:
			err = give("", false)
		case string:
			err = give(v, true)
		case json.Number:
			err = give(v.String(), true)
		case bool:
			err = give(strconv.FormatBool(v), true)
		case json.Delim:
			if v == '{' {
				err = errors.New("the list has objects in it")
			}
		}
		if err != nil {
			return err
		}
	}
}
