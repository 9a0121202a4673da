//! Reading data sets: intact files are read, damaged ones are refused by name and offset.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use mile_nn::data::{self, DataError, Dataset, Images, Located, Shape, glyphs};

/// A separate directory for this test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mile-nn-data-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn idx_images(count: u32, side: u32) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, 3];
    [count, side, side].iter().for_each(|n| bytes.extend(n.to_be_bytes()));
    bytes.extend((0..count * side * side).map(|i| i as u8));
    bytes
}

fn idx_labels(labels: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, 1];
    bytes.extend((labels.len() as u32).to_be_bytes());
    bytes.extend(labels);
    bytes
}

/// Writes a small but valid MNIST, its test images gzipped.
fn write_mnist(root: &Path) -> PathBuf {
    let directory = root.join("mnist");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("train-images-idx3-ubyte"), idx_images(3, 28)).unwrap();
    fs::write(directory.join("train-labels-idx1-ubyte"), idx_labels(&[1, 9, 0])).unwrap();
    let file = fs::File::create(directory.join("t10k-images-idx3-ubyte.gz")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gzip.write_all(&idx_images(2, 28)).unwrap();
    gzip.finish().unwrap();
    fs::write(directory.join("t10k-labels-idx1-ubyte"), idx_labels(&[5, 6])).unwrap();
    directory
}

#[test]
fn idx_files_are_read_plain_and_gzipped() {
    let scratch = Scratch::new("idx");
    let directory = write_mnist(&scratch.0);
    assert_eq!(data::locate("mnist", Some(&scratch.0)).unwrap(), Located::Directory(directory.clone()));
    assert_eq!(data::locate("mnist", Some(&directory)).unwrap(), Located::Directory(directory));
    let set = data::load("mnist", Some(&scratch.0)).unwrap();
    assert_eq!((set.train.len(), set.test.len(), set.classes), (3, 2, 10));
    assert_eq!(set.train.labels(), [1, 9, 0]);
    assert_eq!(set.test.image(1).unwrap()[..3], [16, 17, 18]);
}

/// The offset and the text of the error that `bytes` in place of `file` lead to.
fn damage(test: &str, file: &str, bytes: &[u8]) -> u64 {
    let scratch = Scratch::new(test);
    let directory = write_mnist(&scratch.0);
    let target = directory.join(file);
    fs::write(&target, bytes).unwrap();
    match data::load("mnist", Some(&scratch.0)).unwrap_err() {
        DataError::Format { path, offset, .. } => {
            assert_eq!(path, target);
            offset
        }
        other => panic!("{other}"),
    }
}

#[test]
fn damaged_idx_files_are_refused_with_the_offset() {
    let images = idx_images(3, 28);
    let file = "train-images-idx3-ubyte";
    assert_eq!(damage("short", file, &images[..500]), 500);
    assert_eq!(damage("header", file, &images[..9]), 9);
    assert_eq!(damage("empty", file, &[]), 0);
    assert_eq!(damage("magic", file, &idx_labels(&[1])), 0);
    assert_eq!(damage("side", file, &idx_images(3, 27)), 8);
    assert_eq!(damage("long", file, &[images.as_slice(), &[0]].concat()), 16 + 3 * 784);
    assert_eq!(damage("label", "train-labels-idx1-ubyte", &idx_labels(&[1, 10, 0])), 9);
    damage("gzip", "t10k-images-idx3-ubyte.gz", b"not gzip at all");
}

#[test]
fn counts_of_images_and_labels_must_agree() {
    let scratch = Scratch::new("counts");
    let directory = write_mnist(&scratch.0);
    fs::write(directory.join("train-labels-idx1-ubyte"), idx_labels(&[1, 2])).unwrap();
    let error = data::load("mnist", Some(&scratch.0)).unwrap_err();
    assert!(matches!(error, DataError::Shape { part: "train", labels: 2, .. }), "{error}");
}

#[test]
fn cifar_batches_are_read_as_interleaved_channels_and_checked() {
    let scratch = Scratch::new("cifar");
    let directory = scratch.0.join("cifar-10-batches-bin");
    fs::create_dir_all(&directory).unwrap();
    let mut batch = vec![0u8; 10_000 * 3073];
    batch[0] = 7;
    (batch[1], batch[1 + 1024], batch[1 + 2048]) = (10, 20, 30);
    let name = |i: usize| {
        if i == 6 { "test_batch.bin".to_owned() } else { format!("data_batch_{i}.bin") }
    };
    (1..=6).for_each(|i| fs::write(directory.join(name(i)), &batch).unwrap());
    let set = data::load("cifar10", Some(&scratch.0)).unwrap();
    assert_eq!((set.train.len(), set.test.len()), (50_000, 10_000));
    assert_eq!((set.train.labels()[0], &set.train.image(0).unwrap()[..3]), (7, &[10u8, 20, 30][..]));

    batch[2 * 3073] = 10;
    fs::write(directory.join(name(2)), &batch).unwrap();
    let error = data::load("cifar10", Some(&scratch.0)).unwrap_err();
    assert!(matches!(error, DataError::Format { offset: 6146, .. }), "{error}");
    fs::write(directory.join(name(1)), &batch[..1000]).unwrap();
    let error = data::load("cifar10", Some(&scratch.0)).unwrap_err();
    assert!(matches!(error, DataError::Format { offset: 1000, .. }), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let scratch = Scratch::new("missing");
    let error = data::locate("cifar10", Some(&scratch.0)).map(|_| ());
    // A machine may have the data set elsewhere: then there is nothing to complain about.
    if let Err(error) = error {
        let DataError::NotFound { name: "cifar10", files, .. } = error else { panic!("{error}") };
        assert!(files.contains("data_batch_1.bin"), "{files}");
    }
    let Err(DataError::Unknown { name, known }) = data::locate("imagenet", None) else { panic!() };
    assert_eq!((name.as_str(), known.as_str()), ("imagenet", "glyphs, mnist, fashion-mnist, cifar10"));
}

#[test]
fn a_data_set_of_ones_own_must_fit_its_shape() {
    let shape = Shape { height: 2, width: 2, channels: 1 };
    let images = |pixels: usize, labels: &[u8]| Images::new(vec![0; pixels], labels.to_vec());
    assert!(Dataset::try_new("own", shape, 2, images(8, &[0, 1]), images(4, &[1])).is_ok());
    let error = Dataset::try_new("own", shape, 2, images(7, &[0, 1]), images(4, &[1])).unwrap_err();
    assert!(matches!(error, DataError::Shape { pixels: 7, .. }));
    let error = Dataset::try_new("own", shape, 2, images(8, &[0, 2]), images(4, &[1])).unwrap_err();
    assert!(matches!(error, DataError::Label { index: 1, label: 2, .. }));
}

#[test]
fn glyphs_are_a_function_of_the_seed_and_hold_all_digits() {
    let set = glyphs::generate(1, 300, 100);
    assert_eq!(set, glyphs::generate(1, 300, 100));
    assert_ne!(set.train, glyphs::generate(2, 300, 100).train);
    assert_ne!(set.train.image(0), set.test.image(0));
    for digit in 0..10 {
        assert!(set.train.labels().contains(&digit));
    }
    let pixels = || (0..set.train.len()).flat_map(|i| set.train.image(i).unwrap());
    let mean = pixels().map(|&p| f64::from(p)).sum::<f64>() / pixels().count() as f64;
    assert!((10.0..100.0).contains(&mean), "mean pixel {mean}");
}
