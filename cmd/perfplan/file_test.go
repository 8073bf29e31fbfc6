package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDistinct: an output that is an input, by whatever name, is refused; a flag that is not
// given is no input, and what is not there is lost to nobody.
func TestDistinct(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("model", 0o777))
	for _, name := range []string{"config.json", "model/config.json", "job.yaml"} {
		require.NoError(t, os.WriteFile(name, nil, 0o666))
	}
	require.NoError(t, os.Link("job.yaml", "same.yaml"))
	for _, c := range []struct {
		out     string
		inputs  []string
		refused bool
	}{
		{"job.yaml", []string{"", "llama2-7b", "job.yaml"}, true},
		{"same.yaml", []string{"./job.yaml"}, true},
		{"model/config.json", []string{"model"}, true},
		{"config.json", []string{"."}, true},
		{"config.json", []string{"", "job.yaml", "model"}, false},
		{"new.yaml", []string{"new.yaml"}, false},
		{"", []string{"", "job.yaml"}, false},
	} {
		if err := distinct("--out", c.out, c.inputs...); c.refused {
			require.ErrorContains(t, err, "--out: "+c.out+" is what this command reads", c.inputs)
		} else {
			require.NoError(t, err, "%s, %s", c.out, c.inputs)
		}
	}
}
