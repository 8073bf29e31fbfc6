package hardware

import (
	"fmt"
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// ColumnParts is what sums of columns add for each of the parts that blocks sum apart
// and that the last of them puts together, one after the other: parts of Rows rows, and
// so many more in one where otherwise there were more than PerSM blocks of Columns
// columns for each SM (ATen/native/cuda/Reduce.cuh, setReduceConfig).
type ColumnParts struct {
	Rows    float64       `yaml:"rows"`
	Columns float64       `yaml:"columns"`
	PerSM   float64       `yaml:"per_sm"`
	Time    units.Seconds `yaml:"time"`
}

// check refuses parts that say nothing. The error begins with the key.
func (p *ColumnParts) check() error {
	if *p != (ColumnParts{}) && !(p.Rows > 0 && p.Columns > 0 && p.PerSM > 0) {
		return fmt.Errorf("parts: rows %v, columns %v, per_sm %v; each must be above 0, or leave parts out", p.Rows, p.Columns, p.PerSM)
	}
	return nil
}

// Of is how many parts the columns of so many values are summed in.
func (p *ColumnParts) Of(values, columns, sms float64) float64 {
	if columns <= 0 || p.Rows <= 0 {
		return 0
	}
	return max(min(math.Ceil(values/columns/p.Rows), math.Floor(p.PerSM*sms/math.Ceil(columns/p.Columns))), 1)
}

// ColumnStrips is what sums of columns take where a block sums a strip of Columns columns
// over all rows, and an SM one strip after the other:
//
//	t = rows · row · ⌈width / columns / SMs⌉
//
// beside what bytes take. Of more rows than Shared whose strips are fewer than half of the SMs
// many blocks share a strip, whose sums are then added up: t = setup + bytes · byte
// (ATen/native/cuda/layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel).
type ColumnStrips struct {
	Columns float64       `yaml:"columns"`
	Row     units.Seconds `yaml:"row"`
	Shared  float64       `yaml:"shared"`
	Setup   units.Seconds `yaml:"setup"`
	Byte    units.Seconds `yaml:"byte"`
}

// check refuses strips that say nothing. The error begins with the key.
func (c *ColumnStrips) check() error {
	if *c != (ColumnStrips{}) && !(c.Columns > 0 && c.Row > 0 && c.Shared > 0 && c.Byte > 0) {
		return fmt.Errorf("strips: columns %v, row %v, shared %v, byte %v; each must be above 0, or leave strips out", c.Columns, c.Row, c.Shared, c.Byte)
	}
	return nil
}

// Turns is how many strips the busiest SM sums, and whether many share one.
func (c *ColumnStrips) Turns(rows, width, sms float64) (turns float64, shared bool) {
	if c.Columns <= 0 || width <= 0 {
		return 0, false
	}
	strips := math.Ceil(width / c.Columns)
	return math.Ceil(strips / sms), rows > c.Shared && strips < sms/2
}
