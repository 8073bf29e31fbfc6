// Package inventory says what a machine is made of: GPUs with their limits and links,
// from NVML; network cards, processor and memory, from the system; who reaches whom how,
// from NVML or from a saved text of nvidia-smi topo -m.
//
// Skeleton writes it as a hardware/v1 profile over the nearest one of the catalog,
// without any law: those are calibrate's. calibrate/probe measures, and comes next.
package inventory
