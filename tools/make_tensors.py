#!/usr/bin/env python3
"""Writes tests/data/tensors/: a small model as one safetensors file and as two with their index. The
files are committed, so that the tests need no Python; run this again only to change them."""
import json
import random
import struct
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "tests/data/tensors"
SIZES = {"I64": 8, "F32": 4, "BF16": 2, "F16": 2}  # in the order in which safetensors has them in a file


def pack(kind, values):
    if kind == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    if kind == "I64":
        return struct.pack(f"<{len(values)}q", *values)
    bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
    return struct.pack(f"<{len(values)}H", *[(b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits])


def write(name, tensors, metadata):
    """Tensors (name, type, shape, values), as safetensors' own writer orders them."""
    header, data = {"__metadata__": metadata}, b""
    for key, kind, shape, values in sorted(tensors, key=lambda t: (list(SIZES).index(t[1]), t[0])):
        raw = pack(kind, values)
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (TARGET / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    rng = random.Random(20261130)

    def normal(count, scale):
        return [rng.gauss(0, scale) for _ in range(count)]

    steps = ("steps", "I64", [], [12000])
    first = [("embed.weight", "F32", [48, 64], normal(48 * 64, 1)),
             ("layers.0.attn.weight", "BF16", [64, 64], normal(64 * 64, 0.02))]
    outliers = normal(64 * 64, 0.02)
    for i in range(0, len(outliers), 64):
        outliers[i + 7] *= 60  # a column that stands out
    second = [("layers.0.mlp.weight", "F16", [64, 64], outliers),
              ("layers.0.norm.weight", "F32", [64], [1 + v for v in normal(64, 0.01)])]
    TARGET.mkdir(exist_ok=True)
    write("model.safetensors", [steps, *first, *second], {"format": "pt", "made by": "tools/make_tensors.py"})
    write("model-00001-of-00002.safetensors", [steps, *first], {"format": "pt"})
    write("model-00002-of-00002.safetensors", second, {"format": "pt"})
    parts = {t[0]: f"model-0000{n}-of-00002.safetensors" for n, ts in ((1, [steps, *first]), (2, second)) for t in ts}
    size = sum(SIZES[t[1]] * len(t[3]) for t in [steps, *first, *second])
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(parts.items()))}
    (TARGET / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    main()
