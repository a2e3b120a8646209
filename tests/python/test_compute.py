#!/usr/bin/env python3
"""cenote.compute, beside NumPy in double precision, within the bound of include/cenote/product.h."""

import math
import unittest

import support

import cenote
from cenote.codec import Encoded, decode, encode
from cenote.compute import conv2d, product

#: The rounding of each type.
UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SHAPES = ((1, 1, 1), (5, 3, 7), (33, 65, 129), (64, 1, 40), (1, 70, 31))


def generator():
    import numpy

    return numpy.random.default_rng(7)


def random(rng, *shape, dtype="float32"):
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def gelu(x):
    import numpy

    return x / 2 * (1 + numpy.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def gelu_tanh(x):
    import numpy

    return x / 2 * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x):
    import numpy

    return numpy.maximum(x, 0)


ACTIVATIONS = {None: lambda x: x, "relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh}


def near(case, got, exact, sizes, depth, slope=1.0):
    """got is within the bound, `sizes` being the sum of all magnitudes."""
    import numpy

    case.assertEqual(got.shape, exact.shape)
    bound = slope * (depth + 16) * 2.0**-23 * sizes + UNITS[got.dtype.name] * numpy.abs(exact)
    wrong = ~(numpy.abs(got.astype(float) - exact) <= bound)
    case.assertFalse(wrong.any(), f"{got[wrong][:3]}, not {exact[wrong][:3]}")


def layouts(matrix):
    """The same matrix in layouts that are read where they lie, and whether each is its transpose."""
    import numpy

    rows, cols = matrix.shape
    wide = numpy.zeros((rows * 2, cols + 5), matrix.dtype)
    wide[::2, 3 : cols + 3] = matrix
    turned = numpy.zeros((cols, rows + 3), matrix.dtype)
    turned[:, 1 : rows + 1] = matrix.T
    return (
        (matrix, False),
        (wide[::2, 3 : cols + 3], False),
        (turned[:, 1 : rows + 1].T, False),
        (numpy.ascontiguousarray(matrix.T), True),
        (matrix.T, True),
    )


def conv_exact(x, w, stride, padding, dilation):
    """In doubles, channels last."""
    import numpy

    (sy, sx), (py, px), (dy, dx) = stride, padding, dilation
    filters, rows, cols, _ = w.shape
    x = numpy.pad(x.astype(float), ((0, 0), (py, py), (px, px), (0, 0)))
    high, wide = (x.shape[1] - dy * (rows - 1) - 1) // sy + 1, (x.shape[2] - dx * (cols - 1) - 1) // sx + 1
    out = numpy.zeros((x.shape[0], high, wide, filters))
    for i in range(rows):
        for j in range(cols):
            tap = x[:, i * dy : i * dy + (high - 1) * sy + 1 : sy, j * dx : j * dx + (wide - 1) * sx + 1 : sx]
            out += tap @ w[:, i, j].astype(float).T
    return out


@support.needs("numpy")
class NumPy(unittest.TestCase):
    def test_shapes_types_and_layouts(self):
        import numpy

        rng = generator()
        for dtype in ("float32", "float16"):
            for m, n, k in SHAPES:
                a, b = random(rng, m, k, dtype=dtype), random(rng, k, n, dtype=dtype)
                exact = a.astype(float) @ b.astype(float)
                sizes = numpy.abs(a).astype(float) @ numpy.abs(b).astype(float)
                for i, (x, turn_a) in enumerate(layouts(a)):
                    for j, (y, turn_b) in enumerate(layouts(b)):
                        with self.subTest(f"{dtype} {m} {n} {k}, layouts {i} {j}"):
                            got = product(x, y, transpose_a=turn_a, transpose_b=turn_b)
                            self.assertEqual(got.dtype, a.dtype)
                            near(self, got, exact, sizes, k)
                got = product(a, b, dtype="fp32")
                self.assertEqual(got.dtype, numpy.float32)
                near(self, got, exact, sizes, k)

    def test_whole_numbers(self):
        import numpy

        rng = generator()
        a, b = random(rng, 33, 130, dtype="int8"), random(rng, 130, 7, dtype="int8")
        exact = a.astype(numpy.int64) @ b.astype(numpy.int64)
        got = product(a, b)
        self.assertEqual(got.dtype, numpy.int32)
        self.assertTrue((got == exact).all())
        self.assertTrue((product(a, b.T.copy().T) == exact).all())
        rows, cols = random(rng, 33), random(rng, 1, 7)
        got = product(a, b, row_scale=rows, col_scale=cols, dtype="fp16", alpha=2**-8)
        exact = exact * rows[:, None].astype(float) * cols * 2**-8
        near(self, got, exact, numpy.abs(exact), 130)

    def test_what_is_done_to_the_result(self):
        import numpy

        rng = generator()
        a, b = random(rng, 17, 21), random(rng, 21, 35)
        bias, more, residual = random(rng, 35), random(rng, 17, 40)[:, 2:37], random(rng, 34, 35)[::2]
        rows, cols = abs(random(rng, 17, 1)), abs(random(rng, 35))
        scale = 0.7 * rows.astype(float) * cols
        sums = a.astype(float) @ b.astype(float)
        sizes = scale * (numpy.abs(a).astype(float) @ numpy.abs(b)) + 0.3 * abs(more) + abs(bias) + abs(residual)
        for activation, function in ACTIVATIONS.items():
            with self.subTest(activation):
                exact = function(scale * sums + 0.3 * more.astype(float) + bias) + residual
                room = numpy.full((17, 50), 7, numpy.float32)
                out = room[:, 9:44]
                got = product(
                    a,
                    b,
                    alpha=0.7,
                    row_scale=rows,
                    col_scale=cols,
                    c=more,
                    beta=0.3,
                    bias=bias,
                    activation=activation,
                    residual=residual,
                    out=out,
                )
                self.assertIs(got, out)
                near(self, got, exact, sizes, 21, slope=1.2)
                self.assertTrue((room[:, :9] == 7).all() and (room[:, 44:] == 7).all())
        whole = product(a, b)
        self.assertTrue((product(a, b, bias=bias, activation="none") == product(a, b, bias=bias)).all())
        self.assertTrue((product(a, b, alpha=0) == 0).all())
        for name in ("c", "residual"):
            out = whole.copy()
            self.assertIs(product(a, b, out=out, **{name: out}), out)
            near(self, out, sums + whole, numpy.abs(sums) + 40, 21)

    def test_empty_ones(self):
        import numpy

        for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)):
            got = product(numpy.ones((m, k), "f4"), numpy.ones((k, n), "f4"), bias=numpy.ones(n, "f4"))
            self.assertTrue((got == numpy.ones((m, n))).all())
            self.assertEqual(got.shape, (m, n))

    def test_encoded_weights(self):
        import numpy

        rng = generator()
        for form, units in (
            ("int8", {}),
            ("int8", {"granularity": "column", "asymmetric": True}),
            ("int4", {"group": 32}),
            ("fp8_e4m3", {"granularity": "tensor"}),
            ("fp8_e5m2", {"granularity": "unscaled"}),
            ("2:4_fp16", {}),
            ("2:4_int8", {}),
        ):
            for rows, cols in ((33, 71), (1, 64), (70, 5)):
                with self.subTest(f"{form} {units} {rows} x {cols}"):
                    weight = encode(random(rng, rows, cols), format=form, **units)
                    dense = decode(weight).astype(numpy.float16)
                    for turn in (False, True):
                        x = random(rng, 9, cols if turn else rows, dtype="float16")
                        ours = product(x, weight, transpose_b=turn, dtype="fp32")
                        theirs = product(x, dense, transpose_b=turn, dtype="fp32")
                        self.assertTrue((ours == theirs).all())
                        self.assertTrue(theirs.any())
        filters = encode(random(rng, 6, 3, 2, 4), format="int8")
        x = random(rng, 5, 24, dtype="float16")
        dense = decode(filters).reshape(6, 24).astype(numpy.float16)
        self.assertTrue((product(x, filters, transpose_b=True) == product(x, dense.T)).all())

    def test_copies_when_asked(self):
        import numpy

        rng = generator()
        a, b = random(rng, 9, 14), random(rng, 7, 22)
        more, bias = random(rng, 9, 22), random(rng, 22)
        given = {"c": more[:, ::2], "residual": more[::-1, ::2], "bias": bias[::2], "row_scale": a[:, 0]}
        given["col_scale"] = bias[::-2]
        views = {"a": a[:, ::2], "b": b[::-1, ::2], **given}
        packed = {name: view.copy() for name, view in views.items()}
        self.assertTrue((product(**views, copy=True) == product(**packed)).all())
        for name, view in views.items():
            with self.assertRaisesRegex(ValueError, f"{name} of shape .* copy=True makes a copy"):
                product(**{**packed, name: view})
        with self.assertRaisesRegex(ValueError, "out of shape .9, 11. has strides"):
            product(packed["a"], packed["b"], out=more[:, ::2], copy=True)

    def test_what_is_refused(self):
        import numpy

        rng = generator()
        a, b = random(rng, 6, 8), random(rng, 8, 5)
        whole, fixed = random(rng, 6, 20), numpy.empty((6, 5), numpy.float32)
        fixed.flags.writeable = False
        weight = encode(random(rng, 5, 8))
        half = a.astype(numpy.float16)
        for x, y, more, words in (
            (a, b.T, {}, "op.A. is 6 x 8, but op.B. 5 x 8"),
            (a, b, {"transpose_a": True}, "op.A. is 8 x 6, but op.B. 8 x 5"),
            (a, b, {"out": whole[:, :4]}, "D is 6 x 4; op.A. op.B. is 6 x 5"),
            (a, b, {"out": a[:, :5]}, "D overlaps A"),
            (a, b, {"out": b[:6]}, "D overlaps B"),
            (a, b, {"out": whole[:, :5], "c": whole[:, 1:6]}, "C overlaps D and is not D"),
            (a, b, {"out": whole[:, :5], "residual": whole[:, 4:9]}, "residual overlaps D and is not D"),
            (a, b, {"out": whole[:, :5], "bias": whole[1, 2:7]}, "D overlaps bias"),
            (a, b, {"out": fixed}, "out is read-only"),
            (a, b, {"out": whole[:, :5].T}, "out of shape .5, 6. has strides"),
            (a, b, {"out": whole[:, :5], "dtype": "fp32"}, "dtype is that of out"),
            (a, b, {"dtype": "fp16"}, "no kernel makes fp16 of fp32 and fp32"),
            (a, b, {"dtype": "float"}, "dtype is 'float': expected one of fp32, fp16, bf16, int32"),
            (a, b, {"activation": "silu"}, "activation is 'silu': expected None or one of none, relu"),
            (a, b, {"bias": whole[0, :4]}, "bias is of shape .4,.: expected 5 elements"),
            (a, b, {"bias": half[0, :5]}, "bias is of fp16; D is of fp32"),
            (a, b, {"bias": numpy.arange(5)}, "bias is of int64 and shape .5,.: expected float32, float16 or"),
            (a, b, {"row_scale": half[:, 0].copy()}, "row_scale is of float16 and shape .6,.: expected float32 in"),
            (a, b, {"col_scale": whole[0, :6]}, "col_scale is of shape .6,.: expected 5"),
            (a, b, {"residual": whole[:5, :5]}, "residual is 5 x 5 fp32, D 6 x 5 fp32"),
            (a, b, {"c": half[:, :5]}, "C is 6 x 5 fp16, D 6 x 5 fp32"),
            (a, b, {"c": whole[0, :5]}, "c is of shape .5,.: expected rows and columns"),
            (a, b, {"kernel": "a\0b"}, "kernel cannot be used: it holds a NUL byte"),
            (a[0], b, {}, "a is of shape .8,.: expected rows and columns"),
            (a[:, None], b, {}, "a is of shape .6, 1, 8.: expected rows and columns"),
            (a, half.T, {}, "no kernel makes fp32 of fp32 and fp16"),
            (a.astype(float), b, {}, "a is of float64 and shape .6, 8.: expected float32, float16, bfloat16 or int8"),
            (a, b.astype(">f4"), {}, "b is of >f4"),
            (a, [[1.0]], {}, "b is no array like a: expected a NumPy array"),
            ([[1.0]], b, {}, "a is a list"),
            (half, weight, {}, "op.A. is 6 x 8, but op.B. 5 x 8"),
            (a, weight, {"transpose_b": True}, "B is encoded, and multiplied as fp32"),
            (half, encode(b, format="fp16"), {}, "B is of codec fp16, which no kernel"),
            (half, weight, {"transpose_b": True, "out": weight.values}, "D is|no kernel makes"),
            (half, Encoded(weight.codec, (5, 8), "fp32", weight.values), {}, "encoded.scales is no array"),
            (half, Encoded(weight.codec, (5, 8), "fp32", None), {}, "b.values is no array like a"),
        ):
            with self.subTest(words), self.assertRaisesRegex((ValueError, cenote.Error), words):
                product(x, y, **more)
        whole = random(rng, 4, 4, dtype="int8")
        with self.assertRaisesRegex(cenote.Error, "D of int32 is the plain product"):
            product(whole, whole, alpha=2)

    def test_out_may_not_lie_in_encoded_weights(self):
        import numpy

        weight = encode(random(generator(), 6, 12))
        room = weight.values.reshape(-1).view(numpy.float16)[:18].reshape(3, 6)
        with self.assertRaisesRegex(cenote.Error, "D overlaps b_parts.values"):
            product(numpy.ones((3, 12), numpy.float16), weight, transpose_b=True, out=room)


@support.needs("numpy")
class Convolutions(unittest.TestCase):
    def test_beside_doubles(self):
        import numpy

        rng = generator()
        for dtype in ("float32", "float16"):
            for (images, side, wide, channels), (filters, rows, cols), stride, padding, dilation in (
                ((2, 9, 11, 5), (4, 3, 2), (2, 1), (1, 1), (1, 2)),
                ((1, 1, 1, 1), (1, 1, 1), (1, 1), (0, 0), (1, 1)),
                ((3, 8, 5, 16), (7, 3, 3), (1, 2), (2, 0), (2, 1)),
                ((0, 4, 4, 3), (2, 2, 2), (1, 1), (0, 0), (1, 1)),
            ):
                with self.subTest(f"{dtype} {channels} {filters}"):
                    x = random(rng, images, side, wide, channels, dtype=dtype)
                    w = random(rng, filters, rows, cols, channels, dtype=dtype)
                    bias = random(rng, filters)
                    sums = conv_exact(x, w, stride, padding, dilation)
                    sizes = conv_exact(abs(x), abs(w), stride, padding, dilation) + abs(bias)
                    residual = random(rng, *sums.shape, dtype=dtype)
                    how = {"stride": stride, "padding": padding, "dilation": dilation}
                    depth = rows * cols * channels
                    near(self, conv2d(x, w, **how), sums, sizes, depth)
                    out = residual.copy()
                    got = conv2d(x, w, bias=bias, activation="relu", residual=out, out=out, **how)
                    self.assertIs(got, out)
                    exact = relu(sums + bias) + residual.astype(float)
                    near(self, got, exact, sizes + abs(residual), depth)
        same = conv2d(x, w, stride=2, padding=1)
        self.assertEqual(same.shape, conv2d(x, w, stride=[2, 2], padding=(1, 1)).shape)

    def test_what_is_refused(self):
        import numpy

        rng = generator()
        x, w = random(rng, 2, 5, 6, 3), random(rng, 4, 3, 3, 3)
        out = numpy.zeros((2, 3, 4, 4), numpy.float32)
        for a, b, more, words in (
            (x[0], w, {}, "input is of shape .5, 6, 3.: expected four dimensions, channels last"),
            (x, w[..., :2].copy(), {}, "weight has 2 channels, input 3"),
            (x, w.astype(numpy.float16), {}, "weight is of float16 .*: expected float32 in"),
            (x.astype(numpy.int8), w, {}, "input is of int8"),
            (x[:, :, ::2], w, {}, "input of shape .2, 5, 3, 3. has strides .* copy=True"),
            (x, w.transpose(0, 2, 1, 3), {}, "weight of shape .* copy=True"),
            (x[:, :2].copy(), w, {}, "the filter spans 3 rows, of 2 with padding"),
            (x, w, {"stride": 0}, "stride is 0: expected an int of at least 1"),
            (x, w, {"padding": -1}, "padding is -1"),
            (x, w, {"dilation": (1, 2, 3)}, "dilation is .1, 2, 3.: expected a number, or one of rows"),
            (x, w, {"stride": (1, 2**32)}, "stride is 4294967296: expected less"),
            (x, w, {"bias": numpy.ones(3, "f4")}, "bias is of shape .3,.: expected 4 elements"),
            (x, w, {"residual": out[:1]}, "residual is of shape .1, 3, 4, 4.: expected .2, 3, 4, 4."),
            (x, w, {"out": out.astype(numpy.float16)}, "out is of float16"),
            (x, w, {"out": numpy.zeros((2, 3, 4, 8), "f4")[..., :4]}, "out of shape .2, 3, 4, 4. has strides"),
            (x, w, {"out": out[:, :2]}, "out is of shape"),
            (x, w, {"activation": "tanh"}, "activation is 'tanh'"),
            (x, w.tolist(), {}, "weight is no array like input"),
        ):
            with self.subTest(words), self.assertRaisesRegex((ValueError, cenote.Error), words):
                conv2d(a, b, **more)
        room = numpy.zeros(400, numpy.float32)
        room[:180] = x.ravel()
        with self.assertRaisesRegex(cenote.Error, "output overlaps input"):
            conv2d(room[:180].reshape(x.shape), w, out=room[100:196].reshape(out.shape))
        got = conv2d(x[:, :, ::-1], w.transpose(0, 2, 1, 3), copy=True)
        want = conv2d(x[:, :, ::-1].copy(), w.transpose(0, 2, 1, 3).copy())
        self.assertTrue((got == want).all() and got.any())


@support.needs("numpy")
@support.needs("ml_dtypes")
class MlDtypes(unittest.TestCase):
    def test_bfloat16(self):
        import ml_dtypes
        import numpy

        rng = generator()
        a, b = (random(rng, *shape).astype(ml_dtypes.bfloat16) for shape in ((9, 33), (33, 17)))
        exact = a.astype(float) @ b.astype(float)
        sizes = numpy.abs(a.astype(float)) @ numpy.abs(b.astype(float))
        for more, kind in (({}, a.dtype), ({"dtype": "fp32"}, numpy.float32)):
            got = product(a, b, **more)
            self.assertEqual(got.dtype, kind)
            near(self, got, exact, sizes, 33)
        bias = random(rng, 17).astype(ml_dtypes.bfloat16)
        near(self, product(a, b, bias=bias), exact + bias.astype(float), sizes + 4, 33)


@support.needs("numpy")
@support.needs("torch")
class Torch(unittest.TestCase):
    devices = ("cpu",)

    def test_as_with_numpy(self):
        import torch

        rng = generator()
        a, b, bias = random(rng, 33, 40), random(rng, 17, 40), random(rng, 17)
        residual = random(rng, 33, 17)
        want = product(a, b.T, bias=bias, activation="gelu", residual=residual)
        for device in self.devices:
            x, y, z, r = (torch.from_numpy(array).to(device) for array in (a, b, bias, residual))
            turned = x.t().contiguous()
            for got in (
                product(x, y.t(), bias=z, activation="gelu", residual=r),
                product(x, y, transpose_b=True, bias=z, activation="gelu", residual=r),
                product(turned, y, transpose_a=True, transpose_b=True, bias=z, activation="gelu", residual=r),
            ):
                self.assertEqual((got.device, got.dtype), (x.device, x.dtype))
                self.assertLess(float(abs(got.cpu() - torch.from_numpy(want)).max()), 1e-4)
            out = torch.full((33, 20), 7.0, device=device)
            product(x, y.t(), out=out[:, 2:19])
            self.assertLess(float(abs(out[:, 2:19].double() - x.double() @ y.double().t()).max()), 1e-4)
            self.assertTrue(bool((out[:, :2] == 7).all()) and bool((out[:, 19:] == 7).all()))

    def test_types_and_encoded_weights(self):
        import torch

        for device in self.devices:
            for dtype in (torch.float16, torch.bfloat16):
                x = torch.randn(5, 96, device=device).to(dtype)
                weight = encode(torch.randn(31, 96, device=device), format="int4", group=32)
                dense = decode(weight, dtype={torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype])
                got = product(x, weight, transpose_b=True, dtype="fp32")
                self.assertLess(float(abs(got.double() - x.double() @ dense.double().t()).max()), 1e-3)
                self.assertEqual(product(x, weight, transpose_b=True).dtype, dtype)
            whole = torch.randint(-128, 128, (9, 50), dtype=torch.int8, device=device)
            got = product(whole, whole.t())
            self.assertEqual(got.dtype, torch.int32)
            self.assertTrue(torch.equal(got.cpu().long(), whole.cpu().long() @ whole.cpu().long().t()))

    def test_channels_last(self):
        import torch

        for device in self.devices:
            last = {"memory_format": torch.channels_last}
            x = torch.randn(2, 6, 9, 8, device=device).contiguous(**last)
            w = torch.randn(4, 6, 3, 3, device=device).contiguous(**last)
            got = conv2d(x.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1), padding=1, stride=(1, 2))
            want = torch.nn.functional.conv2d(x.double(), w.double(), None, (1, 2), 1)
            self.assertLess(float(abs(got.permute(0, 3, 1, 2) - want).max()), 1e-4)

    def test_all_lie_in_one_place(self):
        import numpy
        import torch

        elsewhere = torch.empty(4, 4, device="meta")
        for device in self.devices:
            x = torch.ones(4, 4, device=device)
            here = f"expected a tensor on {x.device}"
            for name in ("b", "bias", "residual", "c", "row_scale", "col_scale", "out"):
                for wrong in (numpy.ones((4, 4), "f4"), elsewhere):
                    with self.subTest(f"{name} {device}"), self.assertRaisesRegex(ValueError, f"{name} is no .*{here}"):
                        product(**{"a": x, "b": x, name: wrong})
            weight = encode(numpy.ones((4, 4), "f4"))
            with self.assertRaisesRegex(ValueError, f"b.values is no array like a: {here}"):
                product(x.half(), weight)
            image = torch.ones(1, 4, 4, 2, device=device)
            with self.assertRaisesRegex(ValueError, f"weight is no array like input: {here}"):
                conv2d(image, numpy.ones((1, 2, 2, 2), "f4"))
            with self.assertRaisesRegex(ValueError, "a tensor on meta cannot be used"):
                product(elsewhere, elsewhere)
            sparse = x.to_sparse()
            with self.assertRaisesRegex(ValueError, "a is of torch.float32"):
                product(sparse, x)


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

        x = torch.zeros(512, 512, device="cuda")
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # what is enqueued before the values are there would see zeros
            x.fill_(1)
            got = product(x, x)
        stream.synchronize()
        self.assertTrue(bool((got == 512).all()))

    def test_kernels_by_name(self):
        import torch

        x = torch.ones(64, 64, device="cuda")
        self.assertTrue(bool((product(x, x, kernel="cen_product_naive") == 64).all()))
        with self.assertRaisesRegex(cenote.Error, "'none' is no kernel that does this product"):
            product(x, x, kernel="none")

    def test_devices_do_not_mix(self):
        import torch

        x = torch.ones(4, 4, device="cuda")
        for a, b in ((x, x.cpu()), (x.cpu(), x)):
            with self.assertRaisesRegex(ValueError, "b is no array like a"):
                product(a, b)


if __name__ == "__main__":
    support.main()
