#!/usr/bin/env python3
"""`cenote quantize` and back, in each format, on files of all types and shapes: what is read by others of what it wrote,
and whether its figures are NumPy's.

CENOTE_TEST_MODELS names further safetensors files, separated by colons: those of models."""

import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import support

FORMATS = (
    "fp16",
    "bf16",
    "fp8_e4m3",
    "fp8_e4m3 --group 128",
    "fp8_e5m2",
    "int8",
    "int8 --group 128",
    "int8 --asymmetric",
    "int8 --calibrate mse",
    "int4 --group 32",
    "int4 --group 128 --asymmetric",
    "2:4_fp16",
    "2:4_bf16",
    "2:4_int8",
)


def made():
    """Tensors of each type that is encoded, and of shapes that are not; with numbers of all sizes, among them zeros,
    subnormals, the largest, NaN and infinities."""
    import numpy as np
    from tensor_files import narrow

    rng = np.random.default_rng(5)
    tensors = {}
    for kind in ("F32", "F16", "BF16"):
        for shape in ((300, 210), (64, 64), (5, 7, 3, 3), (1, 128, 1), (129, 3), (3, 1), (1, 1), (2, 2, 2, 2, 2)):
            tensors[f"{kind}.{'x'.join(map(str, shape))}"] = (kind, narrow(kind, rng.standard_normal(shape, np.float32)))
        wild = rng.standard_normal((40, 150), np.float32) * np.exp2(rng.integers(-30, 30, (40, 150))).astype(np.float32)
        wild[3], wild[4, ::2] = 0, -0.0
        tensors[kind + ".wild"] = (kind, narrow(kind, np.clip(wild, -6e4, 6e4)))
        odd = rng.standard_normal((6, 70), np.float32)
        odd[1, 3], odd[2, 5], odd[4, 69], odd[5] = np.nan, np.inf, -np.inf, np.nan
        tensors[kind + ".odd"] = (kind, narrow(kind, odd))
        for name, shape in (("scalar", ()), ("vector", (17,)), ("one", (1,)), ("empty", (0, 4)), ("hollow", (4, 0))):
            tensors[f"{kind}.{name}"] = (kind, narrow(kind, rng.standard_normal(shape).astype(np.float32)))
    tensors["F32.tiny"] = ("F32", np.full((2, 64), 1e-41, np.float32))
    tensors["F32.largest"] = ("F32", np.full((2, 64), 3.4028235e38, np.float32) * np.float32([[1], [-1]]))
    tensors["ids"] = ("I64", np.arange(12).reshape(3, 4))
    tensors["wide"] = ("F64", rng.standard_normal((4, 5)))
    tensors["mask"] = ("BOOL", rng.random((8, 9)) < 0.5)
    return tensors


@support.needs("numpy")
class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def cenote(self, *args, status=(0,)):
        done = subprocess.run([support.command(), *map(str, args)], capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, status, done.stderr)
        return json.loads(done.stdout)["tensors"]

    def figures(self, x, y):
        """Of the elements that are finite in x, in FP64."""
        import numpy as np

        finite = np.isfinite(x)
        a, b = x[finite].astype(float), y[finite].astype(float)
        lost = bool(np.isfinite(b).sum() < b.size)
        e = np.where(np.isfinite(b), a - np.where(np.isfinite(b), b, 0), np.inf)
        noise, power = (e * e).mean() if e.size else 0, (a * a).mean() if e.size else 0
        length = math.sqrt((a * a).sum()) * math.sqrt((b * b).sum()) if not lost else 0
        with np.errstate(divide="ignore", over="ignore"):
            return {
                "max_error": np.abs(e).max(initial=0),
                "mse": noise,
                "sqnr_db": 10 * np.log10(power / noise) if noise and power else -math.inf if noise else math.inf,
                "cosine": 0 if lost else (a @ b) / length if length else float(not a.any() and not b.any()),
            }

    def agree(self, found, wanted, where):
        for key, value in wanted.items():
            got = float(found[key])  # "inf" is a text
            # Nine digits are printed.
            self.assertTrue(math.isclose(got, value, rel_tol=6e-9, abs_tol=1e-300), (where, key, got, value))

    def bound(self, says, x, scales):
        """The most that docs/codecs.md allows an element to be off, where its format makes the scale."""
        import numpy as np

        size, form = np.abs(x.astype(float)), says["format"]
        if form.startswith("int"):
            return scales.astype(float).reshape(x.shape) * (0.5 + 2.0**-13)
        if form.startswith("fp8"):
            steps, least = {"fp8_e4m3": (-4, -10), "fp8_e5m2": (-3, -17)}[form]
            small = scales.astype(float).reshape(x.shape) * 2.0**least * 1.001
            return np.maximum(size * (2.0**steps + 2.0**-20), small)
        half = {"fp16": (-11, -25), "bf16": (-8, -134)}[form]
        return np.maximum(size * 2.0 ** half[0], 2.0 ** half[1])

    def check(self, source, options):
        """Encodes a file, looks at each tensor of it, and decodes it again."""
        import numpy as np
        from tensor_files import decoded, narrow, read, wide

        out, back = self.folder / "quantized", self.folder / "back"
        rows = {row["name"]: row for row in self.cenote("quantize", source, "-o", out, "--json", "--format", *options)}
        compared = {row["name"]: row for row in self.cenote("compare", source, out, "--json", status=(0, 1))}
        self.cenote("quantize", out, "-o", back, "--json", "--format", "none")
        before, about = read(source)
        after, says_all = read(out)
        again, kept_about = read(back)
        self.assertEqual(set(rows), set(before))
        self.assertEqual((set(again), kept_about), (set(before), about))
        for name, (kind, array) in before.items():
            where, row = (name, *options), rows[name]
            self.assertEqual(again[name][0], kind, where)
            if row["kept"]:
                self.assertEqual(after[name][1].tobytes(), array.tobytes(), where)
                self.assertEqual(again[name][1].tobytes(), array.tobytes(), where)
                continue
            says = json.loads(says_all["cenote.quantized:" + name])
            self.assertEqual((says["dtype"], says["shape"]), (kind, list(array.shape)), where)
            x = wide(kind, array)
            with np.errstate(over="ignore", invalid="ignore"):
                y, scales = decoded(after, says_all, name)
            if scales is not None:
                most = np.finfo(np.float32).max
                y = np.clip(y, -most, most)
            wanted = self.figures(x, y)
            self.agree(row["error"], wanted, where)
            self.agree(compared[name]["difference"], wanted, where)
            for key, counted in (("nan", np.isnan(x)), ("infinite", np.isinf(x)), ("underflowed", (x != 0) & (y == 0)),
                                 ("overflowed", np.isfinite(x) & ~np.isfinite(y))):
                self.assertEqual(row["error"][key], counted.sum() - (key == "underflowed") * np.isnan(x)[y == 0].sum(),
                                 (where, key))
            if ":" not in says["format"] and row["threshold"] is None:
                fine = np.isfinite(x) & np.isfinite(y)
                over = np.abs(x[fine].astype(float) - y[fine]) > self.bound(says, x, scales)[fine]
                self.assertFalse(over.any(), where)
            self.assertEqual(again[name][1].tobytes(), narrow(kind, y).tobytes(), where)
        return out


class Made(Files):
    def test_each_format_and_back(self):
        from tensor_files import write

        source = self.folder / "made"
        write(source, made(), {"format": "np", "b": "\u00e9"})
        for options in FORMATS:
            with self.subTest(options):
                self.check(source, options.split())

    def test_lossless_is_the_same_file(self):
        from tensor_files import write

        source, out, back = (self.folder / name for name in ("made", "out", "back"))
        write(source, {name: pair for name, pair in made().items() if name.startswith("BF16")})
        self.cenote("quantize", source, "-o", out, "--json", "--format", "lossless_bf16")
        self.cenote("quantize", out, "-o", back, "--json", "--format", "none")
        self.assertTrue(all(row["result"] == "same" for row in self.cenote("compare", source, out, "--json")))
        self.assertTrue(all(row["result"] == "same" for row in self.cenote("compare", source, back, "--json")))


@support.needs("safetensors")
class Package(Files):
    """By safetensors' own package."""

    def test_it_reads_what_was_written(self):
        from safetensors import safe_open
        from tensor_files import read, write

        source = self.folder / "made"
        write(source, made())
        for options in FORMATS:
            out = self.folder / "quantized"
            self.cenote("quantize", source, "-o", out, "--json", "--format", *options.split())
            tensors, metadata = read(out)
            with safe_open(out, "np") as file:
                self.assertEqual((set(file.keys()), file.metadata()), (set(tensors), metadata))
                for name, (kind, array) in tensors.items():
                    part = file.get_slice(name)
                    self.assertEqual((part.get_dtype(), part.get_shape()), (kind, list(array.shape)))
                    if kind != "BF16" and not kind.startswith("F8"):
                        self.assertEqual(file.get_tensor(name).tobytes(), array.tobytes())


@support.needs("torch")
@support.needs("safetensors")
class Torch(Files):
    """Modules as PyTorch makes and saves them, tensors that are shared among them."""

    def test_modules(self):
        import torch
        from safetensors.torch import load_file, save_model

        torch.manual_seed(1)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            module = torch.nn.ModuleDict({
                "embedding": torch.nn.Embedding(100, 48),
                "head": torch.nn.Linear(48, 100, bias=False),
                "conv": torch.nn.Conv2d(3, 8, 3),
                "wide": torch.nn.ConvTranspose1d(4, 6, 5, groups=2),
                "lstm": torch.nn.LSTM(20, 12),
                "norm": torch.nn.BatchNorm2d(8),
            })
            module["head"].weight = module["embedding"].weight
            source = self.folder / "module"
            save_model(module.to(dtype), source)
            for options in FORMATS:
                with self.subTest((dtype, options)):
                    loaded = load_file(self.check(source, options.split()))
                    self.assertTrue(all(tensor.numel() for tensor in loaded.values()))


@unittest.skipUnless(os.environ.get("CENOTE_TEST_MODELS"), "CENOTE_TEST_MODELS names no files")
class Models(Files):
    def test_models(self):
        for model in os.environ["CENOTE_TEST_MODELS"].split(":"):
            for options in FORMATS:
                with self.subTest((model, options)):
                    self.check(model, options.split())


if __name__ == "__main__":
    support.main()
