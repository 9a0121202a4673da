#!/usr/bin/env bash
# The Python package: builds the extension, hardly optimised, and runs its lints, tests, doctests, types and notebooks. What
# cannot be installed here is said, and the rest goes on. Needs Python 3.10 or newer with venv, and a way to install packages.
# With the argument "install" it only installs what it needs; with "short" it leaves the notebooks out.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
export CARGO_TARGET_DIR=$target
say() { echo "python: $*"; }

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2> /dev/null; then
    say "skipped: all of it (no python3 from 3.10 on with venv here)"
    exit 0
fi
venv=${MILE_VENV:-$target/python-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
python=$venv/bin/python
install() { timeout 900 "$python" -m pip install --quiet --disable-pip-version-check "$@" > "$target/python-pip.txt" 2>&1; }
# Found, and not imported: importing PyTorch takes seconds.
has() { "$python" -c 'import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))' "$@"; }
if ! { has maturin numpy pytest || install 'maturin>=1.9,<2' numpy pytest; }; then
    say "skipped: all of it (maturin, numpy and pytest could not be installed)"
    exit 0
fi
for package in pandas matplotlib networkx scipy tqdm mypy torch; do
    has $package || install $package || say "skipped: what needs $package (it could not be installed)"
done
has nbclient ipykernel || install nbclient ipykernel || true

if [ "${1:-}" = install ]; then exit 0; fi

cargo fmt --manifest-path python/Cargo.toml --check
cargo clippy --quiet --manifest-path python/Cargo.toml --all-targets --locked -- -D warnings
# In an activated environment maturin installs into it.
(export VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH" && cd python && maturin develop --quiet --strip --locked)

cd python
# Models of tests are small: threads of PyTorch would wait for each other. Tests of what threads and processes do to each other have two.
export MPLBACKEND=Agg OMP_NUM_THREADS=1

# What one core does while the other one tests.
checks() {
    if has mypy; then "$python" -m mypy --strict mile; else say "skipped: mypy"; fi
    if has torch pandas; then
        "$python" -m pytest --doctest-modules mile
    else
        "$python" -m pytest --doctest-modules mile --ignore mile/torch
    fi
    if [ "${1:-}" = short ]; then
        say "skipped: the notebooks (asked for)"
    elif has nbclient ipykernel pandas matplotlib; then
        for notebook in notebooks/*.ipynb; do
            if grep -q 'import torch' "$notebook" && ! has torch; then
                say "skipped: $notebook (no torch)"
                continue
            fi
            "$python" tests/notebook.py "$notebook"
            say "$notebook runs"
        done
    else
        say "skipped: the notebooks (nbclient, ipykernel, pandas or matplotlib is missing)"
    fi
}
(set -e; checks "${1:-}") > "$target/python-checks.txt" 2>&1 &
checking=$!
passed=true
"$python" -m pytest tests || passed=false
wait "$checking" || passed=false
cat "$target/python-checks.txt"
$passed || exit 1
say "all is well"
