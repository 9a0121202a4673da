"""What becomes of MILE's corrections with rules by which agents shorten differences, with and without attackers.

    python experiments/attacks/thresholds.py

Twelve agents on the complete graph (weights 1/12), f_i(x) = |x - b_i|^2/2 in ten dimensions with b_i standard normal, MILE with tau = 5,
alpha = 0.05, gamma = 0.8, xi = 0.1. The table has the norm of the gradient of the honest agents' f at the mean of their models, and the root
mean square distance from it, after 1,000 and 4,000 rounds. Only NumPy is needed.
"""

import numpy

N, DIM, TAU, ALPHA, GAMMA, XI = 12, 10, 5, 0.05, 0.8, 0.1


def shares(v, rule, byzantine):
    """s_ij for all pairs: by how much the difference of j and i is shortened at i."""
    far = numpy.linalg.norm(v[:, None] - v[None, :], axis=2)
    if rule == "plain":
        return numpy.ones((N, N))
    numpy.fill_diagonal(far, numpy.inf)
    if rule.startswith("threshold"):
        own = numpy.full(N, float(rule.split()[1]))
    else:
        own = numpy.sort(far, axis=1)[:, N - 2 - 2 * byzantine]
    limit = numpy.minimum(own[:, None], own[None, :]) if rule == "smaller of both" else own[:, None] * numpy.ones(N)
    return numpy.minimum(1.0, limit / numpy.maximum(far, 1e-300))


def run(rule, attackers, strength, rounds):
    random = numpy.random.default_rng(0)
    b = random.standard_normal((N, DIM))
    honest = numpy.arange(N - attackers)
    x, c = numpy.zeros((N, DIM)), numpy.zeros((N, DIM))
    found = []
    for number in range(rounds):
        for _ in range(TAU):
            x = x - ALPHA * (x - b) + c
        v = x.copy()
        if attackers:
            v[N - attackers:] = v[honest].mean(axis=0)
            v[N - attackers:, :3] += strength
        s = shares(v, rule, 2)
        d = (s[:, :, None] * (v[None, :] - v[:, None])).sum(axis=1) / N
        x, c = v + GAMMA * d, c + XI * d
        x[N - attackers:], c[N - attackers:] = 0.0, 0.0
        if number + 1 in (1000, 4000):
            mean = x[honest].mean(axis=0)
            gradient = numpy.linalg.norm(mean - b[honest].mean(axis=0))
            apart = numpy.sqrt(((x[honest] - mean) ** 2).sum(axis=1).mean())
            found += [gradient, apart]
    return found


def main():
    print(f"{'rule':<18}{'attackers':>10}{'|grad f|, 1,000':>17}{'apart':>10}{'4,000':>12}{'apart':>10}")
    for attackers, strength in [(0, 0.0), (2, 0.3)]:
        for rule in ["plain", "threshold 0.3", "threshold 0.03", "own", "smaller of both"]:
            numbers = run(rule, attackers, strength, 4000)
            print(f"{rule:<18}{attackers:>10}{numbers[0]:>17.2g}{numbers[1]:>10.1g}{numbers[2]:>12.2g}{numbers[3]:>10.1g}")


if __name__ == "__main__":
    main()
