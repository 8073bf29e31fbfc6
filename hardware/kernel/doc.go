// Package kernel prices one op alone on one GPU: the time of its kernel at full
// clock, what bounds it, and where the number comes from.
//
// A Timer is made once from a hardware profile. Matrix multiplies and attention
// follow a law of tiles and waves, corrected by nearby measured shapes; other
// kernels follow the law of their class. Laws measured on another GPU of the
// architecture are scaled by the resource that limits them.
//
// strategies adds launch gaps, host time, clocks and contention; it comes next.
package kernel
