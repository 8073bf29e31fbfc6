#!/bin/bash
# DeepSeek-V3 on 32 nodes, with multi-token prediction on a stage of its own
torchrun --nproc_per_node 8 --nnodes 32 pretrain_gpt.py --num-layers 61 \
  --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 \
  --bf16 --micro-batch-size 1 --global-batch-size 8192 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 129280 \
  --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 \
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 \
  --num-experts 256 --moe-ffn-hidden-size 2048 --moe-router-topk 8 --moe-shared-expert-intermediate-size 2048 --moe-layer-freq "([0]*3+[1]*58)" --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
  --expert-model-parallel-size 32 --expert-tensor-parallel-size 1 \
  --pipeline-model-parallel-size 8 --pipeline-model-parallel-layout "Et*3|(tt|)*29m|L" --mtp-num-layers 1 \
  --use-distributed-optimizer --recompute-granularity selective --recompute-modules mla_up_proj mlp
