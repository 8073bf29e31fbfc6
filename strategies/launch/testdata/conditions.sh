#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:h100:8
# Conditions that the file decides, by what it sets and by defaults, and others that it does not.
SIZE=${SIZE:-7b}
MODE=$1
if [ $# -lt 1 ]; then
    echo "usage: $0 fp8|bf16 [--extra]" >&2
    exit 1
fi
[ -d "$DATA" ] || { echo "no data in $DATA --num-layers 1"; exit 1; }

case "$SIZE" in
    7b) LAYERS=32; HIDDEN=4096; HEADS=32 ;;
    13b|13B) LAYERS=40; HIDDEN=5120; HEADS=40 ;;
    *) echo "no such size" && exit 2 ;;
esac
if [[ $HIDDEN -ge 5000 && $SIZE != 7* ]]; then
    TP=8
elif (( LAYERS % 16 == 0 )); then
    TP=2
else
    TP=1
fi
if [ -z "$MBS" ]; then MBS=1; fi

PRECISION="--bf16"
if [ "$MODE" = fp8 ]; then
    PRECISION+=" --fp8-format hybrid"
fi
[ "$RECOMPUTE" = 1 ] && MORE="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
[ $TP -gt 1 ] && MORE="$MORE --sequence-parallel"
if nvidia-smi | grep -q H100; then MORE="$MORE --window-size 127"; fi
while [ $# -gt 1 ]; do shift; done

srun --nodes=$SLURM_NNODES --container-image=x.sqsh bash -c "
    torchrun --nproc_per_node $SLURM_GPUS_ON_NODE --nnodes $SLURM_NNODES --node_rank \$SLURM_NODEID \
        pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS --seq-length 4096 \
        --max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size $MBS --global-batch-size $(( 8 * SLURM_NNODES * MBS * 2 )) \
        --tensor-model-parallel-size $TP $PRECISION $MORE $EXTRA_ARGS" 2>&1 | tee train.log
