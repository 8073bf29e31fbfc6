package diag

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpen: a file that is not there is told by the one whose name is nearly that.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"job.yaml", "llama.yaml", "trace.json.gz"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "examples"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "examples", "a.yaml"), nil, 0o644))
	for name, want := range map[string]string{
		"jop.yaml":         `no such file; did you mean "` + dir + `/job.yaml"?`,
		"job.yml":          `no such file; did you mean "` + dir + `/job.yaml"?`,
		"lama.yaml":        `/llama.yaml"?`,
		"weights.yaml":     "no such file; give one that is there", // the ending alone is no likeness
		"exmaples/a.yaml":  `no such file; did you mean "` + dir + `/examples/a.yaml"?`,
		"example.yaml":     "no such file; give one that is there",
		"exmaples/b.yaml":  "no such file; give one that is there",
		"nowhere/jop.yaml": "no such file; give one that is there",
		"job.yaml/x":       "may not be read: not a directory; give another file",
		".":                "is a folder; name a file in it",
		"\x00":             "may not be read: invalid argument; give another file",
	} {
		_, err := Open(dir + "/" + name)
		require.ErrorContains(t, err, want, name)
		require.ErrorContains(t, err, dir)
		require.True(t, IsInput(err))
	}
	_, err := Open("")
	require.EqualError(t, err, `"" names no file; give one that is there`)
	f, err := Open(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestNotText: what is text in another encoding is said to be that, and where.
func TestNotText(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"", ""},
		{"café\r\n", ""},
		{"\xff\xfem\x00", "f: is text in UTF-16, as > of older PowerShells writes it; save it in UTF-8"},
		{"\xfe\xff\x00m", "f: is text in UTF-16, as > of older PowerShells writes it; save it in UTF-8"},
		{"model: gpt2\n# caf\xe9\n", "f: is text in another encoding than UTF-8, in line 2 the byte 0xe9; save it in UTF-8"},
		{"# a proper \ufffd, then caf\xe9\n", "f: is text in another encoding than UTF-8, in line 1 the byte 0xe9; save it in UTF-8"},
		{"\x7fELF\x02\x01\x00", "f: is not a text file; YAML is expected"},
		{"\x89\xd0\xf3\xe9", "f: is not a text file; YAML is expected"},
	} {
		err := NotText("f", []byte(c.data), "YAML")
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, c.want)
	}
}
