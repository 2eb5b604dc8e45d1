package daemon

import (
	"cmp"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"gotorch.dev/gotorch/internal/regular"
)

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func sortStable(problems []Problem, key func(Problem) int) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(key(a), key(b)) })
}

// largestConfig bounds a file: one that is larger is none of ours.
const largestConfig = 1 << 20

// loader puts a configuration together, and knows where each value comes from.
type loader struct {
	config   Config
	from     map[string]string
	problems []Problem
}

func (l *loader) bad(key, value, from, want string, args ...any) {
	l.problems = append(l.problems, Problem{Key: key, Value: value, From: from, Want: fmt.Sprintf(want, args...)})
}

// given is a value for a key, in the order in which they hold.
type given struct {
	key, value, from string
	first            bool // of a list: what was there before goes
}

func (l *loader) put(g given) {
	for _, f := range l.config.fields() {
		if f.key != g.key {
			continue
		}
		if g.first && f.value.Kind() == reflect.Slice {
			f.value.SetZero()
		}
		if want := f.set(g.value); want != "" {
			l.bad(g.key, g.value, g.from, "%s", want)
		}
		l.from[g.key] = g.from
	}
}

// Load puts a configuration together from [Default], a file (with "" none), the environment (as os.Environ has it) and
// flags (pairs of a key and a value, such as {"http", ":80"}); what comes later holds. The file is YAML, of which JSON is a
// part. Keys that nobody knows are errors. The error is a [*ConfigError] with everything that is wrong, by file and line,
// variable or flag, or that of reading the file.
func Load(file string, environment []string, flags [][2]string) (Config, error) {
	l := &loader{config: Default(), from: map[string]string{}}
	if file != "" {
		if err := l.file(file); err != nil {
			return l.config, err
		}
	}
	l.environment(environment)
	set := map[string]bool{}
	for _, f := range flags {
		l.put(given{f[0], f[1], "--" + flagName(f[0]), !set[f[0]]})
		set[f[0]] = true
	}
	// What could not be read has its default, so that the rest can be looked at too.
	wrong := map[string]bool{}
	for _, p := range l.problems {
		wrong[p.Key] = true
	}
	var checked *ConfigError
	if errors.As(l.config.Check(), &checked) {
		for _, p := range checked.Problems {
			if !wrong[p.Key] {
				p.From = l.from[p.Key]
				l.problems = append(l.problems, p)
			}
		}
	}
	if len(l.problems) > 0 {
		return l.config, &ConfigError{l.problems}
	}
	return l.config, nil
}

// variable is the name of a key in the environment.
func variable(key string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

const environmentPrefix = "GOTORCH_SERVE_"

func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }

func (l *loader) environment(environment []string) {
	keys := map[string]field{}
	for _, f := range l.config.fields() {
		keys[variable(f.key)] = f
	}
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, environmentPrefix) || name == configVariable {
			continue
		}
		f, known := keys[name]
		if !known {
			// Kubernetes sets variables of this form for a service that is called gotorch-serve.
			if strings.HasPrefix(name, environmentPrefix+"SERVICE_") || strings.HasPrefix(name, environmentPrefix+"PORT") {
				continue
			}
			l.bad("", "", name, "there is no such setting%s", nearest(name, keys))
			continue
		}
		if f.value.Kind() != reflect.Slice {
			l.put(given{f.key, value, name, true})
			continue
		}
		for i, part := range filepath.SplitList(value) {
			l.put(given{f.key, part, name, i == 0})
		}
	}
}

const configVariable = environmentPrefix + "CONFIG"

// nearest suggests what was meant.
func nearest[T any](name string, known map[string]T) string {
	best, bestAt := "", 3
	for other := range known {
		if d := distance(name, other); d < bestAt || d == bestAt && other < best {
			best, bestAt = other, d
		}
	}
	if best == "" {
		return ""
	}
	return "; is it " + best + "?"
}

// distance is how many letters have to be changed, added or removed.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (l *loader) file(path string) error {
	f, size, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > largestConfig {
		return fmt.Errorf("%s has %d bytes, which is no configuration", path, size)
	}
	text, err := io.ReadAll(io.LimitReader(f, largestConfig))
	if err != nil {
		return err
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var document yaml.Node
	err = decoder.Decode(&document)
	if err == io.EOF {
		return nil
	}
	if err != nil {
		l.bad("", "", path, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	keys := map[string]field{}
	groups := map[string]bool{}
	for _, f := range l.config.fields() {
		keys[f.key] = f
		if group, _, ok := strings.Cut(f.key, "."); ok {
			groups[group] = true
		}
	}
	at := func(n *yaml.Node) string { return fmt.Sprintf("%s:%d", path, n.Line) }
	var walk func(n *yaml.Node, prefix string)
	walk = func(n *yaml.Node, prefix string) {
		what := "the file"
		if prefix != "" {
			what = strings.TrimSuffix(prefix, ".")
		}
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			return // a group without keys
		}
		if n.Kind != yaml.MappingNode {
			l.bad("", "", at(n), "%s must be keys with their values", what)
			return
		}
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			key := prefix + name.Value
			if name.Kind != yaml.ScalarNode {
				l.bad("", "", at(name), "a key must be a word")
				continue
			}
			if seen[key] > 0 {
				l.bad("", "", at(name), "%s is there twice, and in line %d", key, seen[key])
				continue
			}
			seen[key] = name.Line
			if groups[key] {
				walk(value, key+".")
				continue
			}
			f, known := keys[key]
			switch {
			case !known:
				l.bad("", "", at(name), "there is no key %.100q%s", key, nearest(key, keys))
			case value.Kind == yaml.AliasNode:
				l.bad("", "", at(value), "%s is an alias, which is not understood here: write the value", key)
			case f.value.Kind() == reflect.Slice && value.Kind == yaml.SequenceNode:
				f.value.SetZero()
				for _, one := range value.Content {
					if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
						l.bad("", "", at(one), "%s must be a list of texts", key)
						continue
					}
					l.put(given{key, one.Value, at(one), false})
				}
			case value.Kind != yaml.ScalarNode:
				l.bad("", "", at(value), "%s must be one value", key)
			case value.Tag == "!!null":
				l.bad("", "", at(value), "%s has no value; leave it out for its default, or write \"\"", key)
			default:
				l.put(given{key, value.Value, at(value), true})
			}
		}
	}
	walk(document.Content[0], "")
	if err := decoder.Decode(new(yaml.Node)); err != io.EOF {
		l.bad("", "", path, "there is more than one document in it")
	}
	return nil
}

// command is what a command line says.
type command struct {
	config  string
	check   bool
	version bool
	flags   [][2]string
}

// errUsage is for a command line that is wrong; what is wrong is printed already.
var errUsage = errors.New("usage")

// parse reads a command line.
func parse(name string, args []string, out io.Writer) (command, error) {
	var c command
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&c.config, "config", os.Getenv(configVariable), "`file` of YAML or JSON with keys such as http, and limits.connections as a key of limits")
	set.BoolVar(&c.check, "check", false, "say what is wrong with the configuration, and start nothing")
	set.BoolVar(&c.version, "version", false, "print the version")
	defaults := Default()
	for _, f := range defaults.fields() {
		key := f.key
		put := func(value string) error {
			c.flags = append(c.flags, [2]string{key, value})
			return nil
		}
		help := f.help
		if text := f.text(); text != "" && text != "false" {
			help += fmt.Sprintf(" (default %s)", text)
		}
		if f.value.Kind() == reflect.Bool {
			set.BoolFunc(flagName(key), help, put)
		} else {
			set.Func(flagName(key), help, put)
		}
	}
	set.Usage = func() {
		fmt.Fprintf(out, "usage: %s [flags]\n\nEach flag is a key of the --config file and a variable too: limits.request-bytes is request_bytes of limits\nthere, and %s in the environment. Flags hold before variables, and those before the file.\n\n", name, variable("limits.request_bytes"))
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, errUsage
	}
	if set.NArg() > 0 {
		fmt.Fprintf(out, "%s: %q is no flag: values follow their flags, and there is nothing else\n", name, set.Arg(0))
		return c, errUsage
	}
	return c, nil
}
