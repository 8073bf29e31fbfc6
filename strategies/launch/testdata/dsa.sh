#!/bin/bash
# Layers of GLM-5.2: latent attention to the keys that an indexer picks
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 8 --hidden-size 6144 --ffn-hidden-size 12288 --num-attention-heads 64 --multi-latent-attention \
  --q-lora-rank 2048 --kv-lora-rank 512 --qk-head-dim 192 --qk-pos-emb-head-dim 64 --v-head-dim 256 \
  --experimental-attention-variant dsa --dsa-indexer-n-heads 32 --dsa-indexer-head-dim 128 --dsa-indexer-topk 2048 --dsa-indexer-topk-freq 4 --dsa-indexer-skip-topk-offset 3 \
  --dsa-kernel-backend cudnn --dsa-indexer-loss-coeff 0.001 --dsa-indexer-use-sparse-loss --dsa-indexer-rope-interleaved --dsa-indexer-k-norm-epsilon 1e-6 \
  --swiglu --normalization RMSNorm --qk-layernorm --position-embedding-type rope --disable-bias-linear \
  --num-experts 32 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-layer-freq "([0]*3+[1]*5)" --moe-grouped-gemm \
  --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-token-dispatcher-type alltoall \
  --untie-embeddings-and-output-weights --vocab-size 154880 --hidden-dropout 0 --attention-dropout 0 \
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 \
  --expert-model-parallel-size 8 --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
