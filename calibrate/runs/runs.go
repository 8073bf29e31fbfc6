package runs

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
)

// Format is the value of the `perfplan:` key of a file of runs.
const Format = "runs/v1"

// Run is one measured run with the job that it ran.
type Run struct {
	ID, Group, Name, Source, Framework string

	Assumed  []string // keys of the job that the source does not state
	Measured Figures
	Job      *strategies.Job
	Err      error    // the job is refused for this reason; Job is nil
	Left     []string // of Assumed, what the recipe decides instead, as in "plan.data_parallel: fsdp1"

	doc *yamlx.Document
	id  *yaml.Node // where it stands in doc
	job yaml.Node  // what Job was read from
}

// runFile is one entry of a runs/v1 file: its own keys, the job's in Job.
type runFile struct {
	ID        string                `yaml:"id"`
	Group     string                `yaml:"group"`
	Name      string                `yaml:"name"`
	Source    string                `yaml:"source"`
	Framework string                `yaml:"framework"`
	Assumed   []string              `yaml:"assumed"`
	Measured  Figures               `yaml:"measured"`
	Job       map[string]*yaml.Node `yaml:",rest"`
}

// Load reads a runs/v1 file.
func Load(path string) ([]Run, error) {
	doc, err := yamlx.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Decode(doc)
}

// Decode reads a runs/v1 document. A run whose job breaks a rule is returned with
// its Err; a document that is not a list of runs is an error.
func Decode(doc *yamlx.Document) ([]Run, error) {
	var f struct {
		Format string      `yaml:"perfplan"`
		Source string      `yaml:"source"` // of all runs that name none
		Runs   []entryNode `yaml:"runs"`
	}
	if doc.Root.Kind != yaml.MappingNode || doc.At("perfplan") == nil {
		return nil, doc.Errorf(doc.Root, "is not a file of measured runs; it starts with \"perfplan: %s\" and lists them under runs:", Format)
	}
	if n := doc.At("perfplan"); n.Value != Format {
		return nil, doc.Errorf(n, "perfplan: %q is not a file of measured runs; expected %s", n.Value, Format)
	}
	if err := doc.Decode(&f); err != nil {
		return nil, err
	}
	if len(f.Runs) == 0 {
		return nil, doc.Errorf(doc.Root, "has no runs; list them under runs:")
	}
	var out []Run
	var errs diag.List
	for _, e := range f.Runs {
		run, list := decodeRun(doc, e.node)
		errs = append(errs, list...)
		run.Source = cmp.Or(run.Source, f.Source)
		out = append(out, run)
	}
	if errs = append(errs, repeated(out)...); len(errs) > 0 {
		return nil, errs.Err()
	}
	return out, nil
}

// entryNode keeps the node of a run, whose keys are a run's and a job's together.
type entryNode struct{ node *yaml.Node }

func (e *entryNode) DecodeNode(_ *yamlx.Document, n *yaml.Node) diag.List {
	e.node = n
	return nil
}

// habits are the keys that a recipe has a default of its own for, by section.
var habits = map[string]string{"runtime": "attention", "plan": "data_parallel"}

// stated is a section without what was only assumed, where the recipe knows what its
// users do: a guess is no fact. left is what that was.
func stated(section string, n *yaml.Node, assumed []string) (_ *yaml.Node, left []string) {
	key := habits[section]
	if n.Kind != yaml.MappingNode || !slices.Contains(assumed, key) {
		return n, nil
	}
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			out.Content = append(out.Content, n.Content[i], n.Content[i+1])
		} else {
			left = append(left, section+"."+key+": "+n.Content[i+1].Value)
		}
	}
	return &out, left
}

// containers are the software of the submissions to MLPerf Training, by round: the NGC
// container that the Dockerfiles of NVIDIA's GPT-3 and Llama benchmarks start from.
var containers = map[string]string{"3.0": "23.04", "3.1": "23.09", "4.0": "24.04", "4.1": "24.09", "5.0": "25.01"}

var (
	namedRelease = regexp.MustCompile(`\b(2\d\.(?:0[1-9]|1[0-2]))\b`) // NeMo 24.07
	namedMonth   = regexp.MustCompile(`\b[A-Z][a-z]+ 20\d\d\b`)       // nanotron (July 2024)
	mlperfRound  = regexp.MustCompile(`training_results_v(\d\.\d)`)
	paper        = regexp.MustCompile(`\barXiv:(2\d)((?:0[1-9]|1[0-2]))\.`)
	datedFile    = regexp.MustCompile(`_20(2\d)-?(0[1-9]|1[0-2])_`) // llama3_h100_202412_torchtitan.md
)

// releaseOf is the release of the software that a run names: in the version or the month
// of its framework, or by the round of MLPerf that it was submitted to, or by the month of the
// paper or in the name of the file that it is from. "" when it names none.
func releaseOf(framework, source string) string {
	if m := namedRelease.FindStringSubmatch(framework); m != nil {
		return m[1]
	}
	if t, err := time.Parse("January 2006", namedMonth.FindString(framework)); err == nil {
		return t.Format("06.01")
	}
	if m := mlperfRound.FindStringSubmatch(source); m != nil {
		return containers[m[1]]
	}
	for _, dated := range []*regexp.Regexp{paper, datedFile} {
		if m := dated.FindStringSubmatch(source); m != nil {
			return m[1] + "." + m[2]
		}
	}
	return ""
}

// withRelease is a runtime section with the release of its software, where it does not
// state one itself.
func withRelease(n *yaml.Node, release string) *yaml.Node {
	if _, v := yamlx.Key(n, "release"); n.Kind != yaml.MappingNode || v != nil {
		return n
	}
	out := *n
	out.Content = append(slices.Clone(n.Content), said(n, "!!str", "release"), said(n, "!!str", release))
	return &out
}

// ownScript matches the framework of runs that Megatron-LM's own scripts started, not
// NeMo's or Megatron-Bridge's, whose switches recipe megatron-core has.
var ownScript = regexp.MustCompile(`^Megatron(-LM)?( |$)`)

// started is a runtime section with the recipe of the script that started the run. Experts' rows
// are moved as the recipe has it that the section names: published runs pass --moe-permute-fusion
// (SimuMax, simu_tools/megatron_scripts).
func started(n *yaml.Node, framework string, experts bool) *yaml.Node {
	if !ownScript.MatchString(framework) || n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = slices.Clone(n.Content)
	for i := 1; i < len(out.Content); i += 2 {
		if out.Content[i-1].Value == "recipe" && out.Content[i].Value == "megatron-core" {
			recipe := *out.Content[i]
			recipe.Value = "megatron-pretrain"
			out.Content[i] = &recipe
			if key, _ := yamlx.Key(n, "permute_fusion"); experts && key == nil {
				out.Content = append(out.Content, said(n, "!!str", "permute_fusion"), said(n, "!!bool", "true"))
			}
			break
		}
	}
	return &out
}

// said is a scalar in the place of another node.
func said(at *yaml.Node, tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text, Line: at.Line, Column: at.Column}
}

// hasExperts reports whether a model written in place has experts.
func hasExperts(run *yaml.Node) bool {
	_, m := yamlx.Key(run, "model")
	for _, name := range []string{"num_experts", "n_routed_experts", "num_local_experts"} {
		if key, _ := yamlx.Key(m, name); key != nil {
			return true
		}
	}
	return false
}

// decodeRun reads one entry. Complaints about its own keys are returned beside its id; those
// about its job are the run's Err.
func decodeRun(doc *yamlx.Document, n *yaml.Node) (Run, diag.List) {
	var r runFile
	errs := doc.DecodeInto(n, &r)
	_, id := yamlx.Key(n, "id")
	if n.Kind == yaml.MappingNode && (id == nil || id.Kind == yaml.ScalarNode && id.Value == "") {
		errs = append(errs, doc.Errorf(n, "id: is missing; give each run its own"))
	}
	if len(errs) > 0 {
		return Run{ID: r.ID, doc: doc, id: id}, errs
	}
	run := Run{ID: r.ID, Group: r.Group, Name: r.Name, Source: r.Source, Framework: r.Framework, Assumed: r.Assumed, Measured: r.Measured}
	run.Group = cmp.Or(run.Group, "ungrouped")
	run.doc, run.id = doc, id
	run.job, run.Left = jobOf(n, &r, r.Assumed)
	if run.decide(); run.Err != nil && run.Left != nil { // the rest of the job may need what was assumed
		run.job, run.Left = jobOf(n, &r, nil)
		run.decide()
	}
	return run, nil
}

// jobOf is the job of an entry without what is left of its assumptions to the recipe.
func jobOf(n *yaml.Node, r *runFile, assumed []string) (job yaml.Node, left []string) {
	job = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column}
	release := releaseOf(r.Framework, r.Source)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i].Value; r.Job[key] != nil || key == "assumed" {
			section, some := stated(key, n.Content[i+1], assumed)
			left = append(left, some...)
			if key == "runtime" {
				section = started(section, r.Framework, hasExperts(n))
				if release != "" {
					section = withRelease(section, release)
				}
			}
			job.Content = append(job.Content, n.Content[i], section)
		}
	}
	return job, left
}

// decide reads the job of a run.
func (run *Run) decide() {
	run.Job, run.Err = strategies.Decode(run.doc, &run.job)
	switch {
	case run.Err != nil || !run.Job.Open:
	case run.Job.GivenPlan != nil: // what it leaves open was the default, not chosen
		run.Err = run.Job.TakeGiven()
	default:
		run.Err = run.doc.Errorf(&run.job, "plan: is missing; a measured run had one")
	}
	if run.Err != nil {
		run.Job = nil
	}
}

// On puts runs onto another machine with the same GPU, by its catalog name or file,
// as a check of what was measured on it. It returns the runs that used such a GPU; it is
// an error when none did.
func On(list []Run, machine string) ([]Run, error) {
	p, err := hardware.Load(machine)
	if err != nil {
		return nil, err
	}
	if !hardware.Known(machine) { // paths in a file are relative to it
		if machine, err = filepath.Abs(machine); err != nil {
			return nil, err
		}
	}
	gpu := p.GPU.Name.Value
	var out []Run
	var other []string
	for _, r := range list {
		if r.Job == nil {
			continue
		}
		if name := r.Job.Hardware.GPU.Name.Value; name != gpu {
			if !slices.Contains(other, name) {
				other = append(other, name)
			}
			continue
		}
		r.job.Content = slices.Clone(r.job.Content)
		set := false
		for i := 0; i+1 < len(r.job.Content); i += 2 {
			if key := r.job.Content[i]; key.Value == "hardware" {
				n := r.job.Content[i+1]
				r.job.Content[i+1], set = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: machine, Line: n.Line, Column: n.Column}, true
			}
		}
		if !set {
			r.job.Content = append(r.job.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "hardware"}, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: machine})
		}
		r.decide()
		out = append(out, r)
	}
	if len(out) == 0 {
		if len(other) == 0 { // not even one has a GPU
			return nil, Validate(list).Refusal()
		}
		slices.Sort(other)
		return nil, diag.Errorf("%s has the GPU %q, which none of the runs used (%s); a run is only comparable on its own GPU", machine, gpu, strings.Join(other, ", "))
	}
	return out, nil
}
