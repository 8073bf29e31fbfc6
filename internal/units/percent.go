package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParsePercent reads a share such as "5%", "12.5 %" or "0.05".
func ParsePercent(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%s is not a share; write it as in \"5%%\"", quote(s))
	}
	if percent {
		v /= 100
	}
	return v, nil
}
