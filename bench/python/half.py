#!/usr/bin/env python3
"""Where parameters in bfloat16 hold: the same models in float32, in bfloat16 with x and corrections in float32, and in float32 with mixed precision.

    python bench/python/half.py [--rounds N] [--seeds N] [--data sampled,exact] [--methods "mile;k-gt"] [--gradient vmap]        with the package mile and PyTorch

Eight agents on a ring, each with two of three classes of points in the plane, and a network of 1,251 parameters. `sampled` has mini-batches of 16, and says whether training is as good: the loss and the accuracy of the average model on test data.
`exact` has all rows in each gradient, and says how far convergence goes: the norm of the gradient of f at the average model, in float64. Means over the seeds; in brackets, the largest distance of a seed from the mean.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import mile
import mile.torch
import numpy as np
import torch
from torch import nn

AGENTS, ROWS, STEPS = 8, 120, 10
KINDS = {"float32": (torch.float32, None), "bfloat16": (torch.bfloat16, None), "autocast": (torch.float32, "bfloat16")}
METHODS = {
    "mile": (mile.method("mile", step_size=0.02, local_steps=STEPS), None),
    "k-gt": (mile.method("k-gt", step_size=0.1, local_steps=STEPS), None),
    "local-dsgd": (mile.method("local-dsgd", step_size=0.1, local_steps=STEPS), None),
    "mile, AdamW": (mile.method("mile", local_steps=STEPS), lambda parameters: torch.optim.AdamW(parameters, lr=3e-3)),
}


def points(generator, classes, rows):
    """Three spirals."""
    labels = classes[torch.randint(0, len(classes), (rows,), generator=generator)]
    radius = torch.rand(rows, generator=generator)
    angle = 3 * radius + labels * (2 * math.pi / 3) + 0.2 * torch.randn(rows, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) * 2, labels


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


def gradient_norm(x, data):
    """That of f at x, in double precision."""
    model = network(0).double()
    nn.utils.vector_to_parameters(torch.from_numpy(x.astype(float)), model.parameters())
    loss = sum(nn.functional.cross_entropy(model(a.double()), b) for a, b in data) / len(data)
    return float(sum((g**2).sum() for g in torch.autograd.grad(loss, list(model.parameters()))) ** 0.5)


def trained(kind, method, optimizer, batch, rounds, seed, gradient):
    """Test loss, accuracy, and gradient norm at the end."""
    dtype, autocast = KINDS[kind]
    generator = torch.Generator().manual_seed(0)
    data = [points(generator, torch.tensor([k % 3, (k + 1) % 3]), ROWS) for k in range(AGENTS)]
    test = points(generator, torch.arange(3), 1000)
    given = [(a.to(dtype), b) for a, b in [*data, test]]
    problem = mile.torch.Problem(
        network(seed).to(dtype), nn.CrossEntropyLoss(), given[:-1], test=given[-1], batch=batch, optimizer=optimizer, autocast=autocast, eval_rows="all", gradient=gradient,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = mile.run(problem=problem, network="ring", algorithms=[method], rounds=rounds, eval_every=rounds, seeds=[seed], out=Path(folder) / "run", progress=False)
        return run.rows[-1]["test_loss"], run.rows[-1]["accuracy"], gradient_norm(run.average(), data)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--data", default="sampled,exact")
    arguments.add_argument("--methods", default=";".join(METHODS), help="names with semicolons between them")
    arguments.add_argument("--gradient", choices=("loop", "vmap"), default="loop")
    given = arguments.parse_args()
    raw = {}
    print("| data | method | precision | test loss | accuracy | gradient norm |\n|---|---|---|---|---|---|")
    for title in given.data.split(","):
        batch = {"sampled": 16, "exact": "full"}[title]
        for name in given.methods.split(";"):
            method, optimizer = METHODS[name]
            for kind in KINDS:
                found = np.array([trained(kind, method, optimizer, batch, given.rounds, seed, given.gradient) for seed in range(given.seeds)])
                raw[f"{title}, {name}, {kind}"] = found.tolist()
                cells = [f"{mean:.2g} ({far:.1g})" if k == 2 else f"{mean:.4f} ({far:.4f})" for k, (mean, far) in enumerate(zip(found.mean(0), np.abs(found - found.mean(0)).max(0)))]
                print(f"| {title} | {name} | {kind} | " + " | ".join(cells) + " |", flush=True)
    Path("half.json").write_text(json.dumps(raw))


if __name__ == "__main__":
    main()
