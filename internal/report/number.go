package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/units"
)

// percent prints a fraction with one decimal.
func percent(f float64) string {
	if math.Abs(f) < 0.0005 {
		f = 0 // not "-0.0 %"
	}
	return strconv.FormatFloat(f*100, 'f', 1, 64) + " %"
}

// signed prints a fraction as a percentage with its sign.
func signed(f float64) string {
	if s := percent(f); f > 0 && s != "0.0 %" {
		return "+" + s
	}
	return percent(f)
}

// thousands prints a whole number in groups of three digits.
func thousands(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 && strings.Trim(s, "0,") != "" {
		return "-" + s
	}
	return s
}

// teraflops prints an arithmetic rate as a bare number of TFLOP/s.
func teraflops(r units.FLOPRate) string {
	return strings.TrimSuffix(r.String(), " TFLOP/s")
}

// gibibytes prints a memory size in GiB, always, so that a column can be read
// downwards.
func gibibytes(b units.Bytes) string {
	return strconv.FormatFloat(float64(b/units.GiB), 'f', 2, 64)
}

// plural prints a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(float64(n)) + " " + noun + "s"
}

// number prints a value with all its digits, for CSV.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func integer(v int64) string { return strconv.FormatInt(v, 10) }
