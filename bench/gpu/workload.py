#!/usr/bin/env python3
"""Runs one workload under one allocator, in this process, and writes what it measured as JSON.

The file is written anew after each step, so that a run which is ended has left what it did. Times are from one
torch.cuda.synchronize() to the next; memory is PyTorch's own account, which every allocator here keeps. Running out of
memory is a result: "finished" is false and the status 0. Any other failure has a status of 1 and its text in the file.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import statistics
import sys
import time
import traceback

from common import ALLOCATORS, FURTHER, WORKLOADS, choose_deterministic, enable, prepare, size, write_json


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=WORKLOADS + FURTHER)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="native")
    parser.add_argument("--json", required=True, metavar="FILE", help="where the result goes")
    parser.add_argument("--cap", type=size, metavar="BYTES", help="memory that the process may hold, as 24GiB")
    parser.add_argument("--steps", type=int, metavar="N", help="measured steps instead of the workload's own")
    parser.add_argument("--warm-up", type=int, metavar="N", help="steps before those")
    parser.add_argument("--batch", type=int, metavar="N", help="instead of the workload's own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: small models and shapes, to check the scripts")
    parser.add_argument("--deterministic", action="store_true", help="slower kernels that give the same bits each time")
    parser.add_argument("--largest", action="store_true",
                        help="find the largest batch of which --steps steps (6) fit, by bisection, and measure no times")
    parser.add_argument("--gated", action="store_true", help="import torch, then wait for a line on standard input")
    return parser.parse_args()


class Run:
    """A run and its record."""

    def __init__(self, options: argparse.Namespace, torch):
        self.options, self.torch, self.gpu = options, torch, options.device == "cuda"
        self.record = {"workload": options.name, "allocator": options.allocator, "device": options.device,
                       "cap": options.cap, "seed": options.seed, "finished": False, "oom": False, "error": None,
                       "died_at": "set-up", "step_s": [], "warm_up_s": [], "results": []}

    def save(self) -> None:
        write_json(self.options.json, self.record)

    def set_cap(self) -> None:
        if self.gpu:
            cuda = self.torch.cuda
            total = cuda.mem_get_info()[1]
            self.record |= {"torch": self.torch.__version__, "gpu": cuda.get_device_name(), "gpu_memory": total}
            if self.options.cap:
                cuda.set_per_process_memory_fraction(min(1.0, self.options.cap / total))

    def synchronize(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()

    def timed(self, workload, number: int) -> float:
        self.synchronize()
        start = time.perf_counter()
        result = workload.step(number)
        self.synchronize()
        seconds = time.perf_counter() - start
        self.record["results"].append(float(result))
        return seconds

    def note_memory(self) -> None:
        if not self.gpu:
            return
        stats = self.torch.cuda.memory_stats()
        peaks = {kind: stats.get(f"{kind}_bytes.all.peak") for kind in ("requested", "allocated", "reserved")}
        self.record |= {f"peak_{kind}": value for kind, value in peaks.items()}
        if peaks["requested"] and peaks["reserved"]:
            self.record["utilisation"] = peaks["requested"] / peaks["reserved"]
        self.record["alloc_retries"] = stats.get("num_alloc_retries", 0)
        self.record["ooms"] = stats.get("num_ooms", 0)
        # The number of driver calls, in an allocator that counts them.
        self.record["driver_calls"] = {kind: stats.get(f"num_device_{kind}") for kind in ("alloc", "free")}

    def note_times(self) -> None:
        times = sorted(1000 * s for s in self.record["step_s"])
        if times:
            self.record["step_ms"] = {"median": statistics.median(times), "p10": times[len(times) // 10],
                                      "p90": times[len(times) * 9 // 10]}
            self.record["measured_s"] = sum(times) / 1000

    def measure(self, workload, warm_up: int, steps: int) -> None:
        self.record |= {"batch": workload.batch, "warm_up": warm_up, "steps": steps}
        for number in range(warm_up + steps):
            self.record["died_at"] = f"step {number + 1} of {warm_up + steps}"
            seconds = self.timed(workload, number)
            self.record["warm_up_s" if number < warm_up else "step_s"].append(seconds)
            self.note_memory()
            self.note_times()
            self.save()

    def fits(self, workload, batch: int, steps: int) -> bool:
        workload.batch, fits = batch, True
        try:
            for number in range(steps):
                workload.step(number)
            self.synchronize()
        except self.torch.OutOfMemoryError:
            fits = False
        # Outside the handler, which would keep the failed step's tensors alive.
        workload.drop()
        gc.collect()
        if self.gpu:
            self.torch.cuda.empty_cache()
        self.record["tries"].append([batch, fits])
        self.save()
        return fits

    def bisect(self, workload, steps: int) -> None:
        """The largest batch to within 1 in 64: doubled until one does not fit, then halved between the two."""
        self.record |= {"steps": steps, "tries": [], "largest": 0, "died_at": "bisection"}
        workload.refine()
        fits, fails, batch = 0, None, max(1, workload.batch // 4)
        while fails is None or fails - fits > max(1, fits // 64):
            if self.fits(workload, batch, steps):
                fits = self.record["largest"] = batch
            else:
                fails = batch
            batch = 2 * fits if fails is None else (fits + fails) // 2
            if not self.gpu and fails is None and fits >= 8:
                break  # nothing ends it on the CPU
        self.note_memory()

    def run(self) -> int:
        status = 0
        try:
            with enable(self.options.allocator if self.gpu else "native"):
                self.go()
            self.record |= {"finished": True, "died_at": None}
        except self.torch.OutOfMemoryError as error:
            self.record |= {"oom": True, "error": str(error).split("\n", maxsplit=1)[0]}
            self.note_memory()
        except Exception:  # whatever it was belongs into the record
            self.record["error"] = traceback.format_exc()
            print(self.record["error"], file=sys.stderr)
            status = 1
        self.save()
        return status

    def go(self) -> None:
        from workloads import TABLE

        options = self.options
        if options.deterministic:
            choose_deterministic(self.torch)
        self.set_cap()
        workload = TABLE[options.name](options.device, options.seed, options.batch)
        self.synchronize()
        if options.largest:
            self.bisect(workload, options.steps or 6)
        else:
            self.measure(workload, workload.warm_up if options.warm_up is None else options.warm_up,
                         options.steps or workload.steps)


def main() -> int:
    options = arguments()
    prepare(options.allocator, options.deterministic)
    import torch

    if options.name.startswith("resnet50"):
        importlib.import_module("torchvision")  # before the gate, as it takes seconds
    if options.gated and not sys.stdin.readline():
        return 0  # whoever was to open the gate has gone
    return Run(options, torch).run()


if __name__ == "__main__":
    sys.exit(main())
