#!/usr/bin/env python3
"""What of the Python crate's dependencies is compiled once more although the workspace's tests have compiled it, and why.

    python3 tests/shared.py

`tests/python.sh` builds with the profile of the workspace and the feature `as-workspace` (`python/Cargo.toml`), so that crates of others are taken from what `cargo test --workspace` left. That works for a crate if its features and its
profile are the same, and those of all that it depends on. Here the plans of both builds are compared; nothing is compiled. Where features differ, those of the workspace belong into `as-workspace`, and those that only the Python crate has into
`tests/Cargo.toml`.
"""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROFILE = ("opt_level", "lto", "codegen_units", "debuginfo", "debug_assertions", "overflow_checks", "panic", "strip")


def plan(folder: Path, *arguments: str) -> list[dict]:
    """The units of a build."""
    # Plans are printed by unstable options only.
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1"}
    command = ["cargo", *arguments, "--unit-graph", "-Z", "unstable-options", "--locked"]
    found = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(found.stdout)["units"]


def own(unit: dict) -> tuple:
    """What a unit is by itself."""
    target, profile = unit["target"], unit["profile"]
    return (unit["pkg_id"], target["name"], tuple(target["kind"]), unit["mode"], tuple(sorted(unit["features"])), *(str(profile.get(key)) for key in PROFILE))


def whole(units: list[dict]) -> list[int]:
    """A number for each unit: equal for those that are equal with all they depend on."""
    known: dict[int, int] = {}

    def number(k: int) -> int:
        if k not in known:
            needs = sorted(number(one["index"]) for one in units[k]["dependencies"])
            known[k] = hash((own(units[k]), tuple(needs)))
        return known[k]

    return [number(k) for k in range(len(units))]


def main() -> None:
    profile = ROOT / "target" / "python-profile.toml"
    if not profile.exists():
        raise SystemExit(f"{profile} is missing: tests/python.sh writes it")
    theirs = plan(ROOT, "test", "--workspace", "--no-run")
    ours = plan(ROOT / "python", "build", "--lib", "--config", str(profile), "--features", "as-workspace,pyo3/extension-module")
    compiled, alike = set(whole(theirs)), {own(unit) for unit in theirs}
    foreign = [(unit, number) for unit, number in zip(ours, whole(ours)) if unit["pkg_id"].startswith("registry")]
    known = {unit["pkg_id"] for unit in theirs}
    again = [unit for unit, number in foreign if number not in compiled and unit["pkg_id"] in known]
    print(f"{len(foreign)} units of other people's crates; {len(again)} of those that the workspace has too are compiled again")
    for unit in again:
        if own(unit) not in alike:
            print(unit["pkg_id"].split("#")[-1], "/".join(unit["target"]["kind"]))
            print("    here:     ", *own(unit)[4:])
            for other in theirs:
                if own(other)[:4] == own(unit)[:4]:
                    print("    workspace:", *own(other)[4:])


if __name__ == "__main__":
    main()
