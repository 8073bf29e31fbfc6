// Package collective prices one collective on one group with the machine to
// itself: how long it takes, with which algorithm and protocol, and how many
// streaming multiprocessors it takes from compute.
//
// It works in three steps.
//
// First it does what NCCL does (nccl.go, graph.go, choose.go): search channels,
// compute a latency and a bandwidth for every algorithm and protocol, and choose
// the least latency + bytes/bandwidth. The constants are data, nccl.yaml, by
// release of NCCL, because they change which algorithm is chosen.
//
// Second it says how long the choice really takes (shapes.go): NCCL's latencies
// are too short and it does not know that a pipeline must fill, so
//
//	time = A + B + ramp·√(A·B),  A = latency·NCCL's latency,  B = bytes/(bandwidth·NCCL's bandwidth)
//
// with latency, bandwidth and ramp fitted to measurements
// (shapes.yaml). The newest table times every release: the release decides the
// choice, the hardware the time. Network adapters that siblings share, wire
// efficiency and oversubscribed switches bound the bandwidth, and so does the host's
// memory where GPUs do not reach each other's over PCIe (GeForce).
//
// Third it believes what was measured (curve.go): a curve of this very group
// gives the time; curves of other groups of the machine correct the model by what
// they differ from it. A Cost says which (measured, scaled, model) and how sure.
//
// Send-recv and all-to-all, which NCCL's tuner does not see, are in p2p.go.
//
//	f, err := collective.FabricOf(p.GPU, p.Node, p.Network, p.Software, p.Laws.Collectives...)
//	c := f.Cost(collective.AllReduce, 25*units.MiB, f.Group(64, 1))
//
// Inner loops call Fabric.Time, or keep the Law of an operation and group.
//
// The package reads hardware profiles; hardware does not know it. Next come
// strategies/estimate, which says which collectives a step needs, and
// strategies/timeline, which lets them contend with compute.
package collective
