package whole

// Divisors lists the divisors of n up to limit, the smallest first.
func Divisors(n, limit int64) []int64 {
	var out []int64
	for i := int64(1); i <= min(n, limit); i++ {
		if n%i == 0 {
			out = append(out, i)
		}
	}
	return out
}

// GCD is the greatest common divisor of two numbers, of which 0 is a multiple of any.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// LCM is the least common multiple of two numbers above 0.
func LCM(a, b int64) int64 { return a / GCD(a, b) * b }
