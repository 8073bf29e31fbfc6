// Package cuda drives GPUs for calibration: memory, streams, matrix multiplies, fused
// attention, own kernels, graphs, collectives, clocks and power, behind the interfaces
// Driver, GPU and Op.
//
// The libraries (libcuda, libcublasLt, libcudnn, libnvrtc, libnccl, NVML) are opened
// when Open runs, by prototypes written out in shim.h, so that building needs no CUDA
// toolkit; find.go says where they are looked for. Without cgo, or elsewhere than
// on Linux, Open says what to do. Every call's result is checked, and an Error
// carries the call, the code, its name and text, and the device. Package
// calibrate/cuda/fake models a GPU behind the same interfaces for tests.
//
// calibrate/probe measures with it, and comes next.
package cuda
