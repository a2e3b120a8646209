"""What the scripts of this folder share: the names of the workloads, and the choice of an allocator.

PyTorch's settings are read when it is imported, and its allocator can be changed only before CUDA is initialised. So a
script calls prepare(), imports torch, and calls enable() before anything is on the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ALLOCATORS = ("native", "expandable", "cenote", "mempool")
WAYS = ("native", "expandable", "cenote")  # those that the runner compares
WORKLOADS = ("gpt-varlen", "gpt-checkpointed", "resnet50", "llama-generate", "moe", "vit", "streams")
FURTHER = ("resnet50-benchmark",)  # run only when named
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(text: str) -> int:
    """Bytes of "24GiB", "24G" or "123", as a type for argparse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write it as 24GiB")
    return int(float(found[1]) * UNITS[found[2]])


def prepare(allocator: str, deterministic: bool = False) -> None:
    """Sets the environment, before torch is imported."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        os.environ.pop(name, None)
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def enable(allocator: str) -> contextlib.AbstractContextManager:
    """Makes the allocator the current one, before CUDA is initialised; what allocates runs within what it returns. A
    mempool serves its own thread: what autograd allocates on its threads stays with PyTorch."""
    if allocator not in ("cenote", "mempool"):
        return contextlib.nullcontext()
    sys.path.insert(0, str(ROOT / "python"))
    import cenote.torch

    if allocator == "mempool":
        return cenote.torch.pool()
    cenote.torch.enable(limit=None)
    return contextlib.nullcontext()


def choose_deterministic(torch) -> None:
    """The same bits in every run. Filling new memory is left out: it would hide a use of what was never written."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def write_json(path, value) -> None:
    """All of it or nothing: a run may be ended at any time."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)
