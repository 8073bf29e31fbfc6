"""Records what PyTorch's allocator does with random events, for TestRecorded.

usage: python3 record.py segments|expandable SEED LIMIT_MIB EVENTS > torch-NAME.events
LIMIT_MIB 0 is no limit; only `segments` may have one (PyTorch's own limit counts
expandable segments otherwise than the device does).
"""
import os, random, sys

mode, seed, limit, events = sys.argv[1], *map(int, sys.argv[2:5])
if mode == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch
from torch.cuda import caching_allocator_alloc, caching_allocator_delete, memory_allocated, memory_reserved

torch.cuda.init()
gpu = torch.cuda.get_device_properties(0)
if limit:
    torch.cuda.set_per_process_memory_fraction(limit * 2**20 / torch.cuda.mem_get_info()[1])
streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
rng, live, n = random.Random(seed), [], 0
print(f"# torch {torch.__version__}, {gpu.name}, seed {seed}")
print(f"options {mode} {limit * 2**20}")
while n < events:
    r = rng.random()
    if live and r < 0.45:
        at = len(live) - 1 if rng.random() < 0.5 else rng.randrange(len(live))
        number, address = live.pop(at)
        caching_allocator_delete(address)
        words = ["free", number]
    elif r < 0.46:
        torch.cuda.empty_cache()
        words = ["empty"]
    else:
        low, high = rng.choice([(1, 2**12), (2**12, 2**20), (2**20, 10 * 2**20), (10 * 2**20, 200 * 2**20), (64 * 2**20, 64 * 2**20)])
        size, stream = rng.randint(low, high), int(rng.random() < 0.15)
        words = ["alloc", size, stream]
        try:
            live.append((n, caching_allocator_alloc(size, 0, streams[stream])))
        except torch.OutOfMemoryError:
            words[0] = "refused"
    print(*words, memory_allocated(), memory_reserved())
    n += 1
