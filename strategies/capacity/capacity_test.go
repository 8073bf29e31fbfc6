package capacity

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/whatif"
)

func decode(text string) (*strategies.Job, error) {
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return strategies.Decode(doc, doc.Root)
}

func job(t require.TestingT, text string) *strategies.Job {
	j, err := decode(text)
	require.NoError(t, err, text)
	return j
}

func trained(t require.TestingT, text string) *Training {
	r, err := whatif.Predict(job(t, text), estimate.Options{})
	require.NoError(t, err)
	x, err := Train(r)
	require.NoError(t, err)
	return x
}

const day = units.Seconds(86400)

// TestTrainLaws: days times GPUs are the GPU-hours, cost and energy follow them, and
// the time is that of the steps over the goodput.
func TestTrainLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.SampledFrom([]int{8, 64, 512}).Draw(t, "gpus")
		price := rapid.Float64Range(0.5, 20).Draw(t, "price")
		spares := rapid.IntRange(0, 4).Draw(t, "spares")
		text := fmt.Sprintf(`{model: llama2-7b, hardware: h100-sxm, gpus: %d, plan: {data_parallel: zero1}, run: {tokens: %dB, price_per_gpu_hour: %g, spare_nodes: %d, straggler_loss: %g}}`,
			gpus, rapid.IntRange(1, 3000).Draw(t, "tokens"), price, spares, rapid.Float64Range(0, 0.2).Draw(t, "stragglers"))
		x := trained(t, text)
		require.EqualValues(t, gpus+8*spares, x.GPUs)
		require.InEpsilon(t, float64(x.Time)/3600*float64(x.GPUs), x.GPUHours, 1e-9)
		require.InEpsilon(t, x.GPUHours*price, x.Cost, 1e-9)
		require.GreaterOrEqual(t, float64(x.Steps)*x.Result.Job.Tokens(), x.Tokens)
		require.Less(t, float64(x.Steps-1)*x.Result.Job.Tokens(), x.Tokens)
		require.InEpsilon(t, float64(x.Result.StepTime)*float64(x.Steps), float64(x.Time)*x.Plan.Goodput, 1e-9)
		require.LessOrEqual(t, x.Low, x.Time)
		require.GreaterOrEqual(t, x.High, x.Time)
		require.LessOrEqual(t, float64(x.GPUEnergy), float64(x.Result.Power)*float64(x.Time)*float64(gpus)*(1+1e-9))
		require.InEpsilon(t, float64(x.GPUEnergy)*1.59*1.2, float64(x.SiteEnergy), 1e-9)
	})
}

// TestBLOOM: 366 B tokens on 384 A100 took 1,082,990 GPU-hours in three and a half
// months, and a full checkpoint 2.3 TB (BLOOM, arXiv 2211.05100, section 3.2).
func TestBLOOM(t *testing.T) {
	x := trained(t, `{model: bloom-176b, hardware: a100-80g-sxm, gpus: 384, runtime: {recipe: megatron-deepspeed}, plan: {tp: 4, pp: 12, data_parallel: zero1},
		train: {sequence_length: 2048, micro_batch: 2, global_batch: 2048, recompute: full}, run: {tokens: 366B, spare_nodes: 4}}`)
	require.InEpsilon(t, 2.3e12, float64(x.Checkpoint), 0.1)
	require.InEpsilon(t, 1_082_990, x.GPUHours, 0.25)
}

// TestCheckpointBytes: Megatron saves 16-bit weights, fp32 masters and two moments, 14 bytes a
// parameter; beside frozen weights those of the adapters (one of q, k, v and one of gate, up
// each in the model's count, which has them apart), PEFT's in fp32 with two moments.
func TestCheckpointBytes(t *testing.T) {
	for text, want := range map[string]float64{
		"{model: llama3-8b, runtime: {recipe: megatron-core}, train: {precision: bf16}}":                        8030261248 * 14,
		"{model: llama3-8b, runtime: {recipe: megatron-core}, train: {precision: bf16, lora: {rank: 16}}}":      41943040 * 14,
		"{model: llama3-8b, gpus: 1, runtime: {recipe: hf-eager}, plan: {}, train: {lora: {rank: 16}}}":         41943040 * 12,
		"{model: llama3-8b, gpus: 1, runtime: {recipe: hf-eager}, plan: {}, train: {precision: bf16-autocast}}": 8030261248 * 12,
	} {
		require.Equal(t, want, float64(CheckpointBytes(job(t, text))), text)
	}
}

func TestTrainNeedsTokens(t *testing.T) {
	r, err := whatif.Predict(job(t, `{model: gpt2, gpus: 8}`), estimate.Options{})
	require.NoError(t, err)
	_, err = Train(r)
	require.ErrorContains(t, err, "run.tokens: is missing; say how much to train on, as in --tokens 2T")
}

func TestTrainWithoutPrice(t *testing.T) {
	x := trained(t, `{model: gpt2, hardware: h100-sxm, gpus: 8, run: {tokens: 1B}}`)
	require.Zero(t, x.Cost)
	require.Equal(t, "price.unknown", x.Notes[0].Code)
	require.Contains(t, trained(t, `{model: gpt2, hardware: aws-p5, gpus: 8, run: {tokens: 1B}}`).PriceSource, "AWS")
}

// TestLowGoodput: a run that hardly makes progress says which input does it.
func TestLowGoodput(t *testing.T) {
	for run, want := range map[string]string{
		"mtbf_per_gpu: 10 h":                                "run.mtbf_per_gpu = 10.00 h does it",
		"mtbf_per_gpu: 3000 h, restart_time: 30 h":          "run.restart_time = 30.00 h does it",
		"storage_rate_per_gpu: 1 kB/s":                      "run.storage_rate_per_gpu = 1.000 kB/s does it",
		"data_stall: 3, straggler_loss: 0.1":                "run.data_stall = 3 does it",
		"spare_nodes: 0, repair_time: 365 d":                "run.spare_nodes = 0 does it",
		"checkpoint_time: 10 min, checkpoint_interval: 1 s": "run.checkpoint_interval = 1.000 s does it",
		"mtbf_per_gpu: 30000 h":                             "",
	} {
		x := trained(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 256, plan: {data_parallel: zero1}, train: {global_batch: 512}, run: {tokens: 2T, "+run+"}}")
		var got string
		for _, n := range x.Notes {
			if n.Code == "goodput.low" {
				got = n.Text
			}
		}
		require.Contains(t, got, want, run)
		require.Equal(t, want != "", got != "", run)
		require.Equal(t, want != "", x.Plan.Goodput < LeastGoodput, run)
	}
	r, err := whatif.Predict(job(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 256, plan: {data_parallel: zero1}, run: {tokens: 2T, mtbf_per_gpu: 3000 h, restart_time: 300 h}}"), estimate.Options{})
	require.NoError(t, err)
	_, err = Train(r)
	require.ErrorContains(t, err, "run.restart_time: with 256 GPUs a failure comes every 11.72 h")
	x := trained(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 1048576, plan: {data_parallel: zero3}, run: {tokens: 2T}}")
	require.Less(t, x.Plan.Goodput, LeastGoodput)
	require.Contains(t, x.Notes[0].Text, "with 1048576 GPUs a failure comes every")
}

// TestDeadline: the cluster makes it, and no smaller one does (all are tried).
func TestDeadline(t *testing.T) {
	const text = `{model: llama2-7b, hardware: h100-sxm, plan: {data_parallel: zero1}, train: {global_batch: 480}, run: {tokens: 500B}}`
	for _, days := range []units.Seconds{5, 20, 100} {
		c, err := Deadline(job(t, text), days*day, 512)
		require.NoError(t, err)
		require.True(t, c.Met)
		require.LessOrEqual(t, c.Training.Time, days*day)
		require.LessOrEqual(t, c.Floor, c.Nodes)
		for n := int64(1); n < c.Nodes; n++ {
			r, err := c.at(8 * n)
			if err != nil {
				continue
			}
			x, err := Train(r)
			require.NoError(t, err)
			require.Greater(t, x.Time, days*day, "%d nodes", n)
		}
	}
}

// TestSmallest: time does not fall evenly with GPUs where the plan is chosen; the answer
// is the smallest of the sizes that were looked at.
func TestSmallest(t *testing.T) {
	for i, c := range []struct {
		text  string
		days  units.Seconds
		most  int64 // GPUs: a size known to make it
		every int64
	}{
		{"{model: llama3-8b, hardware: h100-sxm, run: {tokens: 2T}}", 30, 136, 1},
		{"{model: llama3-8b, hardware: h100-sxm, runtime: {recipe: hf-eager}, train: {global_batch: 480}, run: {tokens: 1T}}", 30, 96, 1},
		{"{model: llama3-70b, hardware: h100-sxm, runtime: {recipe: hf-eager}, train: {global_batch: 512}, run: {tokens: 100B}}", 60, 32, 1},
		{"{model: llama3-70b, hardware: h100-sxm, run: {tokens: 15T}}", 60, 2864, 4},
		{"{model: llama3-70b, hardware: h100-sxm, train: {global_batch: 2048}, run: {tokens: 15T}}", 60, 3584, 8},
		{"{model: llama3.1-405b, hardware: gb200-nvl72, train: {global_batch: 2048, sequence_length: 8192}, run: {tokens: 15T}}", 60, 8192, 32},
		{"{model: qwen3-235b-a22b, hardware: h100-sxm, train: {global_batch: 4096}, run: {tokens: 15T}}", 30, 4096, 32},
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		x, err := Deadline(job(t, c.text), c.days*day, 32768)
		require.NoError(t, err, c.text)
		require.True(t, x.Met, c.text)
		require.LessOrEqual(t, x.Training.Time, c.days*day, c.text)
		require.LessOrEqual(t, x.Training.Result.Job.GPUs, c.most, c.text)
		require.Equal(t, x.Nodes*x.Job.Hardware.Node.GPUs.Value, x.Training.Result.Job.GPUs)
		require.LessOrEqual(t, x.Every, c.every, c.text)
		for n := max(x.From, x.Nodes-6); n < x.Nodes; n++ {
			if x.Every > 1 && n < x.Nodes-1 {
				continue // may not have been looked at
			}
			r, err := x.at(n * x.Job.Hardware.Node.GPUs.Value)
			if err != nil || !r.Memory.Fits {
				continue
			}
			y, err := Train(r)
			require.NoError(t, err)
			require.Greater(t, y.Time, c.days*day, "%s: %d nodes", c.text, n)
		}
	}
}

// BenchmarkDeadline is for sizes most of which no simple plan suits.
func BenchmarkDeadline(b *testing.B) {
	j, err := decode("{model: llama3-8b, hardware: h100-sxm, train: {global_batch: 7}, run: {tokens: 1T}}")
	require.NoError(b, err)
	for b.Loop() {
		if _, err := Deadline(j, 10*day, 32768); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRefused: where no size is legal, the smallest says why.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{model: llama3-8b, hardware: h100-sxm, train: {global_batch: 3, micro_batch: 2}, run: {tokens: 2T}}":                                        "train.global_batch: 3 sequences do not divide into micro batches of 2",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 4, plan: {data_parallel: zero1}, train: {global_batch: 4, micro_batch: 1}, run: {tokens: 2T}}": "train.global_batch: 4 sequences do not divide into micro batches of 1",
	} {
		c, err := Deadline(job(t, text), day, 1024)
		require.NoError(t, err)
		require.False(t, c.Met)
		require.Zero(t, c.Tried, text)
		require.ErrorContains(t, c.Err, want, text)
	}
}

// TestNearest: what cannot be met is answered with the fastest that was tried.
func TestNearest(t *testing.T) {
	c, err := Deadline(job(t, `{model: llama2-7b, hardware: h100-sxm, plan: {data_parallel: zero1}, train: {global_batch: 64}, run: {tokens: 2T}}`), day, 4096)
	require.NoError(t, err)
	require.False(t, c.Met)
	require.NotNil(t, c.Training, "%v", c.Err)
	require.Greater(t, c.Training.Time, day)

	c, err = Deadline(job(t, `{model: llama2-7b, hardware: h100-sxm, plan: {data_parallel: zero1}, train: {global_batch: 64}, run: {tokens: 2T}}`), 20*day, 4096)
	require.NoError(t, err)
	require.False(t, c.Met)
	require.EqualValues(t, 8, c.Nodes, "64 sequences do not divide further")

	c, err = Deadline(job(t, `{model: llama2-70b, hardware: h100-sxm, plan: {data_parallel: ddp}, run: {tokens: 2T}}`), 30*day, 1024)
	require.NoError(t, err)
	require.False(t, c.Met)
	require.Nil(t, c.Training, "70 B parameters fit into no GPU")
	require.Positive(t, c.Tried)

	_, err = Deadline(job(t, `{model: llama2-7b, run: {tokens: 2T}}`), day, 4)
	require.ErrorContains(t, err, "--max-gpus: 4; a node of h100-sxm has 8")
	_, err = Deadline(job(t, `{model: llama2-7b}`), day, 64)
	require.ErrorContains(t, err, "run.tokens: is missing")
}

// TestSizesBeyondTheBatch: of thousands of sizes that the batch forbids each is passed over for
// what a rule takes; since others are possible, none says why.
func TestSizesBeyondTheBatch(t *testing.T) {
	begin := time.Now()
	c, err := Deadline(job(t, `{model: llama3-8b, hardware: h100-sxm, train: {global_batch: 8}, run: {tokens: 10B}}`), day/24, 32768)
	require.NoError(t, err)
	require.False(t, c.Met)
	require.NotNil(t, c.Training)
	require.NoError(t, c.Err)
	require.Less(t, time.Since(begin), time.Minute, "a search of every plan for each takes minutes")
}

func TestLargest(t *testing.T) {
	find := func(name, form string) *Largest {
		q, err := ParseQuantity(name)
		require.NoError(t, err)
		x, err := FindLargest(q, func(v string) (*strategies.Job, error) { return decode(fmt.Sprintf(form, v)) })
		require.NoError(t, err)
		return x
	}
	const sequence = `{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {tp: 2, data_parallel: zero1}, train: {sequence_length: %s, recompute: full}}`
	x := find("sequence", sequence)
	require.True(t, x.Best.fits())
	var n, next int
	fmt.Sscan(x.Best.Value, &n)
	fmt.Sscan(x.Next.Value, &next)
	require.Equal(t, n+1024, next, "the next does not fit")
	require.False(t, x.Next.fits())

	const batch = `{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {data_parallel: zero3}, train: {micro_batch: %s}}`
	x = find("micro-batch", batch)
	fmt.Sscan(x.Best.Value, &n)
	fmt.Sscan(x.Next.Value, &next)
	require.Equal(t, n+1, next)

	x = find("micro-batch", `{model: llama2-7b, hardware: h200-sxm, gpus: 1, plan: {}, train: {sequence_length: 32768, recompute: full, micro_batch: %s}}`)
	require.Equal(t, "1", x.Best.Value, "where no more fits")
	require.Equal(t, "2", x.Next.Value)
	for form, want := range map[string]string{ // what does not divide the batch is no end of the search
		`{model: tinyllama-1.1b, hardware: h200-sxm, gpus: 8, plan: {}, train: {global_batch: 120, micro_batch: %s}}`:                                                                           "15",
		`{model: tinyllama-1.1b, hardware: h200-sxm, gpus: 2, plan: {pp: 2, virtual_stages: 11, schedule: interleaved-1f1b}, train: {sequence_length: 512, global_batch: 24, micro_batch: %s}}`: "12",
	} {
		x = find("micro-batch", form)
		require.Equal(t, want, x.Best.Value, form)
		require.Error(t, x.Next.Err, form)
	}

	x = find("model", `{model: %s, hardware: l4, gpus: 1, plan: {}, train: {sequence_length: 512}}`)
	require.True(t, x.Best.fits())
	more := x.Next.Result.Job.Model.Params().Total
	require.Greater(t, more, x.Best.Result.Job.Model.Params().Total)

	x = find("micro-batch", `{model: llama2-70b, hardware: h100-sxm, gpus: 8, plan: {data_parallel: ddp}, train: {micro_batch: %s}}`)
	require.Nil(t, x.Best)
	require.Equal(t, "1", x.Next.Value, "the nearest")

	_, err := ParseQuantity("modell")
	require.ErrorContains(t, err, `did you mean "model"?`)
	q, _ := ParseQuantity("micro-batch")
	_, err = FindLargest(q, func(v string) (*strategies.Job, error) {
		return decode(`{model: llama2-7b, gpus: 8, plan: {tp: 3}, train: {micro_batch: ` + v + `}}`)
	})
	require.ErrorContains(t, err, "tp 3", "nothing is legal")
}
