#!/usr/bin/env python3
"""Prints the crates of the workspace that are published, each after those that it depends on."""

import json
import subprocess
from graphlib import TopologicalSorter


def main() -> None:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.check_output(command))["packages"]
    published = {package["name"]: package for package in packages if package["publish"] is None}
    uses = {name: {d["name"] for d in package["dependencies"] if d["name"] in published and d["kind"] != "dev"} for name, package in published.items()}
    # Sorted, so that the order is the same every time.
    print(*TopologicalSorter(dict(sorted(uses.items()))).static_order(), sep="\n")


if __name__ == "__main__":
    main()
