#!/usr/bin/env python3
"""How fast pandas and polars read the table of a million rows that mile's own measurement reads.

    python3 bench/table/read.py [--python PYTHON]
    cargo test --release -p mile-problems --lib speed_of_reading -- --ignored --nocapture

The first prints the rivals' best of five, by the clock and in CPU time of all threads; the second mile's: the whole way from the file to the rows of eight
agents, and the look of `mile init`. Installs pandas, polars and pyarrow into an environment that is thrown away at the end. Needs 400 MB of disk.
"""

import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from rivals import cpu_model, environment, output  # noqa: E402 (the folder above has to be known first)

PEER = """
import sys, time
import numpy, pandas, polars

folder = sys.argv[1]
table = polars.DataFrame({f"c{k}": numpy.random.default_rng(k).uniform(-0.5, 0.5, 1_000_000).round(6) for k in range(20)})
table = table.with_columns(y=polars.int_range(len(table)) % 2)
table.write_csv(f"{folder}/all.csv", float_precision=6)
table.write_parquet(f"{folder}/all.parquet", compression="snappy")
for library, read in (("pandas", pandas), ("polars", polars)):
    for kind in ("csv", "parquet"):
        times = []
        for _ in range(5):
            begun = time.perf_counter(), time.process_time()
            getattr(read, f"read_{kind}")(f"{folder}/all.{kind}")
            times.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
        clock, cpu = (min(column) for column in zip(*times))
        print(f"{clock:.2f} s, {cpu:.2f} s of CPU time: {library} {read.__version__}, {kind}")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has pandas, polars and pyarrow, instead of installing them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        python = arguments.python or environment(folder / "python", "polars", "pandas", "pyarrow")
        if python:
            print(cpu_model())
            print(output(python, "-c", PEER, folder), end="")


if __name__ == "__main__":
    main()
