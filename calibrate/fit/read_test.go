package fit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

const header = `{"perfplan":"samples/v1","device":"NVIDIA H200","gpus":1,"date":"2026-11-21"}` + "\n"

const line1 = `{"probe":"gemm","case":{"m":"4096","n":"4096","k":"4096","layout":"fprop","dtype":"bf16"},"gpu":0,"seconds":1.8e-4,"low_s":1.79e-4,"high_s":1.81e-4,"repeats":20,"mode":"burst"}` + "\n"

func TestRead(t *testing.T) {
	f, err := Read("s.jsonl", strings.NewReader(header+line1+"\n"+strings.ReplaceAll(line1, "\n", "\r\n")))
	require.NoError(t, err)
	require.Equal(t, "NVIDIA H200", f.Header.Device)
	require.Len(t, f.Samples, 2)
	require.InDelta(t, 1.8e-4, f.Samples[1].Seconds, 0)
	require.Equal(t, "4096", f.Samples[0].Case["k"])

	f, err = Read("s.jsonl", strings.NewReader(header+line1+line1[:40]))
	require.NoError(t, err, "an interrupted calibration")
	require.Len(t, f.Samples, 1)
	f, err = Read("s.jsonl", strings.NewReader(header+line1+strings.TrimSpace(line1)))
	require.NoError(t, err)
	require.Len(t, f.Samples, 2, "the last newline may be missing")
}

func TestReadBad(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "s.jsonl: is empty; run perfplan calibrate",
		"\n\n":                    "is empty",
		"perfplan: hardware/v1\n": "s.jsonl:1:1: is not the header of a samples file",
		line1:                     "s.jsonl:1:1: is not the header",
		`{"perfplan":"runs/v1"}`:  `"runs/v1" is not a samples file; expected samples/v1`,
		header + "{}x\n" + line1:  "s.jsonl:2:1: is not a sample: invalid character",
		header + "{}\n":           "s.jsonl:2:1: probe is missing",
		header + strings.Replace(line1, "1.8e-4", "-1", 1):                   "s.jsonl:2:1: seconds: -1 is negative",
		header + "\n\n" + strings.Replace(line1, "1.8e-4", "0", 1):           "s.jsonl:4:1: seconds: 0; a sample of probe gemm needs the time it took",
		header + strings.Replace(line1, "1.8e-4", "NaN", 1):                  "s.jsonl:2:1: is not a sample: invalid character 'N'",
		header + strings.Replace(line1, "1.8e-4", `"fast"`, 1):               "seconds holds a string, not a float64",
		header + strings.Replace(line1, `"4096"`, "4096", 1):                 "case",
		header + `{"probe":"` + strings.Repeat("x", 2<<20) + "\"}\n" + line1: "is longer than",
	} {
		_, err := Read("s.jsonl", strings.NewReader(text))
		require.ErrorContains(t, err, want)
		require.True(t, diag.IsInput(err))
	}
}

// No text makes the way from bytes to a profile panic, and every complaint is about
// input.
func FuzzRead(f *testing.F) {
	f.Add(header + line1)
	f.Add(header + line1 + line1[:30])
	f.Add(header + `{"probe":"collective","case":{"op":"all-reduce","bytes":"1024","gpus":"2"},"seconds":1e-5}`)
	f.Add(header + `{"probe":"power","case":{"class":"idle"},"seconds":0,"power_w":1e300}`)
	n := newNoisy(f, 0.1)
	n.memories()
	n.add("launch", 1e-6, "kind", "gap")
	var b strings.Builder
	b.WriteString(header)
	for _, s := range n.file.Samples {
		line, err := json.Marshal(s)
		require.NoError(f, err)
		b.Write(append(line, '\n'))
	}
	f.Add(b.String())
	base := base(f)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read("s.jsonl", strings.NewReader(text))
		if err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
			return
		}
		require.Equal(t, sample.Format, file.Header.Format)
		if _, err := Run(file, base, Options{Name: "s.jsonl"}); err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
		}
	})
}
