package report

import (
	"fmt"
	"strconv"
	"strings"
)

// records is the prediction as one row, so that rows of several estimates make one
// table.
func (e *Estimate) records() ([]string, [][]string) {
	r := e.Result
	j := r.Job
	var header, row []string
	add := func(key, value string) {
		header = append(header, key)
		row = append(row, value)
	}
	count := func(key string, v int64) { add(key, integer(v)) }
	value := func(key string, v float64) { add(key, number(v)) }

	add("model", j.ModelName)
	add("hardware", j.Hardware.Name)
	count("gpus", j.GPUs)
	add("recipe", j.Runtime.Recipe)
	p := &j.Plan
	count("tp", p.TP)
	add("sequence_parallel", strconv.FormatBool(p.SP()))
	count("cp", p.CP)
	add("cp_comm_type", string(p.CPCommType))
	count("ep", p.EP)
	count("expert_tp", p.ExpertTP)
	count("pp", p.PP)
	count("virtual_stages", p.VirtualStages)
	add("stage_layers", string(p.StageLayers))
	count("drain_every", p.DrainEvery)
	count("dp", p.DP)
	add("schedule", p.Schedule)
	add("data_parallel", string(p.DataParallel))
	count("shard_degree", p.ShardDegree)
	add("shard_optimizer", switchText(p.ShardOptimizer))
	value("bucket_bytes", float64(p.Bucket))
	add("bucket_view", switchText(p.BucketView))
	add("reshard_after_forward", switchText(p.ReshardAfterForward))
	add("sync_every_micro_batch", switchText(p.SyncEveryMicroBatch))
	add("offload", string(p.Offload))
	add("offload_fraction", knownNumber(p.OffloadFraction))
	add("offload_overlap", switchText(p.OffloadOverlap))
	add("order", string(p.Order))
	t := &j.Train
	count("sequence_length", t.SequenceLength)
	count("micro_batch", t.MicroBatch)
	count("grad_accumulation", t.GradAccumulation)
	count("global_batch", t.GlobalBatch)
	add("precision", t.Precision)
	add("optimizer", t.Optimizer)
	rank, targets := "", ""
	if l := t.LoRA; l != nil {
		rank, targets = integer(l.Rank), strings.Join(l.Targets, " ")
	}
	add("lora_rank", rank)
	add("lora_targets", targets)
	add("document_length", knownNumber(float64(t.DocumentLength)))
	add("padding", knownNumber(t.Padding))
	images, size, frozen := "", "", ""
	if i := t.Images; i != nil {
		images, size, frozen = integer(i.PerSequence), i.Size.String(), strings.Join(i.Frozen, " ")
	}
	add("images_per_sequence", images)
	add("image_size", size)
	add("frozen", frozen)
	away := knownNumber(float64(t.OffloadLayers))
	if t.OffloadActivations {
		away = "all"
	}
	add("offload_layers", away)
	add("offload_modules", t.OffloadModules.String())
	add("recompute", string(t.Recompute))
	add("recompute_modules", t.RecomputeModules.String())
	layers := "" // every job has every column, so that rows of several make one table
	some := t.Recomputed()
	if some.Method != "" {
		layers = integer(some.Layers)
	}
	add("recompute_method", string(some.Method))
	add("recompute_num_layers", layers)
	value("step_time_s", float64(r.StepTime))
	value("step_time_low_s", float64(r.Low))
	value("step_time_high_s", float64(r.High))
	value("forward_s", float64(r.Forward))
	value("backward_s", float64(r.Backward))
	value("optimizer_s", float64(r.Optimizer))
	value("tokens_per_s_per_gpu", r.TokensPerSecond)
	value("model_tflops_per_gpu", float64(modelRate(r))/1e12)
	value("mfu", r.MFU)
	value("hfu", r.HFU)
	add("bound", r.Bound)
	value("bubble_fraction", r.Bubble)
	for _, x := range partsOf(r) {
		add("parts."+x.key+"_s", fmt.Sprint(x.value))
	}
	m := &r.Memory
	value("peak_allocated_bytes", float64(m.PeakAllocated))
	value("peak_reserved_bytes", float64(m.PeakReserved))
	value("device_used_bytes", float64(m.DeviceUsed))
	value("capacity_bytes", float64(m.Capacity))
	value("host_bytes_per_node", float64(m.Host))
	add("fits", strconv.FormatBool(m.Fits))
	return header, [][]string{row}
}

// switchText is a switch that a plan may leave to its kind of data parallelism.
func switchText(on *bool) string {
	if on == nil {
		return ""
	}
	return strconv.FormatBool(*on)
}
