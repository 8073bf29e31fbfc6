#!/usr/bin/env bash
# Arrays, functions and loops; the command that trains is one of several.
set -euo pipefail
WIDTH=(1024 4096)
KIND=1
GPUS=(0 1 2 3)

model_args() {
    local layers=$1 hidden=$2
    MODEL=(
        --num-layers "$layers" --hidden-size $hidden   # a comment
        --num-attention-heads $((hidden / 128))
        --vocab-size 50304
    )
}

run() {
    local name=$1; shift
    echo "starting $name: $*"
    "$@" 2>&1 | tee "$name.log"
}

python tools/preprocess_data.py --seq-length 9999 --workers 8
model_args 24 ${WIDTH[$KIND]}
ARGS=("${MODEL[@]}" --seq-length 2048 --max-position-embeddings 2048)
for flag in bf16 use-distributed-optimizer overlap-grad-reduce; do
    ARGS+=("--$flag")
done
for ((stages = 1; stages < ${#GPUS[@]} / 2; stages *= 2)); do :; done
ARGS+=(--pipeline-model-parallel-size "$stages" --recompute-granularity selective --recompute-modules core_attn mlp)
EVAL=()

cd megatron && run main torchrun --nproc-per-node=${#GPUS[@]} pretrain_gpt.py "${ARGS[@]}" "${EVAL[@]}" \
    --micro-batch-size 2 --global-batch-size 64
