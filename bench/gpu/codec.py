#!/usr/bin/env python3
"""Encoding and decoding on a GPU, beside torch (eager and compiled), bitsandbytes and torchao where they are installed.

A figure is bytes read and written in a second, of a matrix that the L2 cache does not hold; each peer does the same work
in its own format. The bytes of each codec are compared with the host's first: a kernel that is fast and wrong is no
result. Writes {"bench_codec": {"name", "figures"}} for tools/bench.py --from.

usage: bench/gpu/codec.py --out FILE [--library LIBCENOTE.so] [--rows N] [--cols N]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys

from common import ROOT, write_json

ROUNDS = 21
FORMATS = {"fp16": 1, "bf16": 2, "fp8_e4m3": 3, "fp8_e5m2": 4, "int8": 5, "int4": 6, "2:4_bf16": 8}
ELEMENT_BITS = {"fp16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "int4": 4, "2:4_bf16": 8}
TENSOR, ROW, GROUP = 1, 2, 4
FP16, BF16, FP32 = 13, 14, 15
SUMS_BYTES = 13 * 8
CASES = (  # format, granularity, group, type of the source
    ("bf16", 0, 0, FP32),
    ("fp8_e4m3", 0, 0, BF16),
    ("fp8_e4m3", ROW, 0, BF16),
    ("fp8_e4m3", TENSOR, 0, BF16),
    ("fp8_e4m3", GROUP, 128, BF16),
    ("int8", ROW, 0, BF16),
    ("int8", ROW, 0, FP32),
    ("int4", GROUP, 32, BF16),
    ("2:4_bf16", 0, 0, BF16),
)


class Codec(ctypes.Structure):
    _fields_ = [("format", ctypes.c_int), ("granularity", ctypes.c_int), ("group", ctypes.c_uint32),
                ("block_rows", ctypes.c_uint32), ("block_cols", ctypes.c_uint32), ("overflow", ctypes.c_int),
                ("asymmetric", ctypes.c_bool), ("refuse_dense", ctypes.c_bool)]


class Matrix(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("rows", ctypes.c_uint64), ("cols", ctypes.c_uint64),
                ("stride", ctypes.c_uint64), ("dtype", ctypes.c_int)]


class Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("values", "scales", "zeros", "metadata")]


class Parts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("values", "scales", "zeros", "metadata")] + [("bytes", Sizes)]


def need(status: int, what: str) -> None:
    if status:
        raise SystemExit(f"codec.py: {what} failed with {status}")


class Bench:
    def __init__(self, torch, library, rows: int, cols: int):
        self.torch, self.library, self.rows, self.cols = torch, library, rows, cols
        self.device = ctypes.c_void_p()
        torch.cuda.init()
        need(library.cen_device_open(b"cuda:0", ctypes.byref(self.device)), "opening cuda:0")
        torch.manual_seed(1)
        self.fp32 = torch.randn(rows, cols, device="cuda") * 0.02
        self.sources = {FP32: self.fp32, BF16: self.fp32.bfloat16()}
        self.sums = torch.zeros(rows * SUMS_BYTES, dtype=torch.uint8, device="cuda")

    def stream(self):
        return ctypes.c_size_t(self.torch.cuda.current_stream().cuda_stream)

    def parts(self, codec, device: str):
        """Parts, and the tensors that they lie in."""
        sizes = Sizes()
        need(self.library.cen_codec_bound(ctypes.byref(codec), ctypes.c_uint64(self.rows), ctypes.c_uint64(self.cols),
                                          ctypes.byref(sizes)), "asking for sizes")
        names = [name for name, _ in Sizes._fields_]
        kept = [self.torch.zeros(max(getattr(sizes, name), 1), dtype=self.torch.uint8, device=device) for name in names]
        return Parts(*[t.data_ptr() for t in kept], sizes), kept

    def matrix(self, tensor, dtype: int):
        return Matrix(tensor.data_ptr(), self.rows, self.cols, self.cols, dtype)

    def encode(self, codec, matrix, parts, sums: int) -> None:
        need(self.library.cen_codec_encode_async(self.device, ctypes.byref(codec), ctypes.byref(matrix),
                                                 ctypes.byref(parts), ctypes.c_uint64(sums), self.stream()), "encoding")

    def decode(self, codec, matrix, parts) -> None:
        need(self.library.cen_codec_decode_async(self.device, ctypes.byref(codec), ctypes.byref(parts),
                                                 ctypes.byref(matrix), self.stream()), "decoding")

    def same_as_host(self, codec, dtype: int, kept) -> None:
        source = self.sources[dtype].cpu()
        parts, host = self.parts(codec, "cpu")
        matrix = self.matrix(source, dtype)
        need(self.library.cen_codec_encode(ctypes.byref(codec), ctypes.byref(matrix), ctypes.byref(parts), None, None),
             "encoding on the host")
        for ours, theirs in zip(kept, host):
            if not self.torch.equal(ours.cpu(), theirs):
                raise SystemExit(f"codec.py: the bytes of format {codec.format} are not the host's")

    def rate(self, work, moved: int) -> list:
        """GB/s, a round each, from the GPU's own clock."""
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
        rates = []
        for i in range(ROUNDS + 3):
            events[0].record()
            work()
            events[1].record()
            events[1].synchronize()
            if i >= 3:
                rates.append(moved / events[0].elapsed_time(events[1]) * 1e-6)
        return rates


def measure(values: list) -> dict:
    return {"median": statistics.median(values), "spread": [min(values), max(values)]}


def torch_encode(torch, form: str, granularity: int, group: int):
    """The same in torch's own operations; None where it has none."""
    most, dtype = {"fp8_e4m3": (448.0, torch.float8_e4m3fn), "int8": (127.0, torch.int8)}.get(form, (0, None))
    if form == "bf16":
        return lambda x: x.bfloat16()
    if dtype is None:
        return None

    def encode(x):
        if not granularity:
            return x.to(dtype)
        y = x.float()
        y = y.reshape(-1, group) if granularity == GROUP else y
        amax = y.abs().amax() if granularity == TENSOR else y.abs().amax(dim=-1, keepdim=True)
        s = (amax / most).clamp_min(2.0**-126)
        t = y * (1.0 / s)
        t = t.round() if dtype is torch.int8 else t
        return t.clamp(-most, most).to(dtype), s

    return encode


def other_peers(form: str, granularity: int) -> dict:
    found = {}
    if form == "int8" and granularity == ROW:
        try:
            from bitsandbytes.functional import int8_vectorwise_quant

            found["bitsandbytes"] = lambda x: int8_vectorwise_quant(x.half())
        except ImportError as error:
            print(f"no bitsandbytes: {error}", file=sys.stderr)
        try:
            import torch
            from torchao.quantization.utils import dynamically_quantize_per_channel

            found["torchao"] = lambda x: dynamically_quantize_per_channel(x.float(), -128, 127, torch.int8)
        except ImportError as error:
            print(f"no torchao: {error}", file=sys.stderr)
    return found


def peers(bench, form: str, granularity: int, group: int, x, moved: int) -> list:
    torch, found = bench.torch, {}
    eager = torch_encode(torch, form, granularity, group)
    if eager:
        found = {"torch.compile": torch.compile(eager), "torch": eager}
    found.update(other_peers(form, granularity))
    listed = []
    for name, work in found.items():
        try:
            work(x)
            listed.append({"name": name, **measure(bench.rate(lambda work=work: work(x), moved))})
        except Exception as error:  # a peer that does not run here is left out, and says why
            print(f"{name}, {form}: {error}", file=sys.stderr)
    copy = torch.empty_like(x)
    size = 2 * x.numel() * x.element_size()
    listed.append({"name": "a copy", **measure(bench.rate(lambda: copy.copy_(x), size))})
    return listed


def figures(bench) -> list:
    made = []
    for form, granularity, group, dtype in CASES:
        codec = Codec(format=FORMATS[form], granularity=granularity, group=group)
        x = bench.sources[dtype]
        matrix = bench.matrix(x, dtype)
        parts, kept = bench.parts(codec, "cuda")
        bench.encode(codec, matrix, parts, 0)
        bench.torch.cuda.synchronize()
        bench.same_as_host(codec, dtype, kept)
        moved = x.numel() * x.element_size() + sum(t.numel() for t in kept)
        decoded = bench.torch.empty_like(x)
        back = bench.matrix(decoded, dtype)
        units = {0: "", TENSOR: " by tensor", ROW: " by row", GROUP: f" by groups of {group}"}[granularity]
        name = f"{'fp32' if dtype == FP32 else 'bf16'} to {form}{units}"
        ways = {
            "encode": lambda: bench.encode(codec, matrix, parts, 0),
            "encode with report": lambda: bench.encode(codec, matrix, parts, bench.sums.data_ptr()),
            "decode": lambda: bench.decode(codec, back, parts),
        }
        of_peers = peers(bench, form, granularity, group, x, moved)
        for way, work in ways.items():
            beside = of_peers if way == "encode" else of_peers[-1:]
            made.append({"what": f"{name}, {way}", "unit": "GB/s", **measure(bench.rate(work, moved)),
                         "peer": beside[0], **({"also": beside[1:]} if len(beside) > 1 else {})})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--library", default=str(ROOT / "build-portable" / "libcenote.so"))
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--cols", type=int, default=8192)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("codec.py: torch is not installed here", file=sys.stderr)
        sys.exit(77)
    if not torch.cuda.is_available():
        print("codec.py: there is no GPU here", file=sys.stderr)
        sys.exit(77)
    bench = Bench(torch, ctypes.CDLL(options.library), options.rows, options.cols)
    write_json(options.out, {"bench_codec": {"name": "codec", "figures": figures(bench)}})


if __name__ == "__main__":
    main()
