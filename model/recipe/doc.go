// Package recipe holds the tables of the training frameworks: which kernels each
// module launches, what is fused, what is saved, how many bytes each tensor type
// takes, what the host pays per call, and which communication overlaps.
//
// A recipe is a YAML file (recipe/v1), embedded. Its programs are short texts in a
// Python-like form, one per module (rms_norm, rotary, gated, attention, loss, …), made
// of the primitives of model/tape:
//
//	rms_norm(x, w): |
//	  d = dtype(x)
//	  x = float(x)
//	  v = mean(pow(x, 2))
//	  x = mul(x, rsqrt(add_scalar(v)))
//	  return mul(w, to(x, d))
//
// A name that is assigned again gives up its former tensor, as in Python, so the
// text also decides what stays in memory. A recipe may extend another and replace
// some programs. Adding a framework means adding one file here.
//
// model/ops runs the programs on a tape for the layers of a model, and comes next.
package recipe
