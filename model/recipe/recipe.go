package recipe

import (
	"cmp"
	"embed"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

//go:embed *.yaml base/*.yaml
var files embed.FS

// Recipe is what a framework does with a model: its programs, dtypes, host costs
// and overlap.
type Recipe struct {
	Name    string
	Title   string `yaml:"title"`
	Source  string `yaml:"source"`
	Extends string `yaml:"extends"`
	Liger   string `yaml:"liger"` // that of Liger-Kernel's operators, which can take the place of its own; "": not known to
	Shared  string `yaml:"with"`  // whose programs, widths of norms and costs of primitives it has, too, before those of what it extends

	Kernels          map[string]string    `yaml:"attention_kernels"`  // runtime.attention → flavour of the attention law; absent: what PyTorch picks
	DataParallel     []string             `yaml:"data_parallel"`      // kinds it offers, the usual one first
	AlsoParallel     []string             `yaml:"also_data_parallel"` // kinds that its framework has, too, and that a search leaves out
	CPCommTypes      []string             `yaml:"cp_comm_types"`      // how its context ranks can come by keys and values, the usual way first: p2p, a2a; none: there is no context parallelism
	Recomputes       []string             `yaml:"recomputes"`         // kinds of recomputation that it has, the least first; none: all
	RecomputeModules []string             `yaml:"recompute_modules"`  // parts of a layer that selective recomputation may name; none: the attention core alone
	RecomputeMethods []string             `yaml:"recompute_methods"`  // ways to recompute some layers in full, the usual one first; none: all layers or no layer
	LossChunksKeep   []string             `yaml:"loss_chunks_keep"`   // what chunks of the output layer and loss may keep for their backward pass, the usual first; none: there are no chunks
	Scopes           map[string]string    `yaml:"scopes"`             // compile scope → recipe of the layers
	Around           string               `yaml:"around"`             // recipe of what is not compiled when layers are, one by one
	Schedules        []string             `yaml:"schedules"`          // orders of a pipeline's work that its framework has
	Structure        Structure            `yaml:"structure"`
	Precision        map[string]Precision `yaml:"precision"`
	Default          string               `yaml:"default_precision"`
	AdapterPrecision string               `yaml:"adapter_precision"` // the default where LoRA is trained; "": Default
	DefaultOptimizer string               `yaml:"default_optimizer"`
	Attention        string               `yaml:"default_attention"`
	Optimizer        map[string]Optimizer `yaml:"optimizer"`
	Host             Host                 `yaml:"host"`
	Offload          Offload              `yaml:"offload"`
	Overlap          Overlap              `yaml:"overlap"`
	Release          units.Release        `yaml:"release"`             // of the software that it describes, where that is not the newest
	Releases         []Older              `yaml:"releases"`            // what older software did otherwise, the oldest last
	PyTorch          []Older              `yaml:"pytorch"`             // likewise of PyTorch beneath the framework, which comes first
	IndexerSpread    float64              `yaml:"indexer_spread"`      // the same of steps whose attention is to keys that an indexer picks
	Spread           float64              `yaml:"spread"`              // relative standard deviation of whole steps of this software that nothing else accounts for
	Expandable       bool                 `yaml:"expandable_segments"` // of PyTorch's allocator, PYTORCH_CUDA_ALLOC_CONF
	Context          units.Bytes          `yaml:"context"`             // CUDA context of this software; 0: that of the hardware profile
	Images           map[string]Images    `yaml:"images"`              // encoders of images that it runs, by the model_type of their vision_config
	Programs         Programs             `yaml:"programs"`
}

// Images is what the host does around an encoder of images in a forward pass, in kernels too
// small to matter but for their launch.
type Images struct {
	Pass     Hosted `yaml:"pass"`     // before patches are projected
	Image    Hosted `yaml:"image"`    // likewise, for each image
	Tables   Hosted `yaml:"tables"`   // after it: rotary tables of patches
	Places   Hosted `yaml:"places"`   // to find the places of images' tokens
	Sequence Hosted `yaml:"sequence"` // for the positions of each sequence
	Turned   Hosted `yaml:"turned"`   // and of each image in it
	Masks    int    `yaml:"masks"`    // kernels over all pairs of positions of the language model
	Lists    bool   `yaml:"lists"`    // tokens are put by lists of places, between copies of all, not by a mask as wide as they
}

// Hosted is so many small kernels, and after them so many waits of the host for the device.
type Hosted struct {
	Kernels int `yaml:"kernels"`
	Waits   int `yaml:"waits"`
}

// Older is what a framework's software before a release did otherwise: keys of a recipe
// with the values that they had. Of precision and optimizer only what a recipe has is changed.
type Older struct {
	Before    units.Release       `yaml:"before"`
	Kernels   map[string]string   `yaml:"attention_kernels"`
	Structure Override            `yaml:"structure"`
	Overlap   Override            `yaml:"overlap"`
	Precision map[string]Override `yaml:"precision"`
	Optimizer map[string]Override `yaml:"optimizer"`
	Host      Override            `yaml:"host"`
	Offload   Override            `yaml:"offload"`
	Expands   *bool               `yaml:"expandable_segments"`
	Contexts  *[]string           `yaml:"cp_comm_types"`
	Recompute []string            `yaml:"recomputes"`
	Source    string              `yaml:"source"`
}

// ByParts reports whether full recomputation of a model of a type is of parts of a layer, each by
// itself, and not of whole layers.
func (r *Recipe) ByParts(modelType string) bool {
	s := &r.Structure
	return s.PartsAgain == "all" || s.PartsAgain == "own" && slices.Contains(s.OwnModels, modelType)
}

// RecomputesSince is the release that brought the framework a kind of recomputation; 0: it has
// none, or always had it.
func (r *Recipe) RecomputesSince(kind string) units.Release {
	for _, o := range r.Releases {
		if o.Recompute != nil && !slices.Contains(o.Recompute, kind) {
			return o.Before
		}
	}
	return 0
}

// ContextsSince is the release that brought the framework context parallelism; 0: it has none, or
// always had it.
func (r *Recipe) ContextsSince() units.Release {
	for _, o := range r.Releases {
		if o.Contexts != nil && len(*o.Contexts) == 0 {
			return o.Before
		}
	}
	return 0
}

// Override is a part of a recipe that is decoded over what another has.
type Override struct {
	doc  *yamlx.Document
	node *yaml.Node
}

// DecodeNode keeps the node.
func (o *Override) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	o.doc, o.node = d, n
	return nil
}

// over decodes it over what is in out.
func (o Override) over(out any) {
	if o.node != nil {
		if err := o.doc.DecodeInto(o.node, out).Err(); err != nil {
			panic(err)
		}
	}
}

// At is the recipe with the framework of a release.
func (r *Recipe) At(release units.Release) *Recipe { return r.with(r.Releases, release) }

// OnPyTorch is the recipe with PyTorch of a release beneath the framework.
func (r *Recipe) OnPyTorch(release units.Release) *Recipe { return r.with(r.PyTorch, release) }

// with is the recipe with what software of a release did otherwise.
func (r *Recipe) with(older []Older, release units.Release) *Recipe {
	out := *r
	out.Precision, out.Optimizer, out.Host.Primitives = maps.Clone(r.Precision), maps.Clone(r.Optimizer), maps.Clone(r.Host.Primitives)
	for _, o := range older {
		if !release.Before(o.Before) {
			continue
		}
		if o.Kernels != nil {
			out.Kernels = o.Kernels
		}
		o.Structure.over(&out.Structure)
		o.Overlap.over(&out.Overlap)
		o.Host.over(&out.Host)
		o.Offload.over(&out.Offload)
		if o.Expands != nil {
			out.Expandable = *o.Expands
		}
		if o.Contexts != nil {
			out.CPCommTypes = *o.Contexts
		}
		if o.Recompute != nil {
			out.Recomputes = o.Recompute
		}
		change(out.Precision, o.Precision)
		change(out.Optimizer, o.Optimizer)
	}
	return &out
}

// change decodes entries of was over those of the same name.
func change[T any](of map[string]T, was map[string]Override) {
	for name, o := range was {
		if v, ok := of[name]; ok {
			o.over(&v)
			of[name] = v
		}
	}
}

// Flavour is the implementation of the attention law that runs for a runtime.attention;
// "": the law's own. flash-attn is that package also where a framework that may use it
// would take another kernel (NVTE_FUSED_ATTN=0 for Transformer Engine). flash-attn-3 and -4
// are cuDNN's, which the law is of: within 11 % from 2048 tokens on (kernel's
// TestLaterFlashAttention).
func (r *Recipe) Flavour(attention string) string {
	f, ok := r.Kernels[attention]
	switch {
	case ok:
		return f
	case attention == "flex":
		return attention
	case attention == "flash-attn":
		return cmp.Or(r.Kernels["flash"], "flash")
	}
	return ""
}

// AddsGradients reports whether every gradient is added into a buffer apart from what
// autograd makes, by its GEMM or by a hook. DeepSpeed's 16-bit gradients are autograd's own:
// those of the first micro batch stay, later ones are added to them.
func (s *Structure) AddsGradients(p *Precision) bool {
	return s.MainGradients && !(s.FlatStates && p.Gradients == p.Compute)
}

// Optimizer is the cost of one optimizer step per parameter.
type Optimizer struct {
	Class   string  `yaml:"class"`   // kernel class: optimizer, multi-tensor, vectorized
	Moments *int64  `yaml:"moments"` // kept of each parameter; not set: Adam's two
	Calls   float64 `yaml:"calls"`   // launches for each tensor, one by one; 0: one launch takes many
	Vectors float64 `yaml:"vectors"` // the same for those of one dimension; 0: as many
	DTensor float64 `yaml:"dtensor"` // what a distributed tensor costs the host beyond a plain one, over the same of the fused AdamW; 0: 1
	Read    float64 `yaml:"read"`    // passes over the parameter beyond reading p, g, m, v
	Temp    float64 `yaml:"temp"`    // of a moment's size, held for all parameters while it runs (foreach)
	Passing float64 `yaml:"passing"` // likewise, of the tensor at hand alone, where it goes tensor by tensor
	Clip    bool    `yaml:"clip"`    // gradients are clipped by their norm first
	Norm    float64 `yaml:"norm"`    // bytes that the norm moves of each gradient; 0: it reads them once, as they are
	Check   float64 `yaml:"check"`   // the same of a test for infinities, of gradients that ZeRO 1 and 2 reduced
	Join    float64 `yaml:"join"`    // and of joining them into one tensor
	Each    bool    `yaml:"each"`    // tensor by tensor: norm, scaling, update and the copy to 16 bits are calls of their own, none of which the host waits for
	Zero    float64 `yaml:"zero"`    // a parameter whose gradient and moments are all zero takes as many elements more
	OnHost  OnHost  `yaml:"on_host"` // where the host runs it
	// Programs that update each matrix of a layer by itself, with one moment, all else being
	// left to the optimizer that the other keys describe: as it is, and as a DTensor of the
	// ranks of FSDP2. "": there is none.
	Matrix string `yaml:"matrix"`
	Shards string `yaml:"shards"`
	Dealt  bool   `yaml:"dealt"` // whole matrices and parts of the rest are dealt out to the ranks of DDP, which scatter gradients and gather weights in all as long as its all-reduce takes
	// Kept of tensors one by one, in a dtype of its own; those of embeddings as the optimizer of
	// that name has them, "": as all others.
	States    DType   `yaml:"states"`    // dtype of the moments, whatever the precision says; unset: the precision's
	Embedding string  `yaml:"embedding"` // another one of the list
	Paged     int64   `yaml:"paged"`     // moments of tensors of so many values, but for their scales, are managed memory outside the allocator, fetched before each update; 0: none
	Waits     bool    `yaml:"waits"`     // the host waits for the update of each tensor
	Work      float64 `yaml:"work"`      // a value takes so many times as long as its class says; 0: 1
	// Updated in fp32, whatever weights are in, by kernels one after the other.
	Bytes float64 `yaml:"bytes"` // of a value that these move, beside casts; 0: what gradient, states and weight make
	Held  float64 `yaml:"held"`  // of a value that temporaries of the tensor at hand have, beside casts
	Steps float64 `yaml:"steps"` // a timed step is about the how manyth: rows of the embedding no token asked for are zero
}

// OnHost is the cost of an update by the host, over that of the fused AdamW of which a
// machine's offload law is.
type OnHost struct {
	Work    float64 `yaml:"work"`    // a thread's time for a value; 0: 1
	Traffic float64 `yaml:"traffic"` // bytes of a value that go through memory beside what is read and written once: temporaries
}

// Offload is what a framework can leave to the host: with the optimizer its states and the
// update, with parameters these and their gradients, too. Each is known beside some kinds
// of data parallelism.
type Offload struct {
	Optimizer   []string      `yaml:"optimizer"`
	Parameters  []string      `yaml:"parameters"`
	Layers      bool          `yaml:"layers"`      // and, without pipeline or recomputation, what the first layers keep for their backward passes
	Activations bool          `yaml:"activations"` // what all layers keep, tensor by tensor
	Buffers     int64         `yaml:"buffers"`     // activations: a layer's input comes back to one of so many buffers, which stay
	Modules     []string      `yaml:"modules"`     // parts of a layer that may send what they save
	Reduced     bool          `yaml:"reduced"`     // gradients go to the host as they are reduced, to that of the rank that has their states, for which the others wait; else when all are there
	Checked     units.Seconds `yaml:"checked"`     // reduced: what the host takes for each gradient before it leaves, its norm and a test for infinities, for whose outcome it waits
	Parted      bool          `yaml:"parted"`      // of the optimizer also a part, and copies beside the update where that is asked for
	Recast      []string      `yaml:"recast"`      // beside which kinds weights come back cast by the host through memory that is new and not page-locked
	Back        int64         `yaml:"back"`        // bytes of a weight that come back: master's, or those of the copy that computes
	Threads     int64         `yaml:"threads"`     // of a rank, where the launcher does not give it all that it has a part of, as torchrun, which sets OMP_NUM_THREADS=1 for ranks that share a node
	Source      string        `yaml:"source"`
}

// Host is what the CPU pays. Times are for the reference CPU of the source.
type Host struct {
	Source            string                   `yaml:"source"`
	Speed             float64                  `yaml:"speed"`    // of the CPUs as runs of the framework leave them, over that at which it costs the following; 0: 1
	Spread            float64                  `yaml:"spread"`   // relative standard deviation of what a host that nobody measured takes for the same
	Skew              float64                  `yaml:"skew"`     // relative standard deviation between the hosts' parts of the ranks of one step
	Call              units.Seconds            `yaml:"call"`     // a dispatched op that launches a kernel, forward
	Backward          units.Seconds            `yaml:"backward"` // the same from the autograd engine (C++, no Python)
	View              units.Seconds            `yaml:"view"`
	ViewBack          units.Seconds            `yaml:"view_backward"`
	Policy            units.Seconds            `yaml:"policy"` // asking the policy of a checkpoint that keeps some outputs, for each dispatched op of its runs
	Module            units.Seconds            `yaml:"module"`
	Node              units.Seconds            `yaml:"node"`
	Expert            units.Seconds            `yaml:"expert"`             // one expert of a grouped GEMM
	ScaledExpert      units.Seconds            `yaml:"scaled_expert"`      // the same of quantized operands; 0: as expert
	WrapExpert        units.Seconds            `yaml:"wrap_expert"`        // one expert of a grouped GEMM that one kernel makes of tensors of each
	ExpertCast        units.Seconds            `yaml:"expert_cast"`        // casting the rows of one expert to quantized operands of a grouped GEMM
	ExpertGrad        units.Seconds            `yaml:"expert_grad"`        // handing over the gradient of one expert's weight
	Primitives        map[string]units.Seconds `yaml:"primitives"`         // what one call of a primitive costs beyond Call
	Called            map[string]units.Seconds `yaml:"called"`             // the same of collectives that are no pieces beside GEMMs (Overlap.TP), where these cost less
	Again             map[string]units.Seconds `yaml:"again"`              // what every further call in a row costs in all; of others Call
	Large             float64                  `yaml:"large"`              // factor on ops whose tensors exceed LargeTensor; 0: 1
	Step              units.Seconds            `yaml:"step"`               // per optimizer step: Python around it
	Tensor            units.Seconds            `yaml:"tensor"`             // optimizer bookkeeping per tensor
	Clip              units.Seconds            `yaml:"clip"`               // a call that clips gradients
	ClipTensor        units.Seconds            `yaml:"clip_tensor"`        // and of each of its tensors
	DTensorParam      units.Seconds            `yaml:"dtensor_tensor"`     // the same for a distributed tensor (FSDP2, DTensor); 0: as tensor
	FSDPUnit          units.Seconds            `yaml:"fsdp_unit"`          // hooks and flat copies of one FSDP unit, forward
	FSDPBack          units.Seconds            `yaml:"fsdp_unit_backward"` // without what reduces its gradients
	KeptUnit          units.Seconds            `yaml:"fsdp_kept"`          // the same of a unit that stays gathered after the forward pass
	KeptBack          units.Seconds            `yaml:"fsdp_kept_backward"`
	FSDPReduce        units.Seconds            `yaml:"fsdp_reduce"` // of a unit's gradients, either way
	Hooks             Hooks                    `yaml:"hooks"`
	Buckets           Buckets                  `yaml:"buckets"`
	Trainer           Trainer                  `yaml:"trainer"`
	DTensor           units.Seconds            `yaml:"dtensor"` // further cost of one op on distributed tensors, forward
	DTensorBack       units.Seconds            `yaml:"dtensor_backward"`
	DTensorOp         units.Seconds            `yaml:"dtensor_op"`     // of one op between these on distributed tensors, either way
	DTensorGather     units.Seconds            `yaml:"dtensor_gather"` // of what is cut along the sequence and gathered, forward
	DTensorGatherBack units.Seconds            `yaml:"dtensor_gather_backward"`
	Graph             units.Seconds            `yaml:"graph"` // around a layer that is compiled by itself, forward: guards, and entry of its graph
	GraphBack         units.Seconds            `yaml:"graph_backward"`
	Split             units.Seconds            `yaml:"split"` // around a piece of a compiled graph that buckets of gradients cut, forward
	SplitBack         units.Seconds            `yaml:"split_backward"`
	Pass              units.Seconds            `yaml:"pass"`             // around the forward or the backward pass of a micro batch, once for each
	Pipeline          units.Seconds            `yaml:"pipeline_action"`  // the pipeline runtime's cost of one forward or backward, beside that
	Runtime           units.Seconds            `yaml:"pipeline_runtime"` // the same of schedules without a loop of their own (pipeline.Plan.Listed); 0: as pipeline_action
	PartedPass        float64                  `yaml:"parted_backward"`  // factor on a backward pass by input and by weights; 0: 1
	Transfer          units.Seconds            `yaml:"transfer"`         // blocking transfers go one tensor at a time: what the hosts of two stages do for each while both wait; 0: together, and hosts go on
	Blocking          Blocking                 `yaml:"blocking"`
}

// Trainer is what the host does more where transformers' Trainer makes the steps, while the device
// has nothing to do.
type Trainer struct {
	Pass  units.Seconds `yaml:"pass"`  // between the loss of a micro batch, for which it waits, and the next one
	Token units.Seconds `yaml:"token"` // to make a tensor of each, where no other process does
}

// Hooks are what the host does for sharded parameters module by module, beyond FSDPUnit and
// FSDPBack.
type Hooks struct {
	Module    units.Seconds `yaml:"module"`    // around one call of a module
	Backward  units.Seconds `yaml:"backward"`  // around its backward pass
	Parameter units.Seconds `yaml:"parameter"` // to gather a matrix for a pass, by a call of its own, and to free it
	Gradient  units.Seconds `yaml:"gradient"`  // to put the gradient of a parameter into a bucket
	Cut       units.Seconds `yaml:"cut"`       // to cut it into the parts of the ranks, where there is more than one
	Step      units.Seconds `yaml:"step"`      // of each parameter that is trained, before their norm is taken
	Flush     units.Seconds `yaml:"flush"`     // to hand out a bucket
	Reduce    units.Seconds `yaml:"reduce"`    // to reduce it before that, where there is more than one rank
	Spread    float64       `yaml:"spread"`    // relative standard deviation of all that the host does where hooks run, beside that of its speed
}

// Any reports whether there are hooks.
func (h *Hooks) Any() bool { return *h != (Hooks{}) }

// Buckets are what the host does for gradients that leave autograd for buckets (Structure.Partitions)
// while parameters stay whole.
type Buckets struct {
	Gradient units.Seconds `yaml:"gradient"` // to put one into a bucket
	Reduce   units.Seconds `yaml:"reduce"`   // to reduce a bucket and hand it out
}

// Blocking says which jobs of a recipe hang but with CUDA_LAUNCH_BLOCKING=1: the
// host waits for every kernel. No nodes: none does.
type Blocking struct {
	Parameters int64      `yaml:"parameters"` // of the model, at least
	Nodes      int64      `yaml:"nodes"`      // at least
	Network    units.Rate `yaml:"network"`    // of one GPU, at most
}

// LargeTensor is the size from which the caching allocator uses its large pool
// (c10/cuda/CUDACachingAllocator.cpp, kSmallSize).
const LargeTensor = units.MiB

// Overlap says which communication hides behind compute.
type Overlap struct {
	GradReduce  bool        `yaml:"grad_reduce"`            // data-parallel gradient collectives run during backward
	ParamGather bool        `yaml:"param_gather"`           // distributed-optimizer parameter gathers run during forward
	TP          bool        `yaml:"tp"`                     // tensor-parallel collectives overlap with their GEMMs
	TPWgrad     bool        `yaml:"tp_wgrad"`               // the backward input-gradient collective hides behind the weight-gradient GEMM
	Streams     bool        `yaml:"tp_streams"`             // the pieces of a GEMM whose operands tensor ranks exchange beside it are multiplied on several streams: as fast as the whole
	PP          bool        `yaml:"pp"`                     // pipeline sends and receives run beside compute
	SyncFreeEP  bool        `yaml:"sync_free_ep"`           // exchanges of sync-free experts run beside another micro batch
	RemoteEP    bool        `yaml:"remote_ep"`              // and so do those between NVLink domains, of interleaved schedules
	CP          bool        `yaml:"cp"`                     // context-parallel ring steps hide behind attention
	SyncEvery   bool        `yaml:"sync_every_micro_batch"` // gradients are reduced after every micro batch
	SyncSharded bool        `yaml:"sync_sharded"`           // the same of gradients of sharded parameters alone
	Bucket      units.Bytes `yaml:"bucket"`                 // default bucket of the gradient reduction
	Values      int64       `yaml:"bucket_values"`          // the same in gradients, of the first stage; later stages have one bucket each
	RankValues  int64       `yaml:"bucket_rank_values"`     // at least as many for each data rank
	Switches    []string    `yaml:"switches"`               // which of GradReduceSwitch and ParamGatherSwitch a job may turn
}

// Switches of Overlap, by their keys.
const (
	GradReduceSwitch  = "grad_reduce"
	ParamGatherSwitch = "param_gather"
)

// Programs are the module programs of a recipe by name.
type Programs map[string]*Program

// DecodeNode parses a mapping of headings to texts. One whose text is null is what the recipe has not, of
// those that it extends.
func (p *Programs) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var errs diag.List
	*p = Programs{}
	if n.Kind != yaml.MappingNode {
		return diag.List{d.Errorf(n, "programs: expected a mapping")}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name, _, ok := strings.Cut(n.Content[i].Value, "("); ok && n.Content[i+1].Tag == "!!null" {
			(*p)[name] = nil
			continue
		}
		prog, err := ParseProgram(n.Content[i].Value, n.Content[i+1].Value)
		if err != nil {
			errs = append(errs, d.Errorf(n.Content[i], "%v", err))
			continue
		}
		(*p)[prog.Name] = prog
	}
	return errs
}

var (
	cacheMu sync.Mutex
	cache   = map[string]*Recipe{}
)

// Names lists the recipes; what only serves to be extended (base/) is not one.
func Names() []string {
	entries, _ := files.ReadDir(".")
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// Sharing lists the kinds of data parallelism that the framework has, the usual one first.
func (r *Recipe) Sharing() []string { return slices.Concat(r.DataParallel, r.AlsoParallel) }

// Takes reports whether the recipe is for models with experts, or for those without.
func (s *Structure) Takes(experts bool) bool {
	if experts {
		return s.ExpertModels == ""
	}
	return s.ExpertsOnly == ""
}

// Having lists the recipes of which has holds.
func Having(has func(*Recipe) bool) []string {
	var names []string
	for _, name := range Names() {
		if r, err := Load(name); err == nil && has(r) {
			names = append(names, name)
		}
	}
	return names
}

// Load returns a recipe by name, with what it extends filled in.
func Load(name string) (*Recipe, error) {
	if known := Names(); !slices.Contains(known, name) {
		return nil, diag.Errorf("runtime.recipe: there is no recipe %q%s", name, cmp.Or(diag.DidYouMean(name, known), "; there are "+strings.Join(known, ", ")))
	}
	cacheMu.Lock()
	defer cacheMu.Unlock()
	return load(name)
}

func load(name string) (*Recipe, error) {
	if r, ok := cache[name]; ok {
		return r, nil
	}
	data, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, err
	}
	doc, err := yamlx.Parse("recipe/"+name+".yaml", data)
	if err != nil {
		return nil, err
	}
	r := &Recipe{}
	if node := doc.At("extends"); node != nil {
		base, err := load(node.Value)
		if err != nil {
			return nil, err
		}
		*r = *base
		r.Programs, r.Shared = nil, ""
		r.Precision, r.Optimizer = nil, nil
		r.Host.Primitives, r.Host.Called, r.Host.Again = nil, nil, nil
	}
	file := struct {
		Format  string `yaml:"perfplan"`
		*Recipe `yaml:",inline"`
	}{Recipe: r}
	if err := doc.Decode(&file); err != nil {
		return nil, err
	}
	if file.Format != "recipe/v1" {
		return nil, diag.Errorf("recipe/%s.yaml: expected perfplan: recipe/v1", name)
	}
	r.Name = name
	if node := doc.At("with"); node != nil {
		shared, err := load(node.Value)
		if err != nil {
			return nil, err
		}
		r.Programs = merged(shared.Programs, r.Programs)
		r.Host.Primitives = merged(shared.Host.Primitives, r.Host.Primitives)
		r.Structure.NormWidths = shared.Structure.NormWidths
	}
	if r.Extends != "" {
		base := cache[r.Extends]
		r.Programs = merged(base.Programs, r.Programs)
		maps.DeleteFunc(r.Programs, func(_ string, p *Program) bool { return p == nil })
		r.Precision = merged(base.Precision, r.Precision)
		r.Optimizer = merged(base.Optimizer, r.Optimizer)
		r.Host.Primitives, r.Host.Called = merged(base.Host.Primitives, r.Host.Primitives), merged(base.Host.Called, r.Host.Called)
		r.Host.Again = merged(base.Host.Again, r.Host.Again)
	}
	cache[name] = r
	return r, nil
}

// With is the recipe with the programs and costs of primitives of another in the place of its own.
func (r *Recipe) With(name string) (*Recipe, error) {
	cacheMu.Lock()
	defer cacheMu.Unlock()
	other, err := load(name)
	if err != nil {
		return nil, err
	}
	own := *r
	own.Programs = merged(r.Programs, other.Programs)
	own.Host.Primitives = merged(r.Host.Primitives, other.Host.Primitives)
	return &own, nil
}

// merged is base overridden by own.
func merged[M ~map[string]V, V any](base, own M) M {
	m := make(M, len(base)+len(own))
	maps.Copy(m, base)
	maps.Copy(m, own)
	return m
}
