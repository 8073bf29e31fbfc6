package estimate

import (
	"flag"
	"os"
	"testing"
)

// TestMain draws fewer plans under the race detector, which slows them fifteen times: an
// Evaluator starts nothing that could race.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		flag.Set("rapid.checks", "10")
	}
	os.Exit(m.Run())
}
