package launch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// holds requires of Megatron-LM's arguments what they say in the job that they make.
func holds(t *testing.T, says map[string][]string) {
	t.Helper()
	for more, want := range says {
		text := pretrain(t, more)
		for _, w := range want {
			require.Contains(t, text, w, more)
		}
	}
}

// TestStageLayers: the layers of stages are those of a layout, but that estimate takes
// multi-token prediction with the loss, and no stage inside a pipeline to be empty.
func TestStageLayers(t *testing.T) {
	const layout = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
	holds(t, map[string][]string{
		layout + "'Ett|ttL'":               {"stage_layers: [2, 2] # --pipeline-model-parallel-layout"},
		layout + "'E|t*2|(t)*2,m|L'":       {"virtual_stages: 2 # --pipeline", "stage_layers: [0, 2, 2, 0]", "# Not taken over: --pipeline-model-parallel-layout: multi-token prediction of stage 2 is taken to be on the last, 3, with the loss"},
		layout + "'Ettt|t|m|L'":            {"stage_layers: [2, 1, 1, 0]", "stage 2, which has no layer, is taken to have one of stage 0"},
		layout + "'E||tttt|L'":             {"stage_layers: [0, 1, 3, 0]", "stage 1, which has no layer, is taken to have one of stage 2"},
		layout + "'Et|t||||||t|tL'":        {"# plan.stage_layers: --pipeline-model-parallel-layout: 9 is the number of stages, no multiple of the 2 ranks of the pipeline: give the key"},
		layout + "'Et|t|||||t|tL'":         {"# plan.stage_layers: --pipeline-model-parallel-layout: stages inside the pipeline without a layer, and none that has more than one: give the key"},
		layout + "'Ett|tmL'":               {"# plan.stage_layers: --pipeline-model-parallel-layout: 3 layers, but the model has 4: give the key"},
		layout + "'Etx|tt'":                {"# Not taken over: --pipeline-model-parallel-layout Etx|tt"},
		"--pipeline-model-parallel-size 2": {"pp: 2 # --pipeline-model-parallel-size"},
	})
}

// TestFusers: scales known from steps before are Megatron-LM's default (core/transformer/transformer_config.py,
// fp8_recipe), and what runs in one kernel that others run in several has keys of its own.
func TestFusers(t *testing.T) {
	const rope = "--position-embedding-type rope --fused-single-qkv-rope "
	holds(t, map[string][]string{
		"--fp8-format hybrid":                                                  {"precision: fp8-delayed # --fp8-format"},
		"--fp8-format hybrid --fp8-recipe delayed":                             {"precision: fp8-delayed # --fp8-format"},
		"--fp8-format hybrid --fp8-recipe tensorwise":                          {"precision: fp8 # --fp8-format"},
		"--fp8-format hybrid --fp8-param-gather":                               {"gather: fp8 # --fp8-param-gather"},
		"--fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16": {"num_layers_at_start_in_bf16: 1 # --first-last-layers-bf16\n  num_layers_at_end_in_bf16: 1 # --first-last-layers-bf16\n"},
		"--fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 4": {"  num_layers_at_end_in_bf16: 4 # --num-layers-at-end-in-bf16\n"},
		rope:                                {"qkv_rope_fusion: true # --fused-single-qkv-rope"},
		"--use-transformer-engine-op-fuser": {"op_fuser: true # --use-transformer-engine-op-fuser"},
	})
	for _, off := range []string{"--fused-single-qkv-rope", rope + "--qk-layernorm", "--use-transformer-engine-op-fuser --num-experts 8"} {
		text := pretrain(t, off)
		require.NotContains(t, text, "qkv_rope_fusion: true", off)
		require.NotContains(t, text, "op_fuser: true", off)
	}
}

// TestHybrid: the letters of a hybrid model, which say how many layers there are; where the
// blocks are not known the model is open.
func TestHybrid(t *testing.T) {
	holds(t, map[string][]string{
		"--hybrid-layer-pattern 'M-M*|-M' --mamba-state-dim 64":                           {"num_hidden_layers: 6 # --hybrid-layer-pattern", "hybrid_layer_pattern: M-M*-M #", "mamba_state_dim: 64 # --mamba-state-dim"},
		"--hybrid-override-pattern '*-*-' --pipeline-model-parallel-size 2":               {"hybrid_layer_pattern: '*-*-' # --hybrid-override-pattern"},
		"--hybrid-layer-pattern 'M-|M*|M-' --pipeline-model-parallel-size 3":              {"stage_layers: [2, 2, 2] # --hybrid-layer-pattern"},
		"--hybrid-layer-pattern 'M-|M*|M-' --pipeline-model-parallel-size 2":              {"# plan.stage_layers: --hybrid-layer-pattern: 3 is the number of stages, no multiple of the 2 ranks"},
		"--hybrid-layer-pattern 'M-M*/*-/*-' --mtp-num-layers 1":                          {"mtp_layers: 2 # --hybrid-layer-pattern"},
		"--hybrid-layer-pattern 'M-M*/*-/*-' --mtp-use-repeated-layer":                    {"mtp_layers: 2 # --hybrid-layer-pattern", "mtp_use_repeated_layer: true # --mtp-use-repeated-layer"},
		"--hybrid-layer-pattern 'M-M*/MM'":                                                {"mtp_layers: 1 # --hybrid-layer-pattern", "# Not taken over: --hybrid-layer-pattern M-M*/MM: multi-token prediction is taken to have the blocks *-"},
		"--hybrid-layer-pattern MEM* --num-experts 8 --moe-layer-freq 2":                  {"hybrid_layer_pattern: MEM* #", "num_experts: 8 #"},
		"--hybrid-layer-pattern MGM*":                                                     {"# model: --hybrid-layer-pattern: \"G\" is none of the blocks that are known, M, *, - and E: give the key"},
		"--hybrid-layer-pattern $PATTERN":                                                 {"# model: --hybrid-layer-pattern: line 1 takes $PATTERN, which the file does not set: give the key"},
		"--is-hybrid-model":                                                               {"# model: --is-hybrid-model: no letters say which layers are Mamba mixers: give the key"},
		"--hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5":                            {"# model: --hybrid-attention-ratio: no letters say which layers are Mamba mixers: give the key"},
		"--hybrid-attention-ratio 0.0 --hybrid-mlp-ratio 0.0 --hybrid-layer-pattern None": {"num_hidden_layers: 4 # --num-layers"},
	})
	require.NotContains(t, pretrain(t, "--hybrid-layer-pattern '*-*-' --mamba-state-dim 64"), "mamba", "without a mixer")
	require.NotContains(t, pretrain(t, "--hybrid-layer-pattern MGM*"), "model_type")
	require.NotContains(t, pretrain(t, "--hybrid-layer-pattern MEM* --num-experts 8 --moe-layer-freq 2"), "moe_layer_freq")
}

// TestUnevenStages: the first and the last rank of a pipeline with layers of their own, and
// embedding and loss that count as one each.
func TestUnevenStages(t *testing.T) {
	const first, last = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
	const cut = "--num-layers 14 --pipeline-model-parallel-size 4 "
	holds(t, map[string][]string{
		cut + first + " 2": {"stage_layers: [2, 4, 4, 4] # " + first},
		cut + last + " 2":  {"stage_layers: [4, 4, 4, 2] # " + last},
		cut + first + " 2 " + last + " 4 --num-virtual-stages-per-pipeline-rank 2": {"virtual_stages: 2", "stage_layers: [1, 2, 2, 2, 1, 2, 2, 2] # " + first},
		cut + first + " 3 " + last + " 3 --num-virtual-stages-per-pipeline-rank 2": {"# plan.stage_layers: " + first + ": 3 layers of rank 0 for 2 virtual stages, which Megatron-LM needs to divide: give the key"},
		cut + first + " 3":  {"# plan.stage_layers: " + first + ": 11 layers for 3 more ranks of the pipeline, which Megatron-LM needs to divide: give the key"},
		cut + first + " 16": {"# plan.stage_layers: " + first + ": -2 layers for 3 more ranks"},
		"--pipeline-model-parallel-size 2 " + first + " 1 " + last + " 3":                                                                {"stage_layers: [1, 3]"},
		cut + "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split":                                           {"stage_layers: [3, 4, 4, 3] # --account-for-embedding-in-pipeline-split"},
		cut + "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --num-layers-per-virtual-pipeline-stage 2": {"virtual_stages: 2", "stage_layers: [1, 2, 2, 2, 2, 2, 2, 1]"},
	})
	require.NotContains(t, pretrain(t, cut+"--num-virtual-stages-per-pipeline-rank 2"), "stage_layers")
}

// TestDTypes: what an optimizer that is aware of precision keeps, and gradients.
func TestDTypes(t *testing.T) {
	const (
		aware = "--use-precision-aware-optimizer --use-distributed-optimizer "
		half  = "p.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 2 --fp16 --vocab-size 128 "
	)
	holds(t, map[string][]string{
		aware + "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16":                {"moments: bf16 # --exp-avg-dtype"},
		aware + "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8":                  {"# Not taken over: --exp-avg-dtype fp8"},
		aware + "--exp-avg-dtype bf16":                                        {"# Not taken over: --exp-avg-dtype bf16, --exp-avg-sq-dtype fp32: one dtype for both is known"},
		aware + "--main-params-dtype fp16":                                    {"master: fp16 # --main-params-dtype"},
		aware + "--main-grads-dtype bf16":                                     {"gradients: bf16 # --main-grads-dtype", "reduce: bf16 # --main-grads-dtype"},
		"--grad-reduce-in-bf16":                                               {"gradients: bf16 # --grad-reduce-in-bf16"},
		"--fp8-format hybrid":                                                 {"gradients: fp32 # without --grad-reduce-in-bf16\n    reduce: fp32 # without --grad-reduce-in-bf16\n"},
		"--fp8-format hybrid --overlap-grad-reduce --ddp-bucket-size 1000000": {"bucket: 4 MB # --ddp-bucket-size, of 32 bits"},
	})
	for more, want := range map[string]string{
		"":                      "gradients: fp16 # without --accumulate-allreduce-grads-in-fp32, --fp16\n    reduce: fp16 # without",
		"--grad-reduce-in-bf16": "gradients: fp16 # without --accumulate-allreduce-grads-in-fp32, --fp16\n    reduce: fp16 # without",
		"--overlap-grad-reduce --ddp-bucket-size 1000000": "bucket: 2 MB # --ddp-bucket-size, of 16 bits",
	} {
		require.Contains(t, initial(t, half+more), want, more)
	}
	for _, wide := range []string{"--accumulate-allreduce-grads-in-fp32", "--use-megatron-fsdp", "--use-torch-fsdp2", "--deepspeed --zero-stage 1"} {
		require.NotContains(t, initial(t, half+wide), "dtypes", wide)
	}
	require.NotContains(t, pretrain(t, "--fp8-format hybrid --grad-reduce-in-bf16"), "fp32 #")
	require.NotContains(t, pretrain(t, aware), "dtypes")
	require.NotContains(t, pretrain(t, "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"), "dtypes")
}

// TestIndexer: Megatron-Core's indexer learns nothing unless its loss weighs something, and from
// the picked keys alone when asked to; its kernels are those of cuDNN when asked for.
func TestIndexer(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("testdata", "dsa.sh"))
	require.NoError(t, err)
	for cut, want := range map[string]string{
		"--dsa-kernel-backend cudnn":     "# Not taken over: --dsa-kernel-backend none: estimated with the kernels of cuDNN and FlashMLA (dsa_kernel_backend cudnn); others take longer\n",
		"--dsa-indexer-loss-coeff 0.001": "  indexer_loss: false # without --dsa-indexer-loss-coeff\n",
		"--dsa-indexer-use-sparse-loss":  "# Not taken over: --dsa-indexer-use-sparse-loss false: estimated with the loss of the keys that are picked; that of all keys takes longer\n",
	} {
		j, err := launch.Read("dsa.sh", []byte(strings.Replace(string(script), cut, "", 1)))
		require.NoError(t, err)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want)
	}
}

// TestSums: what Megatron's arguments say of attention to sums of tokens and of residual streams.
func TestSums(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("testdata", "dsv4.sh"))
	require.NoError(t, err)
	for cut, want := range map[string][2]string{
		"--csa-compress-ratios \"([0]*2+[4,128]*2+[0])\"":     {"", "# Not taken over: --csa-compress-ratios : no list of numbers; give model.compress_ratios\n"},
		"([0]*2+[4,128]*2+[0])":                               {"[0,0,4,128,4,128]", "  compress_ratios: [0, 0, 4, 128, 4, 128] # --csa-compress-ratios\n"},
		"[4,128]*2":                                           {"[4,128]*x", "# Not taken over: --csa-compress-ratios ([0]*2+[4,128]*x+[0]): no list of numbers; give model.compress_ratios\n"},
		"--apply-dsa-kernel-fusion":                           {"", "# Not taken over: --apply-dsa-kernel-fusion: estimated with the kernels of cuDNN and FlashMLA; without them steps take longer\n"},
		"--dsa-indexer-loss-coeff 0.01":                       {"", "  indexer_loss: false # without --dsa-indexer-loss-coeff\n"},
		"--o-groups 8":                                        {"", "  o_groups: 8 # default of --o-groups\n"},
		"--num-residual-streams 4":                            {"", "  hc_mult: 4 # default of --num-residual-streams\n"},
		"--enable-hyper-connections --num-residual-streams 4": {"--enable-mhc-connections --mhc-num-residual-streams 2", "  hc_mult: 2 # --mhc-num-residual-streams\n"},
		"--use-fused-mhc":                                     {"--csa-dense-mode", "# Not taken over: --csa-dense-mode: estimated with the indexer, whose layers then see all sums\n"},
	} {
		j, err := launch.Read("dsv4.sh", []byte(strings.Replace(string(script), cut, want[0], 1)))
		require.NoError(t, err)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want[1], cut)
	}
}

// TestNoRope: which layers leave the rotary embedding out.
func TestNoRope(t *testing.T) {
	const rope = "--position-embedding-type rope --no-rope-freq "
	holds(t, map[string][]string{
		rope + "4":                 {"no_rope_layer_interval: 4 # --no-rope-freq"},
		rope + "'([0]*1+[1]*1)*2'": {"no_rope_layer_interval: 2 # --no-rope-freq"},
		rope + "'([1]+[0]*3)'":     {"# Not taken over: --no-rope-freq ([1]+[0]*3): all layers are taken to turn queries and keys"},
	})
	require.NotContains(t, pretrain(t, "--no-rope-freq 4"), "no_rope", "without rotary embedding")
}

// TestCosts: arguments that cost time or memory have their key, or a note; those that cost
// nothing have neither.
func TestCosts(t *testing.T) {
	const ddp, experts = "--overlap-grad-reduce --ddp-bucket-size 20000000", "--num-experts 8 "
	holds(t, map[string][]string{
		ddp:                            {"bucket: 80 MB # --ddp-bucket-size, of 32 bits"},
		ddp + " --grad-reduce-in-bf16": {"bucket: 40 MB # --ddp-bucket-size, of 16 bits"},
		ddp + " --ddp-num-buckets 8":   {"# Not taken over: --ddp-num-buckets 8"},
		ddp + " --use-megatron-fsdp":   {"# Not taken over: --ddp-bucket-size 20000000"},
		"--distribute-saved-activations --no-bias-dropout-fusion":   {"# Not taken over: --distribute-saved-activations true", "# Not taken over: --no-bias-dropout-fusion true"},
		"--empty-unused-memory-level 1":                             {"# Not taken over: --empty-unused-memory-level 1"},
		"--log-params-norm --log-num-zeros-in-grad":                 {"# Not taken over: --log-params-norm true", "# Not taken over: --log-num-zeros-in-grad true"},
		"--hierarchical-context-parallel-sizes 2 4":                 {"# Not taken over: --hierarchical-context-parallel-sizes [2, 4]"},
		"--rampup-batch-size 16 16 1000 --softmax-type vanilla":     {"# Not taken over: --rampup-batch-size [16, 16, 1000]: batches are taken not to grow\n"},
		"--defer-embedding-wgrad-compute":                           {"# Not taken over: --defer-embedding-wgrad-compute true\n"},
		"--disable-tp-comm-bulk-dgrad --moe-router-padding-for-fp8": {"# Without a key: --disable-tp-comm-bulk-dgrad --moe-router-padding-for-fp8"},
		experts:                             {"# Not taken over: without --moe-grouped-gemm: experts run one after another; grouped GEMMs of all are taken"},
		experts + "--moe-router-dtype fp64": {"# Not taken over: --moe-router-dtype fp64"},
	})
	for _, free := range []string{
		"", "--ddp-bucket-size 20000000", "--empty-unused-memory-level 0", "--moe-router-dtype fp64", experts + "--moe-grouped-gemm --moe-router-dtype fp32 --moe-token-dispatcher-type alltoall",
		"--adam-beta1 0.9 --lr 1e-4 --lr-warmup-iters 10 --log-interval 1 --log-timers-to-tensorboard --save x --save-interval 5 --no-load-optim --dist-ckpt-strictness log_all --rotary-base 500000 --tokenizer-model x --init-method-std 0.02",
	} {
		text := pretrain(t, free)
		require.NotContains(t, text, "Not taken over", free)
		require.NotContains(t, text, "Without a key", free)
		require.NotContains(t, text, "bucket", free)
	}
}

// TestDispatchers: what carries rows of experts, of which NCCL EP stands on Hybrid-EP's figures.
func TestDispatchers(t *testing.T) {
	const flex = "--num-experts 8 --moe-grouped-gemm --moe-token-dispatcher-type flex "
	holds(t, map[string][]string{
		flex: {"token_dispatcher: deepep # --moe-token-dispatcher-type"},
		flex + "--moe-flex-dispatcher-backend hybridep": {"token_dispatcher: hybridep # --moe-flex-dispatcher-backend"},
		flex + "--moe-flex-dispatcher-backend ncclep":   {"token_dispatcher: hybridep # --moe-flex-dispatcher-backend", "# Not taken over: --moe-flex-dispatcher-backend ncclep: rows of experts are taken to travel as by Hybrid-EP"},
	})
}

// TestContexts: context ranks come by keys and values in one way that is known.
func TestContexts(t *testing.T) {
	const way = "--context-parallel-size 4 --cp-comm-type "
	holds(t, map[string][]string{
		way + "p2p":                 {"cp_comm_type: p2p # --cp-comm-type"},
		way + "a2a a2a a2a a2a":     {"cp_comm_type: a2a # --cp-comm-type"},
		way + "a2a p2p p2p a2a+p2p": {"cp_comm_type: a2a #", "# Not taken over: --cp-comm-type a2a p2p a2a+p2p: a2a is taken in all layers"},
		way + "a2a+p2p":             {"cp_comm_type: p2p #", "# Not taken over: --cp-comm-type a2a+p2p: p2p is taken in all layers"},
		way + "allgather":           {"cp_comm_type: p2p #", "# Not taken over: --cp-comm-type allgather: p2p is taken in all layers"},
	})
	require.NotContains(t, pretrain(t, way+"p2p"), "Not taken over")
	require.NotContains(t, pretrain(t, "--cp-comm-type a2a"), "a2a", "without context ranks")
}

// TestTorchFSDP: PyTorch's FSDP2, for which Megatron's own switches of replicas say nothing.
func TestTorchFSDP(t *testing.T) {
	holds(t, map[string][]string{
		"--use-torch-fsdp2": {"data_parallel: fsdp2 # --use-torch-fsdp2"},
		"--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward":                                     {"reshard_after_forward: false # --torch-fsdp2-no-reshard-after-forward"},
		"--use-torch-fsdp2 True --torch-fsdp2-reshard-after-forward False --overlap-grad-reduce False": {"reshard_after_forward: false # --torch-fsdp2-reshard-after-forward"},
	})
	text := pretrain(t, "--use-torch-fsdp2 --overlap-grad-reduce False --ddp-bucket-size 1000")
	for _, not := range []string{"overlap_grad_reduce", "bucket", "reshard", "Not taken over"} {
		require.NotContains(t, text, not)
	}
}

// TestOtherNames: arguments that other releases have for the same.
func TestOtherNames(t *testing.T) {
	holds(t, map[string][]string{
		"--use-rotary-position-embeddings --no-rope-fusion":                    {"position: rope # --use-rotary-position-embeddings", "rope_fusion: false"},
		"--enable-cuda-graph":                                                  {"# Not taken over: --enable-cuda-graph: which parts of a layer are replayed"},
		"--external-cuda-graph":                                                {"# Not taken over: --external-cuda-graph: which parts of a layer are replayed"},
		"--make-vocab-size-divisible-by 2":                                     {"vocab_multiple: 2 # --make-vocab-size-divisible-by"},
		"--timing-log-level 2":                                                 {"# Not taken over: --timing-log-level 2: its timers wait for the GPU"},
		"--cuda-graph-impl transformer_engine --cuda-graph-modules attn mamba": {"cuda_graphs: mixers # --cuda-graph-modules"},
		"--fine-grained-activation-offloading --offload-modules core_attn attn_proj --min-offloaded-tensor-size 5000 --activation-offload-fraction 0.8 --delay-offload-until-cuda-graph": {
			"offload_modules: [core_attn, attn_proj] # --offload-modules", "min_offloaded_tensor_size: 5000 # --min-offloaded-tensor-size", "activation_offload_fraction: 0.8 # --activation-offload-fraction"},
		"--fine-grained-activation-offloading --offload-modules core_attn --delta-offload-bytes-across-pp-ranks 1000": {"# Not taken over: --delta-offload-bytes-across-pp-ranks 1000"},
		"--moe-layer-recompute --num-experts 8":                                           {"recompute: selective # --moe-layer-recompute", "recompute_modules: [core_attn, moe] # --moe-layer-recompute"},
		"--moe-layer-recompute --num-experts 8 --recompute-modules layernorm mla_up_proj": {"recompute_modules: [layernorm, mla_up_proj, moe]"},
	})
	require.NotContains(t, pretrain(t, "--timing-log-level 0 --timing-log-option max --no-barrier-with-level-1-timing --accumulate-allreduce-grads-in-fp32"), "\n# ")
}

// TestLogCosts: a log has what is turned off by its name, and all else that there is.
func TestLogCosts(t *testing.T) {
	j, err := launch.Read("x", []byte("  num_layers ............ 4\n  hidden_size ........... 64\n  num_attention_heads ... 4\n  bf16 .................. True\n  vocab_size ............ 128\n"+
		"  bias_dropout_fusion ... False\n  gradient_accumulation_fusion ... True\n  empty_unused_memory_level ... 0\n  ddp_bucket_size ....... None\n  hybrid_layer_pattern .. None\n  log_params_norm ....... False\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"bias_dropout_fusion False"}, j.Notes)
	require.Empty(t, j.Ignored)
}

// TestVirtualStages: stages of a rank by the layers of each, also where one of the two is open.
func TestVirtualStages(t *testing.T) {
	for text, want := range map[string]string{
		"--num-layers 32":  "virtual_stages: 2 # --num-layers-per-virtual-pipeline-stage\n",
		"--num-layers $NL": "# plan.virtual_stages: --num-layers-per-virtual-pipeline-stage: 4 layers each, of a number of layers that is not known: give the key\n",
	} {
		require.Contains(t, initial(t, "p.py --micro-batch-size 1 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 --bf16 "+text), want)
	}
	require.Contains(t, initial(t, "p.py --micro-batch-size 1 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage $E --bf16 --num-layers 32"), "# plan.virtual_stages: --num-layers-per-virtual-pipeline-stage: line 1 takes $E, which")
}

// TestSequenceParallel: whether tensor ranks cut sequences, too, and what says so.
func TestSequenceParallel(t *testing.T) {
	const script = "p.py --num-layers 4 --micro-batch-size 1 --tensor-model-parallel-size 2 --bf16"
	require.Contains(t, initial(t, script), "sequence_parallel: false # without --sequence-parallel\n")
	require.Contains(t, initial(t, script+" --sequence-parallel"), "sequence_parallel: true # --sequence-parallel\n")
}

// TestMegatronDeepSpeed: arguments of DeepSpeed's fork, whose defaults are others.
func TestMegatronDeepSpeed(t *testing.T) {
	const zero, experts = "--deepspeed --zero-stage 1 ", "--deepspeed --zero-stage 1 --num-experts 8 "
	holds(t, map[string][]string{
		zero:                                   {"recipe: megatron-deepspeed # --deepspeed", "data_parallel: zero1 # --zero-stage"},
		"--deepspeed":                          {"# plan.data_parallel: without --zero-stage: the configuration of DeepSpeed has the stage of ZeRO: name it by --from, too"},
		"--deepspeed --zero-stage 0":           {"data_parallel: ddp # --zero-stage"},
		zero + "--num-key-value-heads 2":       {"num_key_value_heads: 2 # --num-key-value-heads"},
		zero + "--use-flash-attn-v2":           {"attention: flash-attn # --use-flash-attn-v2"},
		zero + "--ds-sequence-parallel-size 4": {"cp: 4 # --ds-sequence-parallel-size", "release: \"23.08\" # --ds-sequence-parallel-size, which came with it"},
		zero + "--pipeline-model-parallel-size 2 --enable-zbh1-pipeline": {"schedule: zb-h1 # --enable-zbh1-pipeline"},
		experts: {"num_experts: 8 # --num-experts", "num_experts_per_tok: 1 # default of --topk", "decoder_sparse_step: 2 # default of --expert-interval", "expert_tp: 1 # without --enable-expert-tensor-parallelism", "expert_capacity: 1 # default of --moe-train-capacity-factor"},
		experts + "--topk 2 --expert-interval 1 --moe-expert-parallel-size 4": {"num_experts_per_tok: 2 # --topk", "decoder_sparse_step: 1 # --expert-interval", "ep: 4 # --moe-expert-parallel-size"},
		experts + "--disable-moe-token-dropping":                              {"# train.expert_capacity: --disable-moe-token-dropping: experts are filled up to the rows of the busiest: give how many times the mean it has, as in 1.3"},
		experts + "--moe-train-capacity-factor 1.25":                          {"expert_capacity: 1.25 # --moe-train-capacity-factor"},
		experts + "--mlp-type residual":                                       {"# Not taken over: --mlp-type residual: experts are taken to be alone, without the dense layer beside them"},
		"--deepspeed --num-experts 8 8 8":                                     {"num_experts: 8 # --num-experts"},
		"--deepspeed --num-experts 8 16":                                      {"num_experts: 16 # --num-experts", "# Not taken over: --num-experts [8, 16]: as many experts in all layers"},
	})
	for _, dense := range []string{zero + "--num-experts 1 --moe-expert-parallel-size 1 --moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 --topk 1 --expert-interval 2", zero + "--mlp-type standard --enable-zbh1-pipeline --no-pipeline-parallel --data-impl mmap --train-tokens 100"} {
		text := pretrain(t, dense)
		for _, not := range []string{"expert", "Not taken over", "Without a key", "schedule"} {
			require.NotContains(t, text, not, dense)
		}
	}
	const log = "  num_layers ............ 4\n  hidden_size ........... 64\n  num_attention_heads ... 4\n  micro_batch_size ...... 1\n  fp16 .................. True\n  vocab_size ............ 128\n  deepspeed ............. True\n  zero_stage ............ 1.0\n  topk .................. 1\n  num_key_value_heads ... 2\n"
	require.Contains(t, initial(t, log+"  num_experts ........... [1]\n"), "num_key_value_heads: 2 # num_key_value_heads\n")
	logged := initial(t, log+"  num_experts ........... [8]\n  moe_token_dropping .... False\n  expert_interval ....... 1\n  moe_loss_coeff ........ 0.01\n")
	for _, want := range []string{"num_experts: 8 # num_experts\n", "# train.expert_capacity: moe_token_dropping: experts are filled up", "# plan.data_parallel: zero_stage: the configuration of DeepSpeed has the stage"} {
		require.Contains(t, logged, want)
	}
	_, err := launch.Read("x", []byte("p.py --num-layers 4 --hidden-size 64 --micro-batch-size 1 --deepspeed --num-key-value-heads two"))
	require.EqualError(t, err, `x:1:1: --num-key-value-heads: "two"; give a whole number from 1 on`)
	const sharded = "p.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 64 --micro-batch-size 1 --seq-length 128 --max-position-embeddings 128 --fp16 --deepspeed --cpu-optimizer --swiglu --num-experts 4"
	for _, files := range [][]string{{sharded, `{"zero_optimization": {"stage": 1}}`}, {`{"zero_optimization": {"stage": 1}}`, sharded}} {
		got := initial(t, files...)
		require.Contains(t, got, "recipe: megatron-deepspeed #")
		require.Contains(t, got, "data_parallel: zero1 # zero_optimization.stage")
		require.Contains(t, got, "offload: optimizer # --cpu-optimizer\n")
		predictable(t, []byte(got), 4)
	}
}

// TestPrograms: the program says what is trained, whose arguments are those of a GPT all the same.
func TestPrograms(t *testing.T) {
	const args = " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 2 --bf16 --vocab-size 128"
	for command, want := range map[string]string{
		"torchrun --nproc_per_node 8 pretrain_bert.py":            "x: pretrain_bert.py trains a head for pairs of sentences (Megatron's BERT), which is not modelled; give a script that starts pretrain_gpt.py or pretrain_hybrid.py",
		"deepspeed $(pwd)/../pretrain_t5.py":                      "x: pretrain_t5.py trains an encoder beside its decoder (T5), which is not modelled",
		"python pretrain_ict.py":                                  "x: pretrain_ict.py trains two encoders",
		"S=pretrain_retro.py\npython -m torch.distributed.run $S": "x: pretrain_retro.py trains retrieved texts",
		"torchrun examples/multimodal/train.py":                   "x: multimodal/train.py trains images",
		"torchrun pretrain_vision_classify.py":                    "x: pretrain_vision_classify.py trains images",
	} {
		_, err := launch.Read("x", []byte(command+args))
		require.ErrorContains(t, err, want)
	}
	for _, known := range []string{"torchrun ../pretrain_gpt.py", "python train.py", "torchrun my_pretrain_bert.py"} {
		require.Contains(t, initial(t, known+args), "num_hidden_layers: 4 # --num-layers")
	}
	require.Contains(t, initial(t, "torchrun pretrain_mamba.py"+args), "# model: --hybrid-layer-pattern: left out, so that no letters say which layers of pretrain_mamba.py are Mamba mixers: give the key")
	require.Contains(t, initial(t, "torchrun pretrain_hybrid.py --hybrid-layer-pattern M*M-"+args), "hybrid_layer_pattern: M*M-")
}

// TestShardTypes: the dtypes of Megatron-FSDP's buffers.
func TestShardTypes(t *testing.T) {
	const fsdp = "--use-megatron-fsdp --megatron-fsdp-"
	holds(t, map[string][]string{
		fsdp + "main-grads-dtype bf16":                                      {"gradients: bf16 # --megatron-fsdp-main-grads-dtype", "reduce: bf16 # --megatron-fsdp-main-grads-dtype"},
		fsdp + "main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype bf16": {"gradients: fp32 # --megatron-fsdp-main-grads-dtype", "reduce: bf16 # --megatron-fsdp-grad-comm-dtype"},
		fsdp + "main-params-dtype bf16":                                     {"master: bf16 # --megatron-fsdp-main-params-dtype"},
	})
	for _, none := range []string{fsdp + "main-grads-dtype auto --megatron-fsdp-grad-comm-dtype auto", "--megatron-fsdp-main-grads-dtype bf16"} {
		text := pretrain(t, none)
		for _, not := range []string{"dtypes", "Without a key", "Not taken over"} {
			require.NotContains(t, text, not, none)
		}
	}
	predictable(t, []byte(pretrain(t, fsdp+"main-grads-dtype bf16 --megatron-fsdp-grad-comm-dtype bf16 --seq-length 128 --max-position-embeddings 128")), 8)
}

// TestGates: what gives an MLP its gate, and its activation.
func TestGates(t *testing.T) {
	const gated, sixteen = "gated_mlp: true # ", "intermediate_size: 256 # of hidden_size"
	holds(t, map[string][]string{
		"--swiglu":                              {gated + "--swiglu", "hidden_act: silu # --swiglu\n", "intermediate_size: 128 # of hidden_size"},
		"--quick-geglu":                         {gated + "--quick-geglu", "hidden_act: silu # --quick-geglu, which costs what SiLU does\n", sixteen},
		"--quick-geglu --no-bias-gelu-fusion":   {"gate_fusion: false # --no-bias-gelu-fusion"},
		"--quick-geglu --no-bias-swiglu-fusion": {gated + "--quick-geglu"},
		"--glu-activation geglu":                {gated + "--glu-activation", "hidden_act: gelu # --glu-activation\n", sixteen},
		"--glu-activation liglu":                {"# model.hidden_act: --glu-activation: liglu is not known: give the key"},
		"":                                      {"gated_mlp: false # without --swiglu", "hidden_act: gelu # without --swiglu", sixteen},
	})
	require.NotContains(t, pretrain(t, "--quick-geglu --no-bias-swiglu-fusion"), "gate_fusion")
}

// TestElsewhere: parts of a command that nothing sets may have what a model is, and all else that is
// taken where arguments are not there.
func TestElsewhere(t *testing.T) {
	const why = "which the file does not set, may have arguments for it: give the key\n"
	for script, want := range map[string][]string{
		"torchrun x.py $MODEL_ARGS --micro-batch-size 3 $MORE $@": {"# model: $MODEL_ARGS, $MORE: " + why, "# train.precision: without --bf16 and --fp16: $MODEL_ARGS, $MORE: " + why, "micro_batch: 3 # --micro-batch-size\n",
			"# plan.data_parallel: without --use-distributed-optimizer: $MODEL_ARGS", "# Not taken over: $MORE in the command of line 1"},
		"torchrun x.py --micro-batch-size 3 $@":                                                 {"precision: fp32 # without --bf16 and --fp16\n"},
		"torchrun x.py --micro-batch-size 3 --num-layers 4 --hidden-size 64 --fp16 $EXTRA_ARGS": {"recompute: none # without --recompute-granularity\n"},
	} {
		got := initial(t, script)
		for _, w := range want {
			require.Contains(t, got, w, script)
		}
	}
}

// TestFusedLoss: Megatron-Core fuses the loss itself unless it is told to take Transformer Engine's
// (megatron/core/transformer/transformer_config.py, cross_entropy_fusion_impl); unfused there is neither.
func TestFusedLoss(t *testing.T) {
	holds(t, map[string][]string{
		"--cross-entropy-loss-fusion":                                    {"fused_cross_entropy: true #", "cross_entropy_impl: native # default of --cross-entropy-fusion-impl"},
		"--cross-entropy-loss-fusion --cross-entropy-fusion-impl te":     {"cross_entropy_impl: te # --cross-entropy-fusion-impl"},
		"--cross-entropy-loss-fusion --cross-entropy-fusion-impl native": {"cross_entropy_impl: native # --cross-entropy-fusion-impl"},
	})
	require.NotContains(t, pretrain(t, "--cross-entropy-fusion-impl te"), "cross_entropy_impl")
}
