"""What others read of the tensor files that cenote writes, and whether its figures are theirs."""

import contextlib
import json
import math
import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import support

TENSORS = support.DATA / "tensors"
MODEL = TENSORS / "model.safetensors"


def read(path):
    """Header and data, by the format's own words and nothing else."""
    raw = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    return json.loads(raw[8:8 + length]), raw[8 + length:], raw


def floats(kind, raw):
    """Numbers of a type, in plain Python."""
    if kind == "BF16":
        halves = struct.unpack(f"<{len(raw) // 2}H", raw)
        raw = b"".join(struct.pack("<I", half << 16) for half in halves)
    letter, size = {"F32": ("f", 4), "BF16": ("f", 4), "F16": ("e", 2), "I8": ("b", 1)}[kind]
    return struct.unpack(f"<{len(raw) // size}{letter}", raw)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def cenote(self, *args, status=0):
        done = subprocess.run([support.command(), *map(str, args)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout) if "--json" in args else done.stdout

    def quantize(self, path, *args):
        out = self.folder / "quantized.safetensors"
        return out, {t["name"]: t for t in self.cenote("quantize", path, "-o", out, "--json", *args)["tensors"]}


class Plain(Files):
    """Without any package."""

    def test_the_layout_is_the_formats(self):
        out, _ = self.quantize(MODEL, "--format", "int8", "--asymmetric")
        header, data, raw = read(out)
        self.assertEqual((len(raw) - len(data)) % 8, 0)
        header.pop("__metadata__")
        places = [t["data_offsets"] for t in header.values()]
        self.assertEqual([p[0] for p in places], [0] + [p[1] for p in places[:-1]])
        self.assertEqual(places[-1][1], len(data))
        order = ["I64", "F32", "BF16", "F16", "I8"]
        keys = [(order.index(t["dtype"]), name) for name, t in header.items()]
        self.assertEqual(keys, sorted(keys))

    def test_int8_is_decoded_as_documented(self):
        out, rows = self.quantize(MODEL, "--format", "int8")
        before, data, _ = read(MODEL)
        header, made, _ = read(out)
        for name in ("embed.weight", "layers.0.attn.weight", "layers.0.mlp.weight"):
            def tensor(head, raw, key):
                begin, end = head[key]["data_offsets"]
                return floats(head[key]["dtype"], raw[begin:end])
            x, q = tensor(before, data, name), tensor(header, made, name)
            scales = tensor(header, made, name + ".scale")
            self.assertEqual(header[name]["shape"], before[name]["shape"])
            self.assertEqual(header[name + ".scale"]["shape"], [len(scales), 1])
            says = json.loads(header["__metadata__"]["cenote.quantized:" + name])
            self.assertEqual((says["format"], says["scales"]), ("int8", "row"))
            self.assertEqual((says["dtype"], says["shape"]), (before[name]["dtype"], before[name]["shape"]))
            cols = says["cols"]
            errors = [a - b * scales[i // cols] for i, (a, b) in enumerate(zip(x, q))]
            # A product of floats is rounded by cenote, and not here.
            self.assertAlmostEqual(max(map(abs, errors)), rows[name]["error"]["max_error"], delta=2e-7 * max(x))
            self.assertTrue(all(abs(e) <= 0.50005 * scales[i // cols] for i, e in enumerate(errors)))

    def test_a_terminal_gets_a_bar_that_goes_before_a_message(self):
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        words = ["quantize", MODEL, "-o", self.folder / "q", "--format", "int4", "--budget", "sqnr=25"]
        subprocess.run([support.command(), *map(str, words)], stdout=subprocess.DEVNULL, stderr=theirs, check=True)
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # which is how a terminal ends
            while part := os.read(ours, 65536):  # a part at a time, if the machine is busy
                seen += part
        seen = seen.decode()
        self.assertIn("\r[" + "#" * 50 + "] 100 %", seen)
        self.assertRegex(seen, " {60}\rcenote quantize: warning: tensor 'embed.weight'")
        self.assertTrue(seen.endswith("\r" + " " * 60 + "\r"))

    def test_a_copy_is_the_same_file(self):
        out, rows = self.quantize(MODEL, "--exclude", "*")
        self.assertTrue(all(row["kept"] for row in rows.values()))
        self.assertEqual(out.read_bytes(), MODEL.read_bytes())


@support.needs("numpy")
class Numpy(Files):
    """By NumPy."""

    def setUp(self):
        super().setUp()
        import numpy
        self.np = numpy
        rng = numpy.random.default_rng(7)
        self.path = self.folder / "model.safetensors"
        self.tensors = {
            "w": rng.standard_normal((96, 200)).astype(numpy.float32),
            "h": (rng.standard_normal((40, 64)) * 0.05).astype(numpy.float16),
            "conv": rng.standard_normal((8, 4, 3, 3)).astype(numpy.float32),
            "bias": rng.standard_normal(96).astype(numpy.float32),
            "wide": rng.standard_normal(500) * 1e3 + 1e6,
            "odd": numpy.array([1, numpy.nan, numpy.inf, 0, -2], numpy.float32),
            "ids": numpy.arange(5),
            "flag": numpy.array([True, False]),
            "empty": numpy.zeros((0, 4), numpy.float32),
            "scalar": numpy.array(3, numpy.uint8),
            "na\"me\u00e9\n": numpy.arange(6, dtype=numpy.int16).reshape(2, 3),
        }
        self.save(self.path, self.tensors, {"format": "np"})

    def save(self, path, tensors, metadata=None):
        import tensor_files
        kinds = {self.np.dtype(form).str: kind for kind, form in tensor_files.KINDS.items()}
        kinds.update({"<u2": "U16", "|u1": "U8"})
        tensor_files.write(path, {name: (kinds[x.dtype.str], x) for name, x in tensors.items()}, metadata)

    def load(self, path):
        import tensor_files
        return {name: x for name, (_, x) in tensor_files.read(path)[0].items()}

    @support.needs("safetensors")
    def test_both_writers_write_the_same_bytes(self):
        from safetensors.numpy import save_file
        theirs, out = self.folder / "theirs", self.folder / "copy"
        save_file(self.tensors, theirs, metadata={"format": "np"})
        self.cenote("quantize", theirs, "-o", out, "--format", "none")
        self.assertEqual(out.read_bytes(), theirs.read_bytes())

    def test_statistics_are_numpys(self):
        np = self.np
        listed = self.cenote("inspect", self.path, "--stats", "--json")["tensors"]
        self.assertEqual({t["name"] for t in listed}, set(self.tensors))
        for t in listed:
            x = self.tensors[t["name"]]
            self.assertEqual(t["shape"], list(x.shape))
            x = x.astype(np.float64)
            finite, stats = x[np.isfinite(x)], t["stats"]
            self.assertEqual(stats["nan"], np.isnan(x).sum())
            self.assertEqual(stats["infinite"], np.isinf(x).sum())
            self.assertEqual(stats["zeros"], (x == 0).sum())
            wanted = {"min": finite.min, "max": finite.max, "mean": finite.mean, "std": finite.std,
                      "absmax": lambda: np.abs(finite).max()}
            for key, value in wanted.items():
                if finite.size:
                    self.assertTrue(math.isclose(stats[key], value(), rel_tol=1e-8, abs_tol=1e-12), (t["name"], key))
                else:
                    self.assertIsNone(stats[key])

    def figures(self, x, y):
        np = self.np
        x, y = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
        e = x - y
        return {"max_error": np.abs(e).max(), "mse": (e * e).mean(),
                "sqnr_db": 10 * np.log10((x * x).sum() / (e * e).sum()),
                "cosine": x @ y / (np.linalg.norm(x) * np.linalg.norm(y))}

    def agree(self, found, wanted):
        for key, value in wanted.items():
            self.assertTrue(math.isclose(found[key], value, rel_tol=1e-7, abs_tol=1e-9), (key, found[key], value))

    def test_comparisons_are_numpys(self):
        np, other = self.np, self.folder / "other"
        changed = dict(self.tensors)
        changed["w"] = changed["w"] + np.float32(0.01) * np.sin(changed["w"])
        changed["h"] = changed["h"].astype(np.float32) * np.float32(1.01)
        changed["wide"] = changed["wide"] + 1e-3
        del changed["bias"]
        self.save(other, changed)
        result = self.cenote("compare", self.path, other, "--json", status=1)
        rows = {t["name"]: t for t in result["tensors"]}
        for name in ("w", "h", "wide"):
            self.agree(rows[name]["difference"], self.figures(self.tensors[name], changed[name]))
        self.assertEqual(rows["bias"]["result"], "only in A")
        self.assertEqual(rows["odd"]["result"], "same")

    def test_errors_are_numpys(self):
        np = self.np
        for options in (["int8"], ["int8", "--group", "64"], ["int8", "--asymmetric"], ["fp16"],
                        ["int4", "--group", "32"]):
            out, rows = self.quantize(self.path, "--format", *options)
            made = self.load(out)
            header, _, _ = read(out)
            for name in ("w", "conv"):
                says = json.loads(header["__metadata__"]["cenote.quantized:" + name])
                y = self.decode(made, name, says)
                self.agree(rows[name]["error"], self.figures(self.tensors[name], y))
                there = self.cenote("compare", self.path, out, "--json", status=1)
                found = {t["name"]: t for t in there["tensors"]}[name]["difference"]
                self.agree(found, self.figures(self.tensors[name], y))
            np.testing.assert_array_equal(made["bias"], self.tensors["bias"])
            self.assertEqual(sum(name.endswith(".scale") for name in made), 0 if "fp16" in options else 3)

    def decode(self, made, name, says):
        """As docs/formats/quantized.md says, in NumPy's floats of 32 bits."""
        np, q = self.np, made[name]
        rows, cols = says["rows"], says["cols"]
        if says["format"] == "int4":
            low, high = (q.astype(np.int8) << 4) >> 4, q.view(np.int8) >> 4
            q = np.stack([low, high], -1).reshape(rows, -1)[:, :cols]
        q = q.reshape(rows, cols).astype(np.float32)
        if says["scales"] == "none":
            return q
        width = says.get("group", cols)
        scale = np.repeat(made[name + ".scale"], width, 1)[:, :cols]
        if says.get("asymmetric"):
            q = q - np.repeat(made[name + ".zero_point"], width, 1)[:, :cols].astype(np.float32)
        return q * scale


if __name__ == "__main__":
    support.main()
