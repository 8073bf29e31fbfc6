package allocator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestRecorded replays recorded events and compares the bytes after each.
// testdata/record.py records more of them on a machine with PyTorch.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/*.events")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			replayText(t, string(text))
		})
	}
}

func replayText(t *testing.T, text string) {
	var a *Allocator
	var blocks []Block
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var (
			operation, mode             string
			size, allocated, reserved   float64
			block                       Block
			of, stream, words, expected int
			err                         error
		)
		switch operation = strings.Fields(line)[0]; operation {
		case "#":
			continue
		case "options":
			_, err = fmt.Sscan(line, &operation, &mode, &size)
			require.NoError(t, err, line)
			a = New(Options{Expandable: mode == "expandable", Limit: units.Bytes(size)})
			continue
		case "alloc", "refused":
			expected = 5
			words, err = fmt.Sscan(line, &operation, &size, &stream, &allocated, &reserved)
			require.NoError(t, err, line)
			block, err = a.Alloc(units.Bytes(size), stream)
			require.Equal(t, operation == "refused", err != nil, "line %d: %s", i+1, line)
		case "free":
			expected = 4
			words, err = fmt.Sscan(line, &operation, &of, &allocated, &reserved)
			require.NoError(t, err, line)
			a.Free(blocks[of])
		case "empty":
			expected = 3
			words, err = fmt.Sscan(line, &operation, &allocated, &reserved)
			require.NoError(t, err, line)
			a.EmptyCache()
		}
		require.Equal(t, expected, words, line)
		blocks = append(blocks, block)
		require.Equal(t, []units.Bytes{units.Bytes(allocated), units.Bytes(reserved)}, []units.Bytes{a.Allocated(), a.Reserved()}, "line %d: %s", i+1, line)
	}
}
