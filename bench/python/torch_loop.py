#!/usr/bin/env python3
"""DSGD on 8 agents: the host of mile.torch beside a loop that is written by hand, on the same model, data and batches.

    python bench/python/torch_loop.py [--device cuda] [--steps N]        with the package mile, built for release, installed

The loop by hand has a model and an optimiser (SGD) for each agent, and mixes parameters as one matrix product W X, with X the agents' parameters, row by row. It is as plain as one writes it, and its batches are
indices drawn beforehand. Times are of steps only, after steps that are not counted; the device is waited for at the end. With `--cpu-time` they are CPU times of all threads, for machines that others use. Runs alternate, and so does which of the two is first; times are medians, and the ratio is the median of those
of neighbouring runs, so that what else the machine does counts for both.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mile
import mile.torch
import torch
from torch import nn

AGENTS, ROWS = 8, 64
Clock = Callable[[], float]


def cnn() -> nn.Module:
    """Two convolutions and two dense layers, for pictures of 28 x 28: 105,866 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 58), nn.ReLU(), nn.Linear(58, 10),
    )  # fmt: skip


def with_norms() -> nn.Module:
    """The same with batch norms, which cannot be mapped over agents."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 58), nn.ReLU(), nn.Linear(58, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    """Three dense layers: 535,818 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def data(device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(ROWS, 1, 28, 28, generator=generator).to(device), torch.randint(0, 10, (ROWS,), generator=generator).to(device)) for _ in range(AGENTS)]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def by_hand(model: nn.Module, shards: list, device: torch.device, batch: int, steps: int, warm: int, clock: Clock) -> float:
    """Seconds of a step."""
    models = [copy.deepcopy(model).to(device).train() for _ in range(AGENTS)]
    optimisers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in models]
    criterion = nn.CrossEntropyLoss()
    weights = torch.tensor(mile.graph("ring", agents=AGENTS).matrix, dtype=torch.float32, device=device)
    generator = torch.Generator().manual_seed(1)
    indices = torch.randint(0, ROWS, (steps + warm, AGENTS, batch), generator=generator).to(device)
    for step in range(steps + warm):
        if step == warm:
            wait(device)
            begun = clock()
        for agent, (one, optimiser) in enumerate(zip(models, optimisers)):
            inputs, target = (tensor[indices[step, agent]] for tensor in shards[agent])
            optimiser.zero_grad()
            criterion(one(inputs), target).backward()
            optimiser.step()
        with torch.no_grad():
            rows = torch.stack([nn.utils.parameters_to_vector(one.parameters()) for one in models])
            for one, row in zip(models, weights @ rows):
                nn.utils.vector_to_parameters(row, one.parameters())
    wait(device)
    return (clock() - begun) / steps


def with_mile(model: nn.Module, shards: list, device: torch.device, batch: int, steps: int, gradient: str, clock: Clock) -> float:
    """Seconds of a step, between two records. The loop by hand records nothing, so these are far apart, and an evaluation reads one sample of each agent."""
    problem = mile.torch.Problem(model, nn.CrossEntropyLoss(), shards, batch=batch, device=device, gradient=gradient, eval_rows=1)
    times: dict[object, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        algorithm = mile.method("dsgd", step_size=0.05)
        mile.run(
            problem=problem, network="ring", algorithms=[algorithm], rounds=2 * steps, eval_every=steps, eval_agents=1,
            on_record=lambda record: times.update({record["round"]: clock()}), out=Path(folder) / "run", progress=False,
        )  # fmt: skip
        return (times[2 * steps] - times[steps]) / steps


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--models", default="cnn,with_norms,mlp")
    arguments.add_argument("--gradients", default="loop,vmap")
    arguments.add_argument("--cpu-time", action="store_true")
    given = arguments.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    device = torch.device(given.device)
    shards, raw = data(device), {}
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(device) if device.type == 'cuda' else f'{torch.get_num_threads()} threads'}")
    print("| model | batch | gradient | by hand, ms | mile, ms | mile / by hand |\n|---|---|---|---|---|---|")
    for name in given.models.split(","):
        for batch in (32,):
            for gradient in given.gradients.split(","):
                if gradient == "vmap" and name == "with_norms":
                    continue
                torch.manual_seed(0)
                model = globals()[name]()
                times: dict[str, list[float]] = {"hand": [], "mile": []}
                measured = {
                    "hand": lambda: by_hand(model, shards, device, batch, given.steps, 5, clock),
                    "mile": lambda: with_mile(model, shards, device, batch, given.steps, gradient, clock),
                }
                for k in range(given.runs):
                    for key in list(measured) if k % 2 == 0 else reversed(list(measured)):
                        times[key].append(1e3 * measured[key]())
                raw[f"{name}, {batch}, {gradient}"] = times
                hand, host = statistics.median(times["hand"]), statistics.median(times["mile"])
                ratio = statistics.median(b / a for a, b in zip(times["hand"], times["mile"]))
                print(f"| {name} | {batch} | {gradient} | {hand:.2f} | {host:.2f} | {ratio:.3f} |", flush=True)
    Path(f"torch-{device.type}.json").write_text(json.dumps(raw))


if __name__ == "__main__":
    main()
