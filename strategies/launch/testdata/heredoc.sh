#!/bin/bash
# A configuration of DeepSpeed that the script writes itself.
ZERO_STAGE=1
MICRO=4
CONFIG="$OUTPUT/ds_config.json"
cat <<JSON > "$CONFIG"
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "train_batch_size": "$BATCH",
  "steps_per_print": 10,
  "zero_optimization": {"stage": ${ZERO_STAGE}, "reduce_bucket_size": 2e8},
  "bf16": {"enabled": true}
}
JSON
OPTIONS=" \
    --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 \
    --max-position-embeddings 1024 --vocab-size 50304 --bf16 \
    --micro-batch-size $MICRO --global-batch-size ${BATCH:-256} \
    --deepspeed --deepspeed_config $CONFIG"
run_cmd="deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py ${OPTIONS}"
echo ${run_cmd}
eval ${run_cmd}
