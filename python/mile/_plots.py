"""Figures with matplotlib, in the style of the report's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#777777"]
_DASHES: list[Any] = ["-", (0, (7, 3)), (0, (2, 2.5)), (0, (9, 3, 2, 3)), (0, (12, 4)), (0, (4, 2, 1, 2, 1, 2)), (0, (1, 3))]
_MARKERS = ["o", "s", "^", "D", "v", "P", "h"]

_TITLES = {
    "loss": "Loss of the average model",
    "local_loss": "Loss of the agents' own models, mean",
    "worst_loss": "Loss of the worst agent's own model",
    "loss_gap": "Loss of the average model, above the least recorded",
    "grad_norm_sq": "|∇f|² at the average model",
    "consensus_error": "Consensus error after mixing",
    "consensus_error_before": "Consensus error before mixing",
    "accuracy": "Test accuracy of the average model",
}
_AXES = {
    "round": "communication rounds",
    "bytes_sent": "bytes sent by all agents",
    "gradient_evals": "gradients evaluated by all agents",
    "wall_s": "seconds of computing",
    "modelled_s": "modelled time in seconds",
    "step": "updates",
}
_LINEAR = ("accuracy", "auc", "r2")


def plot(records: pd.DataFrame, quantity: str, axis: str, ax: Axes | None = None) -> Axes:
    """Draws one quantity for all algorithms: the mean over seeds, and a band from the smallest value to the largest."""
    import matplotlib.pyplot as plt

    if quantity == "loss_gap":
        records = records.assign(loss_gap=records["loss"] - records.groupby("seed")["loss"].transform("min"))
    if quantity not in records or records[quantity].isna().all():
        known = [name for name in records.select_dtypes("number") if name not in (*_AXES, "seed")]
        raise ValueError(f"quantity: expected one of {', '.join(known)}, got {quantity}")
    axes = [name for name in _AXES if name in records]
    if axis not in axes:
        raise ValueError(f"axis: expected one of {', '.join(axes)}, got {axis}")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    values = records[quantity].dropna()
    is_log = bool((values >= 0).all() and (values > 0).any()) and not any(word in quantity for word in _LINEAR)
    for k, (label, rows) in enumerate(records.groupby("label", sort=False)):
        by_round = rows.groupby("round")
        x, y = by_round[axis].mean(), by_round[quantity]
        lines = {name: getattr(y, name)() for name in ("mean", "min", "max")}
        if is_log:
            # Zeros, such as the initial disagreement of agents that all start at the same point, have no place on the axis: gaps, not spikes.
            lines = {name: values.where(values > 0) for name, values in lines.items()}
        style = {"color": COLOURS[k % 8], "linestyle": _DASHES[k % 7], "marker": _MARKERS[k % 7]}
        ax.plot(x, lines["mean"], label=label, linewidth=1.8, markersize=5, markevery=max(1, len(x) // 8), **style)
        if rows["seed"].nunique() > 1:
            ax.fill_between(x, lines["min"], lines["max"], color=COLOURS[k % 8], alpha=0.15, linewidth=0)
    if is_log:
        ax.set_yscale("log")
    ax.set_xlabel(_AXES[axis], color="#222222")
    ax.set_title(_TITLES.get(quantity, quantity.replace("_", " ")), fontsize=11, color="#222222", loc="left")
    ax.grid(color="#e3e3e3", linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(frameon=False)
    return ax
