package launch

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/launch/shell"
)

// launchers are the arguments of what starts processes that say how many there are.
var launchers = []string{"nproc_per_node", "nnodes", "num_gpus", "num_nodes", "include", "hostfile", "nodes", "gpus_per_node", "ntasks_per_node", "gpus", "ntasks", "np"}

// starters are programs that start processes, with their options by the names among launchers.
var starters = map[string]map[string]string{
	"srun":   {"-N": "nodes", "-n": "ntasks", "-G": "gpus", "--gres": "gpus_per_node"},
	"mpirun": {"-np": "np", "-n": "np", "--n": "np"}, "mpiexec": {"-np": "np", "-n": "np", "--n": "np"},
}

// programs are what these start, from where on options are not theirs.
var programs = words("python python3 torchrun accelerate deepspeed trl swift megatron llamafactory-cli axolotl bash sh env singularity apptainer")

// long writes the options of starters that say how many processes there are by their long names.
func long(words []string) (out []string) {
	var of map[string]string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if names, ok := starters[path.Base(w)]; ok {
			of = names
		} else if programs[path.Base(w)] {
			of = nil
		}
		option, value, given := strings.Cut(w, "=")
		if short := len(w) > 2 && w[0] == '-' && w[1] != '-' && w[2] >= '0' && w[2] <= '9'; short && !given { // -N8
			option, value, given = w[:2], w[2:], true
		}
		name, ok := of[option]
		switch {
		case !ok, !given && i+1 == len(words):
			out = append(out, w)
			continue
		case !given:
			i++
			value = words[i]
		}
		out = append(out, "--"+name+"="+value[strings.LastIndex(value, ":")+1:]) // gpu:h100:8
	}
	return out
}

var (
	sbatch = lazily(`(?m)^#SBATCH.*$`)
	option = lazily(`\s(?:(-[NnG])[ =]*|(--[a-z-]+)[ =]+)([^\s#]+)`)
)

// headers are options of sbatch with the variables that Slurm sets by them.
var headers = map[string][]string{
	"-N": {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, "--nodes": {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, "--gres": {"SLURM_GPUS_ON_NODE"},
	"--gpus-per-node": {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}, "--ntasks-per-node": {"SLURM_NTASKS_PER_NODE"},
	"-n": {"SLURM_NTASKS", "SLURM_NPROCS"}, "--ntasks": {"SLURM_NTASKS", "SLURM_NPROCS"}, "-G": {"SLURM_GPUS"}, "--gpus": {"SLURM_GPUS"},
}

// slurm are the variables that Slurm sets by the header of a script.
func slurm(script string) map[string]string {
	out := map[string]string{}
	for _, line := range sbatch().FindAllString(script, -1) {
		for _, m := range option().FindAllStringSubmatch(line, -1) {
			for _, name := range headers[m[1]+m[2]] {
				out[name] = m[3][strings.LastIndex(m[3], ":")+1:] // gpu:h100:8
			}
		}
	}
	return out
}

// header are the flags of a Slurm header.
func (p places) header(r shell.Reading) flags {
	f := flags{}
	for variable, name := range map[string]string{"SLURM_NNODES": "nodes", "SLURM_GPUS_ON_NODE": "gpus_per_node", "SLURM_NTASKS_PER_NODE": "ntasks_per_node", "SLURM_NTASKS": "ntasks", "SLURM_GPUS": "gpus"} {
		if value, ok := r.Preset[variable]; ok {
			text, open := r.Show(value)
			f[name] = flag{value: text, line: p.line(name, open), open: open}
		}
	}
	return f
}

// ranks is the number of GPUs by what launchers say in other words than that there are so many
// on each of so many nodes; why says what is missing of it. from is "" where they say nothing.
func (s start) ranks() (n int64, from, why string) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(s.flags[name].value, 10, 64)
		return n
	}
	given := func(name string) bool { _, ok := s.flags[name]; return ok }
	spell := func(name string) string {
		if slices.Contains([]string{"nproc_per_node", "nnodes", "num_gpus", "num_nodes"}, name) {
			return "--" + name
		}
		return "--" + strings.ReplaceAll(name, "_", "-")
	}
	const per = "how many GPUs a node has is not said: give the key"
	devices, known := s.devices()
	switch each, nodes := s.flags["nproc_per_node"].value, max(number("nnodes"), number("num_nodes"), 1); {
	case given("include"):
		if n = included(s.flags["include"].value); n == 0 {
			why = s.flags["include"].value + ": give the key"
		}
		return n, "--include", why
	case strings.Contains(s.flags["nnodes"].value, ":"):
		return 0, "--nnodes", s.flags["nnodes"].value + " nodes: give the key"
	case slices.Contains([]string{"gpu", "auto"}, each) && devices > 0:
		return devices * nodes, "CUDA_VISIBLE_DEVICES, --nproc_per_node", ""
	case slices.Contains([]string{"gpu", "auto"}, each):
		return 0, "--nproc_per_node", each + ": " + per
	case number("nodes") > 0 && number("ntasks_per_node") > 0:
		return number("nodes") * number("ntasks_per_node"), "--ntasks-per-node, --nodes", ""
	}
	for _, name := range []string{"gpus", "ntasks", "np"} {
		switch f := s.flags[name]; {
		case number(name) > 0:
			return number(name), spell(name), ""
		case given(name) && f.open != "":
			return 0, spell(name), f.takes() + ": give the key"
		}
	}
	for _, name := range []string{"gpus_per_node", "ntasks_per_node"} {
		if given(name) && !given("nodes") {
			return 0, spell(name), "how many nodes there are is not said: give the key"
		}
	}
	switch {
	case given("hostfile") && !given("num_gpus"):
		return 0, "--hostfile", s.flags["hostfile"].value + " has the nodes and their GPUs: give the key"
	case number("num_nodes") > 1:
		return 0, "--num_nodes", per
	case number("nnodes") > 1:
		return 0, "--nnodes", per
	case number("nodes") > 1:
		return 0, "--nodes", per
	case !known:
		return 0, "", ""
	case devices == 0:
		return 0, "CUDA_VISIBLE_DEVICES", "which the file does not set: give the key"
	}
	return devices, "CUDA_VISIBLE_DEVICES", ""
}

// devices are how many GPUs the environment leaves to be seen, 0 where that is not known.
func (s start) devices() (n int64, given bool) {
	list, ok := s.env["CUDA_VISIBLE_DEVICES"]
	if !ok || list == "" {
		return 0, false
	}
	if s.unknown(list) {
		return 0, true
	}
	return visible(list), true
}

// visible are how many GPUs a list has.
func visible(list string) int64 {
	if list == "" {
		return 0
	}
	return int64(len(strings.Split(list, ",")))
}

// alonePython reports whether nothing starts several processes.
func (s start) alonePython() bool {
	first, _, _ := strings.Cut(s.text, " ")
	return strings.HasPrefix(path.Base(first), "python")
}

// unknown reports whether a value has something in it that the script does not give.
func (s start) unknown(value string) bool {
	_, open := s.Show(value)
	return open != ""
}

// included are the GPUs that deepspeed is to take, as in worker-0:0,2@worker-1:0, 0 where a
// node's are not named.
func included(list string) (n int64) {
	for node := range strings.SplitSeq(strings.Trim(list, `"'`), "@") {
		_, slots, named := strings.Cut(node, ":")
		if !named {
			return 0
		}
		n += int64(len(strings.Split(slots, ",")))
	}
	return n
}

// configured is a file with the arguments of a training, and the command that is given it.
type configured struct {
	name, by string
	own      map[string]argument // of the command, which go before those of the file, as it writes them
}

// configurers are commands that take their arguments from a file, right behind them or by an option.
var (
	configurers = lazily(`(?:^|[\s/])(llamafactory-cli \w+|lmf \w+|-m nemo_automodel\.cli\.app|axolotl train|-m axolotl\.cli\.train|(?:swift|megatron) (?:sft|pt|rlhf)|trl \w+ --config|automodel) ([^-\s]\S*\.(?:ya?ml|json))(?:\s|$)`)
	configuring = lazily(`(?:^|[\s/])(\S+\.py|trl \w+|automodel)(?: (?:.* )?(--config|-c)[ =]| )([^-\s]\S*\.ya?ml)(?:\s|$)`)
)

// configures is the file that a command is given, nil where it is none of these.
func configures(words []string, r shell.Reading) *configured {
	line, _ := r.Show(strings.Join(words, " "))
	if m := configurers().FindStringSubmatch(line); m != nil {
		return &configured{m[2], m[1], map[string]argument{}}
	}
	if m := configuring().FindStringSubmatch(line); m != nil {
		return &configured{m[3], strings.TrimSpace(path.Base(m[1]) + " " + m[2]), map[string]argument{}}
	}
	return nil
}

// assigned is an argument without dashes, as OmegaConf takes it.
var assigned = lazily(`^[A-Za-z_][\w.]*=`)

// dashed writes the arguments behind a file's name with dashes where they have none.
func (c *configured) dashed(words []string) []string {
	at := slices.Index(words, c.name)
	if at < 0 {
		return words
	}
	words = slices.Clone(words)
	for i := at + 1; i < len(words); i++ {
		if assigned().MatchString(words[i]) {
			words[i] = "--" + words[i]
		}
	}
	return words
}

// owns takes an argument of the command, but for what costs nothing.
func (c *configured) owns(name string, a argument) {
	if strings.Contains(name, ".") || !trainerKeys().harmless.MatchString(name) {
		c.own[name] = a
	}
}

// waits lists the arguments that go before those of the file.
func (c *configured) waits() string {
	var out []string
	for _, a := range c.own {
		out = append(out, a.from)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// commanded puts what command lines say into the configurations that they name, but into those of a
// Trainer, which take it over by their own names (beside).
func commanded(jobs []*Job) ([]*Job, error) {
	at := slices.IndexFunc(jobs, func(j *Job) bool { return j.yaml != nil })
	if at < 0 {
		return jobs, nil
	}
	own := map[string]argument{}
	out := slices.Clone(jobs)
	for i, j := range jobs {
		if j.trainer != nil && j.trainer.file != nil {
			maps.Copy(own, j.trainer.file.own)
			command, t, file := *j, *j.trainer, *j.trainer.file
			file.own, t.file, command.trainer = nil, &file, &t
			out[i] = &command
		}
	}
	out[at] = &Job{source: jobs[at].source}
	return out, out[at].configuration(jobs[at].source, jobs[at].yaml, own)
}

// instead puts what a command line has instead of keys into a configuration.
func (j *Job) instead(d *yamlx.Document, own map[string]argument) error {
	for _, key := range slices.Sorted(maps.Keys(own)) {
		by := own[key]
		if by.open != "" {
			j.note("%s: %s", by.from, by.open)
			continue
		}
		if was := d.At(strings.Split(key, ".")...); was != nil && was.Kind == yaml.ScalarNode && was.Value != by.value {
			j.note("%s %s of the file: %s takes its command line's %s %s", key, was.Value, by.over, by.from, by.value)
		}
		if err := d.Set(by.from, key, by.value, ""); err != nil {
			return err
		}
	}
	return nil
}
