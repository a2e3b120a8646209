"""Tensor files for tests: safetensors by the format's own words, and what `cenote quantize` made of a tensor decoded as
docs/formats/quantized.md and docs/codecs.md say, in NumPy. Nothing of cenote is in here."""

import json
import struct
from pathlib import Path

import numpy as np

#: What NumPy has for each type; where it has none, integers of as many bits.
KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "BOOL": "?",
         "I8": "i1", "U8": "u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8"}


def write(path, tensors, metadata=None):
    """`tensors`: {name: (type, array)}."""
    header, parts, at = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, (kind, array) in tensors.items():
        raw = np.ascontiguousarray(array).astype(KINDS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(np.shape(array)), "data_offsets": [at, at + len(raw)]}
        parts.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read(path):
    """({name: (type, array)}, metadata)."""
    raw = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header, data, tensors = json.loads(raw[8 : 8 + length]), raw[8 + length :], {}
    metadata = header.pop("__metadata__", {})
    for name, says in header.items():
        begin, end = says["data_offsets"]
        array = np.frombuffer(data[begin:end], KINDS[says["dtype"]]).reshape(says["shape"])
        tensors[name] = (says["dtype"], array)
    return tensors, metadata


def _eights(exponent_bits, mantissa_bits, bias, infinities):
    """What each byte of an 8-bit float means."""
    found = []
    for byte in range(256):
        exponent, mantissa = byte >> mantissa_bits & (1 << exponent_bits) - 1, byte & (1 << mantissa_bits) - 1
        value = (mantissa + (1 << mantissa_bits if exponent else 0)) * 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
        if infinities and exponent == (1 << exponent_bits) - 1:
            value = np.nan if mantissa else np.inf
        elif not infinities and byte & 127 == 127:
            value = np.nan
        found.append(-value if byte >> 7 else value)
    return np.array(found, np.float32)


_EIGHTS = {"F8_E4M3": _eights(4, 3, 7, False), "F8_E5M2": _eights(5, 2, 15, True)}


def wide(kind, array):
    """The numbers of F32, F16, BF16 and 8-bit floats, which floats of 32 bits hold."""
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if kind in _EIGHTS:
        return _EIGHTS[kind][array]
    return array.astype(np.float32)


def narrow(kind, array):
    """Floats of 32 bits as F32, F16 or BF16, to nearest, ties to even; NaN with all bits but the sign's."""
    shape, array = np.shape(array), np.array(array, np.float32).reshape(-1)
    nan = np.isnan(array)
    if kind == "F32":
        array[nan] = np.uint32(0x7FFFFFFF).view(np.float32)
        return array.reshape(shape)
    if kind == "F16":
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float16).view(np.uint16)
    else:
        bits = array.view(np.uint32).astype(np.int64)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(nan, np.uint16(0x7FFF), rounded).view(KINDS[kind]).reshape(shape)


def _units(part, says):
    """A scale, or zero point, for each element."""
    return np.repeat(part, says.get("group", says["cols"]), 1)[:, : says["cols"]]


def _spread(values, words, says):
    """2:4: what was kept of each four, where it was."""
    rows, cols = says["rows"], says["cols"]
    groups, per_word = -(-cols // 4), words.dtype.itemsize * 2
    shifts = 4 * np.arange(per_word, dtype=words.dtype)
    nibbles = (words[:, :, None] >> shifts & 15).reshape(rows, -1)[:, :groups]
    kept = np.zeros((rows, groups * 2), np.float32)
    kept[:, : values.shape[1]] = values
    found = np.zeros((rows, groups * 4), np.float32)
    at = 4 * np.arange(groups)[None, :]
    for which in (1, 0):
        place = at + (nibbles >> 2 * which & 3)
        np.put_along_axis(found, place.astype(np.int64), kept[:, which::2], 1)
    return found[:, :cols]


def decoded(tensors, metadata, name):
    """What a quantised tensor stands for, in floats of 32 bits; and its scales, one an element, or None."""
    says = json.loads(metadata["cenote.quantized:" + name])
    kind, q = tensors[name]
    rows, cols, scales = says["rows"], says["cols"], None
    if says["format"] == "int4":
        q = np.stack([q.view(np.int8) << 4 >> 4, q.view(np.int8) >> 4], -1).reshape(rows, -1)[:, :cols]
    q = wide(kind, q)
    if says["format"].startswith("2:4"):
        q = _spread(q, tensors[name + ".sparse"][1], says)
    q = q.reshape(rows, cols)
    if says.get("asymmetric"):
        q = q - _units(tensors[name + ".zero_point"][1], says).astype(np.float32)
    if says["scales"] != "none":
        scales = _units(tensors[name + ".scale"][1], says)
        q = q * scales
    return q.reshape(says["shape"]), scales
