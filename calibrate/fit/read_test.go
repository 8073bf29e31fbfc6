package fit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

// FuzzSamples: no text makes the way from bytes to a profile panic, and every
// complaint is about input.
func FuzzSamples(f *testing.F) {
	const header = `{"perfplan":"samples/v1","device":"NVIDIA H200","gpus":1,"date":"2026-11-21"}` + "\n"
	const line = `{"probe":"gemm","case":{"m":"4096","n":"4096","k":"4096","layout":"fprop","dtype":"bf16"},"seconds":1.8e-4,"mode":"burst"}` + "\n"
	f.Add(header + line)
	f.Add(header + line + line[:30])
	f.Add(header + `{"probe":"collective","case":{"op":"all-reduce","bytes":"1024","gpus":"2"},"seconds":1e-5}`)
	f.Add(header + `{"probe":"power","case":{"class":"idle"},"seconds":0,"power_w":1e300}`)
	n := newNoisy(f, 0.1)
	n.memories()
	n.add("launch", 1e-6, "kind", "gap")
	var b strings.Builder
	b.WriteString(header)
	for _, s := range n.file.Samples {
		text, err := json.Marshal(s)
		require.NoError(f, err)
		b.Write(append(text, '\n'))
	}
	f.Add(b.String())
	base := base(f)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := sample.Read(strings.NewReader(text), "s.jsonl")
		if err == nil {
			_, err = Run(file, base, Options{Name: "s.jsonl"})
		}
		require.True(t, err == nil || diag.IsInput(err), "%v", err)
	})
}
