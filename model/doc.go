// Package model says what is computed: it reads a model and counts it.
//
// Load takes a catalog name, a YAML or JSON file in the vocabulary of Hugging
// Face's config.json, or a folder that holds one, and returns a Spec: the
// architecture in the project's own terms, whatever the vocabulary it came
// from. A Spec lists its parameters as PyTorch would (Tensors), counts them
// (Params) and counts the arithmetic of a forward pass (ForwardFLOPs).
//
// Everything that differs between model families is data: families.go holds one
// row per model_type with its class defaults and its names for the keys,
// keys.go one row per key, layout.go the module names and their order, and
// catalog/ one file per well-known model. A new family is a new row.
//
// The package is the first of the flow and knows nothing of frameworks, GPUs or
// parallelism. Next comes model/recipe, which says what kernels a framework
// launches for such a layer, and model/ops, which multiplies the two into the
// operations of one rank.
package model
