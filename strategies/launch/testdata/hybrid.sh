#!/bin/bash
# A small Nemotron-3: mixers, experts that read latents and attention, two stages on each of two ranks
torchrun --nproc_per_node 8 --nnodes 2 pretrain_hybrid.py \
  --hybrid-layer-pattern "MEM|EM*E|MEM|EM*E/*E" --mamba-num-heads 64 --mamba-head-dim 64 --mamba-state-dim 128 --mamba-num-groups 8 \
  --hidden-size 2688 --num-attention-heads 32 --group-query-attention --num-query-groups 2 --kv-channels 128 --ffn-hidden-size 1856 \
  --num-experts 128 --moe-router-topk 6 --moe-ffn-hidden-size 1856 --moe-shared-expert-intermediate-size 3712 --moe-latent-size 1024 --moe-router-score-function sigmoid \
  --moe-router-dtype fp32 --moe-grouped-gemm --moe-permute-fusion --moe-token-dispatcher-type alltoall --moe-router-enable-expert-bias \
  --squared-relu --normalization RMSNorm --position-embedding-type none --disable-bias-linear --untie-embeddings-and-output-weights \
  --hidden-dropout 0 --attention-dropout 0 --vocab-size 131072 --seq-length 8192 --max-position-embeddings 8192 \
  --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --pipeline-model-parallel-size 2 --expert-model-parallel-size 8
