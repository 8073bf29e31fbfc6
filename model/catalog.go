package model

import (
	"bufio"
	"cmp"
	"embed"
	"path"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

//go:embed catalog
var catalog embed.FS

// Entry is one model of the catalog.
type Entry struct {
	Name        string
	Description string // one line
	Source      string // where the values come from
	Parameters  int64  // Count.Total
	Active      int64  // Count.Active
	Sparse      bool   // Count.Sparse
}

// Names lists the catalog's models, sorted. Nothing is parsed.
func Names() []string {
	files, err := catalog.ReadDir("catalog")
	if err != nil {
		return nil // the folder is embedded, so it is there
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Catalog describes the catalog's models, sorted by name. Every file is parsed;
// use Names where names suffice.
func Catalog() []Entry {
	var entries []Entry
	for _, name := range Names() {
		doc, err := catalogFile(name)
		if err != nil {
			continue // a test loads every file
		}
		s, err := decodeAll(doc)
		if err != nil {
			continue
		}
		count := s.Params()
		e := Entry{Name: name, Parameters: count.Total, Active: count.Active, Sparse: count.Sparse()}
		if n := doc.At("description"); n != nil {
			e.Description = n.Value
		}
		if n := doc.At("source"); n != nil {
			e.Source = n.Value
		}
		entries = append(entries, e)
	}
	return entries
}

// catalogFile parses the catalog's file of a name or alias; nil when there is
// none.
func catalogFile(name string) (*yamlx.Document, error) {
	data, err := catalog.ReadFile(path.Join("catalog", name+".yaml"))
	if err != nil {
		full, ok := aliases()[strings.ToLower(name)]
		if !ok {
			return nil, nil
		}
		if data, err = catalog.ReadFile(path.Join("catalog", full+".yaml")); err != nil {
			return nil, diag.Errorf("the catalog's alias %q points to %q, which is not there", name, full)
		}
		name = full
	}
	return yamlx.Parse(name+".yaml", data)
}

// aliases reads catalog/aliases.txt: other spellings of a name, and the ids of
// the Hugging Face hub.
func aliases() map[string]string {
	out := map[string]string{}
	data, err := catalog.ReadFile("catalog/aliases.txt")
	if err != nil {
		return out
	}
	for lines := bufio.NewScanner(strings.NewReader(string(data))); lines.Scan(); {
		words := strings.Fields(lines.Text())
		for i := 1; i < len(words) && !strings.HasPrefix(words[0], "#"); i++ {
			out[strings.ToLower(words[i])] = words[0]
		}
	}
	return out
}

// Named is the catalog's name of a model that has an id of the Hugging Face hub, or a path
// that ends as one does, "" where there is none. What an id says of how a model was tuned
// further leaves it as large as it is.
func Named(id string) string {
	last := strings.ToLower(path.Base(strings.ReplaceAll(id, "\\", "/")))
	known := map[string]string{}
	for _, name := range Names() {
		known[name] = name
	}
	for alias, name := range aliases() {
		known[path.Base(alias)] = name
	}
	for {
		if name := known[last]; name != "" {
			return name
		}
		cut := last
		for _, tuned := range []string{"-hf", "-instruct", "-chat", "-it", "-base"} {
			cut = strings.TrimSuffix(cut, tuned)
		}
		if cut == last {
			return ""
		}
		last = cut
	}
}

// catalogHint completes an error about an unknown name.
func catalogHint(name string) string {
	return cmp.Or(diag.DidYouMean(name, Names()), diag.DidYouMean(name, sorted(aliases())), "; give a name of the catalog (perfplan model list), a YAML or JSON file, or a folder with a config.json")
}
