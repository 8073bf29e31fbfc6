package units

import (
	"fmt"
	"slices"
	"strings"
)

// ParseSizes reads data sizes in ascending order, each once: one size ("25 MiB"),
// several ("1MiB,25MiB"), or a range that doubles ("1KiB..1GiB"), whose ends
// belong to it.
func ParseSizes(s string) ([]Bytes, error) {
	var out []Bytes
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "..")
		from, err := ParseBytes(first)
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			if to, err = ParseBytes(last); err != nil {
				return nil, err
			}
		}
		switch {
		case from < 1:
			return nil, fmt.Errorf("%s is less than one byte", quote(first))
		case to < from:
			return nil, fmt.Errorf("%s runs downwards; write the smaller size first", quote(part))
		}
		for b := from; b < to; b *= 2 {
			out = append(out, b)
		}
		out = append(out, to)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
