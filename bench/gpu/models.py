"""The models that the workloads train and serve, in plain PyTorch: small files instead of a library's zoo, so that what
is allocated can be read off the code. Weights are random."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def initialise(model: nn.Module) -> nn.Module:
    """Weights as GPT-2's start: with PyTorch's, an embedding that is also the output layer gives a loss in the hundreds."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
    return model


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def feed_forward(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Block(nn.Module):
    """A layer of a transformer; `mix` is what follows the attention."""

    def __init__(self, width: int, heads: int, causal: bool, mix: nn.Module):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mix = Attention(width, heads, causal), mix

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mix(self.between(x))


class Gpt(nn.Module):
    """A decoder with the embedding as its output layer. `mix` makes the feed-forward part of a layer."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, longest: int, recompute: bool = False,
                 mix=feed_forward):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads, True, mix(width)) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The loss over the full vocabulary."""
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Experts(nn.Module):
    """A mixture of experts of which each token goes to two. Which two is drawn at random, some experts more often than
    others, and not learned: a learned choice would follow differences in rounding, and with it every size. How much
    each counts is learned."""

    def __init__(self, width: int, experts: int, draws: torch.Generator):
        super().__init__()
        self.draws = draws
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(feed_forward(width) for _ in range(experts))

    def draw(self, tokens: int, device: torch.device) -> Tensor:
        """Two different experts for each token."""
        count = len(self.experts)
        favour = torch.randn(count, generator=self.draws, device=device)
        uniform = torch.rand(tokens, count, generator=self.draws, device=device).clamp_(1e-6, 1 - 1e-6)
        return (favour - torch.log(-torch.log(uniform))).topk(2, dim=1).indices

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        chosen = self.draw(len(flat), flat.device)
        weights = self.router(flat).gather(1, chosen).softmax(dim=1)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        parts = flat[order // 2].split(counts)
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        pairs = done[back].view(len(flat), 2, -1)
        return (pairs * weights.unsqueeze(2)).sum(dim=1).view_as(x)


class Vit(nn.Module):
    """A vision transformer for pictures of any number of patches: a position is the sum of its row's and its column's."""

    def __init__(self, layers: int, width: int, heads: int, most: int, classes: int = 1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=16, stride=16)
        self.rows, self.columns = nn.Parameter(torch.zeros(most, 1, width)), nn.Parameter(torch.zeros(1, most, width))
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, False, feed_forward(width)) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, pictures: Tensor, targets: Tensor) -> Tensor:
        x = self.patches(pictures).permute(0, 2, 3, 1)
        x = (x + self.rows[:x.shape[1]] + self.columns[:, :x.shape[2]]).flatten(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        return F.cross_entropy(self.head(self.norm(self.blocks(x)[:, 0])), targets)


def rotate(x: Tensor, start: int) -> Tensor:
    """Rotary positions, from `start`, for (batch, heads, length, size)."""
    length, half = x.shape[2], x.shape[3] // 2
    speeds = 10000 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(start, start + length, device=x.device, dtype=torch.float32)[:, None] * speeds
    sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1)


class LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, inner: int):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        size = width // heads
        self.before, self.between = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * kv_heads * size, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, width = x.shape
        start = cache[0].shape[2] if cache else 0
        y = self.before(x)
        q = rotate(self.q(y).view(batch, length, self.heads, -1).transpose(1, 2), start)
        k, v = self.kv(y).view(batch, length, 2, self.kv_heads, -1).permute(2, 0, 3, 1, 4)
        k = rotate(k, start)
        if cache:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=start == 0, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)


class Llama(nn.Module):
    """A decoder that generates. Its cache of keys and values grows by torch.cat: every token makes new ones of all."""

    def __init__(self, layers: int, width: int, heads: int, kv_heads: int, inner: int, vocabulary: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, kv_heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)

    def forward(self, tokens: Tensor, cache: list | None) -> tuple[Tensor, list]:
        """The likeliest next token of each sequence, and the cache with these tokens in it."""
        x = self.tokens(tokens)
        grown = []
        for number, layer in enumerate(self.layers):
            # The old keys and values go as the new ones come, a layer at a time.
            x, pair = layer(x, cache[number] if cache else None)
            if cache:
                cache[number] = None
            grown.append(pair)
        logits = F.linear(self.norm(x[:, -1:]), self.tokens.weight)
        return logits.argmax(dim=-1), grown

    def generate(self, prompt: Tensor, count: int) -> Tensor:
        """The `count` tokens that follow the prompt."""
        token, cache, out = prompt, None, []
        for _ in range(count):
            token, cache = self(token, cache)
            out.append(token)
        return torch.cat(out, dim=1)
