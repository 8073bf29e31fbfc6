package estimate

import (
	"flag"
	"os"
	"testing"
)

// TestMain leaves to the race detector, which slows all fifteen times, the one test that
// starts something beside something else: an Evaluator starts nothing that could race.
func TestMain(m *testing.M) {
	flag.Parse()
	if one := flag.Lookup("test.run").Value; testing.Short() && one.String() == "" {
		one.Set("^TestMachinesNobodyBuilds$")
	}
	os.Exit(m.Run())
}
