package hardware

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// Eighty is the half width, in standard deviations, of the range that holds 80 %
// of a normal distribution.
const Eighty = 1.2816

// Range is the 80 % range of a time with a relative standard deviation: as far
// above as below by factors, since a time cannot be negative.
func Range(t units.Seconds, deviation float64) (low, high units.Seconds) {
	f := units.Seconds(math.Exp(Eighty * deviation))
	return t / f, t * f
}
