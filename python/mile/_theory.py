"""What the theory says before anything is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _mile
from ._graphs import Network, section
from ._names import GraphParameters, Mixing, Topology
from ._results import Value

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Options(GraphParameters, total=False):
    """The keys of the section `[network]`, and further names of `local_steps`."""

    agents: int
    topology: Topology
    mixing: Mixing
    drop_rate: float
    num_local_steps: int
    tau: int


class Theory(dict[str, Value]):
    """The numbers of a theory report, by name or as attributes; it prints as the text of `mile theory`."""

    agents: int
    edges: int
    solver: str
    complete: bool
    lambda_2: float | None
    lambda_n: float
    spectral_gap: float
    local_steps: int
    local_steps_harmonic: float | None
    xi_paper_max: float
    xi_spectrum_max: float
    xi_exact_max: float
    xi_switching_max: float
    xi_drop_max: float | None
    xi_best: float
    xi_best_contraction: float
    xi_paper: float
    xi_auto: float
    decoupled_auto: dict[str, float | None]
    xi: float
    xi_schedule: str | None
    gamma: float
    momentum: float | None
    nesterov: bool
    xi_momentum_max: float | None
    momentum_auto: list[float] | None
    rho: list[float]
    contraction_per_round: float
    rounds_per_digit: float | None
    a1: float | None
    a3: float | None
    a4: float | None
    b2: float | None
    outside_theorems: str | None
    smoothness: float
    smoothness_estimate: dict[str, Value] | None
    smoothness_sample: dict[str, Value] | None
    step_size_max: float | None
    step_size_max_stochastic: float | None
    drop_rate: float
    lost_share: float
    time_varying: str | None
    methods: list[dict[str, Value]]
    advice: list[dict[str, Value]]

    def __init__(self, numbers: Mapping[str, Value], text: str) -> None:
        super().__init__(numbers)
        self._text = text

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_") or name not in self:
            raise AttributeError(f"theory: expected one of {', '.join(self)}, got {name}")
        return self[name]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text


def theory(
    of: Network | Path | str | None = None,
    *,
    local_steps: int | None = None,
    xi: float | str | None = None,
    gamma: float | str | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    smoothness: float | None = None,
    step_size: float | None = None,
    **options: Unpack[Options],
) -> Theory:
    """Spectrum, admissible weights and step sizes, convergence rates and stability of MILE.

    `of` is a graph in any form that `graph` accepts, or an experiment: the path of a file, or a dictionary with `algorithm`. For an experiment, the smoothness
    of its problem is estimated.

    >>> import mile
    >>> found = mile.theory("ring", agents=10, local_steps=5, smoothness=2.0)
    >>> round(found.xi_paper_max, 3)
    0.25
    """
    network: dict[str, Any] = dict(options)
    if "num_local_steps" in network or "tau" in network:
        local_steps = network.pop("num_local_steps", network.pop("tau", None))
    experiment, base, net = None, Path(), None
    if isinstance(of, (str, Path)) and str(of).endswith(".toml"):
        path = Path(of)
        experiment, base = json.loads(_mile.read_experiment(path.read_text(), [])), path.parent
    elif isinstance(of, Mapping) and "algorithm" in of:
        experiment = dict(of)
    else:
        net = section(of, network)
    text, shown = _mile.theory(
        net, experiment, base, local_steps, xi, gamma, momentum, nesterov, smoothness, step_size
    )
    return Theory(json.loads(text), shown)


def keys(form: str = "text") -> str:
    """The reference of all experiment keys, as "text", "markdown" or "json-schema"."""
    return _mile.keys_reference(form)
