package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBusy: what lasts is said where somebody looks, and leaves nothing behind.
func TestBusy(t *testing.T) {
	var quick, long, pipe bytes.Buffer
	ticking(&quick, time.Hour, "choosing a plan")()
	require.Empty(t, quick.String())

	end := ticking(&long, time.Millisecond, "choosing a plan")
	time.Sleep(20 * time.Millisecond)
	end()
	end() // on the way to an error, too
	require.True(t, strings.HasPrefix(long.String(), "\r\x1b[Kchoosing a plan: 0 s"), long.String())
	require.True(t, strings.HasSuffix(long.String(), "\r\x1b[K"), long.String())

	(&env{err: &pipe}).busy("choosing a plan")()
	require.Empty(t, pipe.String())
}
