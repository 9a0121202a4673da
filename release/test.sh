#!/usr/bin/env bash
# Installs what release/build.sh built into clean places and takes the first steps there: the wheel in a new virtual environment, the static
# program in an empty root, the image's root file system made with debootstrap. As root; returns 77 where that cannot be done.
# With names of parts (files wheel static image) only these.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
dist=$(realpath "${MILE_DIST:-$target/dist}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
readonly MOST_MIB=30 SUITE=bookworm USER_ID=10001
say() { echo "release: $*"; }
cannot() { say "cannot run: $*"; exit 77; }
fail() { say "FAILED: $*"; exit 1; }
[ "$(id -u)" = 0 ] || cannot "changing the root takes root"

work=$(mktemp -d)
clean() {
    local root
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
}

test_wheel() {
    local wheel=("$dist"/mile_learn-"$version"-*.whl) venv=$work/venv begun
    [ ${#wheel[@]} = 1 ] && [ -f "${wheel[0]}" ] || fail "expected one wheel in $dist, got ${wheel[*]}"
    local mib=$(($(stat -c %s "${wheel[0]}") / 1024 / 1024))
    [ $mib -lt $MOST_MIB ] || fail "the wheel has $mib MiB, expected less than $MOST_MIB"
    python3 -m venv "$venv"
    # What it depends on, first: how long that takes depends on the network.
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'numpy>=1.24'
    begun=$(date +%s%N)
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheel[0]}"
    say "the wheel has $mib MiB and installs in $((($(date +%s%N) - begun) / 1000000)) ms"
    cd "$work"
    [ "$("$venv/bin/mile" -V)" = "mile $version" ] || fail "the command of the wheel is another version"
    "$venv/bin/mile" --version
    "$venv/bin/python" - << 'PYTHON'
import mile
run = mile.run(problem=mile.Quadratic(dim=5), network="ring", algorithms=[mile.method("mile", step_size=0.1, local_steps=5)], rounds=300, out="first")
assert run.rows[-1]["consensus_error"] < 1e-6, run.rows[-1]
PYTHON
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
    chroot "$empty" /mile run small.toml --out run --quiet
    chroot "$empty" /mile swarm small.toml --out swarm > /dev/null
    same_models "$empty/run" "$empty/swarm"
    [ -s "$empty/run/report.html" ] || fail "no report in an empty root"
    say "the static program works in a root with nothing else"
}

# The root file system that release/Containerfile describes.
test_image() {
    command -v debootstrap > /dev/null || cannot "no debootstrap"
    local image=$work/image agent agents=()
    mkdir -p "$work/context"
    tar -xzf "$dist/mile-$version-x86_64-linux-gnu.tar.gz" --strip-components=1 -C "$work/context"
    local mirror
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' 2> /dev/null | sed -n 's/^Debian Debian //p' | head -n 1)
    debootstrap --variant=minbase $SUITE "$image" ${mirror:+"$mirror"} > "$work/debootstrap.txt" 2>&1 || cannot "debootstrap: $(tail -n 2 "$work/debootstrap.txt")"
    grep '^COPY ' release/Containerfile | while read -r _ words; do
        local files=("${words% *}") to=$image${words##* }
        # shellcheck disable=SC2086,SC2128
        if [[ $to == */ ]]; then mkdir -p "$to"; (cd "$work/context" && cp $files "$to"); else (cd "$work/context" && install -D -m 755 $files "$to"); fi
    done
    mount -t proc proc "$image/proc"
    local entry
    entry=$(sed -n 's/^ENTRYPOINT \["\(.*\)"\]/\1/p' release/Containerfile)
    inside() { chroot --userspec=$USER_ID:$USER_ID "$image" "$entry" "$@"; }
    mkdir -p "$image/data"
    cp "$work/small.toml" "$image/data/"
    chown -R $USER_ID:$USER_ID "$image/data"
    inside run /data/small.toml --out /data/run --quiet
    inside swarm /data/small.toml --emit /data/deploy --host 0=127.0.0.1:7301 --host 1=127.0.0.1:7302 > /dev/null
    for agent in 0 1; do
        inside agent "/data/deploy/agents/$agent/agent.toml" 2> "$work/agent-$agent.txt" &
        agents+=($!)
    done
    for agent in "${agents[@]}"; do wait "$agent" || fail "an agent of the image: $(cat "$work"/agent-?.txt)"; done
    inside gather /data/deploy --out /data/gathered > /dev/null
    same_models "$image/data/run" "$image/data/gathered"
    say "two agents of the image end with the numbers of one process"
}

parts=("$@")
[ $# != 0 ] || parts=(files wheel static image)
for part in "${parts[@]}"; do "test_$part"; done
say "all is well"
