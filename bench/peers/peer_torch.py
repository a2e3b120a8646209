#!/usr/bin/env python3
"""Times PyTorch's caching allocator: pairs of four sizes and the mixed pattern of bench/pattern.h.

The loops run in C++ (torch_loop.cc), built against the installed torch with the system's compiler.
Prints {"peer", "figures"}; exits with 77, and says why, where that is not possible.
"""

import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SIZES = [(512, "512 B"), (64 << 10, "64 KiB"), (2 << 20, "2 MiB"), (64 << 20, "64 MiB")]


class Measure(ctypes.Structure):
    """bench_measure of bench/bench.h."""

    _fields_ = [("median", ctypes.c_double), ("lowest", ctypes.c_double), ("highest", ctypes.c_double)]


def skip(why):
    print(f"peer_torch: skipped: {why}", file=sys.stderr)
    sys.exit(77)


def build(folder):
    """The loops as a shared library."""
    from torch.utils import cpp_extension

    objects = Path(folder) / "bench.o"
    library = Path(folder) / "torch_loop.so"
    subprocess.run(["cc", "-O2", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}", "-c", str(ROOT / "bench/bench.c"),
                    "-o", str(objects)], check=True)
    includes = [f"-I{path}" for path in cpp_extension.include_paths(device_type="cuda")]
    libraries = [flag for path in cpp_extension.library_paths(device_type="cuda")
                 for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    subprocess.run(["c++", "-O2", "-std=c++17", "-fPIC", "-shared", f"-I{ROOT}", *includes,
                    str(ROOT / "bench/peers/torch_loop.cc"), str(objects), "-o", str(library), *libraries,
                    "-lc10", "-lc10_cuda"], check=True)
    return ctypes.CDLL(str(library))


def figure(what, measure):
    return {"what": what, "unit": "ns", "median": measure.median, "spread": [measure.lowest, measure.highest]}


def main():
    try:
        import torch
    except ImportError as error:
        skip(error)
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        try:
            loops = build(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            skip(f"the loops cannot be built: {error}")
        loops.torch_pairs.restype = loops.torch_pattern.restype = ctypes.c_bool
        figures, measure = [], Measure()
        for size, name in SIZES:
            if not loops.torch_pairs(ctypes.c_size_t(size), ctypes.byref(measure)):
                sys.exit(f"peer_torch: an allocation of {name} failed")
            figures.append(figure(f"alloc + free, {name}", measure))
        if not loops.torch_pattern(ctypes.byref(measure)):
            sys.exit("peer_torch: an allocation of the pattern failed")
        figures.append(figure("mixed pattern, a pair", measure))
    print(json.dumps({"peer": f"torch {torch.__version__}", "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
