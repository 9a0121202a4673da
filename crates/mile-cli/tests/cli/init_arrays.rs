//! `mile init` on files of arrays: the pair that fits is taken and runs as it is, and where there are several, the file asks.

use std::io::Write;
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::init::{mile, run_with, text};

/// An array: its type in NumPy, its shape and its bytes.
#[derive(Clone)]
struct Array(&'static str, Vec<usize>, Vec<u8>);

fn floats(shape: &[usize], number: impl Fn(usize) -> f32) -> Array {
    let numbers = (0..shape.iter().product()).flat_map(|k| number(k).to_le_bytes());
    Array("<f4", shape.to_vec(), numbers.collect())
}

fn bytes(shape: &[usize], number: impl Fn(usize) -> u8) -> Array {
    Array("|u1", shape.to_vec(), (0..shape.iter().product()).map(number).collect())
}

fn whole(shape: &[usize], number: impl Fn(usize) -> i64) -> Array {
    let numbers = (0..shape.iter().product()).flat_map(|k| number(k).to_le_bytes());
    Array("<i8", shape.to_vec(), numbers.collect())
}

/// Samples that say something about the labels `k % 3`.
fn samples(count: usize) -> Array {
    floats(&[count, 4], |k| if k % 4 == (k / 4) % 3 { 1.0 } else { 0.01 * (k % 7) as f32 })
}

fn labels(count: usize) -> Array {
    whole(&[count], |k| (k % 3) as i64)
}

fn npy(Array(kind, shape, bytes): &Array) -> Vec<u8> {
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
}

fn npz(path: &Path, arrays: &[(&str, Array)]) {
    let mut archive = ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, array) in arrays {
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(&npy(array)).unwrap();
    }
    archive.finish().unwrap();
}

fn safetensors(path: &Path, arrays: &[(&str, Array)]) {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, Array(kind, shape, bytes)) in arrays {
        let kind = match *kind {
            "<f4" => "F32",
            "|u1" => "U8",
            _ => "I64",
        };
        let (from, to) = (data.len(), data.len() + bytes.len());
        entries
            .push(format!(r#""{name}":{{"dtype":"{kind}","shape":{shape:?},"data_offsets":[{from},{to}]}}"#));
        data.extend(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    std::fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat())
        .unwrap();
}

/// The section `[problem]` that is written for a file.
fn problem(folder: &Path, file: &str) -> toml::Table {
    let output = mile(folder, &["init", "--data", file, "-o", "written.toml"]);
    assert!(output.status.success(), "{file}: {}", text(&output.stderr));
    let table: toml::Table = std::fs::read_to_string(folder.join("written.toml")).unwrap().parse().unwrap();
    table["problem"].as_table().unwrap().clone()
}

fn keys(problem: &toml::Table, keys: [&str; 5]) -> [Option<String>; 5] {
    keys.map(|key| {
        problem.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    })
}

const KEYS: [&str; 5] = ["inputs", "targets", "loss", "test_inputs", "test"];

/// Checks what is written for a file, and runs it.
#[track_caller]
fn runs(folder: &Path, file: &str, expected: [Option<&str>; 5]) {
    let found = problem(folder, file);
    assert_eq!(keys(&found, KEYS), expected.map(|value| value.map(str::to_owned)), "{file}");
    run_with(folder, "written.toml", &["--set", "rounds=2"]);
    std::fs::remove_file(folder.join("written.toml")).unwrap();
}

/// Checks that the file asks for a key, and that it is refused until it is answered.
#[track_caller]
fn asks(folder: &Path, file: &str, asked: &str, answers: &[&str]) {
    let found = problem(folder, file);
    assert_eq!(found[asked].as_str(), Some("?"), "{file}");
    assert_eq!(mile(folder, &["run", "written.toml"]).status.code(), Some(2), "{file}");
    let set = answers.iter().flat_map(|answer| ["--set", answer]);
    run_with(folder, "written.toml", &["--set", "rounds=2"].into_iter().chain(set).collect::<Vec<_>>());
    std::fs::remove_file(folder.join("written.toml")).unwrap();
}

#[test]
fn the_only_pair_that_fits_is_taken_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (classes, numbers, part) = (Some("cross-entropy"), Some("least-squares"), Some("0.2"));
    npz(&at("a.npz"), &[("signal", samples(60)), ("kind", labels(60)), ("age", whole(&[7], |k| k as i64))]);
    runs(folder.path(), "a.npz", [Some("signal"), Some("kind"), classes, None, part]);
    // Images with their channels first, and labels in a column.
    let image = bytes(&[40, 3, 5, 6], |k| (k % 251) as u8);
    safetensors(&at("b.safetensors"), &[("label", bytes(&[40, 1], |k| (k % 2) as u8)), ("image", image)]);
    assert_eq!(problem(folder.path(), "b.safetensors")["layout"].as_str(), Some("nchw"));
    std::fs::remove_file(at("written.toml")).unwrap();
    runs(folder.path(), "b.safetensors", [Some("image"), Some("label"), classes, None, part]);
    // Numbers to predict; the usual names decide.
    let several = [
        ("x", samples(60)),
        ("y", floats(&[60], |k| 0.1 * (k % 5) as f32)),
        ("weight", floats(&[60], |_| 1.0)),
    ];
    npz(&at("c.npz"), &several);
    runs(folder.path(), "c.npz", [Some("x"), Some("y"), numbers, None, part]);
    // Samples for tests have other numbers of samples, and say so.
    let divided =
        [("x_train", samples(60)), ("y_train", labels(60)), ("x_test", samples(30)), ("y_test", labels(30))];
    npz(&at("d.npz"), &divided);
    runs(folder.path(), "d.npz", [Some("x_train"), Some("y_train"), classes, Some("x_test"), None]);
    // Files with one array each: the others in the folder are looked at.
    std::fs::create_dir(at("wave")).unwrap();
    for (name, array) in
        [("x", samples(60)), ("y", labels(60)), ("x-test", samples(30)), ("y-test", labels(30))]
    {
        std::fs::write(at(&format!("wave/{name}.npy")), npy(&array)).unwrap();
    }
    std::fs::write(at("wave/damaged.npy"), "nothing").unwrap();
    let [x, y, test] = ["x", "y", "x-test"].map(|name| format!("wave/{name}.npy"));
    for given in [&x, &y] {
        runs(folder.path(), given, [Some(&x), Some(&y), classes, Some(&test), None]);
    }
    // Too few samples to hold some out.
    npz(&at("e.npz"), &[("x", samples(6)), ("y", labels(6))]);
    runs(folder.path(), "e.npz", [Some("x"), Some("y"), classes, None, None]);
}

#[test]
fn where_several_pairs_fit_the_file_asks() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    npz(&at("a.npz"), &[("left", samples(60)), ("right", samples(60)), ("kind", labels(60))]);
    asks(folder.path(), "a.npz", "inputs", &["problem.inputs=left", "problem.targets=kind"]);
    // Labels that do not begin with 0 may be numbers.
    npz(&at("b.npz"), &[("x", samples(60)), ("y", whole(&[60], |k| 1 + (k % 3) as i64))]);
    asks(folder.path(), "b.npz", "loss", &["problem.loss=least-squares"]);
    // The other array may be anywhere.
    std::fs::create_dir(at("elsewhere")).unwrap();
    std::fs::write(at("alone.npy"), npy(&samples(60))).unwrap();
    std::fs::write(at("elsewhere/kind.npy"), npy(&labels(60))).unwrap();
    asks(folder.path(), "alone.npy", "targets", &["problem.targets=elsewhere/kind.npy"]);
    asks(folder.path(), "elsewhere/kind.npy", "inputs", &["problem.inputs=alone.npy"]);
}

#[test]
fn files_that_no_run_would_accept_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("empty.npz"), "").unwrap();
    std::fs::write(at("empty.npy"), "").unwrap();
    std::fs::write(at("empty.safetensors"), "").unwrap();
    npz(&at("none.npz"), &[]);
    npz(&at("single.npz"), &[("x", samples(60))]);
    npz(&at("lengths.npz"), &[("x", samples(60)), ("y", labels(59))]);
    npz(&at("names.npz"), &[("x", samples(60)), ("y", Array("<U1", vec![60], vec![0; 240]))]);
    let lost = floats(&[60, 4], |k| if k == 13 { f32::NAN } else { 1.0 });
    npz(&at("lost.npz"), &[("x", lost), ("y", labels(60))]);
    let files = [
        "empty.npz",
        "empty.npy",
        "empty.safetensors",
        "none.npz",
        "single.npz",
        "lengths.npz",
        "names.npz",
        "lost.npz",
    ];
    for file in files {
        let output = mile(folder.path(), &["init", "--data", file, "-o", "written.toml"]);
        assert_eq!(output.status.code(), Some(2), "{file}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(file), "{file}: {}", text(&output.stderr));
        assert!(!at("written.toml").exists(), "{file}");
    }
}
