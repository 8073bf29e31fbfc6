#!/bin/bash
# Qwen2.5 7B, adapters under ZeRO-2 on four GPUs.
nproc=4
CUDA_VISIBLE_DEVICES=0,1,2,3 \
NPROC_PER_NODE=$nproc \
swift sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --tuner_type lora \
    --dataset 'AI-ModelScope/alpaca-gpt4-data-zh#500' \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 2 \
    --learning_rate 1e-4 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --max_length 4096 \
    --packing true \
    --attn_impl flash_attn \
    --use_liger_kernel true \
    --deepspeed zero2 \
    --output_dir output
