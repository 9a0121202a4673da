"""Records in Weights & Biases and MLflow, with the real packages, offline."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mile
from mile._progress import observer
from mile.loggers import Logger, main, records


def small(out: Path, **more: object) -> mile.Run:
    methods = [mile.method("led", step_size=0.05), mile.method("mile", step_size=0.05)]
    return mile.run(problem=mile.Quadratic(dim=3), algorithms=methods, rounds=6, eval_every=2, out=out, progress=False, **more)  # type: ignore[arg-type]


def expected(run: mile.Run, quantity: str) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in run.rows:
        found.setdefault(f"{row['label']}, seed {row['seed']}", []).append((row["round"], row[quantity]))
    return found


def in_mlflow(folder: Path, quantity: str, project: str = "mile") -> dict[str, list[tuple[int, float]]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(project)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert all(run.info.status == "FINISHED" and run.data.params["seed"] == "0" for run in runs)
    history = lambda run: sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, quantity))
    return {run.info.run_name: history(run) for run in runs}


def written_by_wandb(file: Path) -> Iterator[bytes]:
    """The records of an offline run: after seven bytes, blocks of 32 KiB with pieces of records, each with its length and its kind."""
    data, place, record = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if -place % 32768 in range(1, 7):
            place += -place % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        # Whole, or the last piece.
        if kind in (1, 4):
            yield record
            record = b""


def in_wandb(folder: Path, quantity: str) -> dict[str, list[tuple[int, float]]]:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    # Its process writes until it ends.
    wandb.teardown()
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        name = ""
        for data in written_by_wandb(file):
            record = Record()
            record.ParseFromString(data)
            name = record.run.display_name or name
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            if quantity in items:
                found.setdefault(name, []).append((record.history.step.num, items[quantity]))
    return found


def test_mlflow_has_every_record_of_every_job(tmp_path: Path) -> None:
    run = small(tmp_path / "run", logger=Logger("mlflow", folder=tmp_path / "run", offline=True))
    assert in_mlflow(tmp_path / "run", "loss") == expected(run, "loss")


def test_wandb_has_every_record_of_every_job(tmp_path: Path) -> None:
    seen: list[int] = []
    run = small(tmp_path / "run", logger=Logger("wandb", folder=tmp_path / "run", offline=True), on_record=lambda record: seen.append(record["round"]))
    assert in_wandb(tmp_path / "run", "consensus_error") == expected(run, "consensus_error")
    assert sorted(seen) == [0, 0, 2, 2, 4, 4, 6, 6]


def test_the_command_logs_a_run_that_has_ended(tmp_path: Path) -> None:
    run = small(tmp_path / "run")
    command = [sys.executable, "-m", "mile", "log", str(tmp_path / "run"), "--to", "mlflow", "--project", "mine", "--offline", "--follow"]
    assert subprocess.run(command, check=False).returncode == 0
    assert in_mlflow(tmp_path / "run", "loss", "mine") == expected(run, "loss")
    command[-1:] = []
    command[command.index("mlflow")] = "wandb"
    assert subprocess.run(command, check=False).returncode == 0
    assert in_wandb(tmp_path / "run", "loss") == expected(run, "loss")


def halved(out: Path) -> tuple[list[str], str]:
    """Makes a run of which one job has ended and the other one has not begun; returns the lines and the summary of both."""
    small(out)
    lines, summary = (out / "metrics.jsonl").read_text().splitlines(keepends=True), (out / "summary.json").read_text()
    (out / "metrics.jsonl").write_text("".join(lines[:4]))
    (out / "summary.json").write_text(json.dumps(json.loads(summary)[:1]))
    (out / "final" / "mile-seed0.safetensors").unlink()
    return lines, summary


def test_a_file_that_grows_by_half_lines_and_is_sorted_is_followed_to_its_end(tmp_path: Path) -> None:
    lines, summary = halved(tmp_path)
    file = tmp_path / "metrics.jsonl"
    # Both jobs at once: their records in turn.
    mixed = [line for pair in zip(lines[:4], lines[4:], strict=True) for line in pair]
    file.write_text("".join(mixed[:3]) + mixed[3][:20])
    found = records(tmp_path, follow=True)
    named = lambda record: (record["label"], record["round"])
    begun = [named(next(found)) for _ in range(3)]
    with file.open("a") as more:
        more.write(mixed[3][20:] + mixed[4][:-1])
    begun.append(named(next(found)))
    # As a run does when it ends: the records that are left are not where they were.
    (tmp_path / "sorted").write_text("".join(lines))
    (tmp_path / "sorted").rename(file)
    (tmp_path / "summary.json").write_text(summary)
    rest = [named(record) for record in found]
    written = [named(json.loads(line)) for line in lines]
    assert begun == [named(json.loads(line)) for line in mixed[:4]]
    assert rest == [one for one in written if one not in begun] and len(rest) == 4


def test_the_command_waits_for_what_a_run_still_does(tmp_path: Path) -> None:
    out = tmp_path / "run"
    halved(out)
    log = subprocess.Popen([sys.executable, "-m", "mile", "log", str(out), "--to", "mlflow", "--offline", "--follow"])
    while not (out / "mlflow.db").exists():
        assert log.poll() is None
        time.sleep(0.05)
    small(out, resume=True)
    assert log.wait() == 0
    assert in_mlflow(out, "loss") == expected(small(tmp_path / "whole"), "loss")


def test_the_runs_of_a_sweep_are_told_apart(tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []
    out = tmp_path / "sweep"
    found = mile.sweep(
        problem=mile.Quadratic(dim=3), algorithms=[mile.method("led", step_size=0.05), mile.method("mile", step_size=0.05)], rounds=6, eval_every=2, values={"step_size": [0.02, 0.05]},
        out=out, progress=False, on_record=seen.append, logger=Logger("mlflow", folder=out, offline=True),
    )  # fmt: skip
    of_points = {f"{name}, {point}": values for point, run in found.runs.items() for name, values in expected(run, "loss").items()}
    assert len(of_points) == 4 and in_mlflow(out, "loss") == of_points
    by_point = {name: [{key: value for key, value in row.items() if key != "point"} for row in seen if row["point"] == name] for name in found.runs}
    for name, run in found.runs.items():
        assert sorted(by_point[name], key=lambda row: (row["label"], row["round"])) == sorted(run.rows, key=lambda row: (row["label"], row["round"]))
    again = mile.sweep(
        problem=mile.Quadratic(dim=3), algorithms=[mile.method("led", step_size=0.05)], rounds=4, values={"step_size": [0.02, 0.05]}, out=tmp_path / "more", progress=False,
    )  # fmt: skip
    later: list[dict[str, object]] = []
    mile.sweep(
        problem=mile.Quadratic(dim=3), algorithms=[mile.method("led", step_size=0.05)], rounds=8, values={"step_size": [0.02, 0.05]}, out=tmp_path / "more", progress=False, resume=True,
        on_record=later.append,
    )  # fmt: skip
    assert {row["point"] for row in later} == set(again.runs)


@pytest.mark.parametrize("more", [{}, {"cv": 2}])
def test_the_command_logs_a_sweep_that_has_ended(tmp_path: Path, more: dict[str, int]) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{k % 5},{k % 3}\n" for k in range(24)))
    problem = {"kind": "table", "data": str(tmp_path / "rows.csv"), "target": "y", "loss": "least-squares", **({} if more else {"test": 0.25})}
    out = tmp_path / "sweep"
    found = mile.sweep(
        problem=problem, network={"agents": 3}, algorithms=[mile.method("led", step_size=0.01)], rounds=6, eval_every=2, values={"problem.l2": [0.1, 1.0]}, out=out, progress=False, **more,
    )  # type: ignore[arg-type]  # fmt: skip
    command = [sys.executable, "-m", "mile", "log", str(out), "--to", "mlflow", "--offline", "--follow"]
    assert subprocess.run(command, check=False).returncode == 0
    of_points = {f"{name}, {point}": values for point, run in found.runs.items() for name, values in expected(run, "loss").items()}
    assert len(of_points) == 2 * more.get("cv", 1) and in_mlflow(out, "loss") == of_points


def test_records_of_points_that_compute_together_name_none() -> None:
    seen: list[dict[str, object]] = []
    record = json.dumps({"round": 0, "loss": 1.0})
    heard = observer(False, seen.append)
    for point in ("one", "two"):
        heard("point", point, 1, 2.0, "")
        heard("planned", "", 4, 1.0, "")
    heard("recorded", "mile", 0, 1.0, record)
    assert "point" not in seen[-1]


def test_what_cannot_be_logged_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="wandb, mlflow"):
        Logger("tensorboard")
    with pytest.raises(ValueError, match="logger: .*cuda"):
        mile.sweep(problem=mile.Quadratic(), algorithms=[mile.method("led")], values={"step_size": [0.1]}, device="cuda", logger="mlflow", out=tmp_path / "gpu")
    assert main([str(tmp_path / "absent"), "--to", "wandb", "--offline"]) == 2
    assert "absent" in capsys.readouterr().err
