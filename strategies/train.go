package strategies

import (
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// Train is what one step computes.
type Train struct {
	SequenceLength int64 `yaml:"sequence_length" json:"sequence_length"`
	// of an encoder-decoder model, of the sequence that its encoder reads beside each; left out: as long
	SourceLength     int64         `yaml:"source_length" json:"source_length,omitempty"`
	MicroBatch       int64         `yaml:"micro_batch" json:"micro_batch"`
	GradAccumulation int64         `yaml:"grad_accumulation" json:"grad_accumulation"`
	GlobalBatch      int64         `yaml:"global_batch" json:"global_batch"`
	Precision        string        `yaml:"precision" json:"precision"`
	ReduceDType      recipe.DType  `yaml:"reduce_dtype" json:"-"`
	DTypes           DTypes        `yaml:"dtypes" json:"-"`
	Optimizer        string        `yaml:"optimizer" json:"optimizer"`
	Recompute        ops.Recompute `yaml:"recompute" json:"recompute"`
	// how evenly experts get tokens; left out: as the recipe's benchmarks route
	Routing   string  `yaml:"routing" json:"routing,omitempty"`
	Imbalance float64 `yaml:"expert_imbalance" json:"expert_imbalance,omitempty"` // tokens of the busiest expert rank over the mean; 0: as Routing has it
	// rows of every expert over the mean, dropped and padded to; 0: as many as are routed to it
	Capacity float64 `yaml:"expert_capacity" json:"expert_capacity,omitempty"`

	// by their norm, before the update (max_grad_norm, --clip-grad); left out: as the framework does by
	// itself
	ClipGradients *bool `yaml:"clip_gradients" json:"clip_gradients,omitempty"`

	// whose activations go to the host between their passes, the first of the model (Megatron's
	// cpu_offloading_num_layers); left out: none
	OffloadLayers int64 `yaml:"offload_layers" json:"offload_layers,omitempty"`

	// what all layers keep goes there, tensor by tensor (TRL's and Axolotl's activation_offloading,
	// torchtune's enable_activation_offloading)
	OffloadActivations bool `yaml:"offload_activations" json:"offload_activations,omitempty"`

	// parts of a layer that leave there what they save (Megatron's flag of this name); left out: none
	OffloadModules         OffloadModules `yaml:"offload_modules" json:"offload_modules,omitempty"`
	MinOffloadedTensorSize *int64         `yaml:"min_offloaded_tensor_size" json:"min_offloaded_tensor_size,omitempty"` // elements of a tensor that goes (likewise); left out: 2^20
	// of these parts, the first in a chunk of the model (likewise); left out: all
	OffloadedShare *float64 `yaml:"activation_offload_fraction" json:"activation_offload_fraction,omitempty"`

	// mean tokens of the documents that a sequence is packed of, none of which attention lets see
	// another; left out: a sequence is one
	DocumentLength int64 `yaml:"document_length" json:"document_length,omitempty"`

	// share of a batch's tokens that are padding, of which attention is told; 0: none
	Padding float64 `yaml:"padding" json:"padding,omitempty"`

	// standard deviation of the tokens of sequences, or of the documents that they are packed of, over
	// their mean; 0: all alike
	LengthSpread float64 `yaml:"length_spread" json:"length_spread,omitempty"`

	// of a vision-language model, in each sequence; left out: none, and no encoder
	Images *Images `yaml:"images" json:"images,omitempty"`

	// modules of multi-token prediction that are trained; left out: the model's own where the recipe
	// trains them
	MTPLayers *int64 `yaml:"mtp_layers" json:"mtp_layers,omitempty"`

	// whose products are in 16 bits where those of others are in fewer (Megatron's
	// first_last_layers_bf16); left out: none
	NumLayersAtStartInBF16 int64 `yaml:"num_layers_at_start_in_bf16" json:"num_layers_at_start_in_bf16,omitempty"`
	NumLayersAtEndInBF16   int64 `yaml:"num_layers_at_end_in_bf16" json:"num_layers_at_end_in_bf16,omitempty"`

	// the indexer of sparse attention learns from attention's scores (Megatron's dsa_indexer_loss_coeff
	// above 0); left out: where the recipe can
	IndexerLoss *bool `yaml:"indexer_loss" json:"indexer_loss,omitempty"`

	// low-rank adapters are trained, beside frozen weights; left out: all parameters
	LoRA *LoRA `yaml:"lora" json:"lora,omitempty"`

	// entropy and accuracy are taken from the logits of each micro batch (TRL's SFTTrainer without
	// Liger)
	TokenMetrics bool `yaml:"token_metrics" json:"token_metrics,omitempty"`

	// layers are recomputed to their end, and no further than the last tensor that is needed else
	// (torch.utils.checkpoint); left out: as the recipe has it
	UseReentrant *bool `yaml:"use_reentrant" json:"use_reentrant,omitempty"`

	RecomputeModules RecomputeModules `yaml:"recompute_modules" json:"recompute_modules,omitempty"` // of selective recomputation; left out: the attention core

	RecomputeMethod    RecomputeMethod `yaml:"recompute_method" json:"recompute_method,omitempty"`         // of full recomputation by layers; left out: the recipe's first
	RecomputeNumLayers *int64          `yaml:"recompute_num_layers" json:"recompute_num_layers,omitempty"` // left out: every layer by itself
}

// How tokens are routed to experts.
const (
	EvenRouting       = "even"       // to all as many
	RandomRouting     = "random"     // to k of them at will
	LearnedRouting    = "learned"    // by a router that an auxiliary loss of 0.01 or biases balance as it learns
	WeakRouting       = "weak"       // by one that a loss of 0.001 balances
	UnbalancedRouting = "unbalanced" // by one that nothing balances
	UntrainedRouting  = "untrained"  // by one of random weights, before it has learned or been balanced
	InTurnRouting     = "in-turn"    // every token to the k after those of the one before, without a router (NeMo AutoModel's fake_balanced_gate)
)

var routings = []string{EvenRouting, RandomRouting, LearnedRouting, WeakRouting, UnbalancedRouting, UntrainedRouting, InTurnRouting}
