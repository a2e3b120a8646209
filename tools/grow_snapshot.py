#!/usr/bin/env python3
"""Grows a recorded snapshot to a given size: grow_snapshot.py SMALL.pickle[.gz] OUT.pickle SIZE[K|M|G]

The result is a plain protocol 4 pickle with the opcodes, memo and sharing that Python's pickler
gives a real one: shared frame dicts, a frames list shared by an event and its frees, FRAME every
64 KiB. In front of the recorded history of the first device with events stand repetitions of its
closed part: blocks and segments that it allocates, freed at the end where it does not, at addresses
of their own. So the final state, what was alive at the start and every free stay consistent.
One repetition is pickled once; the others are copies with times and memo indices moved on: memory
stays at a few times the small file.
"""
import gzip
import pickle
import struct
import sys

SHIFT = -(1 << 44)  # from the recorded addresses to the repetitions': integers of the same length


class Pickler:
    """Protocol 4 as pickle.Pickler writes it, noting where times and memo indices stand."""

    def __init__(self, out):
        self.out, self.buffer, self.memo, self.count, self.written = out, bytearray(), {}, 0, 0
        self.keep = []
        self.template = None

    def get(self, index):
        if self.template is not None and index >= self.template["first"]:
            self.template["memo"].append(len(self.template["bytes"]) + len(self.buffer) + 9 + 1)
            self.buffer += b"j" + struct.pack("<I", index)
        else:
            self.buffer += b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def memoize(self, value):
        self.memo[value if isinstance(value, str) else id(value)] = self.count
        self.count += 1
        self.keep.append(value)
        self.buffer += b"\x94"

    def integer(self, value):
        if 0 <= value < 256:
            self.buffer += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.buffer += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.buffer += b"J" + struct.pack("<i", value)
        else:
            data = value.to_bytes((value.bit_length() >> 3) + 1, "little", signed=True)
            self.buffer += b"\x8a" + bytes([len(data)]) + data

    def save(self, value):
        kind = type(value)
        if value is None:
            self.buffer += b"N"
        elif kind is bool:
            self.buffer += b"\x88" if value else b"\x89"
        elif kind is int:
            self.integer(value)
        elif kind is float:
            self.buffer += b"G" + struct.pack(">d", value)
        elif (value if kind is str else id(value)) in self.memo:
            self.get(self.memo[value if kind is str else id(value)])
        elif kind is str:
            data = value.encode("utf-8", "surrogatepass")
            self.buffer += b"\x8c" + bytes([len(data)]) + data if len(data) < 256 else b"X" + struct.pack("<I", len(data)) + data
            self.memoize(value)
        elif kind is tuple:
            assert len(value) in (1, 2, 3)
            for part in value:
                self.save(part)
            self.buffer += bytes([0x84 + len(value)])
            self.memoize(value)
        elif kind is list:
            self.buffer += b"]"
            self.memoize(value)
            self.items(value)
        elif kind is dict:
            self.buffer += b"}"
            self.memoize(value)
            parts = list(value.items())
            for at in range(0, len(parts), 1000):
                self.buffer += b"(" if len(parts) > 1 else b""
                for key, part in parts[at : at + 1000]:
                    self.save(key)
                    if key == "time_us" and self.template is not None:
                        self.template["time"].append(len(self.template["bytes"]) + len(self.buffer) + 9 + 2)
                    self.save(part)
                self.buffer += b"u" if len(parts) > 1 else b"s"
        else:
            raise TypeError(kind)

    def items(self, values):
        for at in range(0, len(values), 1000):
            batch = values[at : at + 1000]
            self.buffer += b"(" if len(batch) > 1 else b""
            for value in batch:
                self.save(value)
                if len(self.buffer) >= 65536:
                    self.flush()
            self.buffer += b"e" if len(batch) > 1 else b"a"

    def flush(self):
        frame = b"\x95" + struct.pack("<Q", len(self.buffer)) + self.buffer
        self.buffer.clear()
        if self.template is not None:
            self.template["bytes"] += frame
        else:
            self.out.write(frame)
            self.written += len(frame)


def closed_part(trace, start):
    """Events of blocks and segments that the history itself allocates, then what ends them."""
    blocks, segments, part, last = {}, {}, [], trace[-1]["time_us"]
    for event in trace:
        action, addr = event["action"], event.get("addr")
        if action == "alloc":
            blocks[addr] = event
        elif action in ("free_requested", "free_completed"):
            if addr not in blocks:
                continue
            if action == "free_completed":
                del blocks[addr]
        elif action in ("segment_alloc", "segment_map"):
            segments[addr] = event
        elif action in ("segment_free", "segment_unmap"):
            if addr not in segments or segments[addr]["size"] != event["size"]:
                continue
            del segments[addr]
        elif action == "oom":
            continue
        part.append(event)
    for event in blocks.values():
        part += [dict(event, action=action, time_us=last) for action in ("free_requested", "free_completed")]
    for event in segments.values():
        part.append(dict(event, action=event["action"].replace("alloc", "free").replace("map", "unmap"), time_us=last))
    return [dict(event, addr=event["addr"] + SHIFT, time_us=event["time_us"] + start) for event in part]


def repeat(pickler, part, limit, duration):
    """Writes `part` until the file reaches `limit`; part is pickled twice: the first time defines
    the strings and shared frames, the second is the template of all others."""
    pickler.items(part)
    pickler.flush()
    for index, event in enumerate(part):  # the second time, frames lists are new, frames are not
        part[index] = event = dict(event, time_us=event["time_us"] + duration)
    lists = {}
    for event in part:
        if "frames" in event:
            old = event["frames"]
            if id(old) not in lists:
                lists[id(old)] = (old, list(old))
            event["frames"] = lists[id(old)][1]
    first = pickler.count
    template = pickler.template = {"bytes": bytearray(), "memo": [], "time": [], "first": first}
    pickler.items(part)
    pickler.flush()
    pickler.template = None
    data, step, made = template["bytes"], pickler.count - first, 0
    while pickler.written < limit or not made:
        if made:
            for at in template["memo"]:
                struct.pack_into("<I", data, at, struct.unpack_from("<I", data, at)[0] + step)
            for at in template["time"]:
                struct.pack_into("<I", data, at, (struct.unpack_from("<I", data, at)[0] + duration) & 0xFFFFFFFF)
        pickler.out.write(data)
        pickler.written += len(data)
        pickler.count = first + step * (made + 1)
        made += 1
    return made + 1


def main():
    source, target, size = sys.argv[1:4]
    limit = int(float(size.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1))
    with (gzip.open if source.endswith(".gz") else open)(source, "rb") as file:
        snapshot = pickle.load(file)
    device = next(i for i, trace in enumerate(snapshot["device_traces"]) if trace)
    trace = snapshot["device_traces"][device]
    with open(target, "wb") as out:
        pickler = Pickler(out)
        out.write(b"\x80\x04")
        pickler.buffer += b"}"
        pickler.memoize(snapshot)
        pickler.buffer += b"("
        for key, value in snapshot.items():
            pickler.save(key)
            if key != "device_traces":
                pickler.save(value)
                continue
            pickler.buffer += b"]"
            pickler.memoize(value)
            pickler.buffer += b"("
            for number, events in enumerate(value):
                pickler.buffer += b"]"
                pickler.memoize(events)
                if number == device:
                    # Times lie in one 2^32 us before the recording, so that one word moves on.
                    base = (trace[0]["time_us"] & ~0xFFFFFFFF) - (1 << 32)
                    span = trace[-1]["time_us"] - trace[0]["time_us"] + 1
                    part = closed_part(trace, base - trace[0]["time_us"])
                    copies = limit // (len(part) * 60) + 2
                    duration = min(span, (1 << 32) // copies - 1)
                    for event in part:
                        event["time_us"] = base + (event["time_us"] - base) * duration // span
                    tail = len(pickle.dumps(snapshot, 4))
                    made = repeat(pickler, part, limit - tail, duration)
                pickler.items(events)
            pickler.buffer += b"e"
        pickler.buffer += b"u."
        pickler.flush()
        total = out.tell()
    print(f"{target}: {total} bytes, {made} repetitions of {len(part)} events and {len(trace)} recorded")


if __name__ == "__main__":
    main()
