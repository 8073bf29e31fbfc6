#!/bin/bash
# GPT of 20 billion parameters on 16 nodes
#SBATCH --nodes=16
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8; NODES=${SLURM_NNODES:-16}
TP=8
MBS=2
GBS=$(($MBS*512))
LAYERS="${LAYERS:-44}"
VOCAB_SIZE=${2}

LAUNCH="torchrun --nproc-per-node $GPUS --nnodes=${NODES} --node-rank $SLURM_NODEID"
ARGS=(
    --num-layers ${LAYERS} --hidden-size 6144   # a comment
    --num-attention-heads 64 \
    --seq-length 2048 --max-position-embeddings 2048
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 1
    --sequence-parallel
    --micro-batch-size $MBS --global-batch-size ${GBS}
    "--fp8-format hybrid" '--bf16'
    --vocab-size $VOCAB_SIZE
    # --use-distributed-optimizer
    --recompute-activations
    --lr 1e-4 --weight-decay 0.1
    --decoder-first-pipeline-num-layers 10
    --frobnicate 7
)
$LAUNCH pretrain_gpt.py "${ARGS[@]}" --tp-comm-overlap
