"""Decentralized optimization and learning with multiple local updates.

N agents on a graph, each with its own objective, minimise the mean of all objectives. They talk only to their neighbours, every few
local steps.

>>> import mile
>>> run = mile.run(
...     problem=mile.Quadratic(dim=5),
...     network="ring",
...     algorithms=[mile.method("mile", step_size=0.1, local_steps=5), mile.method("k-gt", step_size=0.1, local_steps=5)],
...     rounds=300,
...     out=tmp / "first",
... )
>>> bool((run.records.groupby("label")["consensus_error"].last() < 1e-6).all())
True

Where to start depends on what you have:

- a function and its gradient in NumPy: `Objective`, or any object with `loss(agent, x)` and `grad(agent, x, rng)`;
- a PyTorch model and a data set for each agent: `mile.torch.Problem`;
- a loss of a pytree in JAX: `mile.jax.Problem`;
- tables, images, or an experiment file for the command `mile`: `Table`, `Quadratic`, a dictionary or a path;
- agents on other machines: `swarm` on this one, then `emit`, `agent`, `status` and `gather`;
- a custom method: `Method`;
- a method that is implemented elsewhere, and should obey the same laws: `contract.check`.
"""

from . import contract
from ._graphs import Graph, graph
from ._methods import Algorithm, Method, method, methods
from ._mile import ExperimentError, Random, RunError, Step, __version__
from ._network import agent, emit, gather, keygen, status, swarm
from ._problems import Objective, Quadratic, Table
from ._running import check, load, load_run, load_sweep, reproduce, run, sweep
from ._runs import Run, Stopped, Sweep
from ._theory import Theory, keys, theory

__all__ = [
    "Algorithm",
    "ExperimentError",
    "Graph",
    "Method",
    "Objective",
    "Quadratic",
    "Random",
    "Run",
    "RunError",
    "Step",
    "Stopped",
    "Sweep",
    "Table",
    "Theory",
    "__version__",
    "agent",
    "check",
    "contract",
    "emit",
    "gather",
    "graph",
    "keygen",
    "keys",
    "load",
    "load_run",
    "load_sweep",
    "method",
    "methods",
    "reproduce",
    "run",
    "status",
    "swarm",
    "sweep",
    "theory",
]
