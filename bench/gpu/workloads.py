"""Seven programs whose sizes vary from step to step: five that train, one that serves and one of several streams.

The sizes of step i follow from the seed and i alone, so that every allocator is asked for the same. On the CPU models
and shapes are small: that checks the scripts and measures nothing.
"""

from __future__ import annotations

import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import FURTHER, WORKLOADS
from models import Experts, Gpt, Llama, Vit, initialise


class Workload:
    """One program. `batch` scales it: what a step needs grows with it."""

    steps = 40  # those measured
    warm_up = 8
    batch = 8
    small_batch = 2

    def __init__(self, device: str, seed: int, batch: int | None = None):
        self.device, self.seed, self.small = torch.device(device), seed, device == "cpu"
        self.batch = batch or (self.small_batch if self.small else self.batch)
        self.data = torch.Generator(self.device)
        torch.manual_seed(seed)
        with self.device:
            self.build()

    def build(self) -> None:
        raise NotImplementedError

    def run(self, sizes: random.Random) -> Tensor:
        """A step of these sizes; what it gives is compared between allocators."""
        raise NotImplementedError

    def step(self, number: int) -> Tensor:
        self.data.manual_seed(self.seed * 1000003 + number)
        return self.run(random.Random(f"{self.seed}/{number}"))

    def drop(self) -> None:
        """Lets go of what a step that failed left behind."""

    def refine(self) -> None:
        """Makes what the batch counts smaller, where a few of them fill a GPU, so that the largest batch says more."""

    def pick(self, full, small):
        return small if self.small else full

    def integers(self, limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=self.data, device=self.device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.data, device=self.device)


class Training(Workload):
    """A step is forward, backward and the optimiser's, in bfloat16 where autocast has it so."""

    model: nn.Module

    def optimise(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def loss(self, sizes: random.Random) -> Tensor:
        raise NotImplementedError

    def run(self, sizes: random.Random) -> Tensor:
        if not hasattr(self, "optimiser"):
            self.optimiser = self.optimise()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.loss(sizes)
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def drop(self) -> None:
        """The optimiser goes too: one that ran out of memory in its first step has half of its state."""
        self.model.zero_grad(set_to_none=True)
        vars(self).pop("optimiser", None)


class GptVarlen(Training):
    """350 M parameters; each step has sequences of another length."""

    recompute = False

    def build(self) -> None:
        layers, width, heads, self.vocabulary, self.longest, self.grain = self.pick(
            (24, 1024, 16, 50304, 2048, 64), (2, 64, 4, 512, 64, 8))
        self.model = initialise(Gpt(layers, width, heads, self.vocabulary, self.longest, self.recompute))

    def refine(self) -> None:
        self.longest, self.grain = self.longest // 4, self.grain // 4

    def loss(self, sizes: random.Random) -> Tensor:
        length = sizes.randrange(self.longest // 4, self.longest + 1, self.grain)
        tokens = self.integers(self.vocabulary, self.batch, length + 1)
        return self.model(tokens[:, :-1], tokens[:, 1:])


class GptCheckpointed(GptVarlen):
    """The same with activations computed again in the backward pass, and twice the batch."""

    recompute = True
    batch, steps, warm_up = 16, 20, 5


class Moe(GptVarlen):
    """12 layers of 8 experts, two for a token: each expert gets another number of tokens each time."""

    def build(self) -> None:
        layers, width, heads, self.vocabulary, self.longest, self.grain, experts = self.pick(
            (12, 1024, 16, 32768, 2048, 64, 8), (2, 64, 4, 512, 64, 8, 4))
        self.model = initialise(Gpt(layers, width, heads, self.vocabulary, self.longest,
                                    mix=lambda width: Experts(width, experts, self.data)))


class Resnet50(Training):
    """Pictures of another size each step."""

    batch, steps, warm_up = 128, 80, 16
    search = False

    def build(self) -> None:
        from torchvision.models import resnet50

        torch.backends.cudnn.benchmark = self.search
        self.model = resnet50(weights=None).to(memory_format=torch.channels_last)

    def optimise(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def loss(self, sizes: random.Random) -> Tensor:
        side = sizes.randrange(*self.pick((160, 321, 32), (32, 65, 32)))
        pictures = self.normal(self.batch, 3, side, side).to(memory_format=torch.channels_last)
        return F.cross_entropy(self.model(pictures), self.integers(1000, self.batch))


class Resnet50Benchmark(Resnet50):
    """The same where cuDNN tries its algorithms, with their workspaces, at each new size."""

    search = True


class VitLarge(Training):
    """ViT-L/16: pictures of any height and width, and another number of them each step."""

    batch = 64

    def build(self) -> None:
        layers, width, heads, self.most = self.pick((24, 1024, 16, 24), (2, 64, 4, 4))
        self.model = initialise(Vit(layers, width, heads, self.most))

    def loss(self, sizes: random.Random) -> Tensor:
        count = sizes.randint(max(1, self.batch // 2), self.batch)
        height, width = (16 * sizes.randint(max(1, self.most // 2), self.most) for _ in range(2))
        return self.model(self.normal(count, 3, height, width), self.integers(1000, count))


class LlamaGenerate(Workload):
    """1.2 G parameters in bfloat16; a step is a request for several prompts of one length, each with its own cache."""

    batch, steps, warm_up = 48, 8, 3

    def build(self) -> None:
        layers, width, heads, kv_heads, inner, self.vocabulary = self.pick(
            (16, 2048, 32, 8, 8192, 128256), (2, 64, 4, 2, 128, 512))
        self.prompts, self.answers = self.pick(((128, 3072), (16, 48)), ((4, 16), (2, 6)))
        self.model = initialise(Llama(layers, width, heads, kv_heads, inner, self.vocabulary)).to(torch.bfloat16)

    @torch.no_grad()
    def run(self, sizes: random.Random) -> Tensor:
        count = sizes.randint(max(1, self.batch // 12), self.batch)
        prompt = self.integers(self.vocabulary, count, sizes.randint(*self.prompts))
        return self.model.generate(prompt, sizes.randint(*self.answers)).float().mean()


class Streams(Workload):
    """Four streams, each with a sequence of its own of matrix products and convolutions, of random sizes. Each keeps
    some results for a while and hands others to the next stream, which the allocator learns from record_stream()."""

    batch = 32768  # rows of a matrix at most
    small_batch = 64
    count, tasks, kept = 4, 14, 24

    def build(self) -> None:
        self.width, self.inner, self.channels, self.side = self.pick((4096, (4096, 8192, 11008), 64, 56),
                                                                     (32, (32, 64, 96), 4, 8))
        half = torch.float32 if self.small else torch.bfloat16
        self.up = [torch.randn(self.width, n, dtype=half) * 0.02 for n in self.inner]
        self.down = [torch.randn(n, self.width, dtype=half) * 0.02 for n in self.inner]
        self.filter = torch.randn(self.channels, self.channels, 3, 3, dtype=half) * 0.05
        self.type = half
        self.streams = [None if self.small else torch.cuda.Stream() for _ in range(self.count)]
        self.drop()

    def drop(self) -> None:
        self.live = [deque() for _ in range(self.count)]
        self.inbox = [deque() for _ in range(self.count)]

    def task(self, sizes: random.Random) -> Tensor:
        if sizes.random() < 0.7:
            which = sizes.randrange(len(self.up))
            x = self.normal(sizes.randint(max(1, self.batch // 64), self.batch), self.width).to(self.type)
            return F.gelu(x @ self.up[which]) @ self.down[which]
        # As many numbers as such a matrix has, as pictures.
        most = max(1, self.batch * self.width // (self.channels * self.side ** 2))
        x = self.normal(sizes.randint(max(1, most // 64), most), self.channels, self.side, self.side).to(self.type)
        return F.relu(F.conv2d(x, self.filter, padding=1)).flatten(1)

    def receive(self, number: int) -> Tensor | None:
        """What another stream handed over, for use on this one, if there is something."""
        if not self.inbox[number]:
            return None
        tensor, ready = self.inbox[number].popleft()
        if ready:
            self.streams[number].wait_event(ready)
            tensor.record_stream(self.streams[number])
        return tensor

    def hand_over(self, number: int, tensor: Tensor) -> None:
        ready = self.streams[number].record_event() if self.streams[number] else None
        self.inbox[(number + 1) % self.count].append((tensor, ready))

    def age(self, number: int, place: float | None) -> None:
        """One of those kept goes, if a place is given, and the oldest where there are too many."""
        live = self.live[number]
        if place is not None and live:
            del live[int(place * len(live))]
        if len(live) > self.kept:
            live.popleft()

    @torch.no_grad()
    def run(self, sizes: random.Random) -> Tensor:
        sums: list[list[Tensor]] = [[] for _ in range(self.count)]
        for task in range(self.tasks * self.count):
            number = task % self.count
            with torch.cuda.stream(self.streams[number]):
                result, other = self.task(sizes), self.receive(number)
                sums[number].append(result.mean(dtype=torch.float32))
                if other is not None:
                    sums[number].append((other * 2).mean(dtype=torch.float32))
                if sizes.random() < 0.4:
                    self.hand_over(number, result)
                else:
                    self.live[number].append(result)
                self.age(number, sizes.choice((None, None, sizes.random())))
        for stream in self.streams:
            if stream:
                torch.cuda.current_stream().wait_stream(stream)
        return torch.stack([part for parts in sums for part in parts]).double().sum()


TABLE: dict[str, type[Workload]] = {
    "gpt-varlen": GptVarlen,
    "gpt-checkpointed": GptCheckpointed,
    "resnet50": Resnet50,
    "llama-generate": LlamaGenerate,
    "moe": Moe,
    "vit": VitLarge,
    "streams": Streams,
    "resnet50-benchmark": Resnet50Benchmark,
}
assert set(TABLE) == set(WORKLOADS + FURTHER)
