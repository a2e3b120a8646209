#!/usr/bin/env python3
"""Encoding and decoding on one core of the host, beside torch, NumPy and libzstd, which do the same work on the same data.

A figure is bytes read and written in a second, of a matrix that no cache holds, but for lossless BF16, whose own bytes are
counted. Time is the processor's of this thread, and ways follow each other in every round. Results go into memory that
was written before, unless a peer makes its own. Scales are made in the time, by each. Needs torch and NumPy. Writes
{"bench_codec_cpu": {"name", "figures"}} for tools/bench.py --from.

usage: bench/peers/codec_cpu.py --out FILE [--rows N] [--cols N]   CENOTE_LIBRARY names a libcenote.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))
import cenote._codec as raw
from cenote._lib import check

ROUNDS = 9
FORMATS = {"fp16": 1, "bf16": 2, "fp8_e4m3": 3, "int8": 5, "int4": 6, "2:4_bf16": 8, "lossless_bf16": 10}
DTYPES = {"fp16": 13, "bf16": 14, "fp32": 15}
WIDTHS = {"fp16": 2, "bf16": 2, "fp32": 4}
CASES = (  # type of the source, format, granularity, group
    ("fp32", "bf16", "unscaled", 0),
    ("fp32", "fp16", "unscaled", 0),
    ("fp32", "fp8_e4m3", "unscaled", 0),
    ("bf16", "fp8_e4m3", "row", 0),
    ("fp32", "int8", "row", 0),
    ("bf16", "int8", "row", 0),
    ("fp32", "int4", "group", 32),
    ("bf16", "lossless_bf16", "unscaled", 0),
)


class Bench:
    """The matrix in its types, and cenote's calls on it."""

    def __init__(self, torch, numpy, rows, cols):
        self.torch, self.numpy, self.rows, self.cols = torch, numpy, rows, cols
        torch.manual_seed(1)
        fp32 = torch.randn(rows, cols) * 0.02
        self.sources = {"fp32": fp32, "bf16": fp32.bfloat16()}
        self.copied = torch.zeros_like(fp32)

    def cenote(self, source, form, granularity, group):
        """(encode, decode, bytes that each moves)."""
        codec = raw.Codec(format=FORMATS[form], granularity=raw.GRANULARITIES[granularity], group=group)
        sizes, encode, decode = raw.Sizes(), raw.function("cen_codec_encode"), raw.function("cen_codec_decode")
        check(raw.function("cen_codec_bound")(ctypes.byref(codec), self.rows, self.cols, ctypes.byref(sizes)))
        x = self.sources[source]
        back = self.torch.zeros_like(x)
        kept = {n: self.torch.zeros(max(getattr(sizes, n), 1), dtype=self.torch.uint8) for n, _ in raw.Sizes._fields_}
        parts = raw.Parts(bytes=sizes, **{n: t.data_ptr() for n, t in kept.items()})
        parts.memory = kept
        matrices = [raw.Matrix(t.data_ptr(), self.rows, self.cols, self.cols, DTYPES[source]) for t in (x, back)]
        bound = raw.Sizes(*(getattr(sizes, n) for n in kept))

        def encoded():
            parts.bytes = bound
            check(encode(ctypes.byref(codec), ctypes.byref(matrices[0]), ctypes.byref(parts), None, None))

        def decoded():
            check(decode(ctypes.byref(codec), ctypes.byref(parts), ctypes.byref(matrices[1])))
            return back

        moved = x.numel() * WIDTHS[source]
        if form != "lossless_bf16":
            moved += sum(getattr(sizes, n) for n in kept)
        return encoded, decoded, moved

    def peers(self, source, form, granularity):
        """{name: (encode, decode)} of those that have the format."""
        torch, x = self.torch, self.sources[source]
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8_e4m3": torch.float8_e4m3fn}
        back = torch.zeros_like(x)
        if form in types and granularity == "unscaled":
            kept = torch.zeros(x.shape, dtype=types[form])
            found = {"torch": (lambda: kept.copy_(x), lambda: back.copy_(kept))}
            if form == "fp16":
                a, b, c = x.numpy(), kept.numpy(), back.numpy()
                found["NumPy"] = (lambda: self.numpy.copyto(b, a, casting="same_kind"), lambda: self.numpy.copyto(c, b))
            return found
        if form == "fp8_e4m3":
            return {"torch": self.torch_fp8(x, back)}
        if form == "int8":
            return {"torch": self.torch_int8(x, back), "NumPy": self.numpy_int8(x)}
        if form == "lossless_bf16":
            return {"zstd -1": self.zstd(x, 1)}
        return {}

    def torch_fp8(self, x, back):
        kept = [None, None]

        def encode():
            y = x.float()
            s = (y.abs().amax(dim=1, keepdim=True) / 448).clamp_min(2.0**-126)
            kept[:] = (y * (1.0 / s)).to(self.torch.float8_e4m3fn), s

        return encode, lambda: back.copy_(kept[0].float() * kept[1])

    def torch_int8(self, x, back):
        torch, kept = self.torch, [None]
        zeros = torch.zeros(self.rows, dtype=torch.int64)

        def encode():
            y = x.float()
            low, high = torch.aminmax(y, dim=1)
            s = (torch.maximum(-low, high) / 127).clamp_min(2.0**-126).double()
            kept[0] = torch.quantize_per_channel(y, s, zeros, 0, torch.qint8)

        return encode, lambda: back.copy_(kept[0].dequantize())

    def numpy_int8(self, x):
        np, a, kept = self.numpy, x.float().numpy(), [None, None]

        def encode():
            s = np.maximum(np.abs(a).max(axis=1, keepdims=True) / np.float32(127), np.float32(2.0**-126))
            kept[:] = np.rint(a * (1 / s)).astype(np.int8), s

        return encode, lambda: kept[0].astype(np.float32) * kept[1]

    def zstd(self, x, level):
        library = ctypes.CDLL("libzstd.so.1")
        for name in ("ZSTD_compress", "ZSTD_decompress", "ZSTD_compressBound"):
            getattr(library, name).restype = ctypes.c_size_t
        size = x.numel() * 2
        room = library.ZSTD_compressBound(ctypes.c_size_t(size))
        kept, back, used = self.torch.zeros(room, dtype=self.torch.uint8), self.torch.zeros_like(x), [0]

        def encode():
            used[0] = library.ZSTD_compress(ctypes.c_void_p(kept.data_ptr()), ctypes.c_size_t(room),
                                            ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(size), level)

        def decode():
            library.ZSTD_decompress(ctypes.c_void_p(back.data_ptr()), ctypes.c_size_t(size),
                                    ctypes.c_void_p(kept.data_ptr()), ctypes.c_size_t(used[0]))

        return encode, decode

    def copy(self):
        ctypes.memmove(self.copied.data_ptr(), self.sources["fp32"].data_ptr(), self.copied.numel() * 4)


def rate(work, moved):
    start = time.thread_time()
    work()
    return moved / (time.thread_time() - start) * 1e-9


def measure(values):
    return {"median": statistics.median(values), "spread": [min(values), max(values)]}


def figures(bench):
    made = []
    for source, form, granularity, group in CASES:
        encode, decode, moved = bench.cenote(source, form, granularity, group)
        ways = {"cenote": (encode, decode), **bench.peers(source, form, granularity)}
        copied = bench.copied.numel() * 8 / (2 if form == "lossless_bf16" else 1)
        rates = {name: ([], []) for name in (*ways, "memcpy")}
        for i in range(ROUNDS + 1):
            for name, both in (*ways.items(), ("memcpy", (bench.copy, bench.copy))):
                bytes_of = copied if name == "memcpy" else moved
                for k in range(2):
                    found = rate(both[k], bytes_of)
                    if i:
                        rates[name][k].append(found)
        units = {"unscaled": "", "row": " by row", "group": f" by groups of {group}"}[granularity]
        name = "lossless bf16" if form == "lossless_bf16" else f"{source} to {form}{units}"
        for k, what in enumerate(("encode", "decode")):
            others = [{"name": n, **measure(r[k])} for n, r in rates.items() if n != "cenote"]
            made.append({"what": f"{name}, {what}", "unit": "GB/s", **measure(rates["cenote"][k]), "peer": others[0],
                         "also": others[1:]})
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    options = parser.parse_args()
    import numpy
    import torch

    warnings.filterwarnings("ignore", message="torch.quantize_per")
    torch.set_num_threads(1)
    about = (f"One core of the host, a matrix of {options.rows} x {options.cols}, beside torch {torch.__version__} on one "
             f"thread and NumPy {numpy.__version__}. Each makes the scales that it needs; torch's integers are those of "
             "quantize_per_channel. NumPy has no bfloat16 and begins with floats there.")
    result = {"name": "codec_cpu", "about": about, "figures": figures(Bench(torch, numpy, options.rows, options.cols))}
    Path(options.out).write_text(json.dumps({"bench_codec_cpu": result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
