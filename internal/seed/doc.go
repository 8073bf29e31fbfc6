// Package seed makes property tests draw the same cases in every run, so that a
// change is judged by what it does and not by chance. Tests import it for its effect.
// To look further, give the flag: go test ./strategies/estimate -rapid.seed=0
// -rapid.checks=5000 draws new cases each time.
//
// What comes next: the property tests of every package.
package seed

import (
	"flag"

	_ "pgregory.net/rapid" // its flags
)

func init() {
	if err := flag.Set("rapid.seed", "20261121"); err != nil {
		panic(err)
	}
}
