package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParsePercent reads a share such as "5%", "12.5 %" or "0.05". A number from 1 on is
// refused without the sign: "5" is rather meant as 5 % than as 500 %.
func ParsePercent(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) || !percent && v >= 1 {
		return 0, fmt.Errorf("%s is not a share; write it as in \"5%%\"", quote(s))
	}
	if percent {
		v /= 100
	}
	return v, nil
}
