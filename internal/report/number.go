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

// digits prints three significant digits, and all before the point.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	_, exp, _ := strings.Cut(strconv.FormatFloat(v, 'e', 2, 64), "e")
	e, _ := strconv.Atoi(exp)
	if e > 2 {
		return thousands(v)
	}
	return strconv.FormatFloat(v, 'f', 2-e, 64)
}

// lasting prints a time from less than a second to years, as people give it.
func lasting(t units.Seconds) string {
	switch {
	case t < 60:
		return t.String()
	case t < 3600:
		return digits(float64(t)/60) + " min"
	case t < 86400:
		return digits(float64(t)/3600) + " h"
	}
	return days(t) + " days"
}

// days prints a time in days, always, so that a column can be read downwards.
func days(t units.Seconds) string { return digits(float64(t) / 86400) }

// powerBill prints an energy as power bills do.
func powerBill(e units.Joules) string {
	switch v := float64(e) / 3600; {
	case v < 1e3:
		return digits(v) + " Wh"
	case v < 1e6:
		return digits(v/1e3) + " kWh"
	default:
		return megawattHours(e) + " MWh"
	}
}

// megawattHours prints an energy in MWh, always, so that a column can be read downwards.
func megawattHours(e units.Joules) string { return digits(float64(e) / 3.6e9) }

// dollars prints a cost: whole dollars when it is many, cents when it is few.
func dollars(v float64) string {
	if v >= 0.1 && v < 100 {
		return "$" + strconv.FormatFloat(v, 'f', 2, 64)
	}
	return "$" + digits(v)
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
