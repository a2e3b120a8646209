#!/usr/bin/env python3
"""The codecs beside NumPy's and ml_dtypes' conversions: FP16, BF16 and both FP8, and INT8 by row."""

import ctypes
import os
import unittest

import support


class Codec(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_int),
        ("granularity", ctypes.c_int),
        ("group", ctypes.c_uint32),
        ("block_rows", ctypes.c_uint32),
        ("block_cols", ctypes.c_uint32),
        ("overflow", ctypes.c_int),
        ("asymmetric", ctypes.c_bool),
        ("refuse_dense", ctypes.c_bool),
    ]


class Matrix(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("cols", ctypes.c_uint64),
        ("stride", ctypes.c_uint64),
        ("dtype", ctypes.c_int),
    ]


class Parts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("values", "scales", "zeros", "metadata")] + [
        ("sizes", ctypes.c_uint64 * 4)
    ]


FP16, BF16, E4M3, E5M2, INT8 = 1, 2, 3, 4, 5
FP32 = 15
ROW, NONFINITE = 2, 2


def encode(array, form, granularity=0, overflow=0):
    """The values and scales of a matrix of float32, as arrays of bytes and of float32."""
    import numpy

    library = ctypes.CDLL(os.environ["CENOTE_LIBRARY"])
    rows, cols = array.shape
    size = 2 if form in (FP16, BF16) else 1
    values = numpy.zeros((rows, cols * size), numpy.uint8)
    scales = numpy.zeros(rows, numpy.float32)
    codec = Codec(format=form, granularity=granularity, overflow=overflow)
    matrix = Matrix(array.ctypes.data, rows, cols, cols, FP32)
    parts = Parts(values.ctypes.data, scales.ctypes.data, 0, 0, (values.nbytes, scales.nbytes, 0, 0))
    status = library.cen_codec_encode(
        ctypes.byref(codec), ctypes.byref(matrix), ctypes.byref(parts), None, None
    )
    assert status == 0, status
    return values, scales


def floats():
    """One float of each 4099, and each 2048th with what is beside it: all boundaries of the formats."""
    import numpy

    bits = numpy.arange(0, 1 << 32, 4099, dtype=numpy.uint64)
    near = numpy.arange(0, 1 << 32, 2048, dtype=numpy.uint64)
    bits = numpy.concatenate([bits, near, near + 1, near + 2047]).astype(numpy.uint32)
    return bits.view(numpy.float32).reshape(1, -1)


def same_but_nan(case, got, want, values):
    import numpy

    differ = (got != want) & ~numpy.isnan(values)
    case.assertFalse(differ.any(), f"{values[differ][:4]}: {got[differ][:4]}, not {want[differ][:4]}")


@support.needs("numpy")
class NumPy(unittest.TestCase):
    def test_halves(self):
        import numpy

        values = floats()
        got = encode(values, FP16)[0].view(numpy.uint16)
        with numpy.errstate(over="ignore", invalid="ignore"):
            want = values.astype(numpy.float16).view(numpy.uint16)
        same_but_nan(self, got, want, values)

    def test_int8_by_row(self):
        import numpy

        values = numpy.random.default_rng(3).standard_normal((64, 1000)).astype(numpy.float32)
        got, scales = encode(values, INT8, ROW)
        want_scales = numpy.abs(values).max(axis=1) / numpy.float32(127)
        inverse = (numpy.float32(1) / want_scales).astype(numpy.float32)
        want = numpy.rint(values * inverse[:, None]).astype(numpy.int8)
        self.assertTrue((scales == want_scales).all())
        self.assertTrue((got.view(numpy.int8) == want).all())


@support.needs("numpy")
@support.needs("ml_dtypes")
class MlDtypes(unittest.TestCase):
    def test_formats(self):
        import ml_dtypes
        import numpy

        values = floats()
        for form, kind, bits in (
            (BF16, ml_dtypes.bfloat16, numpy.uint16),
            (E4M3, ml_dtypes.float8_e4m3fn, numpy.uint8),
            (E5M2, ml_dtypes.float8_e5m2, numpy.uint8),
        ):
            got = encode(values, form, overflow=NONFINITE)[0].view(bits)
            with numpy.errstate(over="ignore", invalid="ignore"):
                want = values.astype(kind).view(bits)
            same_but_nan(self, got, want, values)


if __name__ == "__main__":
    support.main()
