package collective

import (
	"fmt"
	"math"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// Curve is a measured collective: the time of one operation on one group at
// several sizes. It is an entry of measured.collectives in a hardware/v1 file.
// The group has the same number of ranks on every node and the machine to
// itself; bytes follow the convention of Op.
type Curve struct {
	Op     Op              `yaml:"op"`
	Ranks  int64           `yaml:"ranks"`
	Nodes  int64           `yaml:"nodes"` // islands of the group; 0 means 1
	Bytes  []units.Bytes   `yaml:"bytes"` // ascending
	Time   []units.Seconds `yaml:"time"`  // as many, in the same order
	RelErr float64         `yaml:"relative_error"`
	Source string          `yaml:"source"`
}

// Check returns what is wrong with a curve, with its remedy, or nil.
func (c *Curve) Check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s of %d ranks on %d nodes: %s", c.Op, c.Ranks, c.nodes(), fmt.Sprintf(format, args...))
	}
	switch {
	case c.Op >= opCount:
		return fail("no such operation; use one of %v", opNames)
	case c.Ranks < 2:
		return fail("ranks must be 2 or more")
	case c.Nodes < 0 || c.Ranks%c.nodes() != 0:
		return fail("every node must hold as many ranks; let nodes divide ranks")
	case len(c.Bytes) == 0:
		return fail("bytes is empty; give at least one size")
	case len(c.Bytes) != len(c.Time):
		return fail("%d sizes but %d times; give one time for each size", len(c.Bytes), len(c.Time))
	case !(c.RelErr >= 0 && c.RelErr <= 1):
		return fail("relative_error must be a fraction, as in 0.03")
	}
	for i, b := range c.Bytes {
		switch t := c.Time[i]; {
		case !(b > 0) || math.IsInf(float64(b), 0):
			return fail("size %d is not positive", i+1)
		case !(t > 0) || math.IsInf(float64(t), 0):
			return fail("the time of %s is not positive", b)
		case i > 0 && b <= c.Bytes[i-1]:
			return fail("sizes must ascend; %s follows %s", b, c.Bytes[i-1])
		}
	}
	return nil
}

func (c *Curve) nodes() int64   { return max(c.Nodes, 1) }
func (c *Curve) perNode() int64 { return c.Ranks / c.nodes() }

// group is the group that the curve was measured on.
func (c *Curve) group() Group { return Group{Ranks: c.Ranks, PerNode: c.perNode()}.normal() }

// law is the curve as measured.
func (c *Curve) law() Law {
	bytes, times := make([]float64, len(c.Bytes)), make([]float64, len(c.Time))
	for i := range c.Bytes {
		bytes[i], times[i] = float64(c.Bytes[i]), float64(c.Time[i])
	}
	return newLaw(bytes, times, 0)
}

// error is the curve's own relative error, or what repeated runs on one machine
// commonly differ by.
func (c *Curve) error() float64 {
	if c.RelErr > 0 {
		return c.RelErr
	}
	return 0.03
}

// residual is how much slower than the model a machine is, by size: ln bytes and
// ln (measured / modelled) at the sizes of a curve.
type residual struct{ bytes, logs []float64 }

func (c *Curve) residual(model *Law) residual {
	r := residual{make([]float64, len(c.Bytes)), make([]float64, len(c.Bytes))}
	for i, b := range c.Bytes {
		r.bytes[i], r.logs[i] = math.Log(float64(b)), math.Log(float64(c.Time[i]/model.Time(b)))
	}
	return r
}

// at is the residual at a size: straight between the points, level beyond them.
func (r residual) at(b float64) float64 {
	x := math.Log(b)
	i, _ := slices.BinarySearch(r.bytes, x)
	switch {
	case i == 0:
		return r.logs[0]
	case i == len(r.bytes):
		return r.logs[i-1]
	}
	w := (x - r.bytes[i-1]) / (r.bytes[i] - r.bytes[i-1])
	return r.logs[i-1] + w*(r.logs[i]-r.logs[i-1])
}

// outside is how many doublings a size lies beyond the measured ones.
func (c *Curve) outside(b units.Bytes) float64 {
	return max(0, math.Log2(float64(c.Bytes[0]/b)), math.Log2(float64(b/c.Bytes[len(c.Bytes)-1])))
}

// distance is how many doublings of ranks per node and of nodes separate two
// groups; ok is false for groups that exercise different links: one inside an
// island, the other across, or only one over NVLink.
func distance(a, b Group) (d float64, ok bool) {
	log := func(x, y int64) float64 { return math.Log2(float64(x) / float64(y)) }
	return math.Hypot(log(a.PerNode, b.PerNode), log(a.Nodes(), b.Nodes())), (a.Nodes() > 1) == (b.Nodes() > 1) && a.Stride == b.Stride
}

// twin is the operation whose ring does the same steps, so that what was
// measured of one tells of the other.
func (o Op) twin() Op {
	switch o {
	case AllGather:
		return ReduceScatter
	case ReduceScatter:
		return AllGather
	case Broadcast:
		return Reduce
	case Reduce:
		return Broadcast
	}
	return o
}
