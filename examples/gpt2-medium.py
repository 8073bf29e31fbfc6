# Settings of nanoGPT's train.py for a GPT-2 of 350 million parameters:
# torchrun --standalone --nproc_per_node=8 train.py config/gpt2-medium.py
n_layer = 24
n_head = 16
n_embd = 1024

batch_size = 16
block_size = 1024
gradient_accumulation_steps = 4 * 8

max_iters = 100000
compile = True
