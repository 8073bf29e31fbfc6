#!/bin/bash
# Layers of DeepSeek-V4-Flash: attention to sums of tokens, four residual streams
torchrun --nproc_per_node 4 --nnodes 2 pretrain_gpt.py \
  --num-layers 6 --hidden-size 4096 --num-attention-heads 64 --multi-latent-attention \
  --q-lora-rank 1024 --kv-lora-rank 448 --qk-head-dim 448 --qk-pos-emb-head-dim 64 --v-head-dim 512 --o-groups 8 --o-lora-rank 1024 \
  --experimental-attention-variant dsv4_hybrid --csa-compress-ratios "([0]*2+[4,128]*2+[0])" --csa-window-size 128 --csa-compress-rotary-base 160000 \
  --dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128 --dsa-indexer-topk 512 --dsa-indexer-loss-coeff 0.01 --dsa-indexer-use-sparse-loss --apply-dsa-kernel-fusion \
  --enable-hyper-connections --num-residual-streams 4 --mhc-sinkhorn-iterations 20 --use-fused-mhc \
  --swiglu --normalization RMSNorm --qk-layernorm --position-embedding-type rope --disable-bias-linear --ffn-hidden-size 2048 \
  --num-experts 32 --moe-router-topk 6 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-grouped-gemm --moe-n-hash-layers 3 \
  --moe-router-score-function sqrtsoftplus --moe-router-enable-expert-bias --moe-token-dispatcher-type alltoall \
  --mtp-num-layers 1 --untie-embeddings-and-output-weights --vocab-size 129280 --hidden-dropout 0 --attention-dropout 0 \
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 \
  --expert-model-parallel-size 8 --use-distributed-optimizer --recompute-granularity selective --recompute-modules mhc mla_up_proj
