// Command modzip writes a version of a Go module as a proxy serves it, and as `go get` unpacks it:
//
//	modzip -module gotorch.dev -version v0.2.0 -time 2026-11-24T12:00:00Z -root . -out proxy < files
//
// Standard input has the files of the module, one a line, by their paths below root. What does not
// belong into it, such as a module within, is left out; what go would refuse, for its size or its name,
// is an error, and then nothing is written.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// file is one file of the module; zip.File.
type file struct{ root, name string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.root, f.name)) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.root, f.name)) }

func main() {
	var m module.Version
	flag.StringVar(&m.Path, "module", "", "the module's path")
	flag.StringVar(&m.Version, "version", "", "the version, v1.2.3")
	date := flag.String("time", "", "when the version was made, as RFC 3339 has it")
	root := flag.String("root", ".", "the module's folder")
	out := flag.String("out", "", "the proxy's folder; other versions in it stay")
	flag.Parse()
	if err := write(m, *date, *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "modzip:", err)
		os.Exit(1)
	}
}

func write(m module.Version, date, root, out string) error {
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	when, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	var files []zip.File
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		files = append(files, file{root, lines.Text()})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	checked, err := zip.CheckFiles(files)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d files, and %d left out\n", len(checked.Valid), len(checked.Omitted))

	folder := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	place := filepath.Join(folder, m.Version)
	part := place + ".zip.part"
	defer os.Remove(part)
	target, err := os.Create(part)
	if err != nil {
		return err
	}
	if err := errors.Join(zip.Create(target, m, files), target.Close()); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, when.UTC()})
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.Rename(part, place+".zip"),
		os.WriteFile(place+".mod", mod, 0o644),
		os.WriteFile(place+".info", append(info, '\n'), 0o644),
	); err != nil {
		return err
	}
	return list(filepath.Join(folder, "list"), m.Version)
}

// list adds the version to the file of those that the proxy has.
func list(path, version string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	versions := []string{version}
	for _, known := range strings.Fields(string(text)) {
		if known != version {
			versions = append(versions, known)
		}
	}
	semver.Sort(versions)
	return os.WriteFile(path, []byte(strings.Join(versions, "\n")+"\n"), 0o644)
}
