"""Four hospitals train a classifier of heart disease. Each has its own kind of patients, and its own share of sick ones; none shows its records to another."""

import torch
from torch import nn

import mile.torch

PATIENTS = (303, 294, 123, 200)
SICK = (0.46, 0.36, 0.93, 0.75)
FEATURES = 13


def patients(hospital: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of a hospital. Here they are made up; read your own files instead."""
    generator = torch.Generator().manual_seed(hospital)
    sick = torch.rand(PATIENTS[hospital], generator=generator) < SICK[hospital]
    signs = torch.randn(FEATURES, generator=torch.Generator().manual_seed(99))
    habits = 0.5 * torch.randn(FEATURES, generator=generator)
    features = torch.randn(len(sick), FEATURES, generator=generator) + habits + 0.7 * sick[:, None] * signs
    return features, sick.long()


def problem(agents: int, agent: int | None = None, hidden: int = 16) -> mile.torch.Problem:
    """The objectives: called by each agent with its number, and for all agents by `mile run`."""
    model = nn.Sequential(nn.Linear(FEATURES, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 2))
    return mile.torch.Problem(model, nn.CrossEntropyLoss(), patients, agents=agents, agent=agent, batch=16)
