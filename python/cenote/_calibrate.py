"""Calibrations (include/cenote/calibrate.h), for those who have addresses: the structures and prototypes.
Checked against the header by tests/python/test_layout.py."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple

from cenote._codec import Codec, Matrix
from cenote._lib import declare

#: cen_channels.
CHANNELS = {"none": 0, "rows": 1, "columns": 2}
#: cen_threshold.
THRESHOLDS = {"max": 0, "percentile": 1, "entropy": 2, "mse": 3}


class Stats(ctypes.Structure):
    """cen_calibration_stats."""

    _fields_ = [
        ("count", c_uint64),
        ("nan", c_uint64),
        ("infinite", c_uint64),
        ("zeros", c_uint64),
        ("min", c_float),
        ("max", c_float),
        ("amax", c_float),
    ]


class Channel(ctypes.Structure):
    """cen_calibration_channel."""

    _fields_ = [("stats", Stats), ("sum", c_double), ("sum2", c_double)]


class Outlier(ctypes.Structure):
    """cen_outlier."""

    _fields_ = [("channel", c_uint64), ("value", c_float)]


_calibration = c_void_p

PROTOTYPES: Dict[str, Tuple[Any, List[Any]]] = {
    "cen_calibration_create": (c_int, [c_int, c_uint64, POINTER(_calibration)]),
    "cen_calibration_free": (None, [_calibration]),
    "cen_calibration_add": (c_int, [_calibration, POINTER(Matrix)]),
    "cen_calibration_merge": (c_int, [_calibration, _calibration]),
    "cen_calibration_get_channels": (c_int, [_calibration, POINTER(c_int), POINTER(c_uint64)]),
    "cen_calibration_get_stats": (c_int, [_calibration, POINTER(Stats)]),
    "cen_calibration_get_channel": (c_int, [_calibration, c_uint64, POINTER(Channel)]),
    "cen_calibration_threshold": (
        c_int,
        [_calibration, c_int, c_double, POINTER(Codec), POINTER(c_float)],
    ),
    "cen_calibration_outliers": (
        c_int,
        [_calibration, c_float, POINTER(Outlier), c_uint64, POINTER(c_uint64), POINTER(c_float)],
    ),
    "cen_calibration_save": (c_int, [_calibration, c_char_p]),
    "cen_calibration_load": (c_int, [c_char_p, POINTER(_calibration)]),
}

function = declare(PROTOTYPES)
