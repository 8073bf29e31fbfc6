// Package whole calculates with whole numbers: divisors and common multiples, of which
// legal degrees of parallelism are made.
//
// model and strategies list in remedies what divides; strategies/search lists plans
// by it, and comes next.
package whole
