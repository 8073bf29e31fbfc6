// Package units holds the physical quantities of a prediction as distinct Go
// types, and parses and prints them.
//
// Quantities are float64 in SI base units: bytes, FLOPs (one multiply-add is
// two), seconds, bytes per second, FLOPs per second, watts, joules, hertz.
// Adding bytes to seconds does not compile; only the named methods (At, Per,
// Over, For) cross dimensions. Decimal and binary prefixes are different units:
// 1 GB is 1e9 bytes and 1 GiB is 2^30; network rates may be given in bits.
//
// It is the first package of the flow and imports nothing of the project; next
// come internal/diag and internal/yamlx, which read these quantities from files.
package units
