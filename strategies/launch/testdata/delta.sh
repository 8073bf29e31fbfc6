#!/bin/bash
# Layers of Qwen3-Next: three gated delta nets, then attention with a gate
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 8 --hidden-size 2048 --num-attention-heads 16 --kv-channels 256 --group-query-attention --num-query-groups 2 \
  --swiglu --normalization RMSNorm --apply-layernorm-1p --qk-layernorm --position-embedding-type rope --rotary-percent 0.25 --disable-bias-linear \
  --attention-output-gate --experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-num-value-heads 32 --linear-num-key-heads 16 \
  --num-experts 64 --moe-router-topk 8 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 512 --moe-shared-expert-gate \
  --untie-embeddings-and-output-weights --vocab-size 151936 --hidden-dropout 0 --attention-dropout 0 \
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 \
  --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --use-distributed-optimizer
