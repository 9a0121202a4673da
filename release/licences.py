#!/usr/bin/env python3
"""Compares the licences and sources of all dependencies, of the workspace and of the Python package, with deny.toml.

    release/licences.py                     checks
    release/licences.py --texts FILE        and writes the texts of their licences to a file, which goes with the programs

cargo-deny does the same and looks for advisories too; this needs nothing but cargo and Python 3.11.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def packages(manifest: Path) -> dict[str, dict]:
    """The packages of other people that a crate is built from."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path", manifest]
    found = json.loads(subprocess.check_output(command))["packages"]
    return {f"{one['name']} {one['version']}": one for one in found if one["source"] is not None}


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether one of the alternatives of an SPDX expression is allowed. Parentheses have only lists of alternatives in them."""
    terms = re.split(r"\s+AND\s+(?![^(]*\))", expression)
    alternatives = lambda term: re.split(r"\s+OR\s+|/", term.strip().strip("()"))
    return all(any(one.strip() in allowed for one in alternatives(term)) for term in terms)


def texts(found: dict[str, dict]) -> str:
    """The licences of all packages, each text once."""
    by_text: dict[str, list[str]] = {}
    for name, package in found.items():
        folder = Path(package["manifest_path"]).parent
        files = [path for path in sorted(folder.iterdir()) if re.match(r"(?i)(licen[cs]e|copying|notice|unlicense)", path.name) and path.is_file()]
        for path in files:
            by_text.setdefault(path.read_text(encoding="utf-8", errors="replace").strip(), []).append(name)
        if not files:
            by_text.setdefault(f"{package['license']} (the package has no file with the text)", []).append(name)
    parts = ["\n".join([*names, "", text]) for text, names in sorted(by_text.items(), key=lambda item: item[1])]
    return ("\n\n" + "-" * 80 + "\n\n").join(["mile contains these packages.", *parts]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=Path)
    arguments = parser.parse_args()
    policy = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed = set(policy["licenses"]["allow"])
    banned = {one["name"] for one in policy["bans"]["deny"]}
    found = {**packages(ROOT / "Cargo.toml"), **packages(ROOT / "python/Cargo.toml")}
    problems = []
    for name, package in sorted(found.items()):
        if not is_allowed(package["license"] or "none", allowed):
            problems.append(f"{name}: licence: expected one that deny.toml allows, got {package['license']}")
        if not package["source"].startswith("registry+"):
            problems.append(f"{name}: source: expected a registry, got {package['source']}")
        if package["name"] in banned:
            problems.append(f"{name}: is banned by deny.toml")
    registries = sorted({package["source"] for package in found.values() if package["source"].startswith("registry+")})
    if len(registries) > 1:
        problems.append(f"sources: expected one registry, got {', '.join(registries)}")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(found)} dependencies, {len(problems)} of them against deny.toml")
    if arguments.texts:
        arguments.texts.write_text(texts(dict(sorted(found.items()))))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
