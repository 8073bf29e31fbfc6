package units

// Bytes is an amount of data. It is a float64 so that totals of 1e15 bytes
// scale by fractions without overflow.
type Bytes float64

// FLOPs is an amount of arithmetic; one multiply-add is two FLOPs.
type FLOPs float64

// Seconds is a duration. time.Duration is not used inside the model: its 1 ns
// grid is coarser than the sums of many small kernels.
type Seconds float64

// Rate is a data rate in bytes per second.
type Rate float64

// FLOPRate is an arithmetic rate in FLOPs per second.
type FLOPRate float64

// Hertz is a frequency.
type Hertz float64

// Watts is a power.
type Watts float64

// Joules is an energy.
type Joules float64

// At returns the time to move b at rate r. Nothing takes no time at any rate;
// all else takes for ever at rate zero.
func (b Bytes) At(r Rate) Seconds { return Seconds(ratio(float64(b), float64(r))) }

// Per returns the rate that moves b in t.
func (b Bytes) Per(t Seconds) Rate { return Rate(ratio(float64(b), float64(t))) }

// At returns the time to execute f at rate r. Nothing takes no time at any
// rate; all else takes for ever at rate zero.
func (f FLOPs) At(r FLOPRate) Seconds { return Seconds(ratio(float64(f), float64(r))) }

// Per returns the rate that executes f in t.
func (f FLOPs) Per(t Seconds) FLOPRate { return FLOPRate(ratio(float64(f), float64(t))) }

// For returns the energy of drawing w for t.
func (w Watts) For(t Seconds) Joules { return Joules(float64(w) * float64(t)) }

// ratio divides; 0/0 is 0, because a NaN would hide in every later sum and maximum.
func ratio(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a / b
}

// Common scales, for literals in code and tests.
const (
	MB Bytes = 1e6
	GB Bytes = 1e9

	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40

	Millisecond Seconds = 1e-3
	Microsecond Seconds = 1e-6
	Nanosecond  Seconds = 1e-9

	GBps Rate = 1e9
)
