#!/usr/bin/env python3
"""How much of the time of a run its evaluations take: a small GPT on agents with different text.

    python bench/python/evaluation.py [--rounds N] [--runs N] [--device cuda]        with PyTorch and the package mile, built for release, installed

Four agents on a ring, AdamW in MILE, ten local steps; a GPT of two layers, and 4,000 samples of 64 bytes for each agent. A row for what is evaluated by default, for all samples (`eval_rows="all"`) and for the losses of mini-batches alone (`"off"`). Seconds between the first record and the
last one, of which `wall_s` are those without evaluations; medians of runs, which alternate. The promise is a fifth of the work, counted in rows before the first step; what it is in time is measured here.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import mile
import mile.torch
import torch
from torch import nn

AGENTS, SAMPLES, LENGTH, WIDTH = 4, 4000, 64, 96
MODES = {"default": None, "all": "all", "off": "off"}


class Gpt(nn.Module):
    """Two layers of attention over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(256, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=tokens.device)
        return self.head(self.layers(self.embedding(tokens) + self.place, mask=mask, is_causal=True))


def text(agent: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes that depend on the one before, differently for each agent."""
    generator = torch.Generator().manual_seed(agent)
    steps = torch.randint(0, 5, (samples, LENGTH + 1), generator=generator) + agent
    tokens = steps.cumsum(1) % 256
    return tokens[:, :-1], tokens[:, 1:]


def next_byte(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def measure(mode: str, rounds: int, device: str) -> tuple[float, float]:
    """Seconds between the first and the last record, and those of them that are no evaluation."""
    torch.manual_seed(0)
    data = [text(agent, SAMPLES) for agent in range(AGENTS)]
    problem = mile.torch.Problem(Gpt(), next_byte, data, batch=16, test=text(AGENTS, 1000), eval_rows=MODES[mode], device=device, version="1")
    clocks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run = mile.run(
            problem=problem, network="ring", algorithms=[mile.method("mile", step_size=1e-3, local_steps=10, optimizer="adamw")], rounds=rounds,
            out=Path(folder) / "run", on_record=lambda record: clocks.append(time.perf_counter()),
        )  # fmt: skip
        return clocks[-1] - clocks[0], run.rows[-1]["wall_s"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=100)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--device", default="cpu")
    given = arguments.parse_args()
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for _ in range(given.runs):
        for mode in MODES:
            found[mode].append(measure(mode, given.rounds, given.device))
    Path("evaluation.json").write_text(json.dumps(found))
    print("| evaluated | seconds | without evaluations | share of evaluations |\n|---|---|---|---|")
    for mode, times in found.items():
        whole, without = (statistics.median(column) for column in zip(*times, strict=True))
        share = statistics.median(1 - own / all_of for all_of, own in times)
        print(f"| {mode} | {whole:.3g} | {without:.3g} | {share:.1%} |")


if __name__ == "__main__":
    main()
