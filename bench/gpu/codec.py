#!/usr/bin/env python3
"""Encoding and decoding on a GPU, beside torch (eager and compiled), bitsandbytes and torchao where they are installed.

A figure is bytes that must be read and written in a second, of a matrix that the L2 cache does not hold (one scale for
several rows needs the source twice); each peer does the same work in its own format. Before any time is taken, each
codec's bytes, decoded values and report are compared with the host's, of matrices with odd sizes and with NaN,
infinities and zeros: a kernel that is fast and wrong is no result. Writes {"bench_codec": {"name", "figures"}} for
tools/bench.py --from.

usage: bench/gpu/codec.py --out FILE [--library LIBCENOTE.so] [--rows N] [--cols N] [--seconds N]
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import sys
import time

from common import ROOT, write_json

ROUNDS = 21
WHERE = "cuda"
AHEAD = 2_000_000  # cycles that the GPU waits, so that what is timed is there before it begins
FORMATS = {"fp16": 1, "bf16": 2, "fp8_e4m3": 3, "fp8_e5m2": 4, "int8": 5, "int4": 6, "2:4_fp16": 7, "2:4_bf16": 8,
           "2:4_int8": 9}
TENSOR, ROW, COLUMN, GROUP, BLOCK = 1, 2, 3, 4, 5
FP16, BF16, FP32 = 13, 14, 15
SUMS = ("count", "nan", "infinite", "saturated", "overflowed", "underflowed", "largest", "max_error", "error", "error2",
        "x2", "y2", "xy")
COUNTS = 6
CASES = (  # format, granularity, group or block, type of the source, zero points; the first ones matter most
    ("int8", ROW, 0, BF16, False),
    ("fp8_e4m3", ROW, 0, BF16, False),
    ("int4", GROUP, 32, BF16, False),
    ("fp8_e4m3", 0, 0, BF16, False),
    ("bf16", 0, 0, FP32, False),
    ("int8", ROW, 0, FP32, False),
    ("fp8_e4m3", GROUP, 128, BF16, False),
    ("fp8_e4m3", TENSOR, 0, BF16, False),
    ("2:4_bf16", 0, 0, BF16, False),
    ("fp16", 0, 0, FP32, False),
    ("fp8_e5m2", ROW, 0, BF16, False),
    ("int8", ROW, 0, FP16, False),
    ("int8", ROW, 0, BF16, True),
    ("int8", GROUP, 128, BF16, False),
    ("int4", GROUP, 128, BF16, True),
    ("2:4_int8", ROW, 0, BF16, False),
    ("2:4_fp16", 0, 0, FP16, False),
    ("int8", COLUMN, 0, BF16, False),
    ("int8", BLOCK, 128, BF16, False),
)


class Codec(ctypes.Structure):
    _fields_ = [("format", ctypes.c_int), ("granularity", ctypes.c_int), ("group", ctypes.c_uint32),
                ("block_rows", ctypes.c_uint32), ("block_cols", ctypes.c_uint32), ("overflow", ctypes.c_int),
                ("asymmetric", ctypes.c_bool), ("refuse_dense", ctypes.c_bool), ("scales_given", ctypes.c_bool)]


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
    def __init__(self, torch, library, rows: int, cols: int, seconds: float):
        self.torch, self.library, self.rows, self.cols = torch, library, rows, cols
        self.end = time.monotonic() + seconds
        self.device = ctypes.c_void_p()
        torch.cuda.init()
        need(library.cen_device_open(b"cuda:0", ctypes.byref(self.device)), "opening cuda:0")
        torch.manual_seed(1)
        self.fp32 = torch.randn(rows, cols, device=WHERE) * 0.02
        self.sources = {FP32: self.fp32, BF16: self.fp32.bfloat16(), FP16: self.fp32.half()}
        self.copies = {}
        self.sums = torch.zeros(rows * len(SUMS), dtype=torch.int64, device=WHERE)

    def stream(self):
        return ctypes.c_size_t(self.torch.cuda.current_stream().cuda_stream)

    def parts(self, codec, rows: int, cols: int, device: str):
        """Parts, and the tensors that they lie in."""
        sizes = Sizes()
        need(self.library.cen_codec_bound(ctypes.byref(codec), ctypes.c_uint64(rows), ctypes.c_uint64(cols),
                                          ctypes.byref(sizes)), "asking for sizes")
        counts = [getattr(sizes, name) for name, _ in Sizes._fields_]
        kept = [self.torch.zeros(count, dtype=self.torch.uint8, device=device) for count in counts]
        return Parts(*[t.data_ptr() for t in kept], sizes), kept

    def matrix(self, tensor, dtype: int):
        return Matrix(tensor.data_ptr(), *tensor.shape, tensor.stride(0), dtype)

    def encode(self, codec, matrix, parts, sums: int) -> None:
        need(self.library.cen_codec_encode_async(self.device, ctypes.byref(codec), ctypes.byref(matrix),
                                                 ctypes.byref(parts), ctypes.c_uint64(sums), self.stream()), "encoding")

    def decode(self, codec, matrix, parts) -> None:
        need(self.library.cen_codec_decode_async(self.device, ctypes.byref(codec), ctypes.byref(parts),
                                                 ctypes.byref(matrix), self.stream()), "decoding")

    def special(self, rows: int, cols: int, dtype: int):
        """What weights hardly ever are, among what they are; more columns lie behind each row."""
        torch = self.torch
        x = torch.randn(rows, cols + 8) * torch.exp(4 * torch.randn(rows, 1))
        where = torch.rand(rows, cols + 8)
        for i, value in enumerate((math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -3e38)):
            x[(where > i * 1e-3) & (where < (i + 0.3) * 1e-3)] = value
        x[rows // 2] = 0
        x[1] = torch.randn(cols + 8)
        return x.to({FP32: torch.float32, FP16: torch.float16, BF16: torch.bfloat16}[dtype])[:, :cols]

    def same(self, ours, theirs, what: str) -> None:
        if not self.torch.equal(ours.cpu(), theirs):
            raise SystemExit(f"codec.py: {what} are not the host's")

    def same_sums(self, ours, theirs, rows: int, what: str) -> None:
        ours, theirs = (t.cpu().reshape(rows, len(SUMS)) for t in (ours, theirs))
        self.same(ours[:, :COUNTS + 2], theirs[:, :COUNTS + 2], f"counts of {what}")
        a, b = (t[:, COUNTS:].contiguous().view(self.torch.float64) for t in (ours, theirs))
        of = b.clone()
        of[:, -1] = (b[:, -3] * b[:, -2]).sqrt()
        if ((a - b).abs() > of.abs() * 2.0**-18).any():
            raise SystemExit(f"codec.py: sums of {what} are not the host's")

    def check(self, codec, dtype: int, rows: int, cols: int, what: str) -> None:
        """Parts, sums and decoded values as the host makes them."""
        torch, what = self.torch, f"{what}, {rows} x {cols}: bytes"
        whole = self.special(rows, cols, dtype)
        there = whole.as_strided((rows, cols + 8), (cols + 8, 1)).to(WHERE)[:, :cols]
        parts, kept = self.parts(codec, rows, cols, WHERE)
        on_host, host = self.parts(codec, rows, cols, "cpu")
        sums = torch.zeros(rows * len(SUMS), dtype=torch.int64, device=WHERE)
        host_sums = torch.zeros(rows * len(SUMS), dtype=torch.int64)
        source = self.matrix(whole, dtype)
        need(self.library.cen_codec_encode(ctypes.byref(codec), ctypes.byref(source), ctypes.byref(on_host),
                                           ctypes.c_void_p(host_sums.data_ptr()), None), "encoding on the host")
        for address in (0, sums.data_ptr()):
            for part in kept:
                part.fill_(0x5A)
            self.torch.cuda.synchronize()
            self.encode(codec, self.matrix(there, dtype), parts, address)
            self.torch.cuda.synchronize()
            for ours, theirs in zip(kept, host):
                self.same(ours, theirs, what)
        self.same_sums(sums, host_sums, rows, what)
        back = torch.empty(rows, cols, dtype=there.dtype)
        decoded = torch.empty(rows, cols, dtype=there.dtype, device=WHERE)
        need(self.library.cen_codec_decode(ctypes.byref(codec), ctypes.byref(on_host),
                                           ctypes.byref(self.matrix(back, dtype))), "decoding on the host")
        self.torch.cuda.synchronize()
        self.decode(codec, self.matrix(decoded, dtype), parts)
        self.torch.cuda.synchronize()
        kind = torch.int32 if dtype == FP32 else torch.int16
        self.same(decoded.view(kind), back.view(kind), f"{what} decoded")

    def rate(self, work, moved: int) -> list:
        """GB/s, a round each, from the GPU's own clock. It waits until all of a round has been asked of it."""
        rates = []
        for i in range(ROUNDS + 3):
            events = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self.torch.cuda._sleep(AHEAD)
            events[0].record()
            work()
            events[1].record()
            events[1].synchronize()
            if i >= 3:
                rates.append(moved / events[0].elapsed_time(events[1]) * 1e-6)
        return rates

    def copy(self, dtype: int) -> dict:
        if dtype not in self.copies:
            x = self.sources[dtype]
            to = self.torch.empty_like(x)
            rates = self.rate(lambda: to.copy_(x), 2 * x.numel() * x.element_size())
            self.copies[dtype] = {"name": "a copy", **measure(rates)}
        return self.copies[dtype]

    def is_late(self) -> bool:
        return time.monotonic() > self.end


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
        if granularity == TENSOR:
            amax = y.abs().amax()
        else:
            amax = y.abs().amax(dim=0 if granularity == COLUMN else -1, keepdim=True)
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


def peers(bench, case: tuple, moved: int) -> list:
    form, granularity, group, dtype, asymmetric = case
    torch, found, x = bench.torch, {}, bench.sources[dtype]
    none = asymmetric or granularity == BLOCK
    eager = None if none else torch_encode(torch, form, granularity, group)
    if eager:
        found = {"torch": eager}
        if not bench.is_late():  # compiling takes seconds
            found = {"torch.compile": torch.compile(eager, dynamic=False), "torch": eager}
    found.update({} if none else other_peers(form, granularity))
    listed = []
    for name, work in found.items():
        try:
            work(x)
            listed.append({"name": name, **measure(bench.rate(lambda work=work: work(x), moved))})
        except Exception as error:  # a peer that does not run here is left out, and says why
            print(f"{name}, {form}: {error}", file=sys.stderr)
    return [*listed, bench.copy(dtype)]


def case_figures(bench, case: tuple) -> list:
    form, granularity, group, dtype, asymmetric = case
    codec = Codec(format=FORMATS[form], granularity=granularity, asymmetric=asymmetric)
    units = {0: "", TENSOR: " by tensor", ROW: " by row", COLUMN: " by column", GROUP: f" by groups of {group}",
             BLOCK: f" by blocks of {group}"}[granularity]
    if granularity == GROUP:
        codec.group = group
    if granularity == BLOCK:
        codec.block_rows = codec.block_cols = group
    source = {FP32: "fp32", FP16: "fp16", BF16: "bf16"}[dtype]
    name = f"{source} to {form}{units}{', zero points' if asymmetric else ''}"
    for rows, cols in ((37, 1003), (64, 8192), (5, 20008)):
        bench.check(codec, dtype, rows, cols, name)
    x = bench.sources[dtype]
    matrix = bench.matrix(x, dtype)
    parts, kept = bench.parts(codec, bench.rows, bench.cols, WHERE)
    decoded = bench.torch.empty_like(x)
    back = bench.matrix(decoded, dtype)
    bench.torch.cuda.synchronize()
    size, coded = x.numel() * x.element_size(), sum(t.numel() for t in kept)
    reads = 2 if granularity in (TENSOR, COLUMN, BLOCK) else 1
    ways = {
        "encode": (lambda: bench.encode(codec, matrix, parts, 0), reads * size + coded),
        "encode with report": (lambda: bench.encode(codec, matrix, parts, bench.sums.data_ptr()), reads * size + coded),
        "decode": (lambda: bench.decode(codec, back, parts), size + coded),
    }
    asked_of = peers(bench, case, reads * size + coded)
    made = []
    for way, (work, moved) in ways.items():
        beside = asked_of if way == "encode" else asked_of[-1:]
        figure = {"what": f"{name}, {way}", "unit": "GB/s", **measure(bench.rate(work, moved)), "peer": beside[0]}
        if len(beside) > 1:
            figure["also"] = beside[1:]
        figure["target"] = 0.9 * asked_of[-1]["median"]
        share = figure["median"] / asked_of[-1]["median"]
        others = ", ".join(f"{peer['name']} {peer['median']:.0f}" for peer in beside)
        print(f"{figure['what']}: {figure['median']:.0f} GB/s, {share:.2f} of a copy; {others}", file=sys.stderr)
        made.append(figure)
    return made


def figures(bench, path: str) -> None:
    """Written after each case, so that what ends a run early leaves what was measured."""
    made = []
    for case in CASES:
        made += case_figures(bench, case)
        write_json(path, {"bench_codec": {"name": "codec", "figures": made}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--library", default=str(ROOT / "build-portable" / "libcenote.so"))
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--cols", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=90, help="after which no peer is compiled any more")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("codec.py: torch is not installed here", file=sys.stderr)
        sys.exit(77)
    if not torch.cuda.is_available():
        print("codec.py: there is no GPU here", file=sys.stderr)
        sys.exit(77)
    bench = Bench(torch, ctypes.CDLL(options.library), options.rows, options.cols, options.seconds)
    figures(bench, options.out)


if __name__ == "__main__":
    main()
