package goodput

import (
	"cmp"
	_ "embed"
	"fmt"
	"sync"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Tokens is a number of tokens, written as in 2T or 300B.
type Tokens float64

// UnmarshalText reads a count.
func (t *Tokens) UnmarshalText(b []byte) error {
	v, err := units.ParseCount(string(b))
	*t = Tokens(v)
	return err
}

// Settings are the keys of a job's section run:. A datum with a source is a default;
// one without was given by the user; one that is not set is derived.
type Settings struct {
	Tokens hardware.Datum[Tokens]  `yaml:"tokens"`             // to train on
	Price  hardware.Datum[float64] `yaml:"price_per_gpu_hour"` // US dollars; not set: the machine's

	MTBF          hardware.Datum[units.Seconds] `yaml:"mtbf_per_gpu"`   // mean time between failures that stop the job, for one GPU
	HardwareShare hardware.Datum[float64]       `yaml:"hardware_share"` // of the failures, those after which a node has to be exchanged
	Detection     hardware.Datum[units.Seconds] `yaml:"detection_time"` // from the failure to the decision to restart
	Restart       hardware.Datum[units.Seconds] `yaml:"restart_time"`   // from there to the loading of the checkpoint

	StorageRate        hardware.Datum[units.Rate]    `yaml:"storage_rate_per_gpu"` // of checkpoints and data
	CheckpointTime     hardware.Datum[units.Seconds] `yaml:"checkpoint_time"`      // during which training stands still; not set: bytes over rate
	CheckpointInterval hardware.Datum[units.Seconds] `yaml:"checkpoint_interval"`  // not set: the best

	Spares    hardware.Datum[int64]         `yaml:"spare_nodes"` // not set: as many as SpareWait asks for
	SpareWait hardware.Datum[float64]       `yaml:"spare_wait"`  // share of the time that the run may wait for a node
	Repair    hardware.Datum[units.Seconds] `yaml:"repair_time"` // until an exchanged node is back

	BytesPerToken hardware.Datum[units.Bytes] `yaml:"data_bytes_per_token"`
	DataStall     hardware.Datum[float64]     `yaml:"data_stall"`     // what waiting for data adds to the step, as a share of it
	Stragglers    hardware.Datum[float64]     `yaml:"straggler_loss"` // the same of waiting for slow nodes

	ServerOverhead hardware.Datum[float64] `yaml:"server_overhead"` // power of the servers over that of their GPUs
	PUE            hardware.Datum[float64] `yaml:"pue"`             // power of the site over that of its servers
}

//go:embed defaults.yaml
var defaults []byte

var parsed = sync.OnceValues(func() (Settings, error) {
	var s Settings
	doc, err := yamlx.Parse("strategies/goodput/defaults.yaml", defaults)
	if err != nil {
		return s, err
	}
	return s, doc.Decode(&s)
})

// Defaults are the settings of a run of which nothing is said, each with its source.
func Defaults() Settings {
	s, err := parsed()
	if err != nil {
		panic(err) // the embedded file is tested
	}
	return s
}

// bound is what a setting may be, with its value as it is written.
type bound struct {
	key, text          string
	value, least, most float64
	what               string
}

// within is the bound of a quantity, which is printed in its unit.
func within[T ~float64 | ~int64](key string, v T, least, most float64, what string) bound {
	return bound{key, fmt.Sprint(v), float64(v), least, most, what}
}

// added is the bound of what a step takes more, as a share of it.
func added(key string, v float64) bound {
	return bound{key, fmt.Sprintf("%g (%g %%)", v, 100*v), v, 0, 10, "what it adds to the step, as a share of it, 0 to 10 (1000 %)"}
}

// Check refuses settings that no run has. Every error names the key.
func (s *Settings) Check() error {
	const year = 365 * 86400
	for _, b := range []bound{
		within("mtbf_per_gpu", s.MTBF.Value, 60, 1e6*year, "a time of 1 min to 1,000,000 years"),
		within("hardware_share", s.HardwareShare.Value, 0, 1, "a share of 0 to 1"),
		within("detection_time", s.Detection.Value, 0, year, "a time of at most 365 d"),
		within("restart_time", s.Restart.Value, 0, year, "a time of at most 365 d"),
		within("storage_rate_per_gpu", s.StorageRate.Value, 1, 1e15, "a rate of 1 B/s to 1000 TB/s, as in 122 MB/s"),
		within("checkpoint_time", s.CheckpointTime.Value, 0, year, "a time of at most 365 d"),
		within("checkpoint_interval", s.CheckpointInterval.Value, 0, year, "a time of at most 365 d"),
		within("spare_nodes", s.Spares.Value, 0, 1<<20, "0 to 1,048,576 nodes"),
		within("spare_wait", s.SpareWait.Value, 1e-6, 1, "a share above 0, at most 1"),
		within("repair_time", s.Repair.Value, 0, 100*year, "a time of at most 100 years, which are 36500 d"),
		within("data_bytes_per_token", s.BytesPerToken.Value, 0, 1e9, "a size of at most 1 GB"),
		added("data_stall", s.DataStall.Value),
		added("straggler_loss", s.Stragglers.Value),
		within("server_overhead", s.ServerOverhead.Value, 1, 10, "a factor of 1 to 10"),
		within("pue", s.PUE.Value, 1, 10, "a factor of 1 to 10"),
	} {
		if !(b.value >= b.least && b.value <= b.most) {
			return diag.Errorf("run.%s: %s; give %s", b.key, b.text, b.what)
		}
	}
	if v := s.Price.Value; s.Price.IsSet() && !hardware.IsPrice(v) {
		return diag.Errorf("run.price_per_gpu_hour: %g; give %s", v, hardware.Prices)
	}
	if n := float64(s.Tokens.Value); s.Tokens.IsSet() && !(n >= 1 && n <= mostTokens) {
		return diag.Errorf("run.tokens: %g; give a count of 1 to %g, as in 2T", n, mostTokens)
	}
	if s.CheckpointInterval.IsSet() && s.CheckpointInterval.Value == 0 {
		return diag.Errorf("run.checkpoint_interval: 0; give a time above 0, or leave it out for the best")
	}
	return nil
}

// mostTokens is far beyond what was ever written; steps are counted in 64 bits.
const mostTokens = 1e18

// Assumption is one setting as used, with where it comes from.
type Assumption struct {
	Key    string // of the section run:
	Value  string
	Source string // "given" when the user set it
	Kind   hardware.Kind
}

// Assumptions lists the settings that a plan rests on, in a fixed order.
func (s *Settings) Assumptions() []Assumption {
	var out []Assumption
	add := func(key, value, source string, kind hardware.Kind, set bool) {
		if !set {
			return
		}
		source = cmp.Or(source, "given")
		out = append(out, Assumption{key, value, source, kind})
	}
	addTime := func(key string, d hardware.Datum[units.Seconds]) {
		add(key, d.Value.String(), d.Source, d.Kind, d.IsSet())
	}
	addShare := func(key string, d hardware.Datum[float64]) { add(key, text(d.Value), d.Source, d.Kind, d.IsSet()) }
	addTime("mtbf_per_gpu", s.MTBF)
	addShare("hardware_share", s.HardwareShare)
	addTime("detection_time", s.Detection)
	addTime("restart_time", s.Restart)
	add("storage_rate_per_gpu", s.StorageRate.Value.String(), s.StorageRate.Source, s.StorageRate.Kind, s.StorageRate.IsSet())
	addTime("checkpoint_time", s.CheckpointTime)
	addTime("checkpoint_interval", s.CheckpointInterval)
	add("spare_nodes", units.Count(float64(s.Spares.Value)), s.Spares.Source, s.Spares.Kind, s.Spares.IsSet())
	if !s.Spares.IsSet() {
		addShare("spare_wait", s.SpareWait)
	}
	addTime("repair_time", s.Repair)
	add("data_bytes_per_token", s.BytesPerToken.Value.String(), s.BytesPerToken.Source, s.BytesPerToken.Kind, s.BytesPerToken.IsSet())
	addShare("data_stall", s.DataStall)
	addShare("straggler_loss", s.Stragglers)
	addShare("server_overhead", s.ServerOverhead)
	addShare("pue", s.PUE)
	return out
}
