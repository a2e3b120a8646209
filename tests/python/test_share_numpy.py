#!/usr/bin/env python3
"""NumPy's arrays shared between processes; the rest is in test_share.py."""

import importlib.util

import support
from sharing import Sharing
from support import MIB

import cenote
from cenote import _share_layout

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
if HAS_NUMPY:
    import numpy as np


@support.needs("numpy")
class NumPy(Sharing):
    def test_arrays_of_all_kinds_by_name(self):
        arrays = {
            "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
            "fortran": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
            "strided": np.arange(20, dtype=np.complex128)[::3],
            "backward": np.arange(5)[::-1],
            "scalar": np.array(7, dtype=np.uint8),
            "empty": np.empty((0, 4), dtype=np.float64),
            "text": np.array(["a", "bcd"]),
            "time": np.array(["2024-01-01"], dtype="M8[ns]"),
            "big": np.arange(3, dtype=">i4"),
            "bool": np.array([[True], [False]]),
        }
        export = self.share.share(arrays, "all")
        view = self.share.open("all")
        self.assertEqual((list(view), len(view)), (list(arrays), len(arrays)))
        for name, array_ in arrays.items():
            for there in (view[name], export.arrays[name]):
                self.assertEqual((there.dtype, there.shape), (array_.dtype, array_.shape), name)
                np.testing.assert_array_equal(there, array_)
            self.assertFalse(view[name].flags.writeable)
        self.assertRaises(KeyError, lambda: view["none"])
        self.assertRaises(KeyError, lambda: view[0])
        self.assertNotIn("\0", view)

    def test_what_cannot_be_shared_is_named(self):
        for bad in (np.array([object()]), np.zeros(2, dtype=[("a", "f4")])):
            with self.assertRaisesRegex(ValueError, "'bad'"):
                self.share.share({"good": np.zeros(1), "bad": bad}, "x")

    def test_the_memory_is_one(self):
        export = self.share.share({"x": np.zeros(MIB, dtype=np.uint8)}, "x", access="me+write")
        write = """
            view = cenote.open("x", write=True)
            view["x"][-1] = 77
            print(cenote.open("x")["x"][-1])
        """
        self.assertEqual(self.said(write), "77")
        self.assertEqual(export.arrays["x"][-1], 77)
        export.arrays["x"][0] = 5
        self.assertEqual(self.share.open("x")["x"][0], 5)

    def test_read_only_arrays_refuse(self):
        self.share.share(np.zeros(4), "x")
        with self.assertRaises(ValueError):
            self.share.open("x").array[0] = 1

    def test_named_types_are_raw_bytes_to_numpy(self):
        layout = _share_layout.Layout("bfloat16", (2, 2))
        data = np.arange(4, dtype=np.uint16)
        memory = _share_layout.Memory(data.ctypes.data, 8, layout, False, data)
        raw = _share_layout.host_array(memory)
        self.assertEqual((raw.dtype, raw.shape), (np.dtype("V2"), (2, 2)))
        np.testing.assert_array_equal(raw.view(np.uint16), data.reshape(2, 2))

    def test_device_arrays_say_where_they_lie(self):
        layout = _share_layout.Layout("<f4", (2, 3), (4, 8))
        memory = _share_layout.Memory(0x1000, 24, layout, False, None)
        said = _share_layout.DeviceArray(memory, 0).__cuda_array_interface__
        self.assertEqual(
            said,
            {
                "version": 3,
                "typestr": "<f4",
                "shape": (2, 3),
                "strides": (4, 8),
                "data": (0x1000, False),
                "stream": 1,
            },
        )

    def test_an_array_outlives_all_objects(self):
        held = cenote.Share().share(np.arange(1000)).array
        np.testing.assert_array_equal(held, np.arange(1000))


if __name__ == "__main__":
    support.main()
