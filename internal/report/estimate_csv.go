package report

import (
	"strings"

	"github.com/perfplan/perfplan/strategies"
)

// records is the prediction as one row, so that rows of several estimates make one
// table: every job has every column.
func (e *Estimate) records() (header []string, rows [][]string) {
	r := e.Result
	j := r.Job
	row := append(ordered{{"model", j.ModelName}, {"hardware", j.Hardware.Name}, {"gpus", j.GPUs}, {"recipe", j.Runtime.Recipe}}, planColumns(&j.Plan)...)
	row = append(row, trainColumns(&j.Train)...)
	row = append(row, ordered{
		{"step_time_s", r.StepTime}, {"step_time_low_s", r.Low}, {"step_time_high_s", r.High}, {"forward_s", r.Forward}, {"backward_s", r.Backward}, {"optimizer_s", r.Optimizer},
		{"tokens_per_s_per_gpu", r.TokensPerSecond}, {"model_tflops_per_gpu", modelRate(r) / 1e12}, {"mfu", r.MFU}, {"hfu", r.HFU}, {"bound", r.Bound}, {"bubble_fraction", r.Bubble},
	}...)
	for _, p := range parts(r) {
		row = append(row, entry{"parts." + p.key + "_s", p.time})
	}
	m := &r.Memory
	row = append(row, ordered{
		{"peak_allocated_bytes", m.PeakAllocated}, {"peak_reserved_bytes", m.PeakReserved}, {"device_used_bytes", m.DeviceUsed}, {"capacity_bytes", m.Capacity}, {"host_bytes_per_node", m.Host}, {"fits", m.Fits},
	}...)
	var cells []string
	for _, c := range row {
		header, cells = append(header, c.key), append(cells, cell(c.value))
	}
	return header, [][]string{cells}
}

// planColumns are empty for switches that a plan leaves to its kind of data parallelism.
func planColumns(p *strategies.Plan) ordered {
	return ordered{
		{"tp", p.TP}, {"sequence_parallel", p.SP()}, {"cp", p.CP}, {"cp_comm_type", p.CPCommType}, {"ep", p.EP}, {"expert_tp", p.ExpertTP},
		{"pp", p.PP}, {"virtual_stages", p.VirtualStages}, {"stage_layers", string(p.StageLayers)}, {"drain_every", p.DrainEvery}, {"dp", p.DP}, {"schedule", p.Schedule},
		{"data_parallel", p.DataParallel}, {"shard_degree", p.ShardDegree}, {"shard_optimizer", p.ShardOptimizer}, {"bucket_bytes", p.Bucket}, {"bucket_view", p.BucketView}, {"units", p.Units}, {"unit_params", known(float64(p.UnitParams))}, {"adapter_units", p.AdapterUnits}, {"wrap_one_rank", p.WrapOneRank},
		{"reshard_after_forward", p.ReshardAfterForward}, {"sync_every_micro_batch", p.SyncEveryMicroBatch},
		{"offload", string(p.Offload)}, {"offload_fraction", known(p.OffloadFraction)}, {"offload_overlap", p.OffloadOverlap}, {"order", p.Order},
	}
}

func trainColumns(t *strategies.Train) ordered {
	var rank, targets, images, size, frozen, away, layers any
	if l := t.LoRA; l != nil {
		rank, targets = l.Rank, strings.Join(l.Targets, " ")
	}
	if i := t.Images; i != nil {
		images, size, frozen = i.PerSequence, i.Size.String(), strings.Join(i.Frozen, " ")
	}
	if away = known(float64(t.OffloadLayers)); t.OffloadActivations {
		away = "all"
	}
	some := t.Recomputed()
	if some.Method != "" {
		layers = some.Layers
	}
	return ordered{
		{"sequence_length", t.SequenceLength}, {"source_length", known(float64(t.SourceLength))}, {"micro_batch", t.MicroBatch}, {"grad_accumulation", t.GradAccumulation}, {"global_batch", t.GlobalBatch}, {"precision", t.Precision}, {"optimizer", t.Optimizer},
		{"lora_rank", rank}, {"lora_targets", targets}, {"document_length", known(float64(t.DocumentLength))}, {"padding", known(t.Padding)}, {"length_spread", known(t.LengthSpread)},
		{"images_per_sequence", images}, {"image_size", size}, {"frozen", frozen}, {"offload_layers", away}, {"offload_modules", t.OffloadModules.String()},
		{"recompute", t.Recompute}, {"recompute_modules", t.RecomputeModules.String()}, {"recompute_method", some.Method}, {"recompute_num_layers", layers},
	}
}
