"""Steps of AdamW, AMSGrad and Muon on a device: those of the library's `optimiser` module, in PyTorch's kernels."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

# Step size, number of the step, and factors of what is added before and after; betas, eps, decay, and whether it is AMSGrad; momentum, and whether it is Nesterov's, of Muon.
Numbers: TypeAlias = tuple[tuple[float, int, float, float], tuple[tuple[float, float], float, float, bool], tuple[float, bool] | None]
# Newton and Schulz' iteration, as in the library.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def take_steps(
    written: list[torch.Tensor], read: list[torch.Tensor | None], by: Numbers, matrices: list[tuple[int, int, int]]
) -> None:
    """A step for the rows of all agents: `written` are the models and the optimiser's state, `read` the gradients and what is added before and after."""
    (step_size, number, before, after), _, muon = by
    x = written[0]
    g, inner, shift = read
    assert g is not None
    h = g if inner is None else torch.add(g, inner, alpha=before)
    if muon is None:
        _fused(written, h, by)
    else:
        done = 0
        for start, rows, columns in matrices:
            _elements([one[:, done:start] for one in written], h[:, done:start], by)
            done = start + rows * columns
            at = slice(start, done)
            _matrix(x[:, at], written[1][:, at], h[:, at], (rows, columns), by)
        _elements([one[:, done:] for one in written], h[:, done:], by)
    if shift is not None:
        x.add_(shift, alpha=after)


def _fused(written: list[torch.Tensor], h: torch.Tensor, by: Numbers) -> None:
    """All elements in one kernel."""
    (step_size, number, _, _), ((b1, b2), eps, decay, amsgrad), _ = by
    x, m, v, *largest = ([one.view(-1)] for one in written)
    count = [torch.full((), float(number), device=h.device)]
    torch._fused_adamw_(
        x, [h.reshape(-1)], m, v, largest[0] if largest else [], count,
        lr=step_size, beta1=b1, beta2=b2, weight_decay=decay, eps=eps, amsgrad=amsgrad, maximize=False, grad_scale=None, found_inf=None,
    )


def _elements(written: list[torch.Tensor], h: torch.Tensor, by: Numbers) -> None:
    """Some of the elements."""
    if h.shape[1] == 0:
        return
    (step_size, number, _, _), ((b1, b2), eps, decay, _), _ = by
    x, m, v = written[:3]
    m.mul_(b1).add_(h, alpha=1.0 - b1)
    v.mul_(b2).addcmul_(h, h, value=1.0 - b2)
    root = v.sqrt().mul_(1.0 / math.sqrt(1.0 - b2**number)).add_(eps)
    x.mul_(1.0 - step_size * decay).addcdiv_(m, root, value=-step_size / (1.0 - b1**number))


def _matrix(x: torch.Tensor, m: torch.Tensor, h: torch.Tensor, shape: tuple[int, int], by: Numbers) -> None:
    """One matrix of all agents together."""
    (step_size, _, _, _), (_, _, decay, _), muon = by
    assert muon is not None
    momentum, nesterov = muon
    m.mul_(momentum).add_(h, alpha=1.0 - momentum)
    along = torch.add(m * momentum, h, alpha=1.0 - momentum) if nesterov else m
    s = orthogonal(along.reshape(len(x), *shape)).reshape(len(x), -1)
    x.mul_(1.0 - step_size * decay).add_(s, alpha=-step_size * 0.2 * math.sqrt(max(shape)))


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices with the same singular vectors and singular values near 1. In single precision products are those of bfloat16, as usual for Muon."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    x = x.bfloat16() if x.dtype == torch.float32 else x
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
