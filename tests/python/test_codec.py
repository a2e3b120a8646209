#!/usr/bin/env python3
"""cenote.codec, beside NumPy's and ml_dtypes' conversions, and with arrays of all kinds."""

import unittest

import support

import cenote
from cenote.codec import Encoded, decode, encode

FORMATS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "2:4_fp16", "2:4_bf16", "2:4_int8")


def floats():
    """One float of each 4099, and each 2048th with what is beside it: all boundaries of the formats."""
    import numpy

    bits = numpy.arange(0, 1 << 32, 4099, dtype=numpy.uint64)
    near = numpy.arange(0, 1 << 32, 2048, dtype=numpy.uint64)
    bits = numpy.concatenate([bits, near, near + 1, near + 2047]).astype(numpy.uint32)
    return bits.view(numpy.float32).reshape(1, -1)


def normal(rows=64, cols=1000):
    import numpy

    return numpy.random.default_rng(3).standard_normal((rows, cols)).astype(numpy.float32)


def same_but_nan(case, got, want, values):
    import numpy

    differ = (got != want) & ~numpy.isnan(values)
    case.assertFalse(differ.any(), f"{values[differ][:4]}: {got[differ][:4]}, not {want[differ][:4]}")


@support.needs("numpy")
class NumPy(unittest.TestCase):
    def test_halves(self):
        import numpy

        values = floats()
        got = encode(values, format="fp16").values.view(numpy.uint16)
        with numpy.errstate(over="ignore", invalid="ignore"):
            want = values.astype(numpy.float16).view(numpy.uint16)
        same_but_nan(self, got, want, values)

    def test_int8_by_row(self):
        import numpy

        values = normal()
        got = encode(values)
        want_scales = numpy.abs(values).max(axis=1) / numpy.float32(127)
        inverse = (numpy.float32(1) / want_scales).astype(numpy.float32)
        want = numpy.rint(values * inverse[:, None]).astype(numpy.int8)
        self.assertEqual((got.codec.format, got.codec.granularity), ("int8", "row"))
        self.assertEqual((got.shape, got.dtype), ((64, 1000), "fp32"))
        self.assertTrue((got.scales[:, 0] == want_scales).all())
        self.assertTrue((got.values == want).all())
        self.assertIsNone(got.zeros)
        self.assertIsNone(got.metadata)
        back = decode(got)
        self.assertTrue((back == got.values.astype(numpy.float32) * got.scales).all())
        error = (values.astype(float) - back) ** 2
        self.assertAlmostEqual(got.report.mse, error.mean(), delta=1e-12)
        self.assertEqual(got.report.count, values.size)
        self.assertEqual(got.nbytes, 64 * 1000 + 64 * 4)

    def test_int4_is_two_to_a_byte(self):
        import numpy

        got = encode(normal(5, 33), format="int4", group=32, asymmetric=True)
        self.assertEqual(got.values.shape, (5, 17))
        self.assertEqual((got.scales.shape, got.zeros.shape), ((5, 2), (5, 2)))
        low = (got.values & 15).astype(numpy.int32)
        high = (got.values >> 4).astype(numpy.int32)
        q = numpy.stack([low, high], axis=2).reshape(5, 34)[:, :33]
        q = numpy.where(q > 7, q - 16, q)
        unit = numpy.arange(33) // 32
        want = (q - got.zeros[:, unit]).astype(numpy.float32) * got.scales[:, unit]
        self.assertTrue((decode(got) == want).all())

    def test_units_and_formats(self):
        import numpy

        values = normal(7, 133)
        for form in FORMATS:
            with self.subTest(form):
                got = encode(values, format=form)
                self.assertLess(numpy.abs(decode(got) - values).max(), 5 if ":" in form else 1)
                self.assertEqual(got.metadata is not None, form.startswith("2:4"))
        for units, shape in (
            ({"granularity": "tensor"}, (1, 1)),
            ({"granularity": "column"}, (1, 133)),
            ({"group": 64}, (7, 3)),
            ({"block": (4, 50)}, (2, 3)),
        ):
            with self.subTest(units):
                got = encode(values, format="fp8_e4m3", **units)
                self.assertEqual(got.scales.shape, shape)
                self.assertGreater(got.report.sqnr_db, 20)

    def test_rows_may_be_apart(self):
        import numpy

        whole = normal(20, 100)
        for view in (whole[::2, 10:60], whole[3:4], whole[:, 99:], whole[:0], whole[:, :0]):
            got, want = encode(view), encode(view.copy())
            self.assertTrue((got.values == want.values).all())
            self.assertTrue((got.scales == want.scales).all())
            room = numpy.full((view.shape[0], view.shape[1] + 3), 7, numpy.float32)
            out = room[:, : view.shape[1]]
            self.assertIs(decode(got, out=out), out)
            self.assertTrue((out == decode(want)).all())
            self.assertTrue((room[:, view.shape[1] :] == 7).all())

    def test_other_strides_are_refused_or_copied(self):
        import numpy

        whole = normal(20, 100)
        wide = numpy.broadcast_to(whole[:1], (4, 100))
        odd = numpy.zeros(100, numpy.dtype([("x", "<f4"), ("y", "u1")]))["x"].reshape(10, 10)
        for view in (whole.T, whole[:, ::2], whole[::-1], whole[:, ::-1], wide, odd):
            with self.assertRaisesRegex(ValueError, "copy=True makes a copy"):
                encode(view)
            got, want = encode(view, copy=True), encode(view.copy())
            self.assertTrue((got.values == want.values).all())
            with self.assertRaises(ValueError):
                decode(got, out=view)

    def test_any_number_of_dimensions(self):
        import numpy

        whole = normal(6, 4 * 5 * 8)
        for shape, sides in (
            ((960,), (1, 960)),
            ((6, 4, 40), (6, 160)),
            ((6, 1, 4, 5, 8), (6, 160)),
            ((960, 1, 1), (960, 1)),
            ((1, 6, 160), (1, 960)),
            ((0, 4, 5), (0, 20)),
            ((3, 0, 5), (3, 0)),
            ((0,), (1, 0)),
        ):
            array = whole.reshape(shape) if 0 not in shape else numpy.empty(shape, numpy.float32)
            for form in ("int8", "int4", "fp16", "2:4_int8"):
                with self.subTest(f"{shape} {form}"):
                    got, want = encode(array, format=form), encode(array.reshape(sides), format=form)
                    self.assertEqual((got.shape, got.values.shape), (shape, want.values.shape))
                    self.assertEqual(got.values.tobytes(), want.values.tobytes())
                    self.assertTrue((decode(got) == decode(want).reshape(shape)).all())
                    self.assertEqual(decode(got).shape, shape)
                    out = numpy.empty(shape, numpy.float16)
                    self.assertIs(decode(got, out=out), out)
        self.assertEqual(repr(encode(whole.reshape(6, 4, 40))), "<cenote.codec.Encoded int8 of 6 x 4 x 40 fp32>")
        self.assertEqual(encode(whole.reshape(6, 4, 40)).report.count, 960)

    def test_dimensions_that_merge_are_read_where_they_lie(self):
        import numpy

        whole = normal(12, 4 * 5 * 8).reshape(12, 4, 5, 8)
        columns = normal(6, 40)[:, 3:23].reshape(6, 4, 5)  # NumPy's own view: rows are apart
        self.assertIsNotNone(columns.base)
        single = whole[:, 3:, 4:, 2:7]
        for view in (whole[::3], whole[:, 1:3], whole[:, 2, 1:4], single, whole[5:6, :1, 2:3], columns):
            got, want = encode(view), encode(view.copy())
            self.assertEqual(got.shape, view.shape)
            self.assertTrue((got.values == want.values).all())
            self.assertTrue((got.scales == want.scales).all())
        room = numpy.full((6, 9, 5), 7, numpy.float32)
        out = room[:, 2:6]
        self.assertIs(decode(encode(columns), out=out), out)
        self.assertTrue((out == decode(encode(columns.copy()))).all())
        self.assertTrue((room[:, :2] == 7).all() and (room[:, 6:] == 7).all())
        for view in (
            whole.transpose(0, 2, 3, 1),
            whole[:, :, ::2],
            whole[:, :, :3],
            whole[..., :4],
            whole[:, ::-1],
            whole[:, :, 0],
            whole.ravel()[::2],
            numpy.broadcast_to(whole[:, :1], (12, 4, 5, 8)),
        ):
            with self.assertRaisesRegex(ValueError, "copy=True makes a copy"):
                encode(view)
            got, want = encode(view, copy=True), encode(view.copy())
            self.assertEqual(got.shape, view.shape)
            self.assertTrue((got.values == want.values).all())
            gaps = numpy.empty((*view.shape, 2), numpy.float32)[..., 0]
            with self.assertRaisesRegex(ValueError, "out of shape .* has strides that no matrix has"):
                decode(got, out=view if view.flags.writeable else gaps)

    def test_given_scales_clip(self):
        import numpy

        values = normal()
        values[5, 7] = 90
        scales = numpy.array([[4 / 127]], numpy.float32)
        own = encode(values, granularity="tensor")
        cut = encode(values, granularity="tensor", scales=scales)
        self.assertIs(cut.scales, scales)
        self.assertEqual(cut.values[5, 7], 127)
        self.assertGreaterEqual(cut.report.saturated, 1)
        self.assertEqual(own.report.saturated, 0)
        others = numpy.arange(64) != 5
        self.assertLess(
            ((decode(cut) - values)[others] ** 2).mean() * 100, ((decode(own) - values)[others] ** 2).mean()
        )
        made = encode(values, asymmetric=True)
        again = encode(values, asymmetric=True, scales=made.scales, zeros=made.zeros)
        self.assertTrue((made.values == again.values).all())
        scales[:] = numpy.inf
        with self.assertRaisesRegex(cenote.Error, "parts.scales: that of unit 0 is inf"):
            encode(values, granularity="tensor", scales=scales)

    def test_what_is_refused(self):
        import numpy

        values = normal(4, 64)
        row = numpy.ones((4, 1), numpy.float32)
        for wrong, words in (
            ({"format": "int9"}, "'int9'; names are fp16 "),
            ({"format": None}, "format is None"),
            ({"format": "int8\0"}, "format cannot be used: it holds a NUL byte"),
            ({"granularity": "rows"}, "granularity is 'rows'"),
            ({"overflow": "wrap"}, "overflow is 'wrap'"),
            ({"group": 48}, "with granularity group it is 32, 64 or 128"),
            ({"group": -1}, "group is -1"),
            ({"group": 2**32 + 64}, "group is 4294967360: expected less"),
            ({"block": 4}, "block is 4: expected rows and columns"),
            ({"block": (-1, 2)}, "block's rows is -1"),
            ({"scales": row[:3]}, "scales is of float32 and shape .3, 1.: expected 4"),
            ({"scales": row.astype(float)}, "scales is of float64"),
            ({"scales": [1.0]}, "scales is no array like the others"),
            ({"scales": row, "asymmetric": True}, "zeros are given"),
            ({"zeros": row.astype(numpy.int8)}, "zeros are given"),
            ({"format": "fp16", "scales": row}, "scales_given"),
            ({"format": "2:4_bf16", "refuse_dense": True}, "more than two nonzeros"),
            ({"format": "lossless_bf16"}, "takes bf16"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex((ValueError, cenote.Error), words):
                encode(values, **wrong)
        for array, words in (
            ([[1.0]], "array is a list: expected a NumPy array"),
            (values[0, 0], "array is a float32: expected a NumPy array"),
            (numpy.array(1.0, numpy.float32), "shape ..: expected .* in one dimension or more"),
            (values.astype(float), "array is of float64"),
            (values.astype(">f4"), "array is of >f4"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                encode(array)
        got = encode(values)
        fixed = numpy.empty((4, 64), numpy.float32)
        fixed.flags.writeable = False
        for wrong in (
            {"dtype": "fp64"},
            {"out": fixed},
            {"out": numpy.empty((4, 63), numpy.float32)},
            {"out": numpy.empty((4, 64), numpy.float32), "dtype": "fp32"},
        ):
            with self.assertRaises(ValueError):
                decode(got, **wrong)
        for values, scales in ((got.values[:3], got.scales), (got.values, None), (got.values[:, ::2], got.scales)):
            with self.assertRaisesRegex(ValueError, "encoded"):
                decode(Encoded(got.codec, (4, 64), "fp32", values, scales))
        for shape, words in (
            ((), "expected one dimension or more"),
            (64, "encoded.shape is 64"),
            ((4, -64), "a side of encoded.shape is -64"),
            ((4, 2**40, 2**40), "sides of encoded.shape after the first is 1208925819614629174706176"),
            ((4, 13, 5), "encoded.values has not 260"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                decode(Encoded(got.codec, shape, "fp32", got.values, got.scales))

    def test_the_report_is_for_the_asking(self):
        self.assertIsNone(encode(normal(), report=False).report)
        self.assertEqual(repr(encode(normal())), "<cenote.codec.Encoded int8 of 64 x 1000 fp32>")


@support.needs("numpy")
@support.needs("ml_dtypes")
class MlDtypes(unittest.TestCase):
    def test_formats(self):
        import ml_dtypes
        import numpy

        values = floats()
        for form, kind, bits in (
            ("bf16", ml_dtypes.bfloat16, numpy.uint16),
            ("fp8_e4m3", ml_dtypes.float8_e4m3fn, numpy.uint8),
            ("fp8_e5m2", ml_dtypes.float8_e5m2, numpy.uint8),
        ):
            got = encode(values, format=form, granularity="unscaled", overflow="nonfinite").values
            with numpy.errstate(over="ignore", invalid="ignore"):
                want = values.astype(kind).view(bits)
            same_but_nan(self, got, want, values)

    def test_lossless(self):
        import ml_dtypes
        import numpy

        values = normal(300, 500).astype(ml_dtypes.bfloat16)
        got = encode(values, format="lossless_bf16")
        self.assertLess(got.nbytes, values.nbytes * 0.75)
        back = decode(got)
        self.assertEqual(back.dtype, values.dtype)
        self.assertTrue((back.view(numpy.uint16) == values.view(numpy.uint16)).all())
        got.values = got.values[:-1].copy()
        with self.assertRaises(cenote.Error):
            decode(got)


def as_numpy(tensor):
    """Its bits: NumPy has not all of torch's types."""
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.cpu().contiguous().view(bits).numpy()


@support.needs("numpy")
@support.needs("torch")
class Torch(unittest.TestCase):
    devices = ("cpu",)

    def test_as_with_numpy(self):
        import torch

        values = normal(33, 264)
        for device in self.devices:
            tensor = torch.from_numpy(values).to(device)
            for form in FORMATS:
                with self.subTest(f"{form} {device}"):
                    want, got = encode(values, format=form), encode(tensor, format=form)
                    for name in ("values", "scales", "metadata"):
                        ours, theirs = getattr(want, name), getattr(got, name)
                        self.assertEqual(ours is None, theirs is None)
                        if ours is not None:
                            self.assertEqual(theirs.device, tensor.device)
                            self.assertEqual(ours.tobytes(), as_numpy(theirs).tobytes())
                    self.assertTrue((decode(got).cpu().numpy() == decode(want)).all())
                    self.assertEqual(got.report.underflowed, want.report.underflowed)
                    self.assertEqual(got.report.max_error, want.report.max_error)
                    # Sums of a device differ by 2^-18: of two of them a ratio by 2^-17, so 3.3e-5 dB.
                    self.assertAlmostEqual(got.report.sqnr_db, want.report.sqnr_db, delta=4e-5)

    def test_views_and_types(self):
        import torch

        for device in self.devices:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                whole = torch.from_numpy(normal(20, 100)).to(device, dtype)
                view = whole[::2, 10:74]
                got, want = encode(view), encode(view.clone(), copy=True)
                self.assertTrue(torch.equal(got.values, want.values))
                out = torch.zeros_like(whole)[::2, 10:74]
                self.assertIs(decode(got, out=out), out)
                self.assertTrue(torch.equal(out, decode(want)))
                self.assertEqual(decode(want).dtype, dtype)
                with self.assertRaisesRegex(ValueError, "copy=True makes a copy"):
                    encode(whole.t())
                self.assertTrue(
                    torch.equal(encode(whole.t(), copy=True).values, encode(whole.t().contiguous()).values)
                )

    def test_any_number_of_dimensions(self):
        import torch

        for device in self.devices:
            whole = torch.from_numpy(normal(6, 160)).reshape(6, 4, 5, 8).to(device)
            last = whole.contiguous(memory_format=torch.channels_last)
            turned = last.permute(0, 2, 3, 1)
            for view in (whole, whole[::2, 1:3], whole.flatten(), whole[:, 2, 1:4], whole[:0], turned):
                got, want = encode(view), encode(view.contiguous())
                self.assertEqual(got.shape, tuple(view.shape))
                self.assertTrue(torch.equal(got.values, want.values))
                self.assertTrue(torch.equal(decode(got), decode(want)))
                self.assertEqual(decode(got).shape, view.shape)
            for view in (last, whole[..., :4], whole.flatten()[::2], whole[:, :1].expand(6, 4, 5, 8)):
                with self.assertRaisesRegex(ValueError, "copy=True makes a copy"):
                    encode(view)
                self.assertTrue(torch.equal(encode(view, copy=True).values, encode(view.contiguous()).values))
            with self.assertRaisesRegex(ValueError, "in one dimension or more"):
                encode(whole[0, 0, 0, 0])

    def test_negative_views(self):
        import torch

        for device in self.devices:
            whole = torch.from_numpy(normal(4, 8)).to(device)
            negative = torch.complex(whole, whole).conj().imag
            self.assertTrue(negative.is_neg())
            for view in (negative, negative[:1, :1], negative[0]):
                with self.assertRaisesRegex(ValueError, "copy=True makes a copy"):
                    encode(view)
                self.assertTrue(torch.equal(decode(encode(view, format="fp16", copy=True)), view.half().float()))
            with self.assertRaisesRegex(ValueError, "scales is of torch.float32"):
                encode(whole[:, :1], granularity="tensor", scales=negative[:1, :1])

    def test_given_scales(self):
        import torch

        for device in self.devices:
            tensor = torch.from_numpy(normal()).to(device)
            scales = torch.full((1, 1), 1 / 127, device=device)
            got = encode(tensor, granularity="tensor", scales=scales)
            self.assertIs(got.scales, scales)
            self.assertEqual(got.report.saturated, int((tensor.abs() * (1 / scales) >= 127.5).sum()))


@support.needs("torch")
class Cuda(Torch):
    devices = ("cuda",)

    @classmethod
    def setUpClass(cls):
        import torch

        if not torch.cuda.is_available():
            raise unittest.SkipTest("torch finds no GPU here")

    def test_work_goes_to_the_current_stream(self):
        import torch

        tensor = torch.zeros(512, 4096, device="cuda")
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # what is enqueued before the values are there would see zeros
            tensor.fill_(3)
            got = encode(tensor)
            back = decode(got)
        stream.synchronize()
        self.assertTrue(bool((got.values == 127).all()))
        self.assertTrue(bool(((back - 3).abs() < 1e-5).all()))


if __name__ == "__main__":
    support.main()
