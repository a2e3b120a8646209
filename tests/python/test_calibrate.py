#!/usr/bin/env python3
"""cenote.calibrate, beside NumPy's own counts."""

import math
import tempfile
import unittest
from pathlib import Path

import support

import cenote
from cenote.calibrate import Calibration, Outlier, scale


def normal(rows=64, cols=1000):
    import numpy

    return numpy.random.default_rng(3).standard_normal((rows, cols)).astype(numpy.float32)


@support.needs("numpy")
class NumPy(unittest.TestCase):
    def test_counts(self):
        import numpy

        x = normal()
        x[3, 5:8] = numpy.nan, numpy.inf, 0
        seen = Calibration()
        seen.add(x[:40])
        seen.add(x[40:].astype(numpy.float16))
        finite = numpy.concatenate([x[:40].ravel(), x[40:].astype(numpy.float16).astype(numpy.float32).ravel()])
        finite = finite[numpy.isfinite(finite)]
        stats = seen.stats
        self.assertEqual((stats.count, stats.nan, stats.infinite), (64000, 1, 1))
        self.assertEqual(stats.zeros, (finite == 0).sum())
        self.assertEqual((stats.min, stats.max), (finite.min(), finite.max()))
        self.assertEqual(stats.amax, numpy.abs(finite).max())
        self.assertEqual(repr(seen), "<cenote.calibrate.Calibration of 64000 elements>")

    def test_thresholds(self):
        import numpy

        x = numpy.concatenate([normal().ravel(), [90]]).astype(numpy.float32).reshape(1, -1)
        seen = Calibration()
        seen.add(x)
        self.assertEqual(seen.threshold(), 90)
        wanted = numpy.sort(numpy.abs(x.ravel()))[math.ceil(0.999 * x.size) - 1]
        found = seen.threshold("percentile", percentile=99.9)
        self.assertTrue(wanted <= found <= wanted * (1 + 2**-8), (wanted, found))
        self.assertTrue(3 < seen.threshold("entropy") < 6)
        self.assertTrue(seen.threshold("mse", format="int4") < seen.threshold("mse") < 90)
        self.assertEqual(seen.threshold("mse", format="fp8_e4m3"), 90)

    def test_channels(self):
        import numpy

        x = normal(50, 20)
        x[7, 3], x[8, 11] = -40, 30
        seen = Calibration(columns=20)
        seen.add(x)
        one = seen.channel(3)
        self.assertEqual((one.stats.count, one.stats.min, one.stats.amax), (50, -40, 40))
        self.assertAlmostEqual(one.sum, x[:, 3].astype(float).sum(), delta=1e-9)
        self.assertAlmostEqual(one.sum2, (x[:, 3].astype(float) ** 2).sum(), delta=1e-9)
        rest = numpy.abs(numpy.delete(x, [3, 11], 1)).max()
        self.assertEqual(seen.outliers(10), ([Outlier(3, -40), Outlier(11, 30)], rest))
        self.assertEqual(seen.outliers(10, most=1), ([Outlier(3, -40)], rest))
        self.assertEqual(seen.outliers(50), ([], 40))
        rows = Calibration(rows=50)
        rows.add(x)
        self.assertEqual(rows.outliers(35)[0], [Outlier(7, -40)])

    def test_any_number_of_dimensions(self):
        import numpy

        x = normal(60, 40).reshape(5, 12, 40)
        tokens, filters, plain = Calibration(columns=40), Calibration(rows=5), Calibration()
        for seen in (tokens, filters, plain):
            seen.add(x)
            self.assertEqual(seen.stats.count, 2400)
        for i in (0, 4):
            self.assertEqual(tokens.channel(i).stats.max, x[:, :, i].max())
            self.assertEqual(filters.channel(i).stats.max, x[i].max())
        with tempfile.TemporaryDirectory() as folder:
            tokens.save(Path(folder) / "tokens.calib")
            tokens = Calibration.load(Path(folder) / "tokens.calib")
        wide = normal(60, 50).reshape(5, 12, 50)
        tokens.add(wide[:, :, 3:43])
        plain.add(wide[:, :, 3:43])
        plain.add(wide[:, 2:7])
        plain.add(wide[0, 0])
        filters.add(wide[:, 2:7])
        self.assertEqual((tokens.stats.count, filters.stats.count), (4800, 3650))
        self.assertEqual(plain.stats.count, 2400 + 2400 + 1250 + 50)
        self.assertEqual(tokens.channel(7).stats.max, max(x[:, :, 7].max(), wide[:, :, 10].max()))
        tokens.add(x[0, 0])
        apart = wide[:, 2:7, 3:43]
        for seen, view in ((filters, wide[:, :, 3:43]), (plain, apart), (tokens, apart), (plain, x.T)):
            with self.assertRaisesRegex(ValueError, "batch of shape .* copy=True"):
                seen.add(view)
            count = seen.stats.count
            seen.add(view, copy=True)
            self.assertEqual(seen.stats.count, count + view.size)
        for wrong in (x[..., :39], x[0, 0, 1:]):
            with self.assertRaisesRegex(cenote.Error, "batch has 39 channels, the calibration 40"):
                tokens.add(wrong)
        for seen in (tokens, filters, plain):
            with self.assertRaisesRegex(ValueError, "one dimension or more"):
                seen.add(numpy.array(1.0, numpy.float32))

    def test_merged_and_kept_in_a_file(self):
        x = normal()
        whole, parts = Calibration(rows=64), [Calibration(rows=64), Calibration(rows=64)]
        whole.add(x)
        for part, columns in zip(parts, (x[:, :300], x[:, 300:])):
            part.add(columns)
        parts[0].merge(parts[1])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "layer.calib"
            parts[0].save(path)
            with Calibration.load(path) as back:
                self.assertEqual(back.stats, whole.stats)
                self.assertEqual(back.channel(5).stats, whole.channel(5).stats)
                self.assertEqual(back.threshold("entropy"), whole.threshold("entropy"))
            path.write_bytes(path.read_bytes()[:-1])
            for wrong in (path, Path(folder) / "none"):
                with self.assertRaisesRegex(cenote.Error, wrong.name):
                    Calibration.load(wrong)

    def test_strides_are_as_for_codecs(self):
        x = normal()
        seen, whole = Calibration(), Calibration()
        seen.add(x[::2, 100:])
        whole.add(x[::2, 100:].copy())
        self.assertEqual(seen.stats, whole.stats)
        with self.assertRaisesRegex(ValueError, "batch of shape .1000, 64. has strides.*copy=True"):
            seen.add(x.T)
        seen.add(x.T, copy=True)
        self.assertEqual(seen.stats.count, 32 * 900 + 64000)

    def test_what_is_refused(self):
        for wrong, words in (
            ({"rows": 4, "columns": 4}, "rows or columns, not both"),
            ({"rows": -1}, "rows is -1"),
            ({"columns": 2**33}, "count is 8589934592"),
        ):
            with self.assertRaisesRegex((ValueError, cenote.Error), words):
                Calibration(**wrong)
        seen = Calibration(rows=3)
        for call, words in (
            (lambda: seen.add(normal(4)), "batch has 4 channels, the calibration 3"),
            (lambda: seen.add([[1.0]]), "batch is a list"),
            (lambda: seen.channel(3), "index is 3 of 3"),
            (lambda: seen.threshold("kl"), "method is 'kl': expected one of max, percentile, entropy, mse"),
            (lambda: seen.threshold("mse"), "none was finite"),
            (lambda: seen.merge(Calibration(rows=4)), "to has 3 rows, from 4 rows"),
            (lambda: Calibration().outliers(1), "no channels"),
            (lambda: scale(1, "fp16"), "format is 'fp16'"),
            (lambda: scale(math.nan), "amax is nan"),
            (lambda: scale(1e300), "amax is 1e.300: expected a finite number of 32 bits"),
        ):
            with self.subTest(words), self.assertRaisesRegex((ValueError, cenote.Error), words):
                call()
        seen.add(normal(3))
        for call, words in (
            (lambda: seen.threshold("entropy", format="fp8_e4m3"), "entropy"),
            (lambda: seen.threshold("percentile", percentile=0), "percentile"),
            (lambda: seen.threshold("mse", format="int9"), "int9"),
        ):
            with self.subTest(words), self.assertRaisesRegex(cenote.Error, words):
                call()
        seen.close()
        seen.close()
        with self.assertRaisesRegex(ValueError, "calibration is closed"):
            seen.add(normal(3))

    def test_scales(self):
        import numpy

        for amax in (0.0, 1e-45, 0.1, 3.7, 3e38):
            for form, most in (("int8", 127), ("int4", 7), ("fp8_e4m3", 448), ("fp8_e5m2", 57344)):
                own = cenote.codec.encode(numpy.array([[amax]], numpy.float32), format=form)
                wanted = float(own.scales[0, 0])
                self.assertEqual(scale(float(numpy.float32(amax)), form), wanted)


@support.needs("numpy")
@support.needs("torch")
class Torch(unittest.TestCase):
    def test_as_with_numpy(self):
        import torch

        ours, theirs = Calibration(columns=1000), Calibration(columns=1000)
        ours.add(normal())
        theirs.add(torch.from_numpy(normal()))
        self.assertEqual(ours.stats, theirs.stats)
        self.assertEqual(ours.channel(9), theirs.channel(9))
        theirs.add(torch.from_numpy(normal()).to(torch.bfloat16))
        self.assertEqual(theirs.stats.count, 128000)


if __name__ == "__main__":
    support.main()
