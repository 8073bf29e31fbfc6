package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
)

// described is a row of docs/json.md: a field, as the steps to it.
type described struct {
	path   []string
	from   string // "as in": a schema, or another field of the table, which tells what is within
	job    bool   // what is within is a job or a plan, which docs/job.md has
	null   bool   // it may be
	absent bool   // it may be
	seen   bool
}

// common holds the fields that every schema has.
const common = ""

var (
	schemaLine = regexp.MustCompile("^Schema `([a-z-]+/v[0-9]+)`")
	fieldRow   = regexp.MustCompile("^\\| (`[^|]*`) \\|[^|]*\\| (.*) \\|$")
	quoted     = regexp.MustCompile("`([^`]+)`")
	asIn       = regexp.MustCompile("as in `([^`]+)`")
	absent     = regexp.MustCompile("absent|of stages? ")
)

// fieldsPage is docs/json.md: its rows by schema.
type fieldsPage map[string][]*described

func readFields(t *testing.T) fieldsPage {
	text, err := os.ReadFile(filepath.Join(root(t), "docs/json.md"))
	require.NoError(t, err)
	p, schema := fieldsPage{}, common
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := schemaLine.FindStringSubmatch(line); m != nil {
			schema = m[1]
			require.NotContains(t, p, schema)
		}
		m := fieldRow.FindStringSubmatch(line)
		if m == nil {
			require.False(t, strings.HasPrefix(line, "| `"), "no row of a field: %s", line)
			continue
		}
		first := ""
		for _, q := range quoted.FindAllStringSubmatch(m[1], -1) {
			name := q[1]
			if strings.HasPrefix(name, ".") { // beside the first
				name = first[:strings.LastIndex(first, ".")] + name
			} else if first == "" {
				first = name
			}
			d := &described{path: strings.Split(name, "."), job: strings.Contains(m[2], "[job.md](job.md"),
				null: strings.Contains(m[2], "null"), absent: absent.MatchString(m[2])}
			if in := asIn.FindStringSubmatch(m[2]); in != nil {
				d.from = in[1]
			}
			require.Nil(t, p.row(schema, d.path), "%s has two rows for %s", schema, name)
			p[schema] = append(p[schema], d)
		}
	}
	return p
}

// stands reports whether a word of the page in capitals stands for a key, which depends on the job.
func (p fieldsPage) stands(word, key string) bool {
	switch word {
	case "AXIS":
		return true
	case "CLASS":
		return p.has("result/v1", []string{"memory", "by_class", key}, false)
	case "GROUP":
		return !strings.Contains(key, ".")
	case "QUANTITY":
		return slices.Contains(runs.QuantityNames(), key)
	case "REASON":
		return strings.Contains(key, ".")
	}
	return false
}

// row is that of a field, nil where there is none.
func (p fieldsPage) row(schema string, path []string) *described {
	for _, d := range p[schema] {
		if slices.Equal(d.path, path) {
			return d
		}
	}
	return nil
}

// leads reports whether a path begins with that of a row.
func (p fieldsPage) leads(d *described, path []string) bool {
	if len(path) < len(d.path) {
		return false
	}
	for i, step := range d.path {
		if step != path[i] && !p.stands(step, path[i]) && (i < len(d.path)-1 || step+"[]" != path[i]) {
			return false
		}
	}
	return true
}

// has reports whether the page describes a field of a schema, by a row of its own or by one that says
// where what is within is described, and marks all rows on the way. Of a field that is null the row says
// that it may be.
func (p fieldsPage) has(schema string, path []string, null bool) bool {
	found := false
	for _, d := range slices.Concat(p[schema], p[common]) {
		if !p.leads(d, path) {
			continue
		}
		d.seen = true
		rest := path[len(d.path):]
		switch {
		case len(rest) == 0:
			found = found || d.null || !null
		case d.job:
			found = true
		case d.from == "":
		case p[d.from] == nil:
			rest = append(strings.Split(d.from, "."), rest...)
			found = p.has(schema, rest, null) || p.has("result/v1", rest, null) || found
		default: // of a whole document, or of the field of that name in it
			if name := d.path[len(d.path)-1:]; d.from != schema && p.row(d.from, name) != nil {
				rest = slices.Concat(name, rest)
			}
			found = p.has(d.from, rest, null) || found
		}
	}
	return found
}

// lacks names a field that an object of a schema should have, as the page does not say that it may be
// absent; "" where it has all.
func (p fieldsPage) lacks(schema string, path []string, object map[string]any) string {
	if object["calls"] != nil { // of several sizes
		return ""
	}
	for _, d := range p[schema] {
		last := len(d.path) - 1
		if name := d.path[last]; slices.Equal(d.path[:last], path) && !d.absent && !strings.HasSuffix(name, "[]") && name != strings.ToUpper(name) {
			if _, there := object[name]; !there {
				return name
			}
		}
	}
	return ""
}

// fields calls each with the objects of a document at all depths.
func fields(v any, path []string, each func(path []string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		each(path, v)
		for k, inner := range v {
			fields(inner, append(path[:len(path):len(path)], k), each)
		}
	case []any:
		for _, inner := range v {
			next := slices.Clone(path)
			next[len(next)-1] += "[]"
			fields(inner, next, each)
		}
	}
}

// TestFields: docs/json.md has every field that commands print as JSON, and no other.
func TestFields(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what is concurrent here has tests of its own")
	}
	page := readFields(t)
	gpt2 := []string{"gpt2", "--hardware", "h100-sxm"}
	slow := "{model: gpt2, hardware: l4, gpus: 8, plan: {pp: 2, dp: 4}, train: {global_batch: 16}}"
	text := "perfplan: runs/v1\nruns:\n"
	for i, r := range []struct{ plan, more, measured string }{
		{"pp: 2, tp: 2", "assumed: [network]", "1 s, peak_allocated_per_stage: [9 GB, 9 GB]"}, {"tp: 4", "name: a", "1.1 s"}, {"tp: 2", "name: a", "0.8 s"},
		{"tp: 2, pp: 2", "name: a", "1.2 s"}, {"pp: 4", "name: a", "0.9 s"}, {"tp: 3", "name: a", "1 s"},
	} {
		text += fmt.Sprintf("  - {id: %d, model: llama3.2-1b, hardware: h200-sxm, gpus: 4, runtime: {recipe: megatron-core}, plan: {%s}, train: {micro_batch: 1, global_batch: 16}, %s, measured: {step_time: %s}}\n", i, r.plan, r.more, r.measured)
	}
	text += "  - {id: left, model: gpt2, hardware: h200-sxm, gpus: 4, assumed: [attention, network], runtime: {recipe: hf-eager, attention: flash}, plan: {}, train: {micro_batch: 1}, measured: {step_time: 20 ms}}\n"
	file := filepath.Join(t.TempDir(), "runs.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{"", slices.Concat([]string{"estimate"}, gpt2)}, // an open plan
		{"", slices.Concat([]string{"estimate", "--set", "train.recompute=selective", "--set", "train.recompute_modules=[mlp]"}, gpt2)},
		{"", slices.Concat([]string{"estimate", "--set", "train.recompute=full", "--set", "train.recompute_method=block", "--set", "train.recompute_num_layers=4"}, gpt2)},
		{"", []string{"estimate", "mixtral-8x7b", "--gpus", "32", "--tp", "2", "--pp", "4", "--ep", "4", "--straggler", "rank=3,slowdown=1.3"}}, // stages, experts
		{"", []string{"estimate", "llama2-70b", "--gpus", "8", "--dp", "8"}},                                                                    // does not fit
		{"", []string{"estimate", "llama3.2-1b", "--gpus", "1", "--set", "train.lora.rank=16"}},                                                 // some parameters are trained
		{"", []string{"estimate", "llama3.2-1b", "--gpus", "1", "--recipe", "hf-eager", "--set", "train.optimizer=paged-adamw-8bit"}},
		{slow, []string{"estimate", "-"}}, // no power is known
		{"", slices.Concat([]string{"explain", "--stage", "times", "--tp", "2"}, gpt2)},
		{"", []string{"explain", "mistral-7b", "--stage", "ops", "--gpus", "8", "--tp", "8", "--seq", "8192"}}, // windows
		{"", slices.Concat([]string{"explain", "--stage", "timeline", "--dp", "8"}, gpt2)},
		{"", slices.Concat([]string{"explain", "--stage", "memory", "--dp", "8"}, gpt2)},
		{"", slices.Concat([]string{"explain", "--dp", "8"}, gpt2)},
		{"", slices.Concat([]string{"plan", "--gpus", "4", "--global-batch", "8", "--top", "2", "--why-not", "tp=2", "--why-not", "tp=8,pp=7", "--price", "2", "--tokens", "1B", "--pareto"}, gpt2)},
		{"{model: llama2-7b, hardware: l4, gpus: 1, plan: {tp: 1}, train: {global_batch: 8}}", []string{"plan", "-", "--fix", "pp=1", "--why-not", "micro_batch=1"}}, // nothing fits
		{"", slices.Concat([]string{"sweep", "gpus=2,4", "micro-batch=1,3", "--global-batch", "16"}, gpt2)},
		{"", slices.Concat([]string{"scale", "gpus=2,3,4,5", "--tp", "2"}, gpt2)},
		{"", slices.Concat([]string{"scale", "gpus=2,4", "--global-batch", "16"}, gpt2)},
		{"", slices.Concat([]string{"sensitivity", "--dp", "8", "--micro-batch", "1"}, gpt2)},
		{"", []string{"diff", "gpt2", "gpt2-medium", "--gpus", "2"}},
		{"", slices.Concat([]string{"train", "--tokens", "1B"}, gpt2)},
		{"", []string{"fit", "--model", "gpt2", "--tokens", "1B", "--deadline", "30d", "--hardware", "h100-sxm"}},
		{"", []string{"fit", "--model", "llama3-70b", "--tokens", "1B", "--deadline", "30d", "--hardware", "l4", "--tp", "1", "--pp", "1", "--max-gpus", "8"}},
		{"", []string{"fit", "--model", "gpt2", "--gpus", "8", "--largest", "sequence", "--hardware", "h100-sxm"}},
		{"", []string{"fit", "--model", "llama3-70b", "--gpus", "1", "--largest", "micro-batch", "--hardware", "l4"}},
		{"", []string{"validate", file, "--choices"}},
		{"", []string{"validate", "--group", "h200-single", "--parts"}},
		{"", []string{"validate", filepath.Join(root(t), "examples/runs.yaml")}},
		{"", []string{"collective", "all-reduce", "--size", "1MiB", "--gpus", "16"}},
		{"", []string{"collective", "all-reduce", "--size", "1MiB,2MiB", "--gpus", "16"}},
		{"", []string{"kernel", "gemm"}},
		{"", []string{"kernel", "attention"}},
		{"", []string{"kernel", "memory", "--size", "1MiB,2MiB"}},
	} {
		code, out, errs := in(c.stdin, append(c.args, "-o", "json")...)
		require.Contains(t, []int{0, exitBroken}, code, "%v: %s", c.args, errs)
		var documents []map[string]any
		if err := json.Unmarshal([]byte(out), &documents); err != nil {
			documents = []map[string]any{{}}
			require.NoError(t, json.Unmarshal([]byte(out), &documents[0]), c.args)
		}
		for _, d := range documents {
			schema, _ := d["schema"].(string)
			require.Contains(t, page, schema, "%v: docs/json.md has no table of it", c.args)
			fields(d, nil, func(path []string, object map[string]any) {
				where := strings.Join(append([]string{schema}, path...), ".")
				for k, v := range object {
					if !page.has(schema, append(path[:len(path):len(path)], k), v == nil) {
						t.Errorf("docs/json.md has no row for %s of %s, or none that says that it may be null: %v prints it", k, where, c.args)
					}
				}
				if k := page.lacks(schema, path, object); k != "" {
					t.Errorf("docs/json.md does not say that %s of %s may be absent: %v does not print it", k, where, c.args)
				}
			})
		}
	}
	for schema, rows := range page {
		for _, d := range rows {
			if !d.seen {
				t.Errorf("docs/json.md has %s of %s, which no command here prints; add one that does, or take it out", strings.Join(d.path, "."), schema)
			}
		}
	}
}
