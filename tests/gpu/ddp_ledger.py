#!/usr/bin/env python3
"""Data-parallel training that holds some 20 GiB of each GPU, for the ledger to account for.

usage: cenote run --ledger -- python3 -m torch.distributed.run --nproc-per-node=2 --standalone tests/gpu/ddp_ledger.py
With CENOTE_TORCH=1 in the environment (`cenote run --torch`) torch's memory is cenote's.
"""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
layers = [torch.nn.Linear(8192, 8192) for _ in range(12)]
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(*layers).cuda(), device_ids=[rank], gradient_as_bucket_view=True
)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    optimizer.zero_grad(set_to_none=True)
    model(torch.randn(16384, 8192, device="cuda")).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
parameters = torch.stack([p.double().sum() for p in model.parameters()])
total = parameters.clone()
dist.all_reduce(total)
assert torch.allclose(total, dist.get_world_size() * parameters), "the ranks do not agree"
time.sleep(1.0)  # for a look while all is held
print(f"rank {rank}: done, {torch.cuda.memory_reserved() / 2**30:.1f} GiB held by torch", flush=True)
os._exit(0)  # or the last look would find NCCL's memory given back
