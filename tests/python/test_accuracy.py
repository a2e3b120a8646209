#!/usr/bin/env python3
"""What a network that was trained on handwritten digits loses in fewer bits: little, but for min/max once an outlier
was planted. A network of two layers, its weights through `cenote quantize` and back, its activations by
cenote.calibrate and cenote.codec."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import support

import cenote.calibrate
from cenote.codec import decode, encode

HIDDEN, TRAINED_ON, EPOCHS, BATCH, RATE = 128, 900, 12, 32, 0.003
METHODS = ("max", "percentile", "entropy", "mse")
#: One activation of one hidden unit (their root mean square is 0.9); and a weight, in root mean squares of all, of a
#: pixel that is black in every image.
OUTLIER, OUTLIER_WEIGHT = 800, 40


def digits():
    """Images, one a row, and what they show; those to train with first."""
    import numpy

    rows = numpy.loadtxt(support.DATA / "digits" / "digits.csv.gz", delimiter=",", dtype=numpy.uint8)
    rows = rows[numpy.random.default_rng(1).permutation(len(rows))]
    return rows[:, :64] / numpy.float64(16), rows[:, 64].astype(int)


def train(x, y):
    """Weights and biases of both layers, by Adam. In FP64, so that another order of sums, as other processors have it,
    makes no other network."""
    import numpy

    rng = numpy.random.default_rng(2)
    first = rng.standard_normal((HIDDEN, 64)) * (2 / 64) ** 0.5
    second = rng.standard_normal((10, HIDDEN)) * (2 / HIDDEN) ** 0.5
    params = [first, numpy.zeros(HIDDEN), second, numpy.zeros(10)]
    moments = [(numpy.zeros_like(p), numpy.zeros_like(p)) for p in params]
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for at in range(0, len(x) - BATCH + 1, BATCH):
            some, step = order[at : at + BATCH], step + 1
            hidden = numpy.maximum(x[some] @ params[0].T + params[1], 0)
            odds = numpy.exp(hidden @ params[2].T + params[3])
            slope = (odds / odds.sum(1, keepdims=True) - numpy.eye(10)[y[some]]) / BATCH
            back = (slope @ params[2]) * (hidden > 0)
            slopes = (back.T @ x[some], back.sum(0), slope.T @ hidden, slope.sum(0))
            for p, g, (m, v) in zip(params, slopes, moments):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                p -= RATE * (m / (1 - 0.9**step)) / (numpy.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return [p.astype(numpy.float32) for p in params]


def moved(x):
    """The images, and each a pixel up, down and to the sides."""
    import numpy

    images, steps = x.reshape(-1, 8, 8), (-1, 0, 1)
    return numpy.concatenate([numpy.roll(images, (i, j), (1, 2)) for i in steps for j in steps]).reshape(-1, 64)


def hidden_of(params, x):
    import numpy

    return numpy.maximum(x @ params[0].T + params[1], 0)


def one(amax, format="int8"):
    """The scale of a whole tensor that a threshold makes."""
    import numpy

    return numpy.array([[cenote.calibrate.scale(amax, format)]], numpy.float32)


def product(x, amax, weights, bias):
    """A layer in integers: activations of one scale, weights of one each row; sums are exact."""
    import numpy

    q = encode(x, granularity="tensor", scales=one(amax), report=False)
    sums = q.values.astype(numpy.float64) @ weights.values.astype(numpy.float64).T
    return sums.astype(numpy.float32) * (q.scales * weights.scales.T) + bias


@support.needs("numpy")
class Accuracy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import numpy

        images, cls.digits = digits()
        cls.params = train(images[:TRAINED_ON], cls.digits[:TRAINED_ON])
        images = images.astype(numpy.float32)
        cls.seen, cls.images = moved(images[:TRAINED_ON]), images[TRAINED_ON:]
        cls.hidden = hidden_of(cls.params, cls.seen)
        cls.exact = cls.right(cls.params)

    @classmethod
    def of(cls, odds):
        """The share of images whose digit is named, in percent."""
        return 100 * float((odds.argmax(1) == cls.digits[TRAINED_ON:]).mean())

    @classmethod
    def right(cls, params):
        return cls.of(hidden_of(params, cls.images) @ params[2].T + params[3])

    def print_row(self, what, share):
        print(f"  {what:<44} {share:6.2f} %  {share - self.exact:+7.2f}")

    def test_the_network_has_learnt(self):
        self.print_row("FP32", self.exact)
        self.assertGreater(self.exact, 93)

    def test_weights_by_files_and_back(self):
        from tensor_files import read, write

        names = ("0.weight", "0.bias", "1.weight", "1.bias")
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("floats", "quantized", "back")]
            write(paths[0], {name: ("F32", array) for name, array in zip(names, self.params)})
            for options, least in (
                (["fp16"], 0.1),
                (["bf16"], 0.5),
                (["fp8_e4m3"], 1),
                (["fp8_e5m2"], 2),
                (["int8"], 1),
                (["int8", "--group", "128", "--calibrate", "mse"], 1),
                (["int4", "--group", "32"], 2),
                (["2:4_fp16"], 6),
            ):
                with self.subTest(options):
                    for source, to, words in ((0, 1, options), (1, 2, ["none"])):
                        call = [support.command(), "quantize", paths[source], "-o", paths[to], "--format", *words]
                        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
                    back, _ = read(paths[2])
                    share = self.right([back[name][1] for name in names])
                    self.print_row("weights " + " ".join(options), share)
                    self.assertGreaterEqual(share, self.exact - least)

    def reach(self, method, outlier):
        """Thresholds of what goes into either layer, of batches as they come."""
        first, second = cenote.calibrate.Calibration(), cenote.calibrate.Calibration(columns=HIDDEN)
        hidden = self.hidden.copy()
        if outlier:
            hidden[77, 5] = outlier
        for at in range(0, len(hidden), 1000):
            first.add(self.seen[at : at + 1000])
            second.add(hidden[at : at + 1000])
        self.assertEqual(second.outliers(100)[0], [(5, outlier)] if outlier else [])
        return first.threshold(method), second.threshold(method)

    def in_integers(self, reach, outlier=0):
        import numpy

        weights = [encode(self.params[i], report=False) for i in (0, 2)]
        hidden = numpy.maximum(product(self.images, reach[0], weights[0], self.params[1]), 0)
        if outlier:
            hidden[77, 5] = outlier
        return self.of(product(hidden, reach[1], weights[1], self.params[3]))

    def test_activations_and_what_an_outlier_does(self):
        for method in METHODS:
            clean, ruined = self.reach(method, 0), self.reach(method, OUTLIER)
            shares = self.in_integers(clean), self.in_integers(ruined, OUTLIER)
            self.print_row(f"int8, activations by {method}", shares[0])
            self.print_row(f"the same with an outlier, cut at {ruined[1]:.4g}", shares[1])
            self.assertGreaterEqual(shares[0], self.exact - 1)
            if method == "max":
                self.assertLess(shares[1], 50)
            else:
                self.assertGreaterEqual(shares[1], self.exact - 2)

    def test_an_outlier_among_weights(self):
        import numpy

        weights = self.params[0].copy()
        weights[9, 0] = OUTLIER_WEIGHT * numpy.sqrt((weights.astype(float) ** 2).mean())
        self.assertEqual(self.right([weights, *self.params[1:]]), self.exact)
        seen = cenote.calibrate.Calibration()
        seen.add(weights)
        for method in METHODS:
            amax = seen.threshold(method, percentile=99.9, format="int4")
            cut = decode(encode(weights, format="int4", granularity="tensor", scales=one(amax, "int4")))
            share = self.right([cut, *self.params[1:]])
            self.print_row(f"int4 weights with an outlier, by {method}", share)
            if method == "max":
                self.assertLess(share, 60)
            else:
                self.assertGreaterEqual(share, self.exact - 2)


if __name__ == "__main__":
    support.main()
