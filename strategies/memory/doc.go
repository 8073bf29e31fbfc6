// Package memory follows the bytes of one rank over a step: what lives between
// steps, what the passes allocate and release in order, what data parallelism
// gathers and buckets, when the peak is and what it is made of; then what the
// caching allocator reserves for that sequence, and what the device shows on top.
//
// The sequence is that of the units' own memory events (model/tape), so the peak
// needs no formula. memory/allocator replays it under PyTorch's allocation rules.
//
// strategies/estimate puts its Result beside the timeline's.
package memory
