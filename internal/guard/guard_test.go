package guard

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/perfplan/perfplan"

// layers are the packages from the first of the flow to the last. A package
// imports only from layers above its own. Packages of one layer do not know each
// other.
var layers = [][]string{
	{"internal/seed"}, // of tests
	{"internal/units", "internal/diag", "internal/parallel", "internal/whole"},
	{"internal/yamlx"},
	{"model", "model/tape"},
	{"model/recipe"},
	{"model/ops"},
	{"hardware"},
	{"hardware/kernel", "hardware/collective"},
	{"hardware/curves"},
	{"calibrate/sample"},
	{"calibrate/cuda", "calibrate/fit", "calibrate/rendezvous"},
	{"calibrate/cuda/fake", "calibrate/inventory"},
	{"calibrate/probe"},
	{"calibrate"},
	{"strategies/launch/shell"},                                        // walks through what strategies/launch reads
	{"strategies/pipeline", "strategies/goodput", "strategies/launch"}, // leaves: strategies asks which schedules are legal, and reads the settings of a run
	{"strategies"},
	{"strategies/dataparallel", "strategies/timeline", "strategies/memory/allocator"},
	{"strategies/memory"},
	{"strategies/estimate"},
	{"strategies/search", "calibrate/runs", "calibrate/trace"},
	{"strategies/whatif"},
	{"strategies/capacity"},
	{"internal/report"},
	{"examples"},
	{"cmd/perfplan"},
	{"internal/guard"},
}

// measuring are the packages that touch a GPU. A prediction needs none, so no
// package imports them but the command and each other.
var measuring = []string{"calibrate", "calibrate/cuda", "calibrate/cuda/fake", "calibrate/inventory", "calibrate/rendezvous", "calibrate/probe", "calibrate/fit"}

// nvml is a library that does, too.
const nvml = "github.com/NVIDIA/go-nvml"

// bans are imports that the layers would allow. A name stands for the package
// and all below it.
var bans = []struct {
	what   string
	in     []string // where it is banned; nil is everywhere
	except []string // "package import"
	why    string
}{
	{"model", []string{"hardware"}, []string{"hardware/kernel model/tape", "hardware/curves model/tape"}, "hardware does not know models; kernel prices tape.Op and no more"},
	{"hardware", []string{"model"}, nil, "a model does not know what it runs on"},
	{"calibrate/runs", []string{"calibrate/fit", "calibrate/probe", "calibrate/cuda"}, nil, "what is fitted never sees what it is judged by"},
	{"gonum.org/v1/gonum", []string{"cmd"}, nil, "commands compute nothing"},
	{"C", nil, []string{"calibrate/cuda C"}, "cgo stays in one package"},
	{"log", nil, nil, "a library never logs; return a diag.Note"},
	{"net", nil, []string{"calibrate/rendezvous net"}, "no network and no telemetry; the processes of one calibration meet in calibrate/rendezvous"},
}

// pkg is one package without its tests.
type pkg struct {
	path    string // below the module
	name    string
	imports []string // those of the module below the module
	doc     string   // the comment of doc.go, or of any file of a command
}

func TestImportsPointOneWay(t *testing.T) {
	require.Empty(t, wrongImports(packages(t)))
}

// wrongImports checks the layers and the bans.
func wrongImports(pkgs []pkg) []string {
	layer := map[string]int{}
	for i, names := range layers {
		for _, name := range names {
			layer[name] = i
		}
	}
	var wrong []string
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, p := range pkgs {
		own, ok := layer[p.path]
		if !ok {
			fail("%s is in no layer; give it a place in the table of internal/guard", p.path)
			continue
		}
		for _, imported := range p.imports {
			if at, ok := layer[imported]; ok && at >= own {
				fail("%s imports %s, which comes after it or beside it", p.path, imported)
			}
			if (slices.Contains(measuring, imported) || below(imported, nvml)) && !slices.Contains(measuring, p.path) && !below(p.path, "cmd") {
				fail("%s imports %s, which touches a GPU; a prediction needs none", p.path, imported)
			}
			for _, ban := range bans {
				if below(imported, ban.what) && (ban.in == nil || slices.ContainsFunc(ban.in, func(s string) bool { return below(p.path, s) })) &&
					!slices.Contains(ban.except, p.path+" "+imported) {
					fail("%s imports %s: %s", p.path, imported, ban.why)
				}
			}
		}
	}
	return wrong
}

// below reports whether a package is another or a folder of it.
func below(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// The rule finds what it is there for.
func TestWrongImports(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"strategies", "strategies/pipeline", ""},
		{"hardware/kernel", "model/tape", ""},
		{"cmd/perfplan", "calibrate/probe", ""},
		{"calibrate/probe", "calibrate/cuda", ""},
		{"calibrate/cuda", "C", ""},
		{"calibrate/cuda", "github.com/NVIDIA/go-nvml/pkg/nvml", ""},
		{"internal/report", "strconv", ""},
		{"model", "strategies", "model imports strategies, which comes after it or beside it"},
		{"model", "hardware", "model imports hardware, which comes after it or beside it"},
		{"hardware", "model", "hardware imports model: hardware does not know models; kernel prices tape.Op and no more"},
		{"hardware/kernel", "model/ops", "hardware/kernel imports model/ops: hardware does not know models; kernel prices tape.Op and no more"},
		{"strategies/timeline", "strategies/dataparallel", "strategies/timeline imports strategies/dataparallel, which comes after it or beside it"},
		{"strategies/estimate", "calibrate/fit", "strategies/estimate imports calibrate/fit, which touches a GPU; a prediction needs none"},
		{"calibrate/runs", "calibrate/probe", "calibrate/runs imports calibrate/probe, which touches a GPU; a prediction needs none"},
		{"hardware/kernel", "github.com/NVIDIA/go-nvml/pkg/nvml", "hardware/kernel imports github.com/NVIDIA/go-nvml/pkg/nvml, which touches a GPU; a prediction needs none"},
		{"cmd/perfplan", "gonum.org/v1/gonum/stat", "cmd/perfplan imports gonum.org/v1/gonum/stat: commands compute nothing"},
		{"model", "log/slog", "model imports log/slog: a library never logs; return a diag.Note"},
		{"cmd/perfplan", "net/http", "cmd/perfplan imports net/http: no network and no telemetry; the processes of one calibration meet in calibrate/rendezvous"},
		{"calibrate/rendezvous", "net", ""},
		{"nowhere", "fmt", "nowhere is in no layer; give it a place in the table of internal/guard"},
	} {
		got := wrongImports([]pkg{{path: c.from, imports: []string{c.to}}})
		if c.want == "" {
			require.Empty(t, got)
		} else {
			require.Contains(t, got, c.want)
		}
	}
}

func TestPackagesSayWhatComesNext(t *testing.T) {
	pkgs := packages(t)
	for _, p := range pkgs {
		switch {
		case p.doc == "":
			t.Errorf("%s has no doc.go with a package comment", p.path)
		case p.name == "main": // the end of the flow
		case !strings.HasPrefix(p.doc, "Package "+p.name+" "):
			t.Errorf("%s: the package comment begins with %q", p.path, "Package "+p.name)
		case !saysWhatComesNext(p, pkgs):
			t.Errorf("%s: the last paragraph of the package comment does not say what comes next: name the package to read now", p.path)
		}
	}
}

var next = regexp.MustCompile(`(?i)\b(next|last|the commands?|the command line)\b`)

// saysWhatComesNext reports whether the last paragraph of a package comment leads
// on: it speaks of what is next or last, or names another package.
func saysWhatComesNext(p pkg, all []pkg) bool {
	paragraphs := strings.Split(strings.TrimSpace(p.doc), "\n\n")
	end := paragraphs[len(paragraphs)-1]
	return next.MatchString(end) || slices.ContainsFunc(all, func(o pkg) bool {
		return o.path != p.path && strings.Contains(o.path, "/") && strings.Contains(end, o.path)
	})
}

func TestSaysWhatComesNext(t *testing.T) {
	all := []pkg{{path: "model"}, {path: "model/ops"}}
	for doc, want := range map[string]bool{
		"Package model counts.\n\nmodel/ops runs it, and comes next.": true,
		"Package model counts.\n\nIt is read by model/ops.":           true,
		"Package model counts. It is the last.":                       true,
		"Package model counts.\n\nIt knows no GPU.":                   false,
		"Package model comes before model/ops.\n\nIt knows no GPU.":   false,
		"Package model is nextdoor.":                                  false,
	} {
		require.Equal(t, want, saysWhatComesNext(pkg{path: "model", doc: doc}, all), doc)
	}
}

// elsewhere is a path on somebody's machine, but for the end of a longer path or
// of an address. It is written so that it does not find itself.
var elsewhere = regexp.MustCompile(`(?:^|[^\w.~/-])/(?:(?:work|root)/|(?:home|Users)/\w|tmp/bash_jobs)`)

func TestNoFileNamesAMachine(t *testing.T) {
	for _, name := range files(t) {
		data := read(t, name)
		if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			continue // a program somebody built here
		}
		for i, line := range bytes.Split(data, []byte("\n")) {
			if m := elsewhere.Find(line); m != nil {
				t.Errorf("%s:%d: names a place on a machine: %s", name, i+1, m)
			}
		}
	}
}

func TestElsewhere(t *testing.T) {
	w, h := "/wo"+"rk/", "/ho"+"me/"
	for text, want := range map[string]bool{
		w + "main": true, "see " + w + "x": true, `"` + h + `ann/x"`: true, "(" + w: true, "=/tmp/" + "bash_jobs.0/1": true,
		"https://example.org" + w + "1": false, "a" + w: false, "~" + w: false, "frame" + w: false, "/tmp/x": false, h + " and": false,
	} {
		require.Equal(t, want, elsewhere.MatchString(text), text)
	}
}

func TestGoFilesAreShort(t *testing.T) {
	const most = 800
	for _, name := range files(t) {
		if n := bytes.Count(read(t, name), []byte("\n")); path.Ext(name) == ".go" && n > most {
			t.Errorf("%s has %d lines, more than %d; split it by concern", name, n, most)
		}
	}
}

// root is the folder of go.mod.
func root(t *testing.T) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above this folder")
		dir = parent
	}
}

// files are the files of the repository but for hidden folders, slash-separated
// and in order.
func files(t *testing.T) []string {
	var out []string
	tree := os.DirFS(root(t))
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // tests of other packages run at the same time and clean up
			return nil
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "." && name != ".github":
			return fs.SkipDir
		case name == ".git": // of a working tree beside the repository: a file that says where that is
			return nil
		case d.Type().IsRegular():
			out = append(out, name)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

// read returns a file's text, none when the file is gone since it was listed.
func read(t *testing.T, name string) []byte {
	data, err := os.ReadFile(filepath.Join(root(t), name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return data
}

// packages reads the imports and comments of all packages, whatever their build
// tags, so that it needs neither the go command nor a C compiler.
func packages(t *testing.T) []pkg {
	byPath := map[string]*pkg{}
	var out []*pkg
	for _, name := range files(t) {
		dir := path.Dir(name)
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(dir, "/"), "testdata") {
			continue
		}
		text := read(t, name)
		if text == nil {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
		require.NoError(t, err)
		p := byPath[dir]
		if p == nil {
			p = &pkg{path: dir, name: file.Name.Name}
			byPath[dir] = p
			out = append(out, p)
		}
		if path.Base(name) == "doc.go" || p.name == "main" && p.doc == "" {
			p.doc = file.Doc.Text()
		}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if imported = strings.TrimPrefix(imported, module+"/"); !slices.Contains(p.imports, imported) {
				p.imports = append(p.imports, imported)
			}
		}
	}
	pkgs := make([]pkg, len(out))
	for i, p := range out {
		pkgs[i] = *p
	}
	require.NotEmpty(t, pkgs)
	return pkgs
}
