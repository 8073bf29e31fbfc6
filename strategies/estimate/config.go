package estimate

import (
	"cmp"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
)

// config is what the ops of one rank depend on.
func config(j *strategies.Job) ops.Config {
	some := j.Train.Recomputed()
	plain, masked := j.SDPAFlavours()
	return ops.Config{
		Spec:        j.Model,
		Recipe:      j.Recipe,
		LayerRecipe: j.Layers,
		Precision:   precision(j),
		Shard: ops.Shard{
			TP: j.Plan.TP, CP: j.Plan.CP, EP: j.Plan.EP, ExpertTP: j.Plan.ExpertTP, CPHeads: j.Plan.ByHeads(), SequenceParallel: j.Plan.SP(),
			Flex: flexDispatch(j), DeepEP: deepEP(j), Domains: domains(j),
		},
		InputConfig: ops.InputConfig{
			MicroBatch: j.Train.MicroBatch,
			Sequence:   j.Train.SequenceLength,
			Source:     j.Train.SourceLength,
			Document:   j.Train.DocumentLength,
			Padding:    j.Train.Padding,
		},
		KernelConfig: ops.KernelConfig{
			Attention:  j.Runtime.Attention,
			Efficient:  j.EfficientKernel(),
			SDPA:       plain,
			MaskedSDPA: masked,
			HeadsApart: headsApart(j),
			TF32:       j.TF32(),
			AnyLayout:  anyLayout(j),
			OpFuser:    j.FusesOps(),
			QKVRotary:  j.TurnsJoined(),
		},
		CheckpointConfig: ops.CheckpointConfig{
			Recompute:   j.Train.Recompute,
			Modules:     ops.Modules(j.Train.RecomputeModules),
			WholeLayers: j.WholeLayers(),
			Partly:      some.Partly(),
			Together:    some.Together(),
			Away:        ops.Away(j.Train.OffloadModules),
			Least:       j.Train.OffloadLeast(),
		},
		LossConfig: ops.LossConfig{
			LossApart:   j.Plan.LossApart(j.Model, j.Recipe),
			FusedLoss:   isOn(j.Runtime.FusedCrossEntropy),
			NativeLoss:  j.NativeLoss(),
			WrittenLoss: j.Runtime.CrossEntropyImpl == strategies.WrittenLoss,
			KeepsLogits: isOn(j.Runtime.KeepsLogits),
			LossAlone:   j.LossAlone(),
			WholeLoss:   j.WholeLoss(),
			Metrics:     j.Train.TokenMetrics,
			AsTheyAre:   j.AsTheyAre(),
			LinearLoss:  j.LinearLoss(),
			FreeGiB:     freeGiB(j),
			LossChunks:  j.Runtime.LossChunks,
			ChunksKeep:  j.Runtime.LossChunksKeep,
		},
		ExpertConfig: ops.ExpertConfig{
			SyncFree:  syncFree(j),
			JointMLPs: isOn(j.Runtime.GroupedMLPFusion),
			Capacity:  j.Train.Capacity,
			Imbalance: imbalance(j),
			InTurn:    j.Train.Routing == strategies.InTurnRouting,
		},
		AdapterConfig: ops.AdapterConfig{
			UnitApart:  j.AdapterUnits(),
			UnitCopies: j.UnitCopies(),
		},
		GraphConfig: ops.GraphConfig{
			OneGraph:    oneGraph(j),
			LayerGraphs: layerGraphs(j),
			Bucket:      graphBucket(j),
		},
	}
}

// isOn reports whether a job asks for something, which it may leave open.
func isOn(on *bool) bool { return on != nil && *on }

// freeGiB is the device memory that weights leave, where the loss asks for it.
func freeGiB(j *strategies.Job) float64 {
	if s := &j.Recipe.Structure; s.LinearLoss == "" || s.LossGiB > 0 {
		return 0
	}
	weights, matrices := float64(j.Model.Params().Total), float64(j.Model.MatrixParams(true))
	bytes := weights * float64(j.Precision.Weights.Size())
	if f := j.Precision.Frozen; f.Set {
		bytes -= matrices * float64(j.Precision.Weights.Size()-f.Size())
	}
	return (float64(j.Hardware.GPU.Memory.Value) - bytes) / float64(units.GiB)
}

// headsApart reports whether PyTorch is asked to let query heads share those of keys but runs no
// fused attention that does: neither FlashAttention nor cuDNN take 32 bits or GPUs before Ampere, and
// the memory-efficient kernel took no shared heads before 2.14 (aten/native/transformers/cuda/sdp_utils.cpp).
func headsApart(j *strategies.Job) bool {
	if release := cmp.Or(j.Runtime.Libraries, j.Runtime.Release); release > 0 && !release.Before(j.Recipe.Structure.EfficientGroups) {
		return false
	}
	return j.Recipe.Structure.SharesHeads && (j.Precision.Compute.DType == tape.F32 || !j.Runs("flash"))
}

// oneGraph reports whether a compiler sees the whole model at once: no hook of data parallelism
// and no other rank's part breaks its graph.
func oneGraph(j *strategies.Job) bool {
	return j.Recipe.Structure.CompiledScope == "model" && j.GPUs == 1 && !layerGraphs(j)
}

// layerGraphs reports whether hooks of FSDP, which no graph takes in, leave a graph of each layer (skip_fsdp_hooks of torch._dynamo.config).
func layerGraphs(j *strategies.Job) bool {
	return j.Recipe.Structure.CompiledScope == "model" && j.Plan.DataParallel.FSDP() && j.Plan.Wraps(j.Plan.DP*j.Plan.CP)
}

// graphBucket is the size of DDP's buckets, where a graph of a compiled model, or layer, ends with each
// (ops.Config); else 0. Frozen weights fill none, and checkpoints are in no such graph.
func graphBucket(j *strategies.Job) units.Bytes {
	if s := &j.Recipe.Structure; s.CompiledScope != "model" && j.Layers == nil || j.Plan.DP == 1 || j.Train.Recompute != ops.NoRecompute || j.Model.LoRA != nil || !j.Plan.TorchDDP(j.Recipe) {
		return 0
	}
	return cmp.Or(j.Plan.Bucket, j.Recipe.Overlap.Bucket, dataparallel.DefaultBucket)
}

// anyLayout reports whether GEMMs read 8-bit operands of one scale along rows and columns alike.
func anyLayout(j *strategies.Job) bool {
	return j.Recipe.Structure.AnyLayout && j.Hardware.Laws.GEMM.AnyLayout
}
