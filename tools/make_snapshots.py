#!/usr/bin/env python3
"""Writes tests/data/snapshots/: one recorded snapshot in every form that picklers give it, and
small snapshots of the shapes that older and partial recordings have; and tests/data/ranks/: what
ranks of one made-up job recorded, well and in each way in which one of them can differ. The files
are committed, so that the tests need no Python; run this again only to change them."""
import gzip
import io
import os
import pickle
import struct

here = os.path.dirname(os.path.abspath(__file__))
traces = os.path.join(here, "../tests/data/traces")
target = os.path.join(here, "../tests/data/snapshots")
ranks_target = os.path.join(here, "../tests/data/ranks")


def write(name, data, folder=None):
    if name.endswith(".gz"):
        data = gzip.compress(data, 9, mtime=0)
    with open(os.path.join(folder or target, name), "wb") as file:
        file.write(data)


def python_pickle(value, protocol):
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(value)
    return out.getvalue()


def torch_pickle(value):
    """As PyTorch's own C++ pickler writes: protocol 2, no batches, BINPUT after the whole object,
    integers in 1, 2, 4 or 8 bytes."""
    out, memo, keep = bytearray(b"\x80\x02"), {}, []

    def save(value):
        nonlocal out
        key = value if isinstance(value, str) else id(value)
        if not isinstance(value, (int, float, type(None))) and key in memo:
            out += b"h" + bytes([memo[key]]) if memo[key] < 256 else b"j" + struct.pack("<I", memo[key])
            return
        if value is None:
            out += b"N"
        elif isinstance(value, bool):
            out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            if 0 <= value < 256:
                out += b"K" + bytes([value])
            elif 0 <= value < 65536:
                out += b"M" + struct.pack("<H", value)
            elif -(1 << 31) <= value < 1 << 31:
                out += b"J" + struct.pack("<i", value)
            else:
                out += b"\x8a\x08" + struct.pack("<q", value)
        elif isinstance(value, float):
            out += b"G" + struct.pack(">d", value)
        else:
            if isinstance(value, str):
                data = value.encode()
                out += b"X" + struct.pack("<I", len(data)) + data
            elif isinstance(value, tuple):
                out += b"("
                for part in value:
                    save(part)
                out += b"t"
            elif isinstance(value, list):
                out += b"]("
                for part in value:
                    save(part)
                out += b"e"
            else:
                out += b"}("
                for item, part in value.items():
                    save(item)
                    save(part)
                out += b"u"
            memo[key] = len(memo)
            keep.append(value)
            index = memo[key]
            out += b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)

    save(value)
    return bytes(out + b".")


def unshared(value):
    """A copy in which no two dicts, lists or strings are one object."""
    if isinstance(value, dict):
        return {unshared(k): unshared(v) for k, v in value.items()}
    if isinstance(value, list):
        return [unshared(v) for v in value]
    if isinstance(value, str):
        return (value + " ")[:-1]
    return value


def forms():
    with gzip.open(os.path.join(traces, "graphs-oom.pickle.gz")) as file:
        snapshot = pickle.load(file)
    for protocol in range(2, 6):
        write(f"graphs-oom.c{protocol}.pickle.gz", pickle.dumps(snapshot, protocol))
        write(f"graphs-oom.py{protocol}.pickle.gz", python_pickle(snapshot, protocol))
    write("graphs-oom.torch.pickle.gz", torch_pickle(snapshot))
    write("graphs-oom.unshared.pickle.gz", pickle.dumps(unshared(snapshot), 4))
    write("graphs-oom.plain.pickle", pickle.dumps(snapshot, 4))


FRAMES = [{"filename": "train.py", "line": 7, "name": "step"}, {"filename": "train.py", "line": 9, "name": "main"}]
A = 0x7F0000000000


def segment(address, size, blocks, **more):
    return dict(device=0, address=address, total_size=size, stream=0, segment_type="large", blocks=blocks, **more)


def shapes():
    # The oldest form: the state only, as a list; requests and frames in a history; no addresses.
    history = [{"addr": A, "real_size": 500, "frames": FRAMES}, {"addr": A, "real_size": 100, "frames": []}]
    write("old-list.pickle", pickle.dumps([
        segment(A + 4096, 2048, [{"size": 2048, "state": "active_awaiting_free"}]),
        segment(A, 2048, [{"size": 512, "state": "active_allocated", "history": history},
                          {"size": 1536, "state": "inactive"}]),
    ], 2))
    state = {"segments": [segment(A, 2048, [{"address": A, "size": 2048, "requested_size": 2000, "state": "active_pending_free", "frames": FRAMES}], segment_pool_id=(0, 7), is_expandable=True)]}
    write("state-only.pickle", pickle.dumps(state, 4))
    write("empty-traces.pickle", pickle.dumps(dict(state, device_traces=[[], []], allocator_settings={}), 4))
    # Missing keys, unknown keys and actions, None, three devices of which the second is empty.
    sparse = [
        {"action": "segment_alloc", "addr": A, "size": 4096, "stream": 3},
        {"action": "alloc", "addr": A, "size": 100, "stream": 3, "frames": FRAMES},
        {"action": "alloc", "addr": A + 512, "size": 200, "stream": 3, "frames": []},
        {"action": "alloc", "addr": A + 1024, "size": 300, "stream": 3, "frames": None, "time_us": None},
        {"action": "rebalanced", "addr": 1, "size": 2, "stream": 3, "what": [{"x": (1, 2.5, {"y"}, b"z")}]},
        {"action": "workspace_snapshot", "addr": 0, "size": 0},
        {"action": "oom", "addr": 12345, "size": 1 << 40, "stream": 3},
        {"action": "free_requested", "addr": A + 512, "size": 200, "stream": 3},
        {"action": "free_completed", "addr": A + 512, "size": 200, "stream": 3},
        {"action": "free_completed", "addr": A + 2048, "size": 77, "stream": 3},
    ]
    blocks = [{"address": A, "size": 512, "requested_size": 100, "state": "active_allocated"},
              {"address": A + 512, "size": 512, "requested_size": 0, "state": "inactive"},
              {"address": A + 1024, "size": 3072, "requested_size": 300, "state": "active_allocated"}]
    blocks.reverse()  # blocks are sorted by address
    write("sparse.pickle", pickle.dumps({
        "segments": [segment(A, 4096, blocks, colour="green")], "device_traces": [sparse, [], sparse[:2]],
        "allocator_settings": {"a": None, "b": 0.8, "c": 1 << 63, "d": {"256": 1, "512": 2}, "e": -5},
        "external_annotations": [{"stage": "END", "name": "n", "device": 0, "time_us": 9},
                                 {"stage": "START", "name": "n", "device": 0, "time_us": 3},
                                 {"stage": "START", "name": "elsewhere", "device": 9, "time_us": 3}],
        "a key of the future": {"action": ["none"], "state": 5, "frames": [{"filename": 7, "line": 8}]},
    }, 4))
    # A free that finds nothing: the same block freed twice.
    twice = [{"action": "alloc", "addr": A, "size": 64, "stream": 0, "time_us": 1}] + [
        {"action": "free_completed", "addr": A, "size": 64, "stream": 0, "time_us": t} for t in (2, 3)]
    write("double-free.pickle", pickle.dumps({"segments": [], "device_traces": [twice]}, 4))
    # Event dicts that occur again and out of order: the same objects in two devices.
    write("shared-events.pickle", pickle.dumps({"segments": [], "device_traces": [sparse[:4], sparse[3:0:-1] + sparse[:1]]}, 4))
    # Truncation: allocated while recording, before the first event that is left.
    live = [{"address": A, "size": 512, "requested_size": 64, "state": "active_allocated", "frames": FRAMES}]
    later = [{"action": "alloc", "addr": A + 512, "size": 64, "stream": 0, "time_us": 5, "frames": FRAMES},
             {"action": "free_completed", "addr": A + 512, "size": 64, "stream": 0, "time_us": 6, "frames": FRAMES}]
    write("truncated-state.pickle", pickle.dumps({"segments": [segment(A, 512, live)], "device_traces": [later]}, 4))
    early = [{"action": "free_completed", "addr": A + 1024, "size": 64, "stream": 0, "time_us": 4, "frames": FRAMES[:1]}]
    write("truncated-free.pickle", pickle.dumps({"segments": [], "device_traces": [early + later]}, 4))
    # A full ring buffer without frames: a round count, and something alive before it.
    ring = [{"action": "free_completed", "addr": A, "size": 64, "stream": 0}] + [
        {"action": ("alloc", "free_completed")[i % 2], "addr": A + 512, "size": 64, "stream": 0} for i in range(1023)]
    write("truncated-ring.pickle.gz", pickle.dumps({"segments": [], "device_traces": [ring, ring[:-1], ring[1:] + ring[1:2]]}, 4))
    # Frees that record where they were freed prove nothing.
    own = [later[0], dict(later[1], frames=FRAMES[1:])]
    write("free-stacks.pickle", pickle.dumps({"segments": [], "device_traces": [early + own]}, 4))
    # Stacks and dicts longer than a pickler's batch of 1,000.
    deep = [{"filename": "f.py", "line": i, "name": "recurse"} for i in range(2001)]
    wide = {f"k{i}": i for i in range(1500)}
    event = dict(wide, action="alloc", addr=A, size=64, stream=0, time_us=1, frames=deep)
    write("batches.pickle.gz", pickle.dumps({"segments": [], "device_traces": [[event] * 1 + later]}, 4))


def hostile():
    class Run:
        def __reduce__(self):
            return os.system, ("touch /tmp/cenote-was-run",)
    write("os-system.p2.pickle", pickle.dumps({"segments": Run()}, 2))
    write("os-system.p4.pickle", pickle.dumps({"segments": Run()}, 4))


MIB = 1 << 20


class Rank:
    """A training job's history, as its allocator records it: each block in a segment of its own, which is cached."""

    def __init__(self):
        self.events, self.marks, self.segments, self.free_segments, self.live, self.next = [], [], {}, {}, {}, A

    def event(self, action, address, size, frames):
        key = "device_free" if action == "oom" else "addr"
        self.events.append({"action": action, key: address, "size": size, "stream": 0,
                            "time_us": 1000 + 10 * len(self.events), "frames": frames})

    def alloc(self, size, *lines):
        frames = [{"filename": f, "line": n, "name": name} for f, n, name in lines]
        held = -(-size // (2 * MIB)) * 2 * MIB
        if self.free_segments.get(held):
            address = self.free_segments[held].pop()
        else:
            address, self.next = self.next, self.next + held
            self.segments[address] = held
            self.event("segment_alloc", address, held, [])
        self.live[address] = size, frames
        self.event("alloc", address, size, frames)
        return address

    def free(self, address):
        size, frames = self.live.pop(address)
        self.free_segments.setdefault(self.segments[address], []).append(address)
        self.event("free_requested", address, size, frames)
        self.event("free_completed", address, size, frames)

    def step_end(self):
        self.marks.append({"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 0,
                           "time_us": 1000 + 10 * len(self.events) - 5})

    def save(self, name):
        segments = []
        for address, held in self.segments.items():
            size, frames = self.live.get(address, (0, []))
            blocks = [{"address": address, "size": held, "requested_size": size, "frames": frames,
                       "state": "active_allocated" if size else "inactive"}]
            segments.append(dict(segment(address, held, blocks), segment_pool_id=(0, 0), is_expandable=False))
        write(name, pickle.dumps({"segments": segments, "device_traces": [self.events],
                                  "external_annotations": self.marks}, 4), ranks_target)


MAIN = ("train.py", 60, "<module>")
STEP = [("train.py", 31, "step"), MAIN]
FORWARD = [("model.py", 12, "forward"), *STEP]


def train(weights=1024, activations=512, **differs):
    """Six steps. differs: extra (MiB gathered once), leak (MiB kept each step), oom (MiB asked for at the end), and
    branch (the step from which another buffer than the others' is made)."""
    rank = Rank()
    rank.alloc(weights * MIB, ("model.py", 5, "__init__"), MAIN)
    if "extra" in differs:
        rank.alloc(differs["extra"] * MIB, ("metrics.py", 40, "gather_logits"), MAIN)
    for step in range(6):
        layers = [rank.alloc(activations // 4 * MIB, *FORWARD) for _ in range(4)]
        size = 96 if differs.get("branch") == step else 64
        loss = rank.alloc(size * MIB, ("loss.py", 7 + (size == 96), "chunked_loss"), *STEP)
        if "leak" in differs:
            rank.alloc(differs["leak"] * MIB, ("train.py", 44, "log"), MAIN)
        for block in [loss, *reversed(layers)]:
            rank.free(block)
        rank.step_end()
    if "oom" in differs:
        for _ in range(4):
            rank.alloc(activations // 4 * MIB, *FORWARD)
        rank.event("oom", 256 * MIB, differs["oom"] * MIB,
                   [{"filename": f, "line": n, "name": name} for f, n, name in [("loss.py", 7, "chunked_loss"), *STEP]])
    return rank


def ranks():
    train().save("plain.pickle.gz")
    train(extra=768).save("extra.pickle.gz")
    train(leak=4).save("leak.pickle.gz")
    train(oom=512).save("oom.pickle.gz")
    train(activations=1536).save("first-stage.pickle.gz")
    train(branch=3).save("branch.pickle.gz")


if __name__ == "__main__":
    os.makedirs(target, exist_ok=True)
    os.makedirs(ranks_target, exist_ok=True)
    forms()
    shapes()
    hostile()
    ranks()
