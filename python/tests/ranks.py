"""The runs of the test with several processes: networks on 8 agents. As a script, it makes them in the given folder and then extends them."""

import sys

import mile
import mile.torch
import torch
from torch import nn


def data(agent: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(agent)
    return torch.randn(40, 5, generator=generator), torch.randint(0, 3, (40,), generator=generator)


def uneven(agent: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Agents with more or less data."""
    inputs, labels = data(agent)
    return inputs[agent:] * (1 + agent), labels[agent:]


class SignDescent(mile.Method):
    """Signs of gradients, then an average."""

    scratch = ("g", "d")

    def step(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        s.apply(torch.sign, "g")
        s.pull(("x", "d"))
        s.combine("x", 1.0, [(1.0, "d"), (-s.step_size, "g")])


def runs(out: str, rounds: int, resume: bool) -> None:
    """All runs, each in a folder whose name begins with `out`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Dropout(0.1), nn.Linear(7, 3))
    problem = mile.torch.Problem(model, nn.CrossEntropyLoss(), data, agents=8, batch=8, test=data(99), gradient_norm=True)
    weighted = mile.torch.Problem(model, nn.CrossEntropyLoss(), uneven, agents=8, batch=[4] * 3 + [7] * 5, weights="rows", test=data(99))
    assert problem.ranks() is None or len(problem._sources) < 8, "a process reads the data of its own agents"
    network = {"topology": "erdos-renyi", "p": 0.4, "drop_rate": 0.2, "mixing": "lazy-metropolis"}
    algorithms = [mile.method(name, step_size=0.1, local_steps=3) for name in ("mile", "k-gt", "gta-2")]
    algorithms += [mile.method("mile", label="chosen", step_size=0.1, local_steps=3, xi="auto")]
    algorithms += [mile.method("mile", label="adaptive", step_size=0.1, local_steps=3, xi="adaptive")]
    algorithms += [mile.method(SignDescent(), step_size=0.01, label="own")]
    mile.run(problem=problem, network=network, algorithms=algorithms, rounds=rounds, eval_every=1, out=out, resume=resume)

    # Compressed messages, over edges that never drop.
    compressed = [mile.method("mile", label="bits", step_size=0.1, local_steps=3, compression="8-bit")]
    compressed += [mile.method("mile", label="floats", step_size=0.1, local_steps=3, compression="bf16")]
    compressed += [mile.method("local-dsgd", label="few", step_size=0.1, local_steps=3, compression={"top_k": 0.3})]
    mile.run(problem=problem, network="star", algorithms=compressed, rounds=rounds, out=out + "-compressed", resume=resume)

    # Agents that count by their rows, with their own batches and numbers of local steps.
    steps = [mile.method("mile", label="steps", step_size=0.1, local_steps=[3, 1, 2, 3, 1, 1, 2, 5], xi="paper")]
    mile.run(problem=weighted, network="ring", algorithms=algorithms[:1] + steps, rounds=rounds, out=out + "-weighted", resume=resume)

    # A model with buffers.
    torch.manual_seed(1)
    norms = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
    problem = mile.torch.Problem(norms, nn.CrossEntropyLoss(), uneven, agents=8, batch=8, test=data(99))
    mile.run(problem=problem, network="ring", algorithms=algorithms[:1], rounds=rounds, agent_metrics=True, out=out + "-norms", resume=resume)

    # Norms that stay with their agent, parameters and all.
    problem = mile.torch.Problem(norms, nn.CrossEntropyLoss(), uneven, agents=8, batch=8, test=data(99), local="1")
    mile.run(problem=problem, network="ring", algorithms=algorithms[:1] + steps, rounds=rounds, agent_metrics=True, out=out + "-personal", resume=resume)

    # An optimiser for each agent, and parameters that stay with it.
    problem = mile.torch.Problem(norms, nn.CrossEntropyLoss(), uneven, agents=8, batch=8, optimizer=adamw, clip=1.0, local="3")
    mile.run(problem=problem, network="ring", algorithms=[mile.method("mile", local_steps=3)], rounds=rounds, out=out + "-optimised", resume=resume)


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


if __name__ == "__main__":
    torch.set_num_threads(1)
    runs(sys.argv[1], 4, False)
    runs(sys.argv[1], 7, True)
