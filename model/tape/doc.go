// Package tape is a symbolic PyTorch: it runs a layer on tensors that have a shape,
// strides and a dtype but no data, and records what the framework would launch,
// allocate and save.
//
// Each primitive (add, linear, layer_norm, attention, …) emits the kernels its
// forward runs, allocates its result, and puts a node on the autograd tape with
// the tensors that PyTorch saves; Backward walks the nodes in the order of
// PyTorch's engine and emits the kernels of the gradients, the sums where a
// tensor was used more than once, and the reductions where it was broadcast.
// Dtype promotion, autocast, broadcasting and non-contiguous layouts follow
// PyTorch's rules, because they decide which kernel runs and how many bytes it
// moves. So one program per module yields the kernels, the memory and the host
// work of any precision, and nothing has to be listed twice.
//
// Sources of the rules: PyTorch's tools/autograd/derivatives.yaml (what is saved
// and which gradient is computed first), aten/src/ATen/TensorIterator.cpp and
// native/cuda/CUDALoops.cuh (which elementwise kernel runs), autocast_mode.h
// (casts), torch/csrc/autograd/engine.cpp and input_buffer.cpp (order and sums);
// proven kernel by kernel against profiler traces in model/ops.
//
// tape.go has the tape and how it records ops, storage.go who allocates and frees,
// autograd.go the nodes and their backward pass, checkpoint.go what runs again in it;
// kernel.go and reduce.go choose the kernels of elementwise ops and of sums. The other
// files hold primitives by kind.
//
// model/recipe holds the programs; model/ops runs them on a tape for the layers
// of a model, and comes next.
package tape
