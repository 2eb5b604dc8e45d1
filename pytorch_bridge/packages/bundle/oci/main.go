// Oci writes the OCI image of a bundle. What is wanted comes as JSON on the standard input, from
// pytorch_bridge/packages/bundle/image.py.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type request struct {
	Out        string   // the folder to write
	Base       string   // a reference, a layout, a file of docker save, or ""
	OS, Arch   string   // of the program
	GLIBC      string   // the oldest that will do, or ""
	Ref        string   // the image's name in the layout
	Epoch      int64    // the date of all
	Entrypoint []string // what is run
	Folder     string   // where it is run
	User       string   // as whom, where the base does not say
	Title      string
	Layers     []layer
}

type layer struct {
	Name  string
	Files []file
}

type file struct {
	Name string // in the image, without a slash in front
	Path string // here; "" for a folder
	Mode int64
}

func main() {
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(stdin io.Reader) error {
	var r request
	if err := json.NewDecoder(stdin).Decode(&r); err != nil {
		return err
	}
	image, err := r.image()
	if err != nil {
		return err
	}
	out, err := layout.Write(r.Out, empty.Index)
	if err != nil {
		return err
	}
	return out.AppendImage(image,
		layout.WithPlatform(v1.Platform{OS: r.OS, Architecture: r.Arch}),
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.Ref}))
}

func (r *request) image() (v1.Image, error) {
	base, labels, err := r.base()
	if err != nil {
		return nil, err
	}
	date := v1.Time{Time: time.Unix(r.Epoch, 0).UTC()}
	config, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture = date, r.OS, r.Arch
	config.Config.Entrypoint, config.Config.Cmd, config.Config.WorkingDir = r.Entrypoint, nil, r.Folder
	if config.Config.User == "" {
		config.Config.User = r.User
	}
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	for k, v := range labels {
		config.Config.Labels[k] = v
	}
	// Before the layers, whose digests are known when they are written.
	image, err := mutate.ConfigFile(base, config)
	if err != nil {
		return nil, err
	}
	var added []mutate.Addendum
	for _, l := range r.Layers {
		added = append(added, mutate.Addendum{
			Layer: stream.NewLayer(l.tar(date.Time),
				stream.WithCompressionLevel(gzip.BestSpeed), stream.WithMediaType(types.OCILayer)),
			History: v1.History{Created: date, CreatedBy: "pytorch_bridge bundle", Comment: l.Name},
		})
	}
	return mutate.Append(image, added...)
}

// tar writes the layer while it is read.
func (l layer) tar(date time.Time) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(l.write(tar.NewWriter(w), date)) }()
	return r
}

func (l layer) write(w *tar.Writer, date time.Time) error {
	there := map[string]bool{}
	for _, f := range l.Files {
		if err := parents(w, path.Dir(f.Name), date, there); err != nil {
			return err
		}
		if err := f.write(w, date); err != nil {
			return err
		}
		there[f.Name] = true
	}
	return w.Close()
}

// parents writes the folders that a file is in, those above first.
func parents(w *tar.Writer, folder string, date time.Time, there map[string]bool) error {
	if folder == "." || there[folder] {
		return nil
	}
	if err := parents(w, path.Dir(folder), date, there); err != nil {
		return err
	}
	there[folder] = true
	return file{Name: folder, Mode: 0o755}.write(w, date)
}

func (f file) write(w *tar.Writer, date time.Time) error {
	header := &tar.Header{Name: f.Name, Mode: f.Mode, ModTime: date, Typeflag: tar.TypeReg}
	if f.Path == "" {
		header.Typeflag, header.Name = tar.TypeDir, f.Name+"/"
		return w.WriteHeader(header)
	}
	source, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, counted{source})
	return err
}

// counted says on the standard output how many bytes are read.
type counted struct{ r io.Reader }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		fmt.Println(n)
	}
	return n, err
}

// base is the image to build on, and the labels that say which it was.
func (r *request) base() (v1.Image, map[string]string, error) {
	if r.Base == "" {
		none := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
		return mutate.ConfigMediaType(none, types.OCIConfigJSON), nil, nil
	}
	image, err := r.find()
	if err != nil {
		return nil, nil, fmt.Errorf("the base %s cannot be had: %w", r.Base, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, nil, fmt.Errorf("the base %s cannot be read: %w", r.Base, err)
	}
	if config.OS != r.OS || config.Architecture != r.Arch {
		return nil, nil, fmt.Errorf("the base %s is for %s/%s, and the program for %s/%s: name one for that platform",
			r.Base, config.OS, config.Architecture, r.OS, r.Arch)
	}
	if err := r.checkGLIBC(image); err != nil {
		return nil, nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, nil, err
	}
	image = mutate.MediaType(image, types.OCIManifestSchema1)
	shown := r.Base
	if _, err := os.Stat(shown); err == nil {
		shown = filepath.Base(shown) // where it is here is nobody's business
	}
	return mutate.ConfigMediaType(image, types.OCIConfigJSON), map[string]string{
		"org.opencontainers.image.base.name":   shown,
		"org.opencontainers.image.base.digest": digest.String(),
	}, nil
}

// find takes what is on the disk before it asks a registry.
func (r *request) find() (v1.Image, error) {
	info, err := os.Stat(r.Base)
	switch {
	case err == nil && info.IsDir():
		index, err := layout.ImageIndexFromPath(r.Base)
		if err != nil {
			return nil, fmt.Errorf("it is no OCI layout: %w", err)
		}
		return r.pick(index)
	case err == nil:
		return tarball.ImageFromPath(r.Base, nil)
	case strings.HasPrefix(r.Base, "/") || strings.HasPrefix(r.Base, "."):
		return nil, err
	}
	reference, err := name.ParseReference(r.Base)
	if err != nil {
		return nil, err
	}
	return remote.Image(reference, remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: r.OS, Architecture: r.Arch}))
}

// pick chooses the image for the platform, also from an index within the index.
func (r *request) pick(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []v1.Image
	for _, d := range manifest.Manifests {
		if p := d.Platform; p != nil && p.OS != "" && (p.OS != r.OS || p.Architecture != r.Arch) {
			continue
		}
		var image v1.Image
		switch {
		case d.MediaType.IsIndex():
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			if image, err = r.pick(inner); err != nil {
				return nil, err
			}
		case d.MediaType.IsImage():
			if image, err = index.Image(d.Digest); err != nil {
				return nil, err
			}
		default:
			continue
		}
		found = append(found, image)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it has %d images for %s/%s, and one is wanted", len(found), r.OS, r.Arch)
	}
	return found[0], nil
}

var (
	isLibc  = regexp.MustCompile(`^libc(-\d+\.\d+)?\.so(\.6)?$`)
	isMusl  = regexp.MustCompile(`^ld-musl-.*\.so\.1$`)
	release = regexp.MustCompile(`GNU C Library [^\n]*release version (\d+)\.(\d+)`)
)

// checkGLIBC looks whether programs for glibc can start there, for containers say only "not found".
func (r *request) checkGLIBC(image v1.Image) error {
	var wanted [2]int
	if _, err := fmt.Sscanf(r.GLIBC, "%d.%d", &wanted[0], &wanted[1]); err != nil {
		return nil // the program needs none
	}
	content := mutate.Extract(image)
	defer content.Close()
	musl := false
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the base %s cannot be read: %w", r.Base, err)
		}
		own := path.Base(header.Name)
		musl = musl || isMusl.MatchString(own)
		if header.Typeflag != tar.TypeReg || !isLibc.MatchString(own) {
			continue
		}
		var text bytes.Buffer
		if _, err := io.Copy(&text, io.LimitReader(files, 64<<20)); err != nil {
			return fmt.Errorf("the base %s cannot be read: %w", r.Base, err)
		}
		found := release.FindSubmatch(text.Bytes())
		if found == nil {
			continue
		}
		var has [2]int
		fmt.Sscan(string(found[1]), &has[0])
		fmt.Sscan(string(found[2]), &has[1])
		if has[0] < wanted[0] || has[0] == wanted[0] && has[1] < wanted[1] {
			return fmt.Errorf("the base %s has glibc %d.%d, and the program needs %s: name a newer base, or bundle on an older system",
				r.Base, has[0], has[1], r.GLIBC)
		}
		return nil
	}
	why := ""
	if musl {
		why = ", but musl"
	}
	return fmt.Errorf("the base %s has no glibc%s: take Debian, Ubuntu, Fedora or distroless/base, or no base", r.Base, why)
}
