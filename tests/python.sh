#!/usr/bin/env bash
# The Python package: builds the extension, hardly optimised, and runs its lints, tests, doctests, types and notebooks. Needs Python 3.10 or
# newer with venv, and installs the packages it needs into a separate environment; returns 77 if it cannot. With the argument "install" it only does that,
# and with "develop" it also builds the extension.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
export CARGO_TARGET_DIR=$target
say() { echo "python: $*"; }
cannot() { say "cannot run: $*"; exit 77; }

python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || cannot "no python3 from 3.10 on with venv"
venv=${MILE_VENV:-$target/python-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
python=$venv/bin/python
# Found, and not imported: importing PyTorch takes seconds.
has() { "$python" -c 'import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))' "$@"; }
install() { timeout 1200 "$python" -m pip install --quiet --disable-pip-version-check "$@" || cannot "pip could not install $*"; }
has maturin || install 'maturin>=1.9,<2'
for package in numpy pytest mypy basedpyright pandas matplotlib networkx scipy tqdm nbclient ipykernel torch jax; do
    has $package || install $package
done
# Loggers. MLflow without its server, which is most of it; with what its local database needs.
has wandb || install wandb
has mlflow sqlalchemy alembic || install mlflow-skinny sqlalchemy alembic
[ "${1:-}" != install ] || exit 0

# In an activated environment maturin installs into it.
develop() { (export VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH" && cd python && maturin develop --quiet --strip --locked); }
if [ "${1:-}" = develop ]; then
    develop
    exit 0
fi
cargo fmt --manifest-path python/Cargo.toml --check
cargo clippy --quiet --manifest-path python/Cargo.toml --all-targets --locked -- -D warnings
develop

cd python
# Models of tests are small: PyTorch threads would wait for each other. Tests of what threads and processes do to each other have two.
export MPLBACKEND=Agg OMP_NUM_THREADS=1

# What one core does while the other one tests.
checks() {
    "$python" -m mypy --strict mile
    "$python" -m pytest --doctest-modules mile
    local notebook
    for notebook in notebooks/*.ipynb; do
        "$python" tests/notebook.py "$notebook"
        say "$notebook runs"
    done
}
(set -e; checks) > "$target/python-checks.txt" 2>&1 &
checking=$!
passed=true
"$python" -m pytest tests || passed=false
wait "$checking" || passed=false
cat "$target/python-checks.txt"
$passed || exit 1
say "all is well"
