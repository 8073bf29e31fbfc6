#!/bin/bash
# Llama 3 8B on 8 nodes, as a script of Megatron-LM starts it: perfplan init --from examples/pretrain.sh -
NODES=${NODES:-8}
TP=2

MODEL=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --position-embedding-type rope
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0 --hidden-dropout 0
    --max-position-embeddings 8192 --vocab-size 128256
)
TRAINING=(
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 512
    --bf16 --lr 3e-4 --train-iters 1000
    --tensor-model-parallel-size ${TP} --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
    --cross-entropy-loss-fusion
)
torchrun --nproc-per-node 8 --nnodes ${NODES} pretrain_gpt.py "${MODEL[@]}" "${TRAINING[@]}"
