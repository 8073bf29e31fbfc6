package report

import (
	"runtime/debug"
	"slices"
)

// program is the version of perfplan: that of the module, or of the commit it was built from.
var program = func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}()

// Version is that of the program, as every document names it.
func Version() string { return program }

// document begins what a script reads: what it is, which program says it, then the rest.
func document(schema string, rest ordered) ordered {
	return slices.Concat(ordered{{"schema", schema}, {"versions", ordered{{"perfplan", program}}}}, rest)
}
