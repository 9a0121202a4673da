#!/usr/bin/env bash
# Real MPI against one process: messages of all sizes, run directories that are equal byte by byte, resuming with another number of
# ranks, and failures that end the job. Needs mpirun, the headers of MPI, and libclang. For another MPI than the usual one give its
# programs, as in MPICC=mpicc.mpich MPIRUN=mpirun.mpich. Takes programs that were built already: BUILT=target/release tests/mpi.sh
# Returns 77 if all is well but for a full disk, which takes root.
set -euo pipefail
cd "$(dirname "$0")/.."
built=${BUILT:-}
if [ -z "$built" ]; then
    # The bindings to MPI are not rebuilt when MPICC changes.
    if [ -n "${MPICC:-}" ]; then cargo clean --quiet -p mpi-sys; fi
    # As the whole workspace, so that what its tests have built is not built again with other features.
    cargo build --locked --workspace --features mile-cli/mpi,mile-ranks/mpi --bin mile --example messages
    built=$(cargo metadata --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)/debug
fi
built=$(realpath "$built")
mile=$built/mile
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 RAYON_NUM_THREADS=2
mpirun=${MPIRUN:-mpirun}
flags=()
# Ranks that wait let others run: there are more of them than cores, and without it some runs take ten times as long.
if $mpirun --version | grep -q 'Open MPI'; then flags=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1); fi
ranks() { timeout 300 $mpirun "${flags[@]}" -n "$@"; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
say() { echo "mpi: after $SECONDS s: $*"; }
fail() { echo "mpi: failed: $*" >&2; exit 1; }

# Run directories are equal: states and exported models, records without their times, settings, documents.
same() {
    local file name
    for file in "$1"/final/* "$1"/config.toml; do cmp "$file" "$2/${file#"$1"/}"; done
    [ "$(ls "$1/final")" = "$(ls "$2/final")" ] || fail "$2/final has other files than $1/final"
    for name in statistics.json agents.csv coefficients.csv; do
        [ ! -e "$1/$name" ] || cmp "$1/$name" "$2/$name"
    done
    cmp <(sed 's/"wall_s":[^,}]*//' "$1/metrics.jsonl") <(sed 's/"wall_s":[^,}]*//' "$2/metrics.jsonl")
}

say "messages of 0 bytes, at the eager limit, above it, and in pieces"
for n in 2 3 7; do ranks $n "$built/examples/messages"; done

# An experiment for each kind of problem.
names=$("$mile" algorithms | awk 'NR > 2 && $2 ~ /^[0-9]+$/ { print $1 }')
methods() { for name in "$@"; do printf '[[algorithm]]\nname = "%s"\nstep_size = 0.02\n' $name; done; }
# Methods with a server take the complete graph alone, on which one exchange is the average of all agents.
central="scaffold diloco"
decentralized=$(for name in $names; do [[ " $central " == *" $name "* ]] || echo $name; done)
two='[[algorithm]]\nname = "mile"\nstep_size = 0.02\nlocal_steps = 3\n[[algorithm]]\nname = "k-gt"\nstep_size = 0.02\n'
rows() { awk -v seed="$1" -v rows="$2" 'BEGIN { srand(seed); print "a,b,c,y"; for (k = 0; k < rows; k++)
    printf "%.4f,%.4f,%s,%s\n", rand(), 3 * rand(), (k % 3 ? "red" : "blue"), (rand() < 0.4 ? "yes" : "no") }'; }
for agent in 0 1 2 3 4 5 6 7; do rows $agent $((15 + 4 * agent)) > "$home/agent-$agent.csv"; done
table='[problem]\nkind = "table"\ndata = "agent-{agent}.csv"\ntarget = "y"\nloss = "logistic"\nl2 = 0.01\nintercept = true\nstandardise = true\ncategorical = ["c"]\ntest = 0.3\nbatch = 4\n'
printf 'rounds = 5\neval_every = 2\nprecision = "f32"\n[network]\nagents = 8\ntopology = "torus"\nmixing = "lazy-metropolis"\ndrop_rate = 0.2\n%b%b' "$table" "$(methods $decentralized)" > "$home/f32.toml"
sed 's/"f32"/"f64"/; s/drop_rate = 0.2/drop_rate = 0.0/' "$home/f32.toml" > "$home/f64.toml"
printf 'rounds = 5\nstart = { value = "random" }\n[network]\nagents = 8\ntopology = "complete"\n[problem]\nkind = "quadratic"\ndim = 40\n%b\n[[algorithm]]\nname = "mile"\nlabel = "bits"\nstep_size = 0.02\ncompression = "8-bit"\n%b' "$(methods $central)" "$two" > "$home/complete.toml"
printf 'rounds = 2\n[network]\nagents = 4\n[problem]\nkind = "images"\nmodel = "mnist-cnn"\nbatch = 8\neval_samples = 16\ntest_samples = 100\n%b' "$two" > "$home/cnn.toml"

sed '1iprecision = "f32"' "$home/complete.toml" > "$home/complete-f32.toml"
for name in f32 f64 complete complete-f32 cnn; do
    "$mile" run "$home/$name.toml" --out "$home/$name-alone" --quiet
    case $name in cnn) counts="2 3" ;; f32 | complete-f32) counts="2 7" ;; *) counts="1 2 3 7 8" ;; esac
    for n in $counts; do
        ranks $n "$mile" run "$home/$name.toml" --out "$home/$name-$n" --quiet
        same "$home/$name-alone" "$home/$name-$n"
        say "$name: $n ranks are the same as one process"
    done
done

say "resuming with another number of ranks"
for pair in "3 1" "1 7" "2 3"; do
    read -r before after <<< "$pair"
    out=$home/resumed-$before-$after
    start() { if [ "$1" = 1 ]; then "$mile" "${@:2}"; else ranks "$1" "$mile" "${@:2}"; fi; }
    start $before run "$home/complete.toml" --set rounds=2 --set eval_every=1 --out "$out" --quiet
    start $after run "$home/complete.toml" --set rounds=5 --set eval_every=1 --out "$out" --resume --quiet
    [ -d "$home/straight" ] || "$mile" run "$home/complete.toml" --set eval_every=1 --out "$home/straight" --quiet
    same "$home/straight" "$out"
done

say "a sweep runs each point over all ranks"
printf '[sweep]\nstep_size = [0.01, 0.02]\n' | cat "$home/complete.toml" - > "$home/sweep.toml"
"$mile" run "$home/sweep.toml" --out "$home/sweep-alone" --quiet
ranks 3 "$mile" run "$home/sweep.toml" --out "$home/sweep-3" --quiet
for point in "$home"/sweep-alone/points/*; do same "$point" "$home/sweep-3/points/${point##*/}"; done
cmp "$home/sweep-alone/table.txt" "$home/sweep-3/table.txt"

say "a table in one file, of which each rank keeps the rows of its agents"
rows 9 4000 > "$home/all.csv"
sed 's/agent-{agent}.csv/all.csv/' "$home/f64.toml" > "$home/one.toml"
"$mile" run "$home/one.toml" --out "$home/one-alone" --quiet
ranks 3 "$mile" run "$home/one.toml" --out "$home/one-3" --quiet
same "$home/one-alone" "$home/one-3"

if ranks 2 "$mile" run "$home/complete.toml" --device cuda --dry-run > /dev/null 2> "$home/gpu.txt"; then
    say "there is a GPU: tests/gpu-ranks.sh tests it"
else
    say "without a GPU --device cuda is refused, with one message"
    [ "$(grep -c '^mile: .*--device: ' "$home/gpu.txt")" = 1 ] || { cat "$home/gpu.txt"; fail "not one message about --device"; }
fi
ranks 2 "$mile" run "$home/complete.toml" --device auto --dry-run > /dev/null || fail "--device auto"

say "a dry run prints the cut"
ranks 3 "$mile" run "$home/f32.toml" --dry-run | grep -q '^ranks: 3' || fail "no cut in the dry run"

say "bad data on one rank end the job with one message"
cp -r "$home/agent-7.csv" "$home/kept.csv"
echo '1,2,red,perhaps,5' >> "$home/agent-7.csv"
if ranks 3 "$mile" run "$home/f32.toml" --out "$home/bad" --quiet 2> "$home/bad.txt"; then fail "bad data were taken"; fi
[ "$(grep -c '^mile: .*agent-7.csv' "$home/bad.txt")" = 1 ] || { cat "$home/bad.txt"; fail "not one message"; }
mv "$home/kept.csv" "$home/agent-7.csv"

# A run that is long enough to be stopped; its reference has the same number of rounds.
long() { ranks 2 "$mile" run "$home/complete.toml" --set rounds=20000 --set eval_every=200 --out "$1" --quiet "${@:2}"; }
"$mile" run "$home/complete.toml" --set rounds=20000 --set eval_every=200 --out "$home/long" --quiet
# Starts it, waits for its first records, and sends a signal to its second rank.
interrupted() {
    local out=$1 signal=$2
    long "$out" > "$out.txt" 2>&1 & local job=$!
    until [ -s "$out/metrics.jsonl" ] && [ "$(wc -l < "$out/metrics.jsonl")" -ge 3 ]; do
        kill -0 $job 2> /dev/null || { cat "$out.txt"; fail "ended before it was stopped"; }
        sleep 0.1
    done
    local rank
    for rank in $(pgrep -f "^$mile run .*--out $out "); do
        if tr '\0' '\n' < "/proc/$rank/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1\|PMI_RANK=1'; then kill "$signal" "$rank"; fi
    done
    local code=0
    wait $job || code=$?
    [ $code != 0 ] && [ $code != 124 ] || { cat "$out.txt"; fail "exit code $code after $signal"; }
}
say "a killed rank ends the job, and --resume goes on"
interrupted "$home/killed" -KILL
# MPICH names the process and its host, and not the rank.
grep -q 'rank 1\|PID [0-9]* RUNNING AT' "$home/killed.txt" || { cat "$home/killed.txt"; fail "no message about the killed rank"; }
long "$home/killed" --resume
same "$home/long" "$home/killed"
say "Ctrl-C on one rank stops all after a round, and --resume goes on"
interrupted "$home/stopped" -INT
ls "$home/stopped/checkpoints/"*.safetensors > /dev/null || fail "no checkpoint after Ctrl-C"
long "$home/stopped" --resume
same "$home/long" "$home/stopped"

mkdir "$home/small"
if ! mount -t tmpfs -o size=96k none "$home/small"; then
    say "all is well but for a full disk, which cannot be tried: mounting a small one takes root"
    exit 77
fi
say "a full disk ends the job with one message"
full() { ranks 2 "$mile" run "$home/complete.toml" --set problem.dim=4000 --out "$home/small/run" --quiet; }
if full 2> "$home/full.txt"; then umount "$home/small"; fail "a full disk was not noticed"; fi
umount "$home/small"
# The words are those of the operating system.
[ "$(grep -c '^mile: .*[Nn]o space left' "$home/full.txt")" = 1 ] || { cat "$home/full.txt"; fail "not one message"; }
say "all is well"
