"""Four robots find a beacon together, each from its own measurements of its distance, in NumPy."""

import numpy as np

import mile

BEACON = np.array([3.0, -1.0])


def measured(robot: int, measurements: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a robot has been, and how far from the beacon it believed itself to be there."""
    rng = np.random.default_rng(robot)
    places = rng.uniform(-5.0, 5.0, (measurements, 2))
    return places, np.linalg.norm(places - BEACON, axis=1) + 0.1 * rng.standard_normal(measurements)


def problem(agents: int, agent: int | None = None, measurements: int = 4) -> mile.Objective:
    """`f_i(x) = mean over k of (|x - p_ik| - d_ik)^2/2`; it is not convex. A robot reads its own measurements only."""
    own = {robot: measured(robot, measurements) for robot in (range(agents) if agent is None else [agent])}

    def loss(robot: int, x: np.ndarray) -> float:
        places, distances = own[robot]
        return 0.5 * float(np.mean((np.linalg.norm(x - places, axis=1) - distances) ** 2))

    def grad(robot: int, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        places, distances = own[robot]
        found = np.linalg.norm(x - places, axis=1)
        return np.mean(((found - distances) / np.maximum(found, 1e-12))[:, None] * (x - places), axis=0)

    return mile.Objective(loss, grad, agents=agents, dim=2, name="robots")
