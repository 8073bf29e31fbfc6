package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// countScales are the suffixes of a count, as people write numbers of tokens and
// parameters: B is a billion.
var countScales = map[string]int{"": 0, "k": 3, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12}

// ParseCount reads a number of things such as "2T", "300B", "1.5e12" or "15_000".
func ParseCount(s string) (float64, error) {
	number, suffix := split(s)
	exp, ok := countScales[suffix]
	if _, err := strconv.ParseFloat(number, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is not a count; write a number, as in 2T or 300B", quote(s))
	}
	if !ok {
		return 0, fmt.Errorf("%s: %s is not a suffix of a count; use k, M, B or T", quote(s), quote(suffix))
	}
	v := unit{"", exp, 1}.read(strings.TrimPrefix(number, "+"))
	if math.IsInf(v, 0) || !(v > 0) {
		return 0, fmt.Errorf("%s is not a usable count; it must be finite and more than 0", quote(s))
	}
	return v, nil
}
