// Package ops turns a model, a recipe and a shard into what one rank runs: the
// units of the model (embedding, each kind of layer, head with loss), each with its
// forward and backward ops, its memory events and its parameters.
//
// The builder here knows how layers are put together (pre-, post- and sandwich
// norms, parallel blocks, grouped and latent attention, experts) and where tensor,
// sequence, context and expert parallelism cut them; what each piece launches comes
// from the recipe's programs, run on a tape.
//
// Its results are priced by hardware/kernel and arranged in time by strategies.
package ops
