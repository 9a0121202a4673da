#!/usr/bin/env bash
# Installs what release/build.sh built into clean places and takes the first steps there: the wheel in a new virtual environment, the static
# program in an empty root, the image's root file system made with debootstrap, where a Slurm and another Python are installed too. The sources are
# compiled as far as it takes to see that nothing is missing. As root; returns 77 where that cannot be done. With names of parts (files wheel static
# image clusters contract sources) only these.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
dist=$(realpath "${MILE_DIST:-$target/dist}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Megabytes of the wheel, the time it takes to install it, and that from there to the picture of the first notebook.
readonly MOST_MB=30 MOST_INSTALL_MS=10000 MOST_NOTEBOOK_S=120 SUITE=trixie USER_ID=10001
say() { echo "release: $*"; }
cannot() { say "cannot run: $*"; exit 77; }
fail() { say "FAILED: $*"; exit 1; }
[ "$(id -u)" = 0 ] || cannot "changing the root takes root"

work=$(mktemp -d)
image=$work/image
clean() {
    local root
    stop_slurm
    for root in image empty; do
        if mountpoint -q "$work/$root/proc"; then umount "$work/$root/proc"; fi
    done
    rm -rf "$work"
}
trap clean EXIT

# A small experiment without data, with two agents.
cat > "$work/small.toml" << 'EXPERIMENT'
name = "small"
rounds = 60
[network]
agents = 2
topology = "path"
[problem]
kind = "quadratic"
dim = 5
[[algorithm]]
name = "mile"
step_size = 0.1
local_steps = 3
EXPERIMENT

# Two runs end with the same numbers.
same_models() { cmp "$1/final/mile-seed0.safetensors" "$2/final/mile-seed0.safetensors" || fail "$1 and $2 differ"; }

test_files() {
    (cd "$dist" && sha256sum --quiet --check SHA256SUMS) || fail "checksums"
    say "$(wc -l < "$dist/SHA256SUMS") files have their checksums"
    local archive
    for archive in "$dist"/mile-"$version"-*-linux-*.tar.gz; do
        tar -xzf "$archive" -C "$work"
        local folder=$work/$(basename "$archive" .tar.gz) file
        for file in mile LICENSE-MIT THIRD-PARTY.txt completions/mile.bash man/man1/mile.1 man/man1/mile-run.1; do
            [ -s "$folder/$file" ] || fail "$archive has no $file"
        done
        bash -n "$folder/completions/mile.bash"
        [ "$("$folder/mile" -V)" = "mile $version" ] || fail "$archive is another version"
        ! grep -aqF -e "$root/" -e "$HOME/" "$folder/mile" || fail "$archive: paths of this machine are in the program"
    done
    local name=mile_learn-$version crate
    has "$dist/$name.tar.gz" "$name/PKG-INFO" "$name/pyproject.toml" "$name/mile/contract/__init__.py" "$name/mile/py.typed" "$name/crates/mile-cli/src/lib.rs"
    while read -r crate; do
        has "$dist/$crate-$version.crate" "$crate-$version/Cargo.toml" "$crate-$version/src/lib.rs"
    done < "$dist/crates.txt"
    has "$dist/mile-$version-x86_64-image.tar.gz" mile-"$version"-x86_64-image/{Containerfile,mile,LICENSE-MIT,LICENSE-APACHE,THIRD-PARTY.txt}
    has "$dist/mile-$version-docs.tar.gz" "mile-$version-docs/index.html" "mile-$version-docs/contract.html" "mile-$version-docs/deploy/kubernetes.yml"
    say "the source distribution, $(wc -l < "$dist/crates.txt") crates and the documentation have what they should"
}

# An archive has files.
has() {
    local archive=$1 file list
    shift
    list=$(tar -tzf "$archive") || fail "$archive cannot be read"
    for file in "$@"; do grep -qxF "$file" <<< "$list" || fail "$archive has no $file"; done
}

# What the README begins with, an experiment without a file, for a few of its rounds.
first_run() {
    # shellcheck disable=SC2086
    timeout 300 $1 run --set rounds=2 --set eval_every=1 --out "$2" --quiet || fail "$1: the first run, within five minutes"
}

test_wheel() {
    local wheel=("$dist"/mile_learn-"$version"-*.whl) venv=$work/venv begun ms
    [ ${#wheel[@]} = 1 ] && [ -f "${wheel[0]}" ] || fail "expected one wheel in $dist, got ${wheel[*]}"
    local bytes
    bytes=$(stat -c %s "${wheel[0]}")
    [ "$bytes" -lt $((MOST_MB * 1000 * 1000)) ] || fail "the wheel has $bytes bytes, expected less than $MOST_MB MB"
    python3 -m venv "$venv"
    # What it depends on, and what runs notebooks, first: how long that takes depends on the network.
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'numpy>=1.24' nbclient ipykernel
    begun=$(date +%s%N)
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheel[0]}"
    ms=$((($(date +%s%N) - begun) / 1000000))
    [ $ms -lt $MOST_INSTALL_MS ] || fail "the wheel installs in $ms ms, expected less than $MOST_INSTALL_MS"
    say "the wheel has $bytes bytes and installs in $ms ms"
    cd "$work"
    # Its kernel is the Python of the same environment.
    timeout $((MOST_NOTEBOOK_S - ms / 1000)) "$venv/bin/python" - "$root/python/notebooks/first_steps.ipynb" << 'PYTHON' 2> notebook.txt || fail "the first notebook, within $MOST_NOTEBOOK_S s: $(tail -n 3 notebook.txt)"
import sys
import nbclient, nbformat
done = nbclient.NotebookClient(nbformat.read(sys.argv[1], as_version=4), kernel_name="python3").execute()
pictures = [output for cell in done.cells for output in cell.get("outputs", []) if "image/svg+xml" in output.get("data", {})]
assert pictures, "no picture"
PYTHON
    say "the first notebook has its picture $((($(date +%s%N) - begun) / 1000000)) ms after the installation began"
    [ "$("$venv/bin/mile" -V)" = "mile $version" ] || fail "the command of the wheel is another version"
    "$venv/bin/mile" --version
    "$venv/bin/python" - << 'PYTHON'
import mile
run = mile.run(problem=mile.Quadratic(dim=5), network="ring", algorithms=[mile.method("mile", step_size=0.1, local_steps=5)], rounds=300, out="first")
assert run.rows[-1]["consensus_error"] < 1e-6, run.rows[-1]
PYTHON
    first_run "$venv/bin/mile" wheel-default
    "$venv/bin/mile" run small.toml --out wheel-run --quiet
    # Its agents are processes of the same command.
    "$venv/bin/mile" swarm small.toml --out wheel-swarm > /dev/null
    same_models wheel-run wheel-swarm
    "$venv/bin/python" -m mile run small.toml --out module-run --quiet
    same_models wheel-run module-run
    local code=0
    "$venv/bin/mile" run absent.toml 2> /dev/null || code=$?
    [ $code = 2 ] || fail "expected exit code 2 for a file that is absent, got $code"
    cd "$root"
    say "the wheel works"
}

test_static() {
    local empty=$work/empty
    mkdir -p "$empty"
    tar -xzf "$dist/mile-$version-x86_64-linux-static.tar.gz" -C "$work"
    cp "$work/mile-$version-x86_64-linux-static/mile" "$work/small.toml" "$empty/"
    # What a system has besides files: random numbers and processes.
    mkdir "$empty/dev" "$empty/proc"
    mount -t proc proc "$empty/proc"
    mknod "$empty/dev/random" c 1 8
    mknod "$empty/dev/urandom" c 1 9
    chroot "$empty" /mile --version
    first_run "chroot $empty /mile" default
    [ -s "$empty/default/report.html" ] || fail "no report of the first run in an empty root"
    chroot "$empty" /mile run small.toml --out run --quiet
    chroot "$empty" /mile swarm small.toml --out swarm > /dev/null
    same_models "$empty/run" "$empty/swarm"
    [ -s "$empty/run/report.html" ] || fail "no report in an empty root"
    say "the static program works in a root with nothing else"
}

# The image, made once: the root file system that release/Containerfile describes, its entry point and its command.
entry=() command=()
make_image() {
    [ ! -d "$image" ] || return 0
    command -v debootstrap > /dev/null || cannot "no debootstrap"
    mkdir -p "$work/context"
    tar -xzf "$dist/mile-$version-x86_64-image.tar.gz" --strip-components=1 -C "$work/context"
    cmp release/Containerfile "$work/context/Containerfile" || fail "the image's archive has another Containerfile"
    local mirror
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' 2> /dev/null | sed -n 's/^Debian Debian //p' | head -n 1)
    debootstrap --variant=minbase $SUITE "$image" ${mirror:+"$mirror"} > "$work/debootstrap.txt" 2>&1 || cannot "debootstrap: $(tail -n 2 "$work/debootstrap.txt")"
    grep '^COPY ' release/Containerfile | while read -r _ words; do
        local files=("${words% *}") to=$image${words##* }
        # shellcheck disable=SC2086,SC2128
        if [[ $to == */ ]]; then mkdir -p "$to"; (cd "$work/context" && cp $files "$to"); else (cd "$work/context" && install -D -m 755 $files "$to"); fi
    done
    mkdir -p "$image/data"
    mount -t proc proc "$image/proc"
    mapfile -t entry < <(words_of ENTRYPOINT)
    mapfile -t command < <(words_of CMD)
    [ ${#entry[@]} != 0 ] && [ ${#command[@]} != 0 ] || fail "expected an entry point and a command in release/Containerfile"
}

words_of() { sed -n "s/^$1 \(\[.*\]\)\$/\1/p" release/Containerfile | python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")'; }

# What an engine runs: the entry point with a folder as the volume, and with the image's command unless another one is given.
container() {
    local folder=$1
    shift
    [ $# != 0 ] || set -- "${command[@]}"
    unshare --mount sh -c 'mount --bind "$1" "$2/data" && user=$3 && cd "$2" && shift 3 && exec chroot --userspec="$user:$user" . "$@"' \
        sh "$folder" "$image" $USER_ID "${entry[@]}" "$@"
}

install_in_image() {
    chroot "$image" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" > "$work/apt.txt" 2>&1 || cannot "apt-get: $(tail -n 2 "$work/apt.txt")"
}

test_image() {
    make_image
    local data=$work/data agent agents=()
    mkdir "$data"
    cp "$work/small.toml" "$data/"
    chown -R $USER_ID:$USER_ID "$data"
    container "$data" run /data/small.toml --out /data/run --quiet
    container "$data" swarm /data/small.toml --emit /data/deploy --host 0=127.0.0.1:7301 --host 1=127.0.0.1:7302 > /dev/null
    for agent in 0 1; do
        container "$data/deploy/agents/$agent" 2> "$work/agent-$agent.txt" &
        agents+=($!)
    done
    for agent in "${agents[@]}"; do wait "$agent" || fail "an agent of the image: $(cat "$work"/agent-?.txt)"; done
    container "$data" gather /data/deploy --out /data/gathered > /dev/null
    same_models "$data/run" "$data/gathered"
    say "two agents of the image end with the numbers of one process"
}

# A Slurm of four nodes in the image's root, all of them this machine.
start_slurm() {
    local host node
    host=$(hostname)
    install_in_image slurmctld slurmd slurm-client munge
    echo "127.0.0.1 localhost $host" > "$image/etc/hosts"
    mkdir -p "$image/etc/slurm" "$image/run/munge"
    echo "CgroupPlugin=disabled" > "$image/etc/slurm/cgroup.conf"
    cat > "$image/etc/slurm/slurm.conf" << SLURM
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
StateSaveLocation=/var/lib/slurm/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmdSpoolDir=/var/spool/slurmd.%n
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName=node[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17004] CPUs=32
PartitionName=all Nodes=ALL Default=YES
SLURM
    chroot "$image" sh -c 'mkdir -p /var/lib/slurm/state && chown munge /run/munge && runuser -u munge -- munged && slurmctld' 2> "$work/slurm.txt" \
        || cannot "Slurm: $(tail -n 2 "$work/slurm.txt")"
    for node in 1 2 3 4; do chroot "$image" slurmd -N "node$node"; done
    chroot "$image" timeout 60 sh -c 'until [ "$(sinfo --noheader --format=%T)" = idle ]; do sleep 0.2; done' || cannot "Slurm's nodes: $(chroot "$image" sinfo)"
}

stop_slurm() {
    local file pid
    for file in "$image"/run/slurmd-node?.pid "$image/run/slurmctld.pid" "$image/run/munge/munged.pid"; do
        if [ -e "$file" ]; then
            pid=$(cat "$file")
            if kill "$pid" 2> /dev/null; then timeout 20 tail --pid="$pid" --follow /dev/null || true; fi
        fi
    done
}

# What docs/src/deploy has for clusters: the StatefulSet by the schema of Kubernetes, the scripts by a Slurm, which also runs one.
test_clusters() {
    local deploy=docs/src/deploy jobs=$image/jobs
    python3 -m venv "$work/kubernetes"
    "$work/kubernetes/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0
    "$work/kubernetes/bin/kubernetes-validate" --strict --quiet $deploy/kubernetes.yml || fail "$deploy/kubernetes.yml"
    sed 's/serviceName/servceName/' $deploy/kubernetes.yml > "$work/misspelt.yml"
    ! "$work/kubernetes/bin/kubernetes-validate" --strict --quiet "$work/misspelt.yml" > /dev/null || fail "a misspelt key of a StatefulSet is accepted"
    make_image
    start_slurm
    mkdir "$jobs"
    cp "$work/small.toml" $deploy/slurm-*.sh "$jobs/"
    chroot "$image" sh -ec 'cd /jobs; sbatch --test-only slurm-mpi.sh small.toml; sbatch --test-only slurm-agents.sh small.toml' || fail "Slurm refuses a script of $deploy"
    ! chroot "$image" sbatch --test-only --nodes=5 /jobs/slurm-mpi.sh 2> /dev/null || fail "a Slurm of four nodes accepts a job of five"
    chroot "$image" sh -ec 'cd /jobs; timeout 120 sbatch --wait --ntasks=2 --cpus-per-task=1 slurm-agents.sh small.toml; mile run small.toml --out run --quiet' > /dev/null \
        || fail "the agents' job: $(cat "$jobs"/slurm-*.out)"
    same_models "$jobs/run" "$jobs/runs/mile-agents-gathered"
    stop_slurm
    say "Kubernetes and Slurm accept what is deployed to them; two agents of a Slurm job end with the numbers of one process"
}

# The wheel with another Python, that of the image's Debian, and there the methods of another package under the contract.
test_contract() {
    make_image
    install_in_image python3-venv
    # Certificates that this machine trusts.
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then cp /etc/ssl/certs/ca-certificates.crt "$image/etc/ssl/certs/"; fi
    cp "$dist"/mile_learn-"$version"-*.whl bench/contract/check.py "$image/tmp/"
    # Its dependency is compiled where there is a compiler; its Python sources do the same.
    chroot "$image" env HATCH_BUILD_NO_HOOKS=true sh -ec 'python3 -m venv /peers; /peers/bin/pip install --quiet --disable-pip-version-check decent-bench==0.3.0 /tmp/*.whl'
    chroot "$image" /peers/bin/python /tmp/check.py > "$work/contract.txt" || fail "the contract: $(cat "$work/contract.txt")"
    say "the wheel works with $(chroot "$image" /peers/bin/python --version); LED and K-GT of decent-bench keep and break the laws that bench/contract says"
}

# The source distribution and the crates compile: nothing that they need was left out of them. The crates are each other's dependencies, with the
# profile of the workspace, so that what other people's crates are compiled to can be shared with it.
test_sources() {
    local crates=$work/crates crate
    tar -xzf "$dist/mile_learn-$version.tar.gz" -C "$work"
    cargo check --quiet --locked --manifest-path "$(find "$work/mile_learn-$version" -name Cargo.lock -printf '%h\n')/Cargo.toml" || fail "the source distribution"
    mkdir "$crates"
    while read -r crate; do tar -xzf "$dist/$crate-$version.crate" -C "$crates"; done < "$dist/crates.txt"
    {
        echo '[workspace]'
        echo 'members = ["*"]'
        echo 'resolver = "3"'
        echo '[patch.crates-io]'
        while read -r crate; do echo "$crate = { path = \"$crate-$version\" }"; done < "$dist/crates.txt"
        sed -n '/^\[profile.dev\]/,/^\[profile.release\]/{/^\[profile.release\]/!p}' Cargo.toml
    } > "$crates/Cargo.toml"
    cp Cargo.lock "$crates/"
    cargo check --quiet --workspace --manifest-path "$crates/Cargo.toml" || fail "the crates"
    say "the source distribution and the crates compile"
}

parts=("$@")
[ $# != 0 ] || parts=(files wheel static image clusters contract sources)
for part in "${parts[@]}"; do "test_$part"; done
say "all is well"
