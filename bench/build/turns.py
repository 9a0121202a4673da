#!/usr/bin/env python3
"""The benchmarks of two trees in turns, on a quiet machine: core, table, small, nn, net, and compare.py with the two commands.

    python3 turns.py --builds OLD NEW [--benches core,table,...] [--turns 5] [--out FOLDER]

OLD and NEW are folders with the programs of each tree, built before by `cargo build --release` in its folders bench/core, bench/table,
bench/small, bench/nn and bench/net, and its command mile. Each figure is a time, of NEW over OLD: the best, and the median, of all turns and
windows. Bandwidths become times. Writes turns.json, and prints a table in which what is above 1.03 by both is bold.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def output(program, *arguments, threads=None):
    environment = dict(os.environ, **({"RAYON_NUM_THREADS": str(threads)} if threads else {}))
    return subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout


def core(folder, options, threads):
    """Lines of text, each with a bandwidth or with times."""
    alone = ["--mg-skip"] if options.smallest else []
    for line in output(folder / "mile-bench-core", *alone, threads=threads).splitlines():
        if bandwidth := re.match(r"(mix|combine)[^:]*: ([0-9.]+) GB/s", line):
            yield bandwidth[1], [1.0 / float(bandwidth[2])]
        elif line.startswith("a round of MG-Skip"):
            yield f"MG-Skip, {line.split('ring of ')[1].split(':')[0]}", [float(re.search(r"([0-9.]+) ms", line)[1])]
        elif line.startswith("a round of MILE"):
            sizes = zip(["250 x 10^4", "1,000 x 10^4", "10,000 x 10^3"], re.findall(r" ([0-9.]+) ms", line))
            yield from ((f"MILE on {'springs' if 'springs' in line else 'quadratics'}, {size}", [float(ms)]) for size, ms in sizes)


def table(folder, options, threads):
    found = json.loads(output(folder / "bench-table", threads, options.windows))
    for one in found["gradients"]:
        yield f"{one['loss']}, {one['rows']} x {one['dim']}, {one['precision']}", one["ms"]


def small(folder, options, threads):
    with tempfile.TemporaryDirectory() as home:
        output(folder / "bench-small", "data", f"{home}/data")
        yield from json.loads(output(folder / "bench-small", "run", f"{home}/data", 10 * options.windows, home, threads=threads)).items()


def nn(folder, options, threads):
    names = "mnist-cnn" if options.smallest else "mnist-cnn,cifar-cnn"
    for one in json.loads(output(folder / "bench-nn", "speed", threads, options.windows, names))["gradients"]:
        yield f"{one['network']} at {one['batch']}", one["ms"]


def net(folder, options, threads):
    """The transports of the engine, and TLS alone, whose code is the same in both trees: the noise."""
    modes = [("tcp", 1_000_000, 12), ("quic", 1_000_000, 12), ("tls", 1_000_000, 12)]
    modes += [] if options.smallest else [("tcp", 25_000_000, 4), ("quic", 25_000_000, 4), ("tls", 25_000_000, 4)]
    for mode, dim, exchanges in modes:
        exchange, cpu = pair(folder / "mile-bench-net", mode, dim, exchanges)
        yield f"{mode}, {4 * dim // 10**6} MB: an exchange", exchange
        yield f"{mode}, {4 * dim // 10**6} MB: its CPU time", [cpu]


def pair(program, mode, dim, exchanges):
    """What bench/net does for a pair of processes, without its own turns: each exchange once both are ready for it, but the first."""
    sockets = [socket.socket(type=socket.SOCK_DGRAM) for _ in (0, 1)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    started = [
        subprocess.Popen([program, mode, *map(str, (k, *ports, dim, exchanges))], stdout=subprocess.PIPE, text=True) for k in (0, 1)
    ]
    lines = [one.communicate()[0].splitlines() for one in started]
    if any(one.returncode for one in started):
        raise SystemExit(f"{program} {mode} failed")
    spans = [[tuple(map(float, line.split()[1:])) for line in text if line.startswith("exchange")] for text in lines]
    took = [max(a[1], b[1]) - max(a[0], b[0]) for a, b in zip(*spans)][1:]
    return took, sum(float(text[-1].split()[4]) for text in lines) / exchanges


BENCHES = {"core": core, "table": table, "small": small, "nn": nn, "net": net}


def ratio(old, new):
    return min(new) / min(old), statistics.median(new) / statistics.median(old)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", nargs=2, required=True, type=pathlib.Path, metavar=("OLD", "NEW"))
    parser.add_argument("--benches", default=",".join([*BENCHES, "compare"]))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--windows", type=int, default=5, help="of each turn, in table, nn and, ten times as many, small")
    parser.add_argument("--threads", default="1", help="numbers of threads of core, table, small and nn, such as 1,2")
    parser.add_argument("--smallest", action="store_true", help="only a test of this program: a turn of the smallest cases")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.smallest:
        options.turns, options.windows = 1, 1
    builds = [build.resolve() for build in options.builds]
    results = {}
    print("| | by the best | by the median |\n|---|---|---|", flush=True)
    chosen = options.benches.split(",")
    for bench, measure in BENCHES.items():
        if bench not in chosen:
            continue
        for threads in [None] if bench == "net" else map(int, options.threads.split(",")):
            times = {}
            for turn in range(options.turns):
                for k in (0, 1) if turn % 2 == 0 else (1, 0):
                    for name, found in measure(builds[k], options, threads):
                        times.setdefault(name, ([], []))[k].extend(found)
            of = f"{bench}, {threads} thread{'s' if threads != 1 else ''}" if threads else bench
            for name, (old, new) in times.items():
                best, median = ratio(old, new)
                mark = "**" if best > 1.03 and median > 1.03 else ""
                print(f"| {mark}{of}: {name}{mark} | {best:.3f} | {median:.3f} |", flush=True)
                results[f"{of}: {name}"] = {"old": old, "new": new, "best": best, "median": median}
    if "compare" in chosen:
        turns = ["--turns", "1", "--cases", "grid of 1,600"] if options.smallest else ["--turns", str(min(options.turns, 3))]
        print("\nCPU time of the command, by compare.py:", flush=True)
        subprocess.run([sys.executable, HERE / "compare.py", "--builds", *(build / "mile" for build in builds), *turns], check=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "turns.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
