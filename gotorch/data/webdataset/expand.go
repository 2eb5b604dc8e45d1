package webdataset

import (
	"fmt"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
)

// maxPaths is how many paths a pattern may stand for.
const maxPaths = 1 << 20

// Expand returns the paths that patterns with braces stand for, as a shell expands them and the Python package does:
//
//	"train-{000..146}.tar"      train-000.tar, train-001.tar, ..., train-146.tar
//	"{train,val}-{0..8..2}.tar" train-0.tar, train-2.tar, ..., val-8.tar
//
// Braces may be within each other. It returns a ValueError for braces that do not match, and where there are more than
// 1<<20 paths.
func Expand(patterns ...string) ([]string, error) {
	var paths []string
	for _, pattern := range patterns {
		some, err := expand(pattern, 0)
		if err == nil && len(paths)+len(some) > maxPaths {
			err = errTooMany
		}
		if err != nil {
			return nil, &gotorch.Error{Op: "webdataset.Expand", Kind: gotorch.ValueError, Msg: fmt.Sprintf("pattern %.200q: %v", pattern, err)}
		}
		paths = append(paths, some...)
	}
	return paths, nil
}

var errTooMany = fmt.Errorf("it stands for more than %d paths", maxPaths)

func expand(pattern string, depth int) ([]string, error) {
	if depth > 32 {
		return nil, fmt.Errorf("there are more than 32 braces within each other or in a row")
	}
	begin := strings.IndexByte(pattern, '{')
	if begin < 0 {
		if strings.IndexByte(pattern, '}') >= 0 {
			return nil, fmt.Errorf("a brace ends that does not begin")
		}
		return []string{pattern}, nil
	}
	if strings.IndexByte(pattern[:begin], '}') >= 0 {
		return nil, fmt.Errorf("a brace ends that does not begin")
	}
	open, commas, end := 0, []int{begin}, -1
	for i := begin; i < len(pattern) && end < 0; i++ {
		switch pattern[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				end = i
			}
		case ',':
			if open == 1 {
				commas = append(commas, i)
			}
		}
	}
	if end < 0 {
		return nil, fmt.Errorf("a brace does not end")
	}
	var middles []string
	var err error
	if len(commas) == 1 {
		inner := pattern[begin+1 : end]
		if middles, err = sequence(inner); err != nil {
			return nil, err
		}
		if middles == nil { // neither a list nor a range: it stands for itself
			some, err := expand(inner, depth+1)
			if err != nil {
				return nil, err
			}
			for _, s := range some {
				middles = append(middles, "{"+s+"}")
			}
		}
	} else {
		commas = append(commas, end)
		for i, from := range commas[:len(commas)-1] {
			some, err := expand(pattern[from+1:commas[i+1]], depth+1)
			if err != nil {
				return nil, err
			}
			if middles = append(middles, some...); len(middles) > maxPaths {
				return nil, errTooMany
			}
		}
	}
	tails, err := expand(pattern[end+1:], depth+1)
	if err != nil {
		return nil, err
	}
	if len(middles) > maxPaths/len(tails) {
		return nil, errTooMany
	}
	paths := make([]string, 0, len(middles)*len(tails))
	for _, middle := range middles {
		for _, tail := range tails {
			paths = append(paths, pattern[:begin]+middle+tail)
		}
	}
	return paths, nil
}

// sequence returns what "003..10" or "0..8..2" or "a..e" stands for; nil if it is none of these.
func sequence(text string) ([]string, error) {
	parts := strings.Split(text, "..")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, nil
	}
	step := 1
	if len(parts) == 3 {
		n, err := strconv.Atoi(parts[2])
		if err != nil {
			return nil, nil
		}
		step = max(n, -n)
		if step <= 0 {
			step = 1
		}
	}
	from, err1 := strconv.Atoi(parts[0])
	to, err2 := strconv.Atoi(parts[1])
	width := 0
	letters := false
	if err1 != nil || err2 != nil {
		if len(parts[0]) != 1 || len(parts[1]) != 1 || !isLetter(parts[0][0]) || !isLetter(parts[1][0]) {
			return nil, nil
		}
		from, to, letters = int(parts[0][0]), int(parts[1][0]), true
	} else if padded(parts[0]) || padded(parts[1]) {
		width = max(len(parts[0]), len(parts[1]))
	}
	distance := uint64(to) - uint64(from)
	if to < from {
		distance = -distance
	}
	count := distance / uint64(step)
	if count >= maxPaths {
		return nil, errTooMany
	}
	count++
	if to < from {
		step = -step
	}
	list := make([]string, count)
	for i := range list {
		n := from + i*step
		if letters {
			list[i] = string(rune(n))
		} else {
			list[i] = fmt.Sprintf("%0*d", width, n)
		}
	}
	return list, nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// padded reports whether a number is written with zeros in front.
func padded(number string) bool {
	number = strings.TrimPrefix(number, "-")
	return len(number) > 1 && number[0] == '0'
}
