package sample

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
)

var (
	header = Header{Format: Format, Device: "NVIDIA H200", GPUs: 1, Driver: "580.1", CUDA: "13.0", Date: "2026-01-02", Conditions: map[string]string{"effort": "quick"}}
	points = []Sample{
		{Probe: "gemm", Case: map[string]string{"m": "1024", "n": "2048", "k": "4096", "layout": "fprop", "dtype": "bf16"}, Seconds: 25e-6, Low: 24e-6, High: 26e-6, Repeats: 9, Outliers: 1, ClockHz: 1.98e9, PowerW: 500, TempC: 40, Mode: Burst},
		{Probe: "gemm", Case: map[string]string{"m": "1024", "n": "2048", "k": "8192", "layout": "fprop", "dtype": "bf16"}, Seconds: 40e-6, Low: 40e-6, High: 40e-6, Repeats: 3, ClockHz: 1.5e9, PowerW: 700, Throttled: "power-cap", Mode: Sustained},
		{Probe: "memory", Case: map[string]string{"kind": "copy", "bytes": "4096", "dtype": "bf16"}, Seconds: 2e-6, Mode: Burst, Repeats: 3},
		{Probe: "collective", Case: map[string]string{"op": "all-reduce", "bytes": "1024", "gpus": "2"}, GPU: -1, Mode: Burst, Error: "no such link"},
	}
)

// written makes a samples file and returns its name.
func written(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	w, err := Create(name, header)
	require.NoError(t, err)
	require.NoError(t, w.Add(points[:2]...))
	require.NoError(t, w.Close())
	w, err = Append(name)
	require.NoError(t, err)
	require.NoError(t, w.Add(points[2:]...))
	require.NoError(t, w.Close())
	return name
}

func TestRoundTrip(t *testing.T) {
	f, err := ReadFile(written(t))
	require.NoError(t, err)
	require.Equal(t, &File{Header: header, Samples: points}, f)
}

// A last line that was cut off is dropped, and cut away before more is appended.
func TestCutOff(t *testing.T) {
	name := written(t)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, data[:len(data)-10], 0o600))
	f, err := ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, points[:3], f.Samples)
	w, err := Append(name)
	require.NoError(t, err)
	require.NoError(t, w.Add(points[3]))
	require.NoError(t, w.Close())
	f, err = ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, points, f.Samples)
}

// An editor's byte order mark before the header is no part of it.
func TestByteOrderMark(t *testing.T) {
	data, err := os.ReadFile(written(t))
	require.NoError(t, err)
	f, err := Read(strings.NewReader("\ufeff"+string(data)), "s.jsonl")
	require.NoError(t, err)
	require.Equal(t, points, f.Samples)
}

func TestBadFiles(t *testing.T) {
	head, err := json.Marshal(header)
	require.NoError(t, err)
	for text, want := range map[string]string{
		"":                          "s.jsonl: is empty; a samples file begins with the header of samples/v1",
		"{}":                        "s.jsonl:1:1: not a samples file: the first line must be the header of samples/v1",
		"model: x":                  "s.jsonl:1:1: not a samples file",
		string(head) + "\n{]\n{}\n": "s.jsonl:2:1: not a sample: invalid character ']'",
		string(head) + "\n{\"gpu\": \"x\"}\n{}\n": "s.jsonl:2:1: not a sample: json: cannot unmarshal string",
		strings.Repeat("x", maxLine+1):            "s.jsonl:1:1: a line of more than 1048576 bytes",
	} {
		_, err := Read(strings.NewReader(text), "s.jsonl")
		require.ErrorContains(t, err, want)
		require.True(t, diag.IsInput(err))
	}
	_, err = ReadFile("nowhere.jsonl")
	require.EqualError(t, err, "nowhere.jsonl: no such file; give one that is there")
	_, err = ReadFile(".")
	require.EqualError(t, err, ".: is a folder; name a file in it")
}

func TestKey(t *testing.T) {
	require.Equal(t, "memory gpu=0 bytes=4096 dtype=bf16 kind=copy", points[2].Key())
	other := points[2]
	other.GPU = 1
	require.NotEqual(t, points[2].Key(), other.Key())
}

func TestSummarize(t *testing.T) {
	f := File{Samples: points}
	require.Equal(t, []Summary{
		{Probe: "gemm", Cases: 2, Repeats: 12, Outliers: 1, Spread: 0.04, ClockLow: 1.5e9, ClockHigh: 1.98e9, PowerHigh: 700, Throttled: 1},
		{Probe: "memory", Cases: 1, Repeats: 3},
		{Probe: "collective", Cases: 1, Failed: 1},
	}, rounded(f.Summarize()))
	best := f.BestRates()
	require.Len(t, best, 2)
	require.Equal(t, "gemm bf16 fprop", best[0].What)
	require.InEpsilon(t, 2*1024*2048*8192/40e-6, best[0].Rate, 1e-9)
	require.Equal(t, "k 8192, m 1024, n 2048", best[0].At)
	require.Equal(t, Best{What: "memory copy bf16", Rate: 4096 / 2e-6, Unit: "B/s", At: "bytes 4096", Seconds: 2e-6}, best[1])
}

// TestBestTime: of what has no rate the shortest time counts, whichever was measured first.
func TestBestTime(t *testing.T) {
	f := File{}
	for after, seconds := range map[string]float64{"": 2e-3, "gemm": 1e-3, "memory": 3e-3} {
		f.Samples = append(f.Samples, Sample{Probe: "host", Case: map[string]string{"code": "format", "after": after}, Seconds: seconds})
	}
	best := f.BestRates()
	require.Len(t, best, 1)
	require.Equal(t, Best{What: "host format", Rate: 1e-3, Unit: "s", At: "after gemm", Seconds: 1e-3}, best[0])
}

// rounded spares the comparison the last digits of sums and quotients.
func rounded(list []Summary) []Summary {
	for i := range list {
		list[i].Spread = float64(int(list[i].Spread*1e4+0.5)) / 1e4
	}
	return list
}

// FLOPs of attention: forward two products, backward five, of which a causal mask
// leaves half (Dao 2023, arXiv 2307.08691, section 4.1).
func TestAttentionWork(t *testing.T) {
	s := Sample{Probe: "attention", Case: map[string]string{"batch": "2", "heads": "3", "seq": "8", "head_dim": "4", "causal": "false", "direction": "fwd"}}
	flops, _ := s.Work()
	require.Equal(t, 4.0*2*3*8*8*4, flops)
	s.Case["causal"], s.Case["direction"] = "true", "bwd"
	flops, _ = s.Work()
	require.Equal(t, 2.5*2*2*3*8*8*4, flops)
}

func FuzzRead(f *testing.F) {
	head, err := json.Marshal(header)
	if err != nil {
		f.Fatal(err)
	}
	one, err := json.Marshal(points[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(head) + "\n" + string(one) + "\n")
	f.Add(string(head) + "\n" + string(one)[:20])
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read(strings.NewReader(text), "s.jsonl")
		if err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
			return
		}
		file.Summarize()
		file.BestRates()
	})
}
