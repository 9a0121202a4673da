#!/usr/bin/env python3
"""Whether two builds of the command mile compute the same bits.

    python3 bits.py --builds OLD NEW [--mpirun "mpirun --oversubscribe"] [--out FOLDER]

Both run the same experiments: every method that OLD has, in both precisions, on quadratics, tables and small networks, on a network that
changes, as processes (mile swarm) and, with --mpirun, on two ranks of MPI. What a build could choose differently is given: step sizes, local
steps, when and on what models are evaluated. Compared are all tensors of final/ (states, average models, models of agents), byte by byte, and
all numbers of all records but times. Three things may differ, and only by what is said there:

- digits that come from an eigenvalue solver: cases with EIGENVALUES, compared to 1e-12 of the largest number;
- the weights of mixing = "fdla", which Newton's method finds with Cholesky factors, of a library in NEW. The largest eigenvalues, which they
  minimise, are compared to 1e-12; the weights are not, because many nearly reach the minimum;
- losses, and errors on held-out rows, of exact least squares on tables, which NEW takes from the normal equations: to 1e-12, in records only.

Quantities that only NEW records are listed, and are no difference. Writes bits.json and prints a table; exits with 1 if anything differs.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile

TAU = "local_steps = 3"
# For each method its parameters, of which each line is an algorithm.
METHODS = {
    "mile": [
        TAU,
        f"{TAU}; xi = 0.2; gamma = 0.8",
        f"{TAU}; xi = 0.1; gamma = 0.7; momentum = 0.5",
        f"{TAU}; xi = 0.1; gamma = 0.7; momentum = 0.5; nesterov = true",
        f'{TAU}; compression = "8-bit"',
        f"{TAU}; compression = {{ top_k = 0.2 }}",
        f"{TAU}; xi = {{ adaptive = 0.05 }}; gamma = 0.9",
        f"{TAU}; xi = {{ from = 0.01, to = 0.1, rounds = 6 }}",
        f'{TAU}; schedule = {{ kind = "cosine", warmup = 2, rounds = 8 }}',
        f'{TAU}; change = [{{ round = 4, step_size = 0.01, schedule = {{ kind = "step", every = 2, factor = 0.5 }} }}]',
    ],
    "led": [TAU, f"{TAU}; beta = 0.3; momentum = 0.5", f"{TAU}; beta = 0.3; momentum = 0.5; nesterov = true"],
    "k-gt": [TAU, f"{TAU}; eta_s = 0.8; momentum = 0.5", f"{TAU}; momentum = 0.5; nesterov = true"],
    "periodical-gt": [TAU],
    "dec-fedtrack": [TAU, f"{TAU}; eta_s = 0.8"],
    "gta-1": [TAU, f"{TAU}; communications = 2"],
    "gta-2": [TAU, f"{TAU}; communications = 2"],
    "gta-3": [TAU, f"{TAU}; communications = 2"],
    "diging": [TAU],
    "push-pull": [TAU],
    "extra": [""],
    "ed": [""],
    "nids": [""],
    "d2": [""],
    "proxskip": [TAU, "probability = 0.5; beta = 0.4; chi = 1.5"],
    "mg-skip": [f"{TAU}; gossip = 2", "probability = 0.5; gossip = 3"],
    "local-dsgd": [
        TAU,
        f"{TAU}; momentum = 0.5",
        f"{TAU}; momentum = 0.5; nesterov = true",
        f'{TAU}; compression = "8-bit"',
        f"{TAU}; compression = {{ top_k = 0.2 }}; gamma = 0.3",
    ],
    "dsgd": ["", 'variant = "cta"'],
    "gradient-tracking": [""],
    "scaffold": [TAU, f"{TAU}; eta_s = 0.8"],
    "momentum-tracking": ["momentum = 0.5"],
    "edm": ["momentum = 0.5"],
    "qg-dsgdm": ["momentum = 0.5", "momentum = 0.5; nesterov = true"],
    "decentlam": ["momentum = 0.5"],
}
WITH_PENALTY = ["extra", "ed", "nids", "dsgd", "local-dsgd"]
RING = 'agents = 6\ntopology = "ring"\nmixing = "lazy-metropolis"'
# Of SCAFFOLD too, which needs the average over all agents.
COMPLETE = 'agents = 4\ntopology = "complete"\nmixing = "metropolis"'
EIGENVALUES = 1e-12
NORMAL_EQUATIONS = 1e-12

QUADRATIC = 'kind = "quadratic"\ndim = 37\ncondition = 20'
LOGISTIC = 'kind = "table"\ndata = "classes.csv"\ntarget = "y"\nloss = "logistic"\nl2 = 0.01\nintercept = true\nstandardise = true\npartition = "iid"\ntest = 0.25'
EXACT = 'kind = "table"\ndata = "numbers.csv"\ntarget = "y"\nloss = "least-squares"\nintercept = true\nstandardise = true\npartition = "iid"\ntest = 0.25'
LAYERS = '[{ kind = "conv", out = 4, kernel = 3 }, { kind = "relu" }, { kind = "max-pool" }, { kind = "dense", out = 10 }]'
NETWORK = f'kind = "images"\ndataset = "glyphs"\nmodel = {LAYERS}\nbatch = 8\neval_samples = 20\ntest_samples = 40\npartition = {{ kind = "dirichlet", alpha = 0.5 }}'
PAPER = NETWORK.replace(LAYERS, '"mnist-cnn"')


def algorithms(names, step_size, allowed=lambda parameters: True):
    chosen = [(name, k, lines) for name in names for k, lines in enumerate(METHODS[name]) if allowed(lines)]
    one = '[[algorithm]]\nname = "{}"\nlabel = "{}"\nstep_size = {}\n{}\n'
    return "".join(one.format(name, f"{name}-{k}", step_size, lines.replace("; ", "\n")) for name, k, lines in chosen)


def experiment(network, problem, methods, rounds=8, seeds="[0, 1]", more=""):
    return (
        f'name = "bits"\nrounds = {rounds}\neval_every = {2 if rounds > 4 else rounds}\neval_agents = 3\nagent_metrics = true\nseeds = {seeds}\n{more}\n'
        f"[network]\n{network}\n[problem]\n{problem}\n{methods}"
    )


def cases():
    """Name, command, experiment, and what may differ: the tolerance of states and of which quantities of records."""
    every = list(METHODS)
    decentralized = [name for name in every if name != "scaffold"]
    lasting = lambda lines: "compression" not in lines  # noqa: E731
    plain = lambda lines: lasting(lines) and "momentum" not in lines  # noqa: E731
    few = ["mile", "k-gt", "led"]
    random_start = 'start = { value = "random" }'
    loss = re.compile("loss|rmse|r2|mae")
    found = [
        ("quadratic, ring", "run", experiment(RING, QUADRATIC, algorithms(decentralized, 0.05), more=random_start)),
        ("quadratic, complete", "run", experiment(COMPLETE, QUADRATIC, algorithms(every, 0.05))),
        ("quadratic, edges drop", "run", experiment(f"{RING}\ndrop_rate = 0.3", QUADRATIC, algorithms(decentralized, 0.05, lasting))),
        ("quadratic, matchings", "run", experiment(f'{RING}\ntime_varying = "random-matching"', QUADRATIC, algorithms(few, 0.05, lasting))),
        (
            "quadratic, agents leave and join",
            "run",
            experiment(RING, QUADRATIC, algorithms(few, 0.05, lasting))
            + "[[event]]\nround = 3\nreplace = 2\n[[event]]\nround = 4\nleave = 1\nedges = [[0, 2]]\n[[event]]\nround = 6\njoin = 6\nneighbours = [0, 3]\n",
        ),
        ("logistic table, ring", "run", experiment(RING, LOGISTIC, algorithms(decentralized, 0.3))),
        ("logistic table, complete", "run", experiment(COMPLETE, LOGISTIC, algorithms(every, 0.3))),
        ("logistic table, batches", "run", experiment(RING, f"{LOGISTIC}\nbatch = 5", algorithms(decentralized, 0.3))),
        ("logistic table, epochs", "run", experiment(RING, f"{LOGISTIC}\nbatch = {{ epoch = 7 }}", algorithms(few, 0.3))),
        ("logistic table, wide", "run", experiment(COMPLETE, LOGISTIC.replace("classes.csv", "wide.csv"), algorithms(every, 0.01))),
        ("logistic table, l1", "run", experiment(RING, f"{LOGISTIC}\nl1 = 0.02", algorithms(WITH_PENALTY, 0.3, plain))),
        ("least-squares table", "run", experiment(COMPLETE, EXACT, algorithms(every, 0.1)), 0.0, (loss, NORMAL_EQUATIONS)),
        ("least-squares table, batches", "run", experiment(RING, f"{EXACT}\nbatch = 5", algorithms(few, 0.05)), 0.0, (loss, NORMAL_EQUATIONS)),
    ]
    for kind, data in [("nonconvex-logistic", "classes"), ("softmax", "classes"), ("poisson", "counts"), ("huber", "numbers"), ("welsch", "numbers")]:
        scale = {"huber": "\ndelta = 0.5", "welsch": "\nc = 0.5"}.get(kind, "")
        problem = EXACT.replace("numbers.csv", f"{data}.csv").replace("least-squares", kind) + scale
        found.append((f"{kind} table", "run", experiment(RING, problem, algorithms(few, 0.05))))
    found += [
        ("network on glyphs", "run", experiment(COMPLETE, NETWORK, algorithms(every, 0.1), 4, "[0]")),
        ("mnist-cnn on glyphs", "run", experiment(COMPLETE, PAPER, algorithms(["led", "dsgd", "scaffold"], 0.05), 2, "[0]")),
        ("swarm, quadratic", "swarm", experiment(COMPLETE, QUADRATIC, algorithms(every, 0.05), 6, "[0]")),
        ("swarm, logistic table", "swarm", experiment(COMPLETE, LOGISTIC, algorithms(every, 0.3), 6, "[0]")),
        ("swarm, network on glyphs", "swarm", experiment(COMPLETE, NETWORK, algorithms(["mile", "led", "k-gt", "scaffold"], 0.1), 4, "[0]")),
        ("swarm by QUIC, edges drop", "swarm", experiment(f"{RING}\ndrop_rate = 0.3", QUADRATIC, algorithms(few, 0.05, lasting), 6, "[0]") + '[agent]\ntransport = "quic"\n'),
        ("ranks, quadratic", "ranks", experiment(COMPLETE, QUADRATIC, algorithms(every, 0.05))),
        ("ranks, logistic table", "ranks", experiment(RING, LOGISTIC, algorithms(decentralized, 0.3))),
        ("ranks, network on glyphs", "ranks", experiment(COMPLETE, NETWORK, algorithms(every, 0.1), 4, "[0]")),
    ]
    own = '[[algorithm]]\nname = "mile"\nlabel = "adaptive"\nstep_size = 0.05\nxi = "adaptive"\n[[algorithm]]\nname = "mg-skip"\nstep_size = 0.05\n'
    for mixing in ["metropolis", "best-constant"]:
        network = f'agents = 9\ntopology = "erdos-renyi"\np = 0.5\nmixing = "{mixing}"'
        found.append((f"EIGENVALUES: {mixing}", "run", experiment(network, QUADRATIC, own + algorithms(few, 0.05)), EIGENVALUES, (re.compile(""), EIGENVALUES)))
    for topology in ["erdos-renyi --agents 9 --p 0.5", "grid --agents 30"]:
        found.append((f"EIGENVALUES: fdla, {topology}", "graph", f"--topology {topology} --mixing fdla --format json"))
    return found


def write_tables(home):
    """Four tables, with the same numbers on every machine: a generator of whole numbers, scaled."""
    draw = random.Random(7)
    number = lambda: draw.randrange(-(10**6), 10**6) / 2**19  # noqa: E731
    for name, rows, columns in [("classes", 211, 7), ("numbers", 211, 7), ("counts", 211, 7), ("wide", 40, 1_200)]:
        with open(home / f"{name}.csv", "w", encoding="utf-8") as file:
            file.write(",".join(f"c{k}" for k in range(columns)) + ",y\n")
            for _ in range(rows):
                x = [number() for _ in range(columns)]
                z = x[0] - 0.5 * x[1] + 0.3 * number()
                y = {"numbers": f"{z:.6f}", "counts": str(max(0, round(z + 1)))}.get(name, "yes" if z > 0 else "no")
                file.write(",".join(f"{v:.6f}" for v in x) + f",{y}\n")


def tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: (one["dtype"], one["shape"], body[slice(*one["data_offsets"])]) for name, one in header.items()}


def is_near(old, new, tolerance, scale):
    if isinstance(old, float) and isinstance(new, float):
        return old == new or abs(old - new) <= tolerance * scale
    return old == new


def tensor_is_equal(old, new, tolerance):
    if tolerance == 0.0 or old[:2] != new[:2]:
        return old == new
    numbers = [struct.unpack(f"<{len(one[2]) // 8}d", one[2]) for one in (old, new)]
    scale = max(map(abs, numbers[0]), default=0.0)
    return all(is_near(a, b, tolerance, scale) for a, b in zip(*numbers))


def flat(record):
    """Its numbers by name; those of agents one by one. Texts of numbers, so that -0 is not 0."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", one) for inner, one in flat(value))
        elif isinstance(value, list):
            yield from ((f"{name}.{k}", one) for k, one in enumerate(value))
        else:
            yield name, value


class Comparison:
    def __init__(self):
        self.count = {"algorithms": set(), "files": 0, "tensors": 0, "records": 0, "numbers": 0}
        self.differences, self.near, self.new = [], {}, set()

    def folders(self, old, new, tolerance, exempt):
        names = [sorted(path.name for path in (home / "final").iterdir()) for home in (old, new)]
        if names[0] != names[1] or not names[0]:
            self.differences.append(f"files of final: {sorted(set(names[0]) ^ set(names[1]))}")
        for name in sorted(set(names[0]) & set(names[1])):
            self.count["files"] += 1
            a, b = tensors(old / "final" / name), tensors(new / "final" / name)
            if a.keys() != b.keys():
                self.differences.append(f"{name}: tensors {sorted(a.keys() ^ b.keys())}")
            for tensor in a.keys() & b.keys():
                self.count["tensors"] += 1
                if not tensor_is_equal(a[tensor], b[tensor], tolerance):
                    self.differences.append(f"{name}: {tensor}")
        records = [[json.loads(line) for line in open(home / "metrics.jsonl", encoding="utf-8")] for home in (old, new)]
        key = lambda record: (record["label"], record["seed"], record["round"])  # noqa: E731
        old_records, new_records = ({key(record): record for record in one} for one in records)
        if old_records.keys() != new_records.keys() or not old_records:
            self.differences.append(f"records: {sorted(old_records.keys() ^ new_records.keys())[:5]}")
        for name in sorted(old_records.keys() & new_records.keys()):
            self.count["records"] += 1
            self.count["algorithms"].add(name[0])
            self.record(name, dict(flat(old_records[name])), dict(flat(new_records[name])), exempt)

    def record(self, name, old, new, exempt):
        self.new |= {quantity for quantity in new.keys() - old.keys()}
        for quantity, value in old.items():
            if quantity == "wall_s":
                continue
            self.count["numbers"] += 1
            other = new.get(quantity, "not recorded")
            if repr(value) == repr(other):
                continue
            pattern, tolerance = exempt if exempt else (None, 0.0)
            both = isinstance(value, float) and isinstance(other, float)
            if pattern and pattern.search(quantity) and both and is_near(value, other, tolerance, max(abs(value), 1.0)):
                part = abs(value - other) / max(abs(value), 1.0)
                known = self.near.get(quantity.split(".")[0], [0, 0.0])
                self.near[quantity.split(".")[0]] = [known[0] + 1, max(known[1], part)]
            else:
                self.differences.append(f"record {name}: {quantity}: {value} and {other}")


def run(mile, command, file, out, home, mpirun):
    start = [*shlex.split(mpirun), "-n", "2", mile, "run"] if command == "ranks" else [mile, command]
    quiet = [] if command == "swarm" else ["--quiet"]
    environment = dict(os.environ, RAYON_NUM_THREADS="2", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run([*start, file, "--out", str(out), *quiet], cwd=home, capture_output=True, text=True, env=environment)
    return None if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip())[-600:]


def compare_graphs(builds, arguments):
    comparison = Comparison()
    told = [subprocess.run([mile, "graph", *arguments.split()], capture_output=True, check=True).stdout for mile in builds]
    old, new = map(json.loads, told)
    for name in ["lambda_2", "lambda_n"]:
        comparison.count["numbers"] += 1
        if not is_near(old[name], new[name], EIGENVALUES, 1.0):
            comparison.differences.append(f"{name}: {old[name]} and {new[name]}")
        elif old[name] != new[name]:
            comparison.near[name] = [1, abs(old[name] - new[name])]
    return comparison


def compare(builds, home, case, precision, mpirun):
    name, command, text, *rest = case
    if command == "graph":
        return compare_graphs(builds, text)
    tolerance, exempt = rest if rest else (0.0, None)
    file = f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{precision}.toml"
    (home / file).write_text(f'precision = "{precision}"\n{text}', encoding="utf-8")
    comparison = Comparison()
    outs = [home / f"{file}-{k}" for k in (0, 1)]
    failed = [run(mile, command, file, out, home, mpirun) for mile, out in zip(builds, outs)]
    if any(failed):
        comparison.differences.append(f"failed: {failed}")
    else:
        comparison.folders(*outs, tolerance, exempt)
    return comparison


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", nargs=2, required=True, metavar=("OLD", "NEW"))
    parser.add_argument("--mpirun", metavar="COMMAND", help="how to start ranks; both builds then need the feature mpi")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only those whose name contains it")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="where to write bits.json")
    options = parser.parse_args()
    builds = [str(pathlib.Path(build).resolve()) for build in options.builds]
    told = json.loads(subprocess.run([builds[0], "algorithms", "--format", "json"], capture_output=True, check=True).stdout)
    names = {one["name"] for one in told["algorithms"]}
    if names != METHODS.keys():
        raise SystemExit(f"OLD has other methods than METHODS: {sorted(names ^ METHODS.keys())}")
    results = []
    print("| case | precision | algorithms | tensors | records | numbers of records | near, not equal | different |\n|" + "---|" * 8)
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        write_tables(home)
        for case in cases():
            if options.cases not in case[0] or (case[1] == "ranks" and not options.mpirun):
                continue
            for precision in ["f64"] if "EIGENVALUES" in case[0] else ["f64", "f32"]:
                found = compare(builds, home, case, precision, options.mpirun or "")
                count = {name: len(one) if isinstance(one, set) else one for name, one in found.count.items()}
                near = ", ".join(f"{name} {number} (to {part:.0e})" for name, (number, part) in sorted(found.near.items()))
                line = [case[0], precision, *(count[k] for k in ("algorithms", "tensors", "records", "numbers")), near or "-", len(found.differences) or "none"]
                print("| " + " | ".join(map(str, line)) + " |", flush=True)
                for difference in found.differences[:10]:
                    print(f"  {difference}", file=sys.stderr, flush=True)
                results.append(
                    {"case": case[0], "precision": precision, **count, "near": found.near, "differences": found.differences, "only_new": sorted(found.new)}
                )
                if options.out:
                    options.out.mkdir(parents=True, exist_ok=True)
                    (options.out / "bits.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    total = {name: sum(one[name] for one in results) for name in ("files", "tensors", "records", "numbers")}
    different = sum(len(one["differences"]) for one in results)
    print(f"\n{len(results)} comparisons: {total}; different: {different}; recorded only by NEW: {sorted(set().union(*(one['only_new'] for one in results)))}")
    sys.exit(1 if different or not results else 0)


if __name__ == "__main__":
    main()
