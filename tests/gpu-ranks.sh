#!/usr/bin/env bash
# Ranks on GPUs against one process on one GPU: run directories that are equal byte by byte, resuming with another number of ranks and on
# the CPU, and failures. Ranks may share a GPU. Returns 77 where there is none. Where MPI is CUDA-aware, messages go both ways: through host
# memory and between GPU memories. Needs mpirun, or another one given as MPIRUN; builds the program with the features mpi and cuda, or takes
# one: MILE=path/to/mile tests/gpu-ranks.sh
set -euo pipefail
mile=${MILE:-}
if [ -z "$mile" ]; then
    cd "$(dirname "$0")/.."
    cargo build --locked --workspace --features mile-cli/mpi,mile-ranks/mpi --bin mile
    mile=$(cargo metadata --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)/debug/mile
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 RAYON_NUM_THREADS=2
mpirun=${MPIRUN:-mpirun}
flags=()
if $mpirun --version | grep -q 'Open MPI'; then flags=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1); fi
ranks() { timeout 120 $mpirun "${flags[@]}" -n "$@"; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
say() { echo "gpu-ranks: after $SECONDS s: $*"; }
fail() { echo "gpu-ranks: failed: $*" >&2; exit 1; }
# Run directories are equal: states and exported models, records without their times, settings.
same() {
    local file
    for file in "$1"/final/* "$1"/config.toml; do cmp "$file" "$2/${file#"$1"/}"; done
    [ "$(ls "$1/final")" = "$(ls "$2/final")" ] || fail "$2/final has other files than $1/final"
    cmp <(sed 's/"wall_s":[^,}]*//' "$1/metrics.jsonl") <(sed 's/"wall_s":[^,}]*//' "$2/metrics.jsonl")
}

two='[[algorithm]]\nname = "mile"\nstep_size = 0.02\nlocal_steps = 3\n[[algorithm]]\nname = "k-gt"\nstep_size = 0.02\n'
adaptive='[[algorithm]]\nname = "mile"\nlabel = "adaptive"\nstep_size = 0.02\nxi = "adaptive"\n'
for agent in 0 1 2 3 4 5 6 7; do
    awk -v seed=$agent 'BEGIN { srand(seed); print "a,b,c,y"; for (k = 0; k < 15 + 4 * seed; k++)
        printf "%.4f,%.4f,%s,%s\n", rand(), 3 * rand(), (k % 3 ? "red" : "blue"), (rand() < 0.4 ? "yes" : "no") }' > "$home/agent-$agent.csv"
done
printf 'rounds = 12\neval_every = 3\nprecision = "f64"\nstart = { value = "random" }\n[network]\nagents = 8\ntopology = "torus"\ndrop_rate = 0.2\n[problem]\nkind = "quadratic"\ndim = 3000\n%b%b' "$two" "$adaptive" > "$home/quadratic.toml"
printf 'rounds = 12\neval_every = 3\nprecision = "f64"\n[network]\nagents = 8\n[problem]\nkind = "table"\ndata = "agent-{agent}.csv"\ntarget = "y"\nloss = "logistic"\nl2 = 0.01\nintercept = true\nstandardise = true\ncategorical = ["c"]\ntest = 0.3\nbatch = 4\n%b' "$two" > "$home/table.toml"
printf 'rounds = 4\neval_every = 2\nprecision = "f64"\n[network]\nagents = 6\n[problem]\nkind = "images"\nmodel = "mnist-cnn"\nbatch = 8\neval_samples = 50\ntest_samples = 200\n%b' "$two" > "$home/cnn.toml"

if ! "$mile" run "$home/quadratic.toml" --device cuda --out "$home/first" --quiet 2> "$home/first.txt"; then
    grep -q -- '--device' "$home/first.txt" || { cat "$home/first.txt"; fail "the run on one GPU"; }
    say "cannot run: $(tail -1 "$home/first.txt")"
    exit 77
fi
say "which rank has which GPU, and which way messages go, is said once"
said() { ranks 3 "$mile" run "$home/table.toml" --device cuda --out "$home/said-$1" > "$home/said.txt" 2>&1 || { cat "$home/said.txt"; fail "three ranks"; }
    [ "$(grep -c 'device: rank 0 on .*: cuda:.*; rank 1 on .*; rank 2 on .*; messages ' "$home/said.txt")" = 1 ] || { cat "$home/said.txt"; fail "no line about the GPUs"; }; }
said asked
if grep -q 'messages between GPU memories' "$home/said.txt"; then
    ways="0 1"
    MILE_CUDA_AWARE_MPI=0 said told
    grep -q 'messages through host memory' "$home/said.txt" || fail "MILE_CUDA_AWARE_MPI=0 changes nothing"
else
    grep -q 'messages through host memory' "$home/said.txt" || fail "the way of messages is not said"
    ways=0
    say "this MPI is not CUDA-aware: messages go through host memory only"
fi
for name in quadratic table cnn; do
    for precision in f32 f64; do
        kind=$name-$precision
        "$mile" run "$home/$name.toml" --set precision=$precision --device cuda --out "$home/$kind" --quiet
        for way in $ways; do
            export MILE_CUDA_AWARE_MPI=$way
            for n in 1 2 3; do
                ranks $n "$mile" run "$home/$name.toml" --set precision=$precision --device cuda --out "$home/$kind-$n-$way" --quiet
                same "$home/$kind" "$home/$kind-$n-$way"
                say "$kind: $n ranks are the same as one process, $([ "$way" = 1 ] && echo "between GPU memories" || echo "through host memory")"
            done
        done
    done
done

say "resuming with another number of ranks, on GPUs"
for pair in "3 1" "1 2" "2 3"; do
    read -r before after <<< "$pair"
    out=$home/resumed-$before-$after
    ranks "$before" "$mile" run "$home/cnn.toml" --set precision=f32 --set rounds=2 --device cuda --out "$out" --quiet
    ranks "$after" "$mile" run "$home/cnn.toml" --set precision=f32 --device cuda --out "$out" --resume --quiet
    same "$home/cnn-f32" "$out"
done
say "a run goes on from GPUs to CPUs and back"
ranks 2 "$mile" run "$home/cnn.toml" --set rounds=2 --device cuda --out "$home/moved" --quiet
ranks 3 "$mile" run "$home/cnn.toml" --set rounds=3 --out "$home/moved" --resume --quiet
ranks 2 "$mile" run "$home/cnn.toml" --device cuda --out "$home/moved" --resume --quiet
[ "$(wc -l < "$home/moved/metrics.jsonl")" -ge "$(wc -l < "$home/cnn-f64/metrics.jsonl")" ] || fail "records are missing"

say "a dry run prints the cut"
ranks 2 "$mile" run "$home/table.toml" --device cuda --dry-run | grep -q 'edges cross ranks' || fail "no cut in the dry run"
say "all is well"
