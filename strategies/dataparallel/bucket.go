package dataparallel

import "github.com/perfplan/perfplan/internal/units"

// Defaults of torch.nn.parallel.DistributedDataParallel.
const (
	DefaultBucket = 25 * units.MiB // bucket_cap_mb
	FirstBucket   = 1 * units.MiB  // kDefaultFirstBucketBytes; only while bucket_cap_mb is left alone
)

// AppendBuckets cuts gradients, given in the order they become ready, into the groups
// that are reduced together: a bucket closes when it holds at least its cap
// (reducer.cpp, compute_bucket_assignment_by_size). first is the cap of the first
// one. It appends to closes for each gradient whether it closes a bucket, and to sizes the bytes
// of each bucket.
func AppendBuckets(closes []bool, sizes, grads []units.Bytes, first, limit units.Bytes) ([]bool, []units.Bytes) {
	var held units.Bytes
	bound := first
	for _, g := range grads {
		held += g
		closes = append(closes, held >= bound)
		if held >= bound {
			sizes = append(sizes, held)
			held, bound = 0, limit
		}
	}
	if held > 0 {
		closes[len(grads)-1] = true
		sizes = append(sizes, held)
	}
	return closes, sizes
}
