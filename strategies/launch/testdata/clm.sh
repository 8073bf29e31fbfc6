#!/bin/bash
# Full fine-tuning by transformers' run_clm.py, sharded by FSDP
MODEL=meta-llama/Llama-3.1-8B
NODES=${NODES:-2}
torchrun --nproc_per_node 8 --nnodes $NODES run_clm.py \
  --model_name_or_path $MODEL --dataset_name wikitext --output_dir out --do_train \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --block_size 2048 \
  --bf16 --tf32 True --torch_compile --gradient_checkpointing \
  --fsdp "hybrid_shard auto_wrap" --fsdp_config fsdp.json \
  --optim adamw_torch --learning_rate 1e-5 --max_grad_norm 0
