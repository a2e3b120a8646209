#!/usr/bin/env python3
"""Products and convolutions beside what PyTorch has for them: cuBLAS, cuBLASLt and cuDNN.

Each case is checked first, against float64 on some of its rows, and timed by CUDA events on PyTorch's own stream, on
random data, in turns with its peers. Sections run one by one, each in a process of its own that may take --limit
seconds: a kernel that never ends or faults costs its section alone. A case's name is its row in the results.

usage: CENOTE_LIBRARY=build/libcenote.so.0.1 bench/gpu/product.py [--only SECTION...] [--json FILE]
Sections: ladder fp32 half layouts epilogue int8 odd weights conv tiles. Prints {"name", "figures"} as
docs/formats/bench-results.md has them, and to standard error a line a case. Exits with 1 if a section failed, 77 where
there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import write_json

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))

SECTIONS = ("ladder", "fp32", "half", "layouts", "epilogue", "int8", "odd", "weights", "conv", "tiles")
# Operations of one multiprocessor of compute capability 9.0 in a cycle: CUDA C++ Programming Guide, "Throughput of
# Native Arithmetic Instructions", and the tensor cores' by the H100 white paper.
OPERATIONS = {"fp32": 256, "bf16": 4096, "fp16": 4096, "int8": 8192}
# ||ours - exact|| / ||exact|| that passes.
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3, "fp16": 1e-3, "int32": 0}
CHECKED_ROWS = 128
AHEAD = 2_000_000  # cycles that the GPU waits, so that what is timed is there before it begins
# Encoded weights: format, granularity, group. Few rows of A are a decoder's batch; of the weights there are copies of
# so many bytes in all, taken in turn, so that none is found in a cache.
WEIGHTS = (("int8", "row", 0), ("int8", "group", 128), ("int4", "group", 128), ("fp8_e4m3", "row", 0),
           ("fp8_e5m2", "tensor", 0), ("2:4_bf16", "unscaled", 0), ("2:4_int8", "row", 0))
WEIGHT_SHAPES = ((1, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (1, 14336, 4096), (64, 14336, 4096),
                 (4096, 4096, 4096))
WEIGHT_BYTES = 256 << 20
# 3 x 3 and 1 x 1 of ResNet-50 and its first layer: channels, filters, side of the filter, stride, side of the image.
RESNET = ((3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 128, 1, 1, 56),
          (128, 128, 3, 2, 56), (128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14),
          (512, 512, 3, 1, 7), (512, 2048, 1, 1, 7))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to run")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="for one section")
    parser.add_argument("--runs", type=int, default=30, help="timed runs of each case, at most")
    parser.add_argument("--images", type=int, default=64, help="of a convolution")
    parser.add_argument("--json", metavar="FILE", help="where the results go, too")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    """One section: its device, its clock, and the figures so far."""

    def __init__(self, options):
        import torch
        from cenote import _tasks, codec

        self.torch, self.tasks, self.codec, self.options = torch, _tasks, codec, options
        self.end = time.monotonic() + options.limit * 0.8
        self.figures, self.failures = [], []
        self.generator = torch.Generator("cuda").manual_seed(time.time_ns() % 2**31)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        props = torch.cuda.get_device_properties(0)
        clock = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"],
                               capture_output=True, text=True, check=True).stdout
        self.cycles = props.multi_processor_count * float(clock) * 1e6
        self.floor_reason = (f"operations at the peak of {props.multi_processor_count} multiprocessors of "
                             f"{clock.strip()} MHz")

    def late(self, what):
        """Whether there is no time left for another case."""
        if time.monotonic() < self.end:
            return False
        print(f"{what}: left out, the section's time is over", file=sys.stderr)
        return True

    def random(self, *shape, dtype):
        torch = self.torch
        if dtype == "int8":
            return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda", generator=self.generator)
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
        return torch.randn(shape, device="cuda", generator=self.generator).to(kind)

    def name_of(self, tensor):
        torch = self.torch
        return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "int8",
                torch.int32: "int32"}[tensor.dtype]

    def product(self, a, b, d, *, kernel=None, transpose_b=False, **more):
        task = self.tasks.ProductTask(a, b, out=d, transpose_b=transpose_b)
        task.add(**more)
        task.take(kernel)
        return task

    def check(self, what, got, want, dtype):
        """Of some rows; every element must have been written: `got` held NaN or -1 before."""
        torch = self.torch
        if not bool(torch.isfinite(got).all()):
            self.failures.append(f"{what}: not all is written or finite")
            return False
        error = ((got[: want.shape[0]].double() - want).norm() / want.norm()).item()
        if not error <= TOLERANCE[dtype]:
            self.failures.append(f"{what}: an error of {error:.3g}, {TOLERANCE[dtype]:.3g} is allowed")
            return False
        return True

    def time(self, calls):
        """Microseconds of each call, in turns, so that the clock's drift meets all alike."""
        torch = self.torch
        for call in calls:
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        samples = [[] for _ in calls]
        for run in range(self.options.runs):
            torch.cuda._sleep(AHEAD)
            for call, into in zip(calls, samples):
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                call()
                stop.record()
                into.append((start, stop))
            torch.cuda.synchronize()
            if run >= 4 and time.monotonic() > self.end:
                break
        return [[start.elapsed_time(stop) * 1e3 for start, stop in pairs] for pairs in samples]

    def usable(self, what, name, call):
        """Whether this PyTorch has the peer, for these operands."""
        try:
            call()
        except (RuntimeError, AttributeError) as error:
            print(f"{what}: {name} is left out: {str(error).splitlines()[0]}", file=sys.stderr)
            return False
        return True

    def report(self, what, ours, peers, operations, dtype, memory=None):
        """ours: a call. peers: a call by name; the first is the figure's peer. memory: another floor, in microseconds,
        and its reason, which holds if it is the higher one."""
        peers = {name: call for name, call in peers.items() if self.usable(what, name, call)}
        samples = self.time([ours, *peers.values()])
        middles = [{"median": sorted(s)[len(s) // 2], "spread": [min(s), max(s)]} for s in samples]
        others = [{"name": name, **middle} for name, middle in zip(peers, middles[1:])]
        floor = operations / (self.cycles * OPERATIONS[dtype]) * 1e6
        reason = self.floor_reason
        if memory and memory[0] > floor:
            floor, reason = memory
        figure = {"what": what, "unit": "us", **middles[0], "peer": others[0] if others else None, "also": others[1:],
                  "floor": floor, "floor_reason": reason}
        self.figures.append(figure)
        write_json(self.options.json, {"figures": self.figures})  # the next case may end the process
        rate = operations / middles[0]["median"] / 1e6
        beside = ", ".join(f"{o['name']} {o['median']:.1f}" for o in others)
        print(f"{what}: {middles[0]['median']:.1f} us ({rate:.1f} TFLOP/s, the floor is "
              f"{floor / middles[0]['median']:.0%} of it), {beside}", file=sys.stderr, flush=True)

    def compare(self, what, a, b, dtype, *, out=None, kernel=None, peers=None, **more):
        """A product of a and b beside torch.matmul, or `peers`."""
        torch = self.torch
        if self.late(what):
            return
        d = torch.full((a.shape[0], b.shape[1]), -1 if dtype == "int8" else float("nan"), device="cuda",
                       dtype=out or (torch.int32 if dtype == "int8" else a.dtype))
        task = self.product(a, b, d, kernel=kernel, **more)
        taken = kernel or task.kernels()[0]
        task.run()
        want = a[:CHECKED_ROWS].double() @ b.double()
        if more.get("bias") is not None:
            want += more["bias"].double()
        if more.get("activation") == "relu":
            want = want.relu()
        if more.get("activation") == "gelu_tanh":
            want = torch.nn.functional.gelu(want, approximate="tanh")
        if more.get("residual") is not None:
            want += more["residual"][:CHECKED_ROWS].double()
        if self.check(f"{what} by {taken}", d, want, self.name_of(d)):
            del want
            peer = torch.empty_like(d)
            peers = peers or {"cuBLAS": lambda: torch.matmul(a, b, out=peer)}
            self.report(f"{what}, {taken.removeprefix('cen_')}", task.run, peers,
                        2 * a.shape[0] * a.shape[1] * b.shape[1], dtype)


def ladder(bench):
    a, b = bench.random(2048, 2048, dtype="fp32"), bench.random(2048, 2048, dtype="fp32")
    for rung in ("naive", "coalesced", "shared", "fp32_nn"):
        bench.compare("fp32 2048^3", a, b, "fp32", kernel=f"cen_product_{rung}")


def fp32(bench):
    for side in (4096, 8192):
        a, b = bench.random(side, side, dtype="fp32"), bench.random(side, side, dtype="fp32")
        bench.compare(f"fp32 {side}^3", a, b, "fp32")
        bench.compare(f"fp32 {side}^3, B transposed", a, b.t(), "fp32")


def half(bench):
    for side in (4096, 8192):
        a, b = bench.random(side, side, dtype="bf16"), bench.random(side, side, dtype="bf16")
        for kernel in ("wgmma", "wgmma_pair", "wgmma128", "mma"):
            bench.compare(f"bf16 {side}^3, B transposed", a, b.t(), "bf16", kernel=f"cen_product_{kernel}_bf16_nt")
    a, b = bench.random(4096, 4096, dtype="fp16"), bench.random(4096, 4096, dtype="fp16")
    bench.compare("fp16 4096^3", a, b, "fp16")


def layouts(bench):
    """Forward, and what goes backward: dX = dY W', dW = X' dY."""
    side = 8192
    a, b = bench.random(side, side, dtype="bf16"), bench.random(side, side, dtype="bf16")
    for name, x, y in (("A B", a, b), ("A B'", a, b.t()), ("A' B", a.t(), b), ("A' B'", a.t(), b.t())):
        bench.compare(f"bf16 {side}^3, {name}", x, y, "bf16")


def epilogue(bench):
    torch = bench.torch
    functional = torch.nn.functional
    for rows, cols, depth in ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 14336, 4096)):
        a, w = bench.random(rows, depth, dtype="bf16"), bench.random(cols, depth, dtype="bf16")
        bias, b = bench.random(cols, dtype="bf16"), w.t()
        peers = {
            "cuBLAS with bias, GELU apart": lambda: functional.gelu(torch.addmm(bias, a, b), approximate="tanh"),
            "cuBLASLt with bias and GELU": lambda: torch._addmm_activation(bias, a, b, use_gelu=True),
            "cuBLAS alone": lambda: torch.matmul(a, b),
        }
        bench.compare(f"bf16 {rows} x {cols} x {depth}, bias, GELU", a, b, "bf16", peers=peers, bias=bias,
                      activation="gelu_tanh")
        residual = bench.random(rows, cols, dtype="bf16")
        peers = {"cuBLAS with bias, residual apart": lambda: torch.addmm(bias, a, b).add_(residual)}
        bench.compare(f"bf16 {rows} x {cols} x {depth}, bias, residual", a, b, "bf16", peers=peers, bias=bias,
                      residual=residual)


def int8(bench):
    torch = bench.torch
    for side in (4096, 8192):
        a, b = bench.random(side, side, dtype="int8"), bench.random(side, side, dtype="int8").t()
        bench.compare(f"int8 {side}^3, B transposed", a, b, "int8",
                      peers={"torch._int_mm": lambda: torch._int_mm(a, b)})


def odd(bench):
    """What no 16 bytes fit, what has few rows, and a vocabulary."""
    for rows, cols, depth in ((4097, 4095, 4099), (4096, 4104, 4088), (16, 4096, 4096), (100, 3000, 5000),
                              (8192, 50257, 1024)):
        a, b = bench.random(rows, depth, dtype="bf16"), bench.random(depth, cols, dtype="bf16")
        bench.compare(f"bf16 {rows} x {cols} x {depth}", a, b, "bf16")
    a, b = bench.random(4097, 4099, dtype="fp32"), bench.random(4099, 4095, dtype="fp32")
    bench.compare("fp32 4097 x 4095 x 4099", a, b, "fp32")


class Weight:
    """A weight of n x k, encoded on the device, and copies of its parts."""

    def __init__(self, bench, source, form, granularity, group):
        codec, self.torch, self.bench = bench.codec, bench.torch, bench
        first = codec.encode(source, format=form, granularity=granularity, group=group, report=False)
        self.bytes = first.nbytes
        self.kept = [first]
        for _ in range(WEIGHT_BYTES // self.bytes):
            parts = (first.values, first.scales, first.zeros, first.metadata)
            copies = [None if part is None else part.clone() for part in parts]
            self.kept.append(codec.Encoded(first.codec, first.shape, first.dtype, *copies))

    def decode_into(self, room):
        """A function of a turn that decodes it there."""
        decodings = [self.bench.codec.Decoding(encoded, None, room) for encoded in self.kept]
        return lambda turn: decodings[turn % len(decodings)].run()

    def in_torch(self, form, dtype):
        """A function of a turn that decodes it by PyTorch's own operations; None: it has none."""
        torch = self.torch
        if form not in ("int8", "fp8_e4m3", "fp8_e5m2", "int4"):
            return None

        def decode(turn):
            encoded = self.kept[turn % len(self.kept)]
            q, s = encoded.values, encoded.scales.flatten().to(dtype)
            if form == "int4":
                q = q.view(torch.int8)
                q = torch.stack((q << 4 >> 4, q >> 4), dim=-1)
            return (q.to(dtype).view(len(s), -1) * s[:, None]).view(encoded.shape)

        return decode


def weight_case(bench, shape, form, granularity, group, rate):
    torch, (m, n, k) = bench.torch, shape
    what = f"bf16 {m} x {n} x {k}, B' {form} {granularity}{group or ''}"
    if bench.late(what):
        return
    a, source = bench.random(m, k, dtype="bf16"), bench.random(n, k, dtype="bf16") * 0.02
    weight = Weight(bench, source, form, granularity, group)
    dense = [bench.codec.decode(weight.kept[0]) for _ in range(WEIGHT_BYTES // (2 * n * k) + 1)]
    d = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    tasks = [bench.product(a, encoded, d, transpose_b=True) for encoded in weight.kept]
    turns = {"ours": 0, "torch": 0, "decode": 0, "dense": 0}

    def turn(which):
        turns[which] += 1
        return turns[which]

    taken = tasks[0].kernels()
    for kernel in taken if m <= 64 else taken[:1]:
        for task in tasks:
            task.take(kernel)
        d.fill_(float("nan"))
        tasks[0].run()
        if not bench.check(f"{what} by {kernel}", d, a[:CHECKED_ROWS].double() @ dense[0].double().t(), "bf16"):
            continue
        peer = torch.empty_like(d)
        decode, in_torch = weight.decode_into(torch.empty_like(source)), weight.in_torch(form, torch.bfloat16)
        peers = {}
        if in_torch:
            peers["PyTorch dequantises, cuBLAS"] = lambda: torch.matmul(a, in_torch(turn("torch")).t(), out=peer)
        peers["cenote decodes, cuBLAS"] = lambda: torch.matmul(a, decode(turn("decode")).t(), out=peer)
        peers["cuBLAS of bf16"] = lambda: torch.matmul(a, dense[turn("dense") % len(dense)].t(), out=peer)
        moved = weight.bytes + 2 * m * (n + k)
        bench.report(f"{what}, {kernel.removeprefix('cen_')}", lambda: tasks[turn("ours") % len(tasks)].run(),
                     peers, 2 * m * n * k, "bf16",
                     (moved / rate * 1e6, f"{moved} bytes at the {rate / 1e9:.0f} GB/s of a copy in the same run"))


def weights(bench):
    """B encoded, its rows along the sum, beside decoding it first, and beside 16 bits."""
    torch = bench.torch
    source, to = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    rate = 2 * source.numel() / min(bench.time([lambda: to.copy_(source)])[0]) * 1e6
    del source, to
    for shape in WEIGHT_SHAPES:
        for form, granularity, group in WEIGHTS:
            weight_case(bench, shape, form, granularity, group, rate)


def conv_case(bench, layer, dtype, each=False):
    """A layer by the kernel that is taken, or by each that can do it, the first beside its peers."""
    torch = bench.torch
    channels, filters, side, stride, image = layer
    images, pad, last = bench.options.images, side // 2, torch.channels_last
    x = bench.random(images, channels, image, image, dtype=dtype).contiguous(memory_format=last)
    w = bench.random(filters, channels, side, side, dtype=dtype).contiguous(memory_format=last)
    bias = bench.random(filters, dtype=dtype)
    out = (image + 2 * pad - side) // stride + 1
    y = torch.full((images, out, out, filters), float("nan"), device="cuda", dtype=x.dtype)
    task = bench.tasks.ConvTask(x.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1), bias=bias, activation="relu",
                                stride=stride, padding=pad, out=y)
    functional = torch.nn.functional
    want = functional.conv2d(x[:2].double(), w.double(), bias.double(), stride, pad).relu().permute(0, 2, 3, 1)
    peers = {
        "cuDNN, fused": lambda: torch.cudnn_convolution_relu(x, w, bias, (stride,) * 2, (pad,) * 2, (1, 1), 1),
        "cuDNN, ReLU apart": lambda: functional.conv2d(x, w, bias, stride, pad).relu_(),
    }
    operations = 2 * images * out * out * filters * channels * side * side
    for kernel in task.kernels()[: None if each else 1]:
        what = f"{dtype} conv {channels} to {filters}, {side} x {side} by {stride}, {images} of {image} x {image}"
        what = f"{what}, {kernel.removeprefix('cen_')}"
        if bench.late(what):
            return
        y.fill_(float("nan"))
        task.take(kernel)
        task.run()
        if bench.check(what, y.flatten(0, 2), want.reshape(-1, filters), dtype):
            bench.report(what, task.run, peers, operations, dtype)
            peers = {}


def conv(bench):
    bench.torch.backends.cudnn.benchmark = True
    for layer in RESNET:
        conv_case(bench, layer, "bf16")
    for layer in RESNET[2:4]:
        conv_case(bench, layer, "fp32")


def tiles(bench):
    """Which tile a convolution is to have: all but the first layer's, by each kernel."""
    bench.torch.backends.cudnn.benchmark = True
    for layer in RESNET:
        if layer[0] >= 64:
            conv_case(bench, layer, "bf16", each=True)


def run_section(options):
    bench = Bench(options)
    globals()[options.section](bench)
    bench.torch.cuda.synchronize()
    for failure in bench.failures:
        print(f"WRONG {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


def run_apart(options, section, folder):
    """A section in a process of its own: its figures, and whether all went well."""
    file = Path(folder) / f"{section}.json"
    command = [sys.executable, __file__, "--section", section, "--json", str(file), "--limit", str(options.limit),
               "--runs", str(options.runs), "--images", str(options.images)]
    try:
        status = subprocess.run(command, timeout=options.limit + 30, check=False).returncode
    except subprocess.TimeoutExpired:
        status = "no end within its time"
    if status:
        print(f"FAILED {section}: {status}", file=sys.stderr, flush=True)
    return json.loads(file.read_text())["figures"] if file.exists() else [], not status


def main():
    options = arguments()
    import torch

    if not torch.cuda.is_available():
        print("product: skipped: there is no GPU", file=sys.stderr)
        raise SystemExit(77)
    if options.section:
        raise SystemExit(run_section(options))
    figures, well = [], True
    with tempfile.TemporaryDirectory() as folder:
        for section in options.only:
            more, good = run_apart(options, section, folder)
            figures += more
            well = well and good
    result = {"name": "product", "figures": figures}
    if options.json:
        write_json(options.json, result)
    print(json.dumps(result, indent=1))
    raise SystemExit(0 if well else 1)


if __name__ == "__main__":
    main()
