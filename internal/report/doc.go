// Package report prints: predictions, their explanation, validation, models and
// hardware, as text for people and as JSON, YAML, CSV or Markdown for the rest.
//
// It computes nothing that a number depends on. A printer turns a value into a page
// of blocks (page.go) or into an object of keys and values (ordered.go) with SI base
// units and the unit in the key (the JSON contract), of which rows for CSV may come;
// format.go writes either. Text adapts to the width it is given and uses colour only
// when told to. Equal values print byte for byte the same: every map is sorted.
//
// A new output is a new file here. The commands in cmd/perfplan call it, and come
// last.
package report
