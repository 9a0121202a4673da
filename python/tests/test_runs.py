"""Experiments with objectives in Rust: runs, resuming, sweeps, graphs and theory."""

from pathlib import Path

import matplotlib
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import mile

ALGORITHMS = [
    mile.method("mile", step_size=0.1, local_steps=3),
    mile.method("k-gt", step_size=0.1, num_local_steps=3, label="K-GT"),
]
FILE = """
name = "file"
rounds = 30
seeds = [0, 1]
[network]
agents = 5
[problem]
kind = "quadratic"
dim = 3
[[algorithm]]
name = "mile"
step_size = 0.1
local_steps = 3
"""


def test_a_run_has_records_states_and_the_directory_of_the_command() -> None:
    run = mile.run(problem=mile.Quadratic(dim=3), network="ring", algorithms=ALGORITHMS, rounds=40, seeds=[0, 1], eval_every=10, report=True)
    assert run.folder == Path("runs/quadratic") and run.complete
    frame = run.records
    assert list(frame.groupby(["label", "seed"]).size()) == [5] * 4
    assert set(frame["label"]) == {"mile", "K-GT"}
    assert run.x("K-GT", 1).shape == (10, 3) and run.x("mile").dtype == np.float64
    assert np.allclose(run.average("mile"), run.average("K-GT"), atol=1e-2)
    for file in ("config.toml", "metrics.jsonl", "summary.json", "report.html", "table.txt", "table.tex"):
        assert (run.folder / file).exists(), file
    assert "K-GT" in run.table and "K-GT" in run._repr_html_() and "<svg" in run._repr_html_()
    assert "mile" in repr(mile.load(run.folder)) and list((run.folder / "figures").glob("*.png"))


def test_a_run_says_whether_it_converged() -> None:
    problem, method = mile.Quadratic(dim=3), mile.method("mile", step_size=0.1, local_steps=3)
    stopped = mile.run(problem=problem, algorithms=[method], rounds=2000, stop={"grad_norm": 1e-4, "consensus": 1e-8}, out="stopped")
    outcome = stopped.outcomes[0]
    assert stopped.converged and outcome["status"] == "converged" and outcome["ending"]["stop_reached"]
    assert outcome["round"] < 2000 and stopped.rows[-1]["grad_norm_sq"] <= 1e-8
    short = mile.run(problem=problem, algorithms=[method], rounds=8, eval_every=1, out="short")
    assert short.complete and not short.converged and short.outcomes[0]["ending"]["loss"] == "falling"
    assert "last round, loss still falling" in short.table and "not converged" in repr(short)
    matplotlib.use("agg")
    axes = short.plot("loss_gap")
    assert axes.get_yscale() == "log" and "least recorded" in axes.get_title(loc="left")


def test_a_file_a_dictionary_and_arguments_are_the_same_experiment() -> None:
    Path("e.toml").write_text(FILE)
    of_file = mile.run("e.toml")
    of_dict = mile.run(
        {
            "rounds": 30,
            "seeds": [0, 1],
            "network": {"agents": 5},
            "problem": {"kind": "quadratic", "dim": 3},
            "algorithm": [{"name": "mile", "step_size": np.float64(0.1), "tau": np.int64(3)}],
        },
        out="other",
    )
    assert (of_file.x(seed=1) == of_dict.x(seed=1)).all()
    changed = mile.run("e.toml", set=["algorithm.mile.xi=0.05"], rounds=10, out="changed")
    assert changed.config["algorithm"][0]["xi"] == 0.05 and changed.config["rounds"] == 10


def test_a_run_that_is_extended_has_the_bits_of_a_long_one() -> None:
    Path("e.toml").write_text(FILE)
    long = mile.run("e.toml", rounds=30, eval_every=5, out="long")
    short = mile.run("e.toml", rounds=11, eval_every=5, out="short")
    resumed = short.resume(rounds=30)
    assert (resumed.x(seed=1) == long.x(seed=1)).all()
    again = mile.run(out="short", resume=True, rounds=32)
    assert again.rows[-1]["round"] == 32


def test_invalid_arguments_are_refused_by_name() -> None:
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[0\]\.name: "):
        mile.run(problem=mile.Quadratic(), algorithms=[mile.method("mille", step_size=0.1)])
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[0\]\.local_step: "):
        mile.run(problem=mile.Quadratic(), algorithms=[mile.method("mile", step_size=0.1, local_step=3)])
    with pytest.raises(TypeError, match=r"algorithms\[0\]: "):
        mile.run(problem=mile.Quadratic(), algorithms=["mile"])
    with pytest.raises(TypeError, match=r"problem\.dim: "):
        mile.run(problem={"kind": "quadratic", "dim": object()}, algorithms=ALGORITHMS)
    mile.run(problem=mile.Quadratic(), algorithms=ALGORITHMS, rounds=2, out="taken")
    with pytest.raises(mile.ExperimentError, match="taken: "):
        mile.run(problem=mile.Quadratic(), algorithms=ALGORITHMS, rounds=2, out="taken")
    with pytest.raises(mile.ExperimentError, match=r"nothing\.toml: "):
        mile.run("nothing.toml")
    with pytest.raises(ValueError, match="label: "):
        mile.load("taken").x()  # type: ignore[union-attr]


def test_sweeps_have_a_row_for_each_trial() -> None:
    found = mile.sweep(
        problem=mile.Quadratic(dim=3), algorithms=ALGORITHMS, rounds=20, out="sweep", values={"step_size": [0.01, 0.05], "local_steps": [2, 4]}
    )
    assert found.complete and len(found.trials) == 8 and found.criterion == "local_loss"
    assert {"step_size", "local_steps", "loss", "status"} <= set(found.trials.columns)
    assert len(found.runs) == 4 and "best" in found.summary.lower()
    assert isinstance(mile.load("sweep"), mile.Sweep)


def test_tables_from_arrays_agree_with_a_table_from_a_frame() -> None:
    rng = np.random.default_rng(1)
    features, targets = rng.normal(size=(60, 3)), rng.normal(size=60)
    algorithm = [mile.method("mile", step_size=0.1, local_steps=3)]
    by_arrays = mile.run(problem=mile.Table((features, targets), agents=4, l2=0.1), algorithms=algorithm, rounds=20, out="arrays")
    frame = pd.DataFrame(features, columns=["a", "b", "c"]).assign(y=targets, site=np.repeat(np.arange(4), 15))
    table = mile.Table(frame, target="y", by="site", l2=0.1, standardise=False, intercept=False)
    by_frame = mile.run(problem=table, network={"agents": 4}, algorithms=algorithm, rounds=20, out="frame")
    assert (by_frame.folder / "data.csv").exists()
    assert np.abs(by_arrays.average() - by_frame.average()).max() < 1e-14
    with pytest.raises(mile.ExperimentError, match=r"network\.agents: "):
        mile.run(problem=mile.Table((features, targets), agents=4), network={"agents": 5}, algorithms=algorithm)
    with pytest.raises(ValueError, match="data, agent 1: "):
        mile.Table([(features[:3], targets[:3]), (features[:3], targets[:2])])


def test_classes_and_test_rows_of_arrays() -> None:
    rng = np.random.default_rng(2)
    def sample(rows: int) -> tuple[np.ndarray, np.ndarray]:
        a = rng.normal(size=(rows, 2))
        return a, np.sign(a[:, 0] + 0.1 * rng.normal(size=rows))
    problem = mile.Table([sample(50) for _ in range(4)], test=[sample(20) for _ in range(4)], loss="logistic", l2=1e-3, intercept=True, batch=10)
    run = mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.5, local_steps=3)], rounds=60)
    assert run.x().shape == (4, 3) and run.rows[-1]["accuracy"] > 0.9


def test_graphs_in_all_forms_are_the_same_graph() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    reference = mile.graph(edges, mixing="metropolis")
    graph = nx.relabel_nodes(nx.Graph(edges), {0: "a", 1: "b", 2: "c", 3: "d"})
    adjacency = nx.to_numpy_array(nx.Graph(edges), nodelist=range(4))
    weighted = reference.to_networkx()
    for form in (graph, adjacency, sparse.csr_array(adjacency), sparse.csr_matrix(reference.matrix), reference.matrix, reference):
        assert np.abs(mile.graph(form).matrix - reference.matrix).max() < 1e-15
    assert np.abs(mile.graph(weighted, mixing="weight").matrix - reference.matrix).max() < 1e-15
    run = mile.run(problem=mile.Quadratic(), network=graph, algorithms=ALGORITHMS, rounds=3, out="graph")
    assert run.config["network"]["edges"] and mile.load("graph").report().exists()
    with pytest.raises(mile.ExperimentError):
        mile.graph(nx.DiGraph(edges))
    with pytest.raises(mile.ExperimentError, match="0.4"):
        mile.graph(np.array([[0.6, 0.4, 0], [0.3, 0.4, 0.3], [0, 0.3, 0.7]]))
    with pytest.raises(mile.ExperimentError, match="1.5"):
        mile.graph(np.array([[1.0, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]))
    with pytest.raises(mile.ExperimentError):
        mile.graph([(0, 1), (2, 3)])


def test_theory_methods_and_keys() -> None:
    found = mile.theory("ring", agents=10, num_local_steps=7, smoothness=1.0)
    assert found["xi_paper_max"] == pytest.approx(0.2) and found.lambda_2 == found["lambda_2"]
    assert "xi" in str(found)
    Path("e.toml").write_text(FILE)
    assert mile.theory("e.toml").step_size_max > 0
    names = mile.methods().index
    assert "mile" in names and "k-gt" in names and len(names) > 20
    assert mile.__version__ and "rounds" in mile.keys()


def test_plots_have_the_curves_of_all_labels() -> None:
    matplotlib.use("Agg")
    run = mile.run(problem=mile.Quadratic(), algorithms=ALGORITHMS, rounds=20, seeds=[0, 1], out="plot")
    axes = run.plot("consensus_error", axis="bytes_sent")
    assert [line.get_label() for line in axes.get_lines()] == ["mile", "K-GT"]
    assert axes.get_yscale() == "log" and len(axes.collections) == 2
    with pytest.raises(ValueError, match="quantity: "):
        run.plot("los")


def test_progress_reports_events() -> None:
    heard: list[tuple[str, str, int]] = []
    mile.run(
        problem=mile.Quadratic(), algorithms=ALGORITHMS, rounds=20, eval_every=10, out="heard",
        progress=lambda kind, name, round, value, text: heard.append((kind, name, round)),
    )  # fmt: skip
    assert heard[0] == ("planned", "", 20) and ("recorded", "K-GT", 20) in heard
    assert sum(kind == "ended" for kind, _, _ in heard) == 2

    def broken(*event: object) -> None:
        raise ZeroDivisionError("of the bar")

    with pytest.raises(ZeroDivisionError, match="of the bar"):
        mile.run(problem=mile.Quadratic(), algorithms=ALGORITHMS, rounds=20, out="broken", progress=broken)


def test_devices_are_named_and_refused_by_name() -> None:
    algorithms = [mile.method("mile", step_size=0.1)]
    one = mile.run(problem=mile.Quadratic(dim=3), algorithms=algorithms, rounds=5, device="cpu", out="cpu")
    other = mile.run(problem=mile.Quadratic(dim=3), algorithms=algorithms, rounds=5, out="none")
    assert (one.x() == other.x()).all()
    with pytest.raises(mile.ExperimentError, match="^device: "):
        mile.run(problem=mile.Quadratic(), algorithms=algorithms, device="gpu", out="wrong")
    with pytest.raises(mile.ExperimentError, match="^device: "):
        mile.run(problem=mile.Quadratic(), algorithms=algorithms, device="cuda:99", out="none-such")
    with pytest.raises(mile.ExperimentError, match="^device: "):
        mile.run(problem=mile.Objective(lambda agent, x: 0.0, lambda agent, x, rng: x, agents=4, dim=2), algorithms=algorithms, device="cuda", out="own")
