#!/usr/bin/env python3
"""What a small network loses in fewer bits: a convolutional one, trained on the handwritten digits of tests/data/digits.

Weights go through `cenote quantize` and back; INT8 activations through cenote.calibrate and cenote.codec, and through
torch's observers as a peer, before and after an outlier is planted. For each seed three networks are trained, each on
two thirds of the images; the accuracy is over all images, each told by the network that has not seen it. Prints
{"name", "figures"} (docs/formats/bench-results.md). Needs torch and safetensors.

usage: bench/bench_accuracy.py [SEEDS]   how many (5)
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
missing = [name for name in ("numpy", "torch", "safetensors") if not importlib.util.find_spec(name)]
if missing:
    print(f"bench_accuracy: not installed here: {', '.join(missing)}", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from cenote.calibrate import Calibration, scale  # noqa: E402
from cenote.codec import decode, encode  # noqa: E402

FOLDS, EPOCHS, BATCH, RATE = 3, 25, 64, 2e-3
LAYERS = ("conv1", "conv2", "fc1", "fc2")
METHODS = {"max": "min/max", "percentile": "percentile 99.99", "entropy": "entropy", "mse": "squared error"}
OBSERVERS = {"max": "MinMaxObserver", "mse": "HistogramObserver"}
FORMATS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int8 --group 128", "int8 --group 128 --calibrate mse",
           "int4", "int4 --group 128", "int4 --group 32", "2:4_fp16", "2:4_int8")
#: What is planted, in root mean squares: one activation of a channel that goes into conv2, of one image that is
#: calibrated with and of one that is told; a weight of fc1 whose input is 0 for each image.
OUTLIER, OUTLIER_WEIGHT, PLACE = 800, 40, (7, 5, 3, 3)


def digits():
    rows = np.loadtxt(ROOT / "tests" / "data" / "digits" / "digits.csv.gz", delimiter=",", dtype=np.uint8)
    return torch.from_numpy(rows[:, :64].astype(np.float32) / 16).view(-1, 1, 8, 8), torch.from_numpy(rows[:, 64]).long()


def fresh():
    """A network's tensors, as PyTorch's own layers start."""
    layers = {"conv1": torch.nn.Conv2d(1, 16, 3), "conv2": torch.nn.Conv2d(16, 32, 3), "fc1": torch.nn.Linear(512, 64),
              "fc2": torch.nn.Linear(64, 10)}
    return {f"{name}.{part}": p.detach().clone() for name, layer in layers.items() for part, p in layer.named_parameters()}


def linear(name, x, weight):
    """A layer without its bias."""
    if name.startswith("conv"):
        return F.conv2d(x, weight, padding=1, stride=int(name[-1]))
    return x.flatten(1) @ weight.T


def told(net, x, layer=None):
    """What the network says of images; layer(name, x, weight) is what a layer does before its bias is added."""
    for name in LAYERS:
        x = (layer or linear)(name, x, net[name + ".weight"])
        x = x + net[name + ".bias"].view(-1, *[1] * (x.dim() - 2))
        x = x if name == "fc2" else x.relu()
    return x


def train(net, x, y, epochs, masks=None):
    """Adam, in place; what masks leave out stays 0."""
    for p in net.values():
        p.requires_grad_()
    adam = torch.optim.Adam(net.values(), lr=RATE)
    for _ in range(epochs):
        for some in torch.randperm(len(x)).split(BATCH):
            adam.zero_grad()
            F.cross_entropy(told(net, x[some]), y[some]).backward()
            adam.step()
            for name, mask in (masks or {}).items():
                net[name].data *= mask
    for p in net.values():
        p.requires_grad_(False)
    return net


def through_files(net, options):
    """The network after `cenote quantize` and back."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.safetensors" for i in range(3)]
        save_file(net, paths[0])
        for source, to, words in ((0, 1, options.split()), (1, 2, ["none"])):
            subprocess.run([ROOT / "build" / "cenote", "quantize", paths[source], "-o", paths[to], "--format", *words],
                           check=True, stdout=subprocess.DEVNULL)
        return load_file(paths[2])


def inputs(net, x, outlier):
    """What goes into each layer, with an outlier of so many root mean squares."""
    seen = {}

    def note(name, x, weight):
        seen[name] = planted(name, x, outlier)
        return linear(name, seen[name], weight)

    told(net, x, note)
    return seen


def planted(name, x, outlier):
    if name == "conv2" and outlier:
        x = x.clone()
        x[PLACE] = outlier * x.square().mean().sqrt()
    return x


def one(amax, format="int8"):
    return torch.tensor([[scale(amax, format)]])


def reach(seen, method):
    """The scale of each layer's activations."""
    scales = {}
    for name, x in seen.items():
        calibration = Calibration()
        for some in x.flatten(1).split(256):
            calibration.add(some)
        scales[name] = one(calibration.threshold(method))
    return scales


def observed(seen, kind):
    """The same by one of torch's observers."""
    from torch.ao import quantization
    scales = {}
    for name, x in seen.items():
        observer = getattr(quantization, kind)(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
        for some in x.flatten(1).split(256):
            observer(some)
        scales[name] = observer.calculate_qparams()[0].view(1, 1)
    return scales


def in_integers(net, x, scales, outlier):
    """The network with INT8 weights, a scale a row, and INT8 activations. Floats hold the integers and their sums,
    which are below 2^24, exactly."""

    def layer(name, x, weight):
        x = planted(name, x, outlier)
        w = encode(weight.flatten(1))
        q = encode(x.flatten(1), granularity="tensor", scales=scales[name], report=False)
        sums = linear(name, q.values.float().view(x.shape), w.values.float().view(weight.shape))
        return sums * (w.scales * scales[name]).view(-1, *[1] * (sums.dim() - 2))

    return told(net, x, layer)


def activations(net, known, asked):
    """{what: what was told}, by method and observer."""
    found = {}
    for outlier in (0, OUTLIER):
        seen = inputs(net, known, outlier)
        what = "INT8 weights and activations, an outlier in these" if outlier else "INT8 weights and activations"
        found[what, "FP32"] = told(net, asked, lambda name, x, w, o=outlier: linear(name, planted(name, x, o), w))
        for method, text in METHODS.items():
            found[f"{what}, {text}", None] = in_integers(net, asked, reach(seen, method), outlier)
        for method, kind in OBSERVERS.items():
            scales = observed(seen, kind)
            found[f"{what}, {METHODS[method]}", f"torch's {kind}"] = in_integers(net, asked, scales, outlier)
    return found


def outlier_weight(net, known, asked):
    """The same of fc1's weights in INT4 with one scale, one of which is an outlier."""
    seen = inputs(net, torch.cat([known, asked]), 0)["fc1"].flatten(1)
    silent = int((seen.abs().sum(0) == 0).nonzero()[0])
    weight = net["fc1.weight"].clone()
    weight[9, silent] = OUTLIER_WEIGHT * weight.square().mean().sqrt()
    calibration, found = Calibration(), {}
    calibration.add(weight)
    what = "INT4 weights of fc1 with one scale, an outlier among them"
    found[what, "FP32"] = told({**net, "fc1.weight": weight}, asked)
    for method, text in METHODS.items():
        amax = calibration.threshold(method, format="int4")
        cut = decode(encode(weight, format="int4", granularity="tensor", scales=one(amax, "int4")))
        found[f"{what}, {text}", None] = told({**net, "fc1.weight": cut}, asked)
    return found


def fine_tuned(net, known, digits_of, asked):
    """2:4 of a network that was pruned so, and trained on."""
    pruned = through_files(net, "2:4_fp16")
    masks = {name: (p != 0).float() for name, p in pruned.items() if p.dim() > 1}
    train(pruned, known, digits_of, EPOCHS // 2, masks)
    return told(through_files(pruned, "2:4_fp16"), asked)


def measured(seed, x, y):
    """{what: accuracy in percent} over all images."""
    torch.manual_seed(seed)
    right = {}
    for asked in torch.randperm(len(x)).chunk(FOLDS):
        known = torch.ones(len(x), dtype=torch.bool)
        known[asked] = False
        net = train(fresh(), x[known], y[known], EPOCHS)
        found = {("FP32", None): told(net, x[asked])}
        for options in FORMATS:
            found[f"weights {options}", None] = told(through_files(net, options), x[asked])
        found["weights 2:4_fp16, trained on after pruning", None] = fine_tuned(net, x[known], y[known], x[asked])
        found.update(activations(net, x[known], x[asked]))
        found.update(outlier_weight(net, x[known], x[asked]))
        for what, odds in found.items():
            right[what] = right.get(what, 0) + int((odds.argmax(1) == y[asked]).sum())
    return {what: 100 * count / len(x) for what, count in right.items()}


def measure(samples):
    return {"median": statistics.median(samples), "spread": [min(samples), max(samples)]}


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)  # sums have one order then
    runs = [measured(seed, *digits()) for seed in range(seeds)]
    figures = []
    for what, peer in runs[0]:
        if peer or what == "FP32":
            continue
        samples = {other: measure([run[what, other] for run in runs]) for _, other in runs[0] if (what, other) in runs[0]}
        exact = next((key for key in runs[0] if key[1] == "FP32" and what.startswith(key[0] + ", ")), ("FP32", None))
        figures.append({"what": what, "unit": "%", **samples.pop(None),
                        "peer": {"name": "FP32", **measure([run[exact] for run in runs])}})
        if samples:
            figures[-1]["also"] = [{"name": name, **sample} for name, sample in samples.items()]
    about = ("Handwritten digits told rightly by a small convolutional network with its weights, or its weights and "
             "activations, in fewer bits, beside the same network in FP32: of 1,797 images, each told by one of three "
             f"networks that has not seen it; median and spread of {seeds} seeds.")
    print(json.dumps({"name": "accuracy", "about": about, "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
