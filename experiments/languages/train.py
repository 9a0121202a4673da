"""A small GPT on agents with one language each: trains one setting, or all settings of the plan.

    python3 train.py CORPUS OUT --setting mile-step-adamw --step-size 0.002 --seed 0
    python3 train.py CORPUS OUT --plan plan.toml --processes 6

CORPUS is a folder with a text file for each agent (`corpus.sh` makes one of ten languages). Every run appends a line to OUT/results.jsonl: bits per byte of
held-out text of *all* languages, as the mean over the agents' own models and for the average model, right after an exchange.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import mile
import mile.torch

CONTEXT = 128


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // self.heads)
        mixed = torch.einsum("bhqk,bkhd->bqhd", (scores + mask).softmax(-1), v)
        x = x + self.out(mixed.reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Bytes in, scores of the next byte out."""

    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.embed, self.position_embed = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else 0.02
                nn.init.normal_(parameter, std=scale)
        future = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)
        self.register_buffer("mask", future, persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.position_embed.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def loss(model: Any, batch: tuple[torch.Tensor]) -> torch.Tensor:
    (windows,) = batch
    scores = model(windows[:, :-1].long())
    return F.cross_entropy(scores.reshape(-1, 256), windows[:, 1:].reshape(-1).long())


def corpus(folder: pathlib.Path, held_out: int = 64) -> tuple[list[torch.Tensor], torch.Tensor]:
    """For each text file windows of its first nine tenths, and windows of the last tenths of all files."""
    training, test = [], []
    for path in sorted(folder.glob("*.txt")):
        data = torch.from_numpy(np.frombuffer(path.read_bytes(), dtype=np.uint8).copy())
        cut = len(data) * 9 // 10
        training.append(data[:cut].unfold(0, CONTEXT + 1, CONTEXT // 4).contiguous())
        rest = data[cut:].unfold(0, CONTEXT + 1, CONTEXT + 1)
        test.append(rest[torch.linspace(0, len(rest) - 1, held_out).long()])
    return training, torch.cat(test)


def algorithm(setting: dict[str, Any], step_size: float) -> dict[str, Any]:
    named = {"optimizer": setting["optimizer"], "clip": 1.0, "local_steps": setting["local_steps"], "step_size": step_size}
    schedule = {"kind": "cosine", "warmup": max(1, setting["rounds"] // 20), "floor": 0.1}
    own = {key: setting[key] for key in ("xi", "gamma", "correction", "outer", "share_moments") if key in setting}
    return mile.method(setting["method"], schedule=schedule, **named, **own)


def train(setting: dict[str, Any], step_size: float, seed: int, folder: pathlib.Path) -> dict[str, Any]:
    torch.manual_seed(1000 + seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    training, test = corpus(folder)
    model = GPT(setting.get("layers", 4), setting.get("width", 128))
    problem = mile.torch.Problem(
        model, closure=loss, data=[(one,) for one in training], test=(test,), batch=8, device=device, gradient="auto", eval_rows="off", **setting.get("problem", {})
    )
    begun = time.time()
    with tempfile.TemporaryDirectory() as out:
        run = mile.run(
            problem=problem, network=setting["network"], algorithms=[algorithm(setting, step_size)],
            rounds=setting["rounds"], eval_every=setting["rounds"], seeds=[seed], out=f"{out}/run",
        )
        last = run.rows[-1]
    bits = {key: last.get(key) and last[key] / math.log(2) for key in ("test_loss", "local_test_loss", "worst_test_loss")}
    return {"step_size": step_size, "seed": seed, **bits, "bytes_sent": last["bytes_sent"], "consensus_error": last["consensus_error"], "seconds": round(time.time() - begun, 1)}


def settings(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of a plan by name, each completed by the common ones."""
    return {name: {**plan["common"], **own} for name, own in plan["setting"].items()}


def results(out: pathlib.Path) -> list[dict[str, Any]]:
    """What has been found so far."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_plan(options: argparse.Namespace, plan: dict[str, Any]) -> None:
    """Every setting with every step size and the first seed; then the best step size of each with the other seeds."""
    first, *others = plan["seeds"]
    jobs = [(name, step_size, first) for name in settings(plan) for step_size in plan["step_sizes"][settings(plan)[name]["optimizer"]]]
    work(options, jobs)
    done = results(options.out)
    finished = [one for one in done if one.get("local_test_loss") is not None and one["seed"] == first]
    best = {}
    for one in finished:
        if one["setting"] not in best or one["local_test_loss"] < best[one["setting"]]["local_test_loss"]:
            best[one["setting"]] = one
    work(options, [(name, one["step_size"], seed) for seed in others for name, one in best.items()])


def work(options: argparse.Namespace, jobs: list[tuple[str, float, int]]) -> None:
    """Runs jobs in several processes; those that have a result are left out."""
    known = {(one["setting"], one["step_size"], one["seed"]) for one in results(options.out)}
    left = [job for job in jobs if job not in known]
    running: list[subprocess.Popen[bytes]] = []
    while left or running:
        running = [one for one in running if one.poll() is None]
        while left and len(running) < options.processes and time.time() < options.until:
            name, step_size, seed = left.pop(0)
            arguments = ["--plan", options.plan, "--setting", name, "--step-size", str(step_size), "--seed", str(seed)]
            running.append(subprocess.Popen([sys.executable, __file__, options.corpus, options.out, *arguments]))
        if left and time.time() >= options.until and not running:
            print(f"{len(left)} jobs are left: start again to go on", flush=True)
            return
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--plan", type=pathlib.Path, default=pathlib.Path(__file__).with_name("plan.toml"))
    parser.add_argument("--setting", help="only this one")
    parser.add_argument("--step-size", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="no job is begun after this time")
    options = parser.parse_args()
    options.until = time.time() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    plan = tomllib.loads(options.plan.read_text())
    if options.setting is None:
        return run_plan(options, plan)
    found = {"setting": options.setting, **train(settings(plan)[options.setting], options.step_size, options.seed, options.corpus)}
    with open(options.out / "results.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
