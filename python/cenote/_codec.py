"""Codecs (include/cenote/codec.h), for those who have addresses: the structures and prototypes.
Checked against the header by tests/python/test_layout.py."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple

from cenote._lib import declare

#: cen_codec_granularity.
GRANULARITIES = {"unscaled": 0, "tensor": 1, "row": 2, "column": 3, "group": 4, "block": 5}
#: cen_codec_overflow.
OVERFLOWS = {"default": 0, "saturate": 1, "nonfinite": 2}


class Matrix(ctypes.Structure):
    """cen_matrix."""

    _fields_ = [
        ("data", c_uint64),
        ("rows", c_uint64),
        ("cols", c_uint64),
        ("stride", c_uint64),
        ("dtype", c_int),
    ]


class Codec(ctypes.Structure):
    """cen_codec."""

    _fields_ = [
        ("format", c_int),
        ("granularity", c_int),
        ("group", c_uint32),
        ("block_rows", c_uint32),
        ("block_cols", c_uint32),
        ("overflow", c_int),
        ("asymmetric", c_bool),
        ("refuse_dense", c_bool),
        ("scales_given", c_bool),
    ]


class Sizes(ctypes.Structure):
    """cen_codec_sizes."""

    _fields_ = [("values", c_uint64), ("scales", c_uint64), ("zeros", c_uint64), ("metadata", c_uint64)]


class Parts(ctypes.Structure):
    """cen_codec_parts."""

    _fields_ = [
        ("values", c_uint64),
        ("scales", c_uint64),
        ("zeros", c_uint64),
        ("metadata", c_uint64),
        ("bytes", Sizes),
    ]


class Sums(ctypes.Structure):
    """cen_codec_sums."""

    _fields_ = [
        ("count", c_uint64),
        ("nan", c_uint64),
        ("infinite", c_uint64),
        ("saturated", c_uint64),
        ("overflowed", c_uint64),
        ("underflowed", c_uint64),
        ("largest", c_double),
        ("max_error", c_double),
        ("error", c_double),
        ("error2", c_double),
        ("x2", c_double),
        ("y2", c_double),
        ("xy", c_double),
    ]


class Report(ctypes.Structure):
    """cen_codec_report."""

    _fields_ = [
        ("largest", c_double),
        ("max_error", c_double),
        ("mean_error", c_double),
        ("mse", c_double),
        ("sqnr_db", c_double),
        ("cosine", c_double),
        ("nan", c_uint64),
        ("infinite", c_uint64),
        ("saturated", c_uint64),
        ("overflowed", c_uint64),
        ("underflowed", c_uint64),
        ("count", c_uint64),
    ]


PROTOTYPES: Dict[str, Tuple[Any, List[Any]]] = {
    "cen_codec_format_find": (c_int, [c_char_p, POINTER(c_int)]),
    "cen_codec_bound": (c_int, [POINTER(Codec), c_uint64, c_uint64, POINTER(Sizes)]),
    "cen_codec_encode": (
        c_int,
        [POINTER(Codec), POINTER(Matrix), POINTER(Parts), POINTER(Sums), POINTER(Sums)],
    ),
    "cen_codec_decode": (c_int, [POINTER(Codec), POINTER(Parts), POINTER(Matrix)]),
    "cen_codec_encode_async": (
        c_int,
        [c_void_p, POINTER(Codec), POINTER(Matrix), POINTER(Parts), c_uint64, c_size_t],
    ),
    "cen_codec_decode_async": (
        c_int,
        [c_void_p, POINTER(Codec), POINTER(Parts), POINTER(Matrix), c_size_t],
    ),
    "cen_codec_report_of": (None, [POINTER(Sums), POINTER(Report)]),
}

function = declare(PROTOTYPES)
