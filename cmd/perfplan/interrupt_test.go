//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInterrupt: Ctrl-C ends a command that has nothing to show yet as it ends those that do,
// with a word and their exit code. It is left alone where a shell ignores it.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		command string
		code    int
		want    string
	}{
		{"exec perfplan estimate job", exitStopped, "perfplan: stopped before perfplan estimate was over\n"},
		{"exec perfplan validate job", exitStopped, "perfplan: stopped before perfplan validate was over\n"},
		{"exec perfplan hardware fit job --out x.yaml", exitStopped, "perfplan: stopped before perfplan hardware fit was over\n"},
		{"trap '' INT; exec perfplan estimate job", exitUsage, "perfplan: job: is empty"},
	} {
		job := filepath.Join(t.TempDir(), "job")
		require.NoError(t, syscall.Mkfifo(job, 0o600))
		cmd := exec.Command("sh", "-c", c.command)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Stderr = filepath.Dir(job), &stderr
		require.NoError(t, cmd.Start())
		f, err := os.OpenFile(job, os.O_WRONLY, 0) // waits until the command reads it
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		if c.code != exitStopped {
			require.NoError(t, f.Close())
		}
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit, c.command)
		f.Close()
		require.Equal(t, c.code, exit.ExitCode(), c.command)
		require.True(t, strings.HasPrefix(stderr.String(), c.want), stderr.String())
	}
}
