#!/usr/bin/env bash
# A corpus of ten languages from Debian's packages of manual pages: one text file a language, the same number of bytes each.
#
#     experiments/languages/corpus.sh FOLDER [BYTES]        (default: 1000000)
#
# Needs apt-get, dpkg-deb and python3. Nothing is installed: packages are downloaded into a temporary folder and unpacked there.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
bytes=${2:-1000000}
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
chmod 755 "$home"
here=$(cd "$(dirname "$0")" && pwd)
for language in en de fr es pl ru ja pt nl uk; do
    case $language in
        en) packages="manpages manpages-dev" ;;
        pt) packages="manpages-pt-br manpages-pt-br-dev" ;;
        *) packages="manpages-$language manpages-$language-dev" ;;
    esac
    mkdir -p "$home/$language"
    # shellcheck disable=SC2086
    (cd "$home/$language" && apt-get download -qq $packages > /dev/null)
    for package in "$home/$language"/*.deb; do dpkg-deb -x "$package" "$home/$language/root"; done
    python3 "$here/text.py" "$home/$language/root" "$folder/$language.txt" "$bytes"
    rm -rf "${home:?}/$language"
done
