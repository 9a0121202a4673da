"""Runs the cells of a plan: python3 run.py MILE OUT [--plan PLAN] [--device cuda] [--tables FOLDER] [--only NAME]

Without --plan it is plan.toml in this folder. FOLDER has digits.csv and breast-cancer.csv with a header and the column `label` last, as scikit-learn's load_digits and
load_breast_cancer give them. What has been run is kept, so that it can be called again. Prints a line for every cell and a count, and writes
OUT/losses.jsonl.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tomllib

TABLES = {"digits": "softmax", "breast-cancer": "logistic"}
GRID = [0.001, 0.003, 0.01, 0.03]  # xi, times 10/tau


def methods(plan, tau):
    """The contenders: a label and the lines of its section."""
    if "rules" in plan:
        adaptive = [
            (f"adaptive, {c}/tau", f'name = "mile"\nxi = {{ adaptive = {c / tau:.6g} }}')
            for c in plan["rules"]["adaptive"]
        ]
        return [("local DSGD", 'name = "local-dsgd"'), ("gamma auto", 'name = "mile"\ngamma = "auto"'), *adaptive]
    fixed = [(f"xi = {g}", f'name = "mile"\ngamma = 1.0\nxi = {g * 10 / tau:.6g}') for g in GRID]
    return [
        ("local DSGD", 'name = "local-dsgd"'),
        ("paper", 'name = "mile"\nxi = "paper"'),
        *fixed,
        ("gamma auto", 'name = "mile"\ngamma = "auto"'),
        ("adaptive", 'name = "mile"\nxi = "adaptive"'),
        ("adaptive, 0.3/tau", f'name = "mile"\nxi = {{ adaptive = {0.3 / tau:.6g} }}'),
    ]


def divide(table, alpha, agents, path):
    """Writes a table with a column that names the agent of each row, drawn class by class; every agent has at least ten rows."""
    with open(table, newline="") as file:
        header, *rows = list(csv.reader(file))
    seed = 0
    while True:
        draw = random.Random(seed)
        owner = [0] * len(rows)
        for label in sorted({row[-1] for row in rows}):
            shares = [draw.gammavariate(alpha, 1.0) if alpha else 1.0 for _ in range(agents)]
            for k, row in enumerate(rows):
                if row[-1] == label:
                    owner[k] = draw.choices(range(agents), shares)[0]
        if min(owner.count(agent) for agent in range(agents)) >= 10:
            break
        seed += 1
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["agent", *header])
        writer.writerows([f"a{agent}", *row] for agent, row in zip(owner, rows))


def experiment(plan, data, cell, folder, tables):
    """The text of an experiment file."""
    alpha, tau, graph, *agents = cell
    agents = agents[0] if agents else 9 if graph == "torus" else 10
    rounds = plan["data"][data]["steps"] // tau
    lines = [f'name = "{data}"', f"seeds = {plan['seeds']}", f"rounds = {rounds}", f"eval_every = {rounds}"]
    lines += ["[network]", f"agents = {agents}", f'topology = "{graph}"', "[problem]"]
    if data in TABLES:
        divide(os.path.join(tables, data + ".csv"), alpha, agents, os.path.join(folder, "table.csv"))
        lines += ['kind = "table"', 'data = "table.csv"', 'target = "label"', f'loss = "{TABLES[data]}"']
        lines += ["l2 = 0.001", "intercept = true", "standardise = true", "batch = 8", 'by = "agent"']
    else:
        model = "cifar-cnn" if data == "cifar10" else "mnist-cnn"
        part = f'{{ kind = "dirichlet", alpha = {float(alpha)} }}' if alpha else '{ kind = "iid" }'
        lines += ['kind = "images"', f'dataset = "{data}"', f'model = "{model}"', "batch = 32"]
        lines += [f"partition = {part}", "eval_samples = 300", "test_samples = 500"]
    for label, section in methods(plan, tau):
        step = plan["data"][data]["step_size"]
        lines += ["[[algorithm]]", f'label = "{label}"', section, f"step_size = {step}", f"local_steps = {tau}"]
    return "\n".join(lines) + "\n"


def losses(folder):
    """By label, the last loss of own models of each seed; infinity if it diverged."""
    with open(os.path.join(folder, "summary.json")) as file:
        summary = json.load(file)
    found = {}
    for one in summary["outcomes"] if isinstance(summary, dict) else summary:
        value = one["last"].get("local_loss") if one["status"] in ("converged", "last round") else None
        found.setdefault(one["label"], {})[one["seed"]] = float("inf") if value is None else value
    return {label: [by_seed[seed] for seed in sorted(by_seed)] for label, by_seed in found.items()}


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mile")
    parser.add_argument("out")
    parser.add_argument("--plan", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "plan.toml"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tables", default=".")
    parser.add_argument("--only")
    given = parser.parse_args()
    with open(given.plan, "rb") as file:
        plan = tomllib.load(file)
    rules = [label for label, _ in methods(plan, 1) if "auto" in label or "adaptive" in label]
    worse = {rule: [] for rule in rules}
    lines = []
    for data, cells in plan["cells"].items():
        for cell in cells:
            alpha, tau, graph, *agents = cell
            name = "-".join([data, str(alpha or "iid"), str(tau), graph, *map(str, agents)])
            if given.only and given.only != data:
                continue
            folder = os.path.join(given.out, name)
            os.makedirs(folder, exist_ok=True)
            run = os.path.join(folder, "run")
            if not os.path.exists(os.path.join(run, "summary.json")):
                with open(os.path.join(folder, "cell.toml"), "w") as file:
                    file.write(experiment(plan, data, cell, folder, given.tables))
                device = "cpu" if data in TABLES else given.device
                command = [given.mile, "run", os.path.join(folder, "cell.toml"), "--out", run, "--device", device]
                with open(os.path.join(folder, "log.txt"), "w") as log:
                    subprocess.run(command, stdout=log, stderr=log, check=False)
            if not os.path.exists(os.path.join(run, "summary.json")):
                print(f"{name}: failed, see {folder}/log.txt")
                continue
            found = losses(run)
            lines += [json.dumps({"cell": name, "method": label, "local_loss": found[label]}) for label in found]
            others = {label: values for label, values in found.items() if label not in rules}
            best = min(others, key=lambda label: mean(others[label]))
            parts = [f"{label} {mean(values):.4g}" for label, values in found.items()]
            print(f"{name}: best of the others {best}; {', '.join(parts)}")
            for rule in rules:
                behind = all(own > other for own, other in zip(found[rule], others[best]))
                if behind and mean(found[rule]) > 1.05 * mean(others[best]):
                    worse[rule].append(name)
            sys.stdout.flush()
    with open(os.path.join(given.out, "losses.jsonl"), "w") as file:
        file.write("\n".join(lines) + "\n")
    for rule, names in worse.items():
        print(f"{rule}: worse than the best of the others beyond seed noise in {len(names)} cells: {', '.join(names)}")


if __name__ == "__main__":
    main()
