"""Four agents train one small GPT on bytes, each with text in one language, by AdamW inside the correction of MILE."""

from pathlib import Path

import torch
from torch import nn

import mile.torch

CONTEXT = 32


class Block(nn.Module):
    """Attention to what came before, then a small network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        normal = self.before(x)
        x = x + self.attention(normal, normal, normal, attn_mask=mask, need_weights=False)[0]
        return x + self.network(self.between(x))


class Gpt(nn.Module):
    """A transformer that says which byte comes next."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, 2) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.bytes(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))


def pieces(agent: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The text of an agent, in pieces, and the same one byte further on. An agent reads its own file only."""
    text = Path(__file__).with_name(f"text-{agent}.txt").read_bytes()
    codes = torch.tensor(list(text))
    windows = codes.unfold(0, CONTEXT + 1, 4)
    return windows[:, :-1], windows[:, 1:]


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of all bytes."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def problem(agents: int, agent: int | None = None, width: int = 32, layers: int = 1) -> mile.torch.Problem:
    """The objectives: called by each agent with its number, and for all agents by `mile run`."""
    return mile.torch.Problem(Gpt(width, layers), loss, pieces, agents=agents, agent=agent, batch=8)
