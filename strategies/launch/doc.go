// Package launch reads what a training job is started with and says it in the words of a
// job file: the flags of Megatron-LM, in a shell script, a list or as a log prints them, the
// arguments of transformers' Trainer on a command line or as TRL, accelerate, LLaMA-Factory,
// Axolotl and ms-swift write them, and configurations of DeepSpeed, torchtitan, gpt-neox,
// NeMo 1, NeMo AutoModel and Megatron-Bridge, and nanoGPT's training files and logs. What has no
// key is said, and nothing is guessed: keys/ lists, a file a program, what each key is.
// Package shell beside it walks through a script up to the command that starts the training;
// nothing of it is run.
//
// Package strategies, next, reads and checks the job.
package launch
