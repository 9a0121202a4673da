//! `mile predict`, `mile evaluate` and `mile export`: trained models on new data.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn mile(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
    command.env("MILE_HOME", folder.join("home")).env_remove("MILE_DATA");
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What a command prints.
fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = mile(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The message of a command that refuses its input.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = mile(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(folder, &[arguments, &["--format", "json"]].concat())).unwrap()
}

/// The last record of the first job of a run.
fn last_record(folder: &Path, run: &str) -> Value {
    let summary = std::fs::read_to_string(folder.join(run).join("summary.json")).unwrap();
    serde_json::from_str::<Value>(&summary).unwrap()[0]["last"].clone()
}

fn cells(csv: &str) -> Vec<Vec<String>> {
    csv.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// A number between -1 and 1 that depends on k in no simple way.
fn value(k: usize) -> f64 {
    ((k * k * 7 + k * 13) % 101) as f64 / 50.0 - 1.0
}

const COLOURS: [&str; 3] = ["red", "green", "blue"];

/// Rows with two numbers, a word and a target.
fn rows(range: std::ops::Range<usize>, target: fn(f64, f64, usize) -> String) -> String {
    let mut text = "a,b,colour,y\n".to_owned();
    for k in range {
        let (a, b, colour) = (10.0 + 3.0 * value(k), 0.1 * value(3 * k + 1), (k * 5 + k / 7) % 3);
        writeln!(text, "{a},{b},{},{}", COLOURS[colour], target(a, b, colour)).unwrap();
    }
    text
}

fn without_target(text: &str) -> String {
    text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect()
}

fn run_table(folder: &Path, problem: &str, target: fn(f64, f64, usize) -> String) {
    std::fs::write(folder.join("train.csv"), rows(0..90, target)).unwrap();
    std::fs::write(folder.join("held-out.csv"), rows(90..140, target)).unwrap();
    std::fs::write(folder.join("new.csv"), without_target(&rows(90..140, target))).unwrap();
    let file = format!(
        "name = 't'\nrounds = 40\n[network]\nagents = 3\n[problem]\nkind = 'table'\ndata = 'train.csv'\ntest = 'held-out.csv'\n\
         target = 'y'\ncategorical = ['colour']\nstandardise = true\nintercept = true\n{problem}\n\
         [[algorithm]]\nname = 'mile'\nlocal_steps = 2\nstep_size = 0.2\n"
    );
    std::fs::write(folder.join("t.toml"), file).unwrap();
    said(folder, &["run", "t.toml", "--out", "run", "--quiet"]);
    // Nothing of the training is needed any more.
    std::fs::remove_file(folder.join("train.csv")).unwrap();
}

#[test]
fn predictions_are_the_coefficients_in_the_units_of_the_data_times_the_new_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_table(folder, "loss = 'least-squares'", |a, b, c| (2.0 * a - 5.0 * b + c as f64).to_string());
    let coefficients = cells(&std::fs::read_to_string(folder.join("run/coefficients.csv")).unwrap());
    let column = coefficients[0].iter().position(|name| name == "mile original").unwrap();
    let coefficient = |name: &str| -> f64 {
        coefficients.iter().find(|row| row[0] == name).map_or(0.0, |row| row[column].parse().unwrap())
    };
    let predicted = cells(&said(folder, &["predict", "run", "new.csv"]));
    let new = cells(&std::fs::read_to_string(folder.join("new.csv")).unwrap());
    assert_eq!((predicted[0].as_slice(), predicted.len()), (["prediction".to_owned()].as_slice(), 51));
    for (row, predicted) in new.iter().zip(&predicted).skip(1) {
        let number = |k: usize| row[k].parse::<f64>().unwrap();
        let expected = coefficient("intercept")
            + coefficient("a") * number(0)
            + coefficient("b") * number(1)
            + coefficient(&format!("colour={}", row[2]));
        let found: f64 = predicted[0].parse().unwrap();
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
}

#[test]
fn held_out_rows_are_measured_as_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_table(folder, "loss = 'logistic'", |a, b, c| {
        if a + 20.0 * b + c as f64 > 11.0 { "yes" } else { "no" }.into()
    });
    let (record, found) = (last_record(folder, "run"), json(folder, &["evaluate", "run", "held-out.csv"]));
    let found = found.as_object().unwrap();
    assert_eq!(found.len(), 3);
    for name in ["accuracy", "auc"] {
        assert_eq!(found[name], record[name], "{name}");
    }
    // The agents' sums of losses are rounded before they are added.
    let [one, other] = [&found["test_loss"], &record["test_loss"]].map(|loss| loss.as_f64().unwrap());
    assert!((one - other).abs() < 1e-14, "{one} {other}");
    // The exported model is the same one.
    assert_eq!(said(folder, &["export", "run", "--out", "away"]).trim(), "away");
    assert_eq!(Value::from(found.clone()), json(folder, &["evaluate", "away", "held-out.csv"]));
    let predicted = said(folder, &["predict", "run", "new.csv"]);
    assert_eq!(predicted, said(folder, &["predict", "away", "new.csv"]));
    // The accuracy again, from the predictions alone.
    let targets = cells(&std::fs::read_to_string(folder.join("held-out.csv")).unwrap());
    let predicted = cells(&predicted);
    assert_eq!(predicted[0], ["prediction", "probability no", "probability yes"]);
    let right = targets.iter().zip(&predicted).skip(1).filter(|(row, found)| row[3] == found[0]).count();
    assert_eq!(Value::from(right as f64 / 50.0), found["accuracy"]);
    for row in &predicted[1..] {
        let [no, yes] = [1, 2].map(|k| row[k].parse::<f64>().unwrap());
        assert!((no + yes - 1.0).abs() < 1e-15 && (yes > no) == (row[0] == "yes"), "{row:?}");
    }
    assert!(refused(folder, &["export", "run", "--out", "away"]).contains("away: "));
}

/// The rows of the tables of an exported folder's card.
fn card(folder: &Path) -> HashMap<String, String> {
    let text = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let row = |line: &str| {
        let (name, value) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        assert!(!value.contains(" | "), "{line}");
        Some((name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn a_card_has_what_was_measured_and_what_took_part() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_table(folder, "loss = 'logistic'", |a, b, c| {
        if a + 20.0 * b + c as f64 > 11.0 { "yes" } else { "no" }.into()
    });
    said(folder, &["export", "run", "--out", "away"]);
    let (card, last) = (card(&folder.join("away")), last_record(folder, "run"));
    for (title, quantity) in [
        ("Loss of the average model", "loss"),
        ("Loss of the agents' own models, mean", "local_loss"),
        ("Loss of the worst agent's own model", "worst_loss"),
        ("Consensus error after mixing", "consensus_error"),
        ("Consensus error before mixing", "consensus_error_before"),
        ("Test accuracy of the average model", "accuracy"),
    ] {
        let value = last[quantity].as_f64().unwrap();
        assert_eq!(card[title], mile_lab::table::number(value), "{title}");
    }
    assert_eq!(card["Bytes sent by all agents"], last["bytes_sent"].to_string());
    let version = format!("mile {}", env!("CARGO_PKG_VERSION"));
    let expected = [
        ("trained with", &*version),
        ("rounds", "40"),
        ("seed", "0"),
        ("method", "mile"),
        ("precision", "f64"),
    ];
    for (name, value) in expected {
        assert_eq!(card[name], value);
    }
    assert_eq!((&*card["`weight`"], &*card["`bias`"]), ("[1, 4]", "[1]"));
    assert!(card["network"].contains('3') && card["output"].contains("yes"), "{card:?}");
    let text = std::fs::read_to_string(folder.join("away/README.md")).unwrap();
    assert!(text.contains("local_steps = 2") && text.contains("the average of all agents' models"), "{text}");
    // A cell of a table never ends a row early.
    for line in text.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(line.replace("\\|", "").matches('|').count(), 3, "{line}");
    }
}

/// The header of a safetensors file, and its numbers.
fn safetensors(path: &Path) -> (Value, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), bytes[8 + length..].to_vec())
}

#[test]
fn numbers_that_nobody_has_explained_are_exported_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = "name = 'q'\nrounds = 4\n[network]\nagents = 2\ntopology = 'path'\n[problem]\nkind = 'quadratic'\ndim = 3\n\
                [[algorithm]]\nname = 'mile'\nstep_size = 0.1\n";
    std::fs::write(folder.join("q.toml"), file).unwrap();
    said(folder, &["run", "q.toml", "--out", "run", "--quiet"]);
    said(folder, &["export", "run", "--agent", "1", "--out", "away"]);
    let (head, x) = safetensors(&folder.join("away/model.safetensors"));
    assert_eq!(head, serde_json::json!({"x": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}));
    let (head, state) = safetensors(&folder.join("run/final/mile-seed0.safetensors"));
    assert_eq!(head["x"]["shape"], serde_json::json!([2, 3]));
    let begin = head["x"]["data_offsets"][0].as_u64().unwrap() as usize;
    assert_eq!(x, state[begin + 24..begin + 48]);
    assert_eq!(card(&folder.join("away"))["`x`"], "[3]");
    for model in ["run", "away"] {
        assert!(refused(folder, &["predict", model, "new.csv"]).contains("model.json"));
    }
}

#[test]
fn several_classes_and_the_own_model_of_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_table(folder, "loss = 'softmax'", |a, b, _| {
        ["low", "middle", "top"][usize::from(a > 9.0) + usize::from(a + b > 11.0)].into()
    });
    let predicted = cells(&said(folder, &["predict", "run", "new.csv"]));
    let found = json(folder, &["evaluate", "run", "held-out.csv"]);
    let targets = cells(&std::fs::read_to_string(folder.join("held-out.csv")).unwrap());
    let right = targets.iter().zip(&predicted).skip(1).filter(|(row, found)| row[3] == found[0]).count();
    assert_eq!(found["accuracy"], Value::from(right as f64 / 50.0));
    assert_eq!(found["accuracy"], last_record(folder, "run")["accuracy"]);
    let own = said(folder, &["predict", "run", "new.csv", "--agent", "2"]);
    assert_ne!(cells(&own), predicted);
    said(folder, &["export", "run", "--agent", "2", "--out", "own"]);
    assert_eq!(own, said(folder, &["predict", "own", "new.csv"]));
    assert!(refused(folder, &["predict", "run", "new.csv", "--agent", "3"]).contains("--agent"));
    assert!(refused(folder, &["predict", "own", "new.csv", "--agent", "2"]).contains("--agent"));
    assert!(refused(folder, &["predict", "run", "new.csv", "--seed", "9"]).contains("--seed"));
    assert!(refused(folder, &["predict", "run", "new.csv", "--algorithm", "led"]).contains("--algorithm"));
}

#[test]
fn a_row_that_lacks_a_value_has_no_prediction_and_other_faults_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_table(folder, "loss = 'least-squares'", |a, b, c| (2.0 * a - 5.0 * b + c as f64).to_string());
    std::fs::write(folder.join("some.csv"), "colour,b,a,more\nred,0,10,x\nred,,10,x\n,0,10,x\nblue,0,9,x\n")
        .unwrap();
    let predicted = cells(&said(folder, &["predict", "run", "some.csv", "--out", "p.csv"]));
    assert!(predicted.is_empty());
    let written = std::fs::read_to_string(folder.join("p.csv")).unwrap();
    let is_empty: Vec<bool> = written.lines().skip(1).map(|line| line.trim_matches('"').is_empty()).collect();
    assert_eq!(is_empty, [false, true, true, false], "{written}");
    std::fs::write(folder.join("odd.csv"), "a,b,colour\n1,2,pink\n").unwrap();
    assert!(refused(folder, &["predict", "run", "odd.csv"]).contains("pink"));
    std::fs::write(folder.join("word.csv"), "a,b,colour\nten,2,red\n").unwrap();
    let message = refused(folder, &["predict", "run", "word.csv"]);
    assert!(message.contains("'ten'") && !message.contains("[problem]"), "{message}");
    std::fs::write(folder.join("short.csv"), "a,colour\n1,red\n").unwrap();
    assert!(refused(folder, &["predict", "run", "short.csv"]).contains("'b'"));
    assert!(refused(folder, &["evaluate", "run", "new.csv"]).contains("'y'"));
    assert!(refused(folder, &["predict", ".", "new.csv"]).contains("model.json"));
    assert!(refused(folder, &["predict", "run", "absent.csv"]).contains("absent.csv"));
}

#[test]
fn a_word_that_was_not_in_the_training_data_belongs_to_the_category_of_missing_values() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut train = "colour,y\n".to_owned();
    for k in 0..80 {
        let (colour, y) = [("red", 1), ("green", 4), ("blue", 9), ("", 20)][k % 4];
        writeln!(train, "{colour},{y}").unwrap();
    }
    std::fs::write(folder.join("train.csv"), train).unwrap();
    std::fs::write(
        folder.join("t.toml"),
        "rounds = 400\n[network]\nagents = 4\n[problem]\nkind = 'table'\ndata = 'train.csv'\ntarget = 'y'\n\
         loss = 'least-squares'\ncategorical = ['colour']\nmissing = 'category'\nintercept = true\n\
         [[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n",
    )
    .unwrap();
    said(folder, &["run", "t.toml", "--out", "run", "--quiet"]);
    std::fs::write(folder.join("new.csv"), "colour\npink\n\"\"\nred\nblue\n").unwrap();
    let predicted = cells(&said(folder, &["predict", "run", "new.csv"]));
    let numbers: Vec<f64> = predicted[1..].iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(numbers[0], numbers[1]);
    for (number, expected) in numbers.iter().zip([20.0, 20.0, 1.0, 9.0]) {
        assert!((number - expected).abs() < 0.01, "{numbers:?}");
    }
}

/// A `.npy` file of numbers in single precision, or of labels.
fn npy(shape: &str, dtype: &str, bytes: Vec<u8>) -> Vec<u8> {
    let head = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let head = format!("{head:<117}\n");
    [b"\x93NUMPY\x01\x00".as_slice(), &(head.len() as u16).to_le_bytes(), head.as_bytes(), &bytes].concat()
}

#[test]
fn networks_predict_for_arrays_and_are_measured_as_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let inputs = |range: std::ops::Range<usize>| -> Vec<u8> {
        range.flat_map(|k| (0..4).flat_map(move |j| (value(4 * k + j) as f32).to_le_bytes())).collect()
    };
    let labels = |range: std::ops::Range<usize>| -> Vec<u8> {
        range.map(|k| u8::from(value(4 * k) > 0.0) + u8::from(value(4 * k + 1) > 0.3)).collect()
    };
    for (name, range) in [("train", 0..80), ("test", 80..110)] {
        let count = range.len();
        let x = npy(&format!("({count}, 4)"), "<f4", inputs(range.clone()));
        std::fs::write(folder.join(format!("{name}-x.npy")), x).unwrap();
        std::fs::write(
            folder.join(format!("{name}-y.npy")),
            npy(&format!("({count},)"), "|u1", labels(range)),
        )
        .unwrap();
    }
    let file = "name = 'n'\nrounds = 15\n[network]\nagents = 2\ntopology = 'path'\n[problem]\nkind = 'arrays'\ninputs = 'train-x.npy'\n\
                targets = 'train-y.npy'\ntest_inputs = 'test-x.npy'\ntest_targets = 'test-y.npy'\nbatch = 8\n\
                model = [{ kind = 'dense', out = 6 }, { kind = 'relu' }, { kind = 'dense', out = 3 }]\n\
                [[algorithm]]\nname = 'mile'\nlocal_steps = 3\nstep_size = 0.1\n";
    std::fs::write(folder.join("n.toml"), file).unwrap();
    said(folder, &["run", "n.toml", "--out", "run", "--quiet"]);
    let found = json(folder, &["evaluate", "run", "test-x.npy", "--targets", "test-y.npy"]);
    assert_eq!(found["accuracy"], last_record(folder, "run")["accuracy"]);
    said(folder, &["export", "run", "--out", "away"]);
    let predicted = said(folder, &["predict", "away", "test-x.npy"]);
    assert_eq!(predicted, said(folder, &["predict", "run", "test-x.npy"]));
    let right = cells(&predicted)
        .iter()
        .skip(1)
        .zip(labels(80..110))
        .filter(|(row, y)| row[0] == y.to_string())
        .count();
    assert_eq!(found["accuracy"], Value::from(right as f64 / 30.0));
    assert!(refused(folder, &["predict", "run", "test-y.npy"]).contains("test-y.npy"));
    assert!(refused(folder, &["evaluate", "run", "test-x.npy"]).contains("--targets"));
}

/// A grey picture of seven columns and five rows.
fn write_picture(path: &Path, pixels: &[u8]) {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 7, 5);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
}

#[test]
fn pictures_are_predicted_as_arrays_of_their_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let pixels =
        |k: usize| -> Vec<u8> { (0..35).map(|j| (127.0 * (1.0 + value(35 * k + j))) as u8).collect() };
    let samples = |range: std::ops::Range<usize>| range.flat_map(pixels).collect::<Vec<u8>>();
    std::fs::write(folder.join("x.npy"), npy("(40, 5, 7, 1)", "|u1", samples(0..40))).unwrap();
    std::fs::write(folder.join("y.npy"), npy("(40,)", "|u1", (0..40).map(|k| k % 3).collect())).unwrap();
    let file = "name = 'p'\nrounds = 10\n[network]\nagents = 2\ntopology = 'path'\n[problem]\nkind = 'arrays'\ninputs = 'x.npy'\n\
                targets = 'y.npy'\nbatch = 8\nmodel = [{ kind = 'conv', out = 3, kernel = 3 }, { kind = 'relu' }, { kind = 'dense', out = 3 }]\n\
                [[algorithm]]\nname = 'mile'\nlocal_steps = 3\nstep_size = 0.1\n";
    std::fs::write(folder.join("p.toml"), file).unwrap();
    said(folder, &["run", "p.toml", "--out", "run", "--quiet"]);
    std::fs::write(folder.join("two.npy"), npy("(2, 5, 7, 1)", "|u1", samples(7..9))).unwrap();
    std::fs::create_dir(folder.join("pictures")).unwrap();
    // In the order of their names, which is another one than that in which they are written.
    write_picture(&folder.join("pictures/b.png"), &pixels(8));
    write_picture(&folder.join("pictures/a.png"), &pixels(7));
    let of_arrays = cells(&said(folder, &["predict", "run", "two.npy"]));
    let of_pictures = cells(&said(folder, &["predict", "run", "pictures"]));
    let files: Vec<&str> = of_pictures.iter().map(|row| &*row[0]).collect();
    assert_eq!(files, ["file", "a.png", "b.png"]);
    assert!(of_pictures.iter().zip(&of_arrays).all(|(picture, array)| picture[1..] == array[..]));
    assert_ne!(of_arrays[1][1..], of_arrays[2][1..]);
    let one = cells(&said(folder, &["predict", "run", "pictures/b.png"]));
    assert_eq!(one[1..], of_pictures[2..]);
    std::fs::write(folder.join("broken.png"), samples(0..3)).unwrap();
    assert!(refused(folder, &["predict", "run", "broken.png"]).contains("broken.png"));
    assert!(refused(folder, &["predict", "run", "p.toml"]).contains("p.toml: "));
}

#[test]
fn a_run_on_images_is_measured_on_the_test_set_of_its_data_set() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = "name = 'g'\nrounds = 3\n[network]\nagents = 2\ntopology = 'path'\n[problem]\nkind = 'images'\ndataset = 'glyphs'\n\
                model = 'linear'\ntest_samples = 'all'\neval_samples = 50\n[[algorithm]]\nname = 'mile'\nlocal_steps = 2\nstep_size = 0.1\n\
                [[algorithm]]\nname = 'led'\nlocal_steps = 2\nstep_size = 0.1\n";
    std::fs::write(folder.join("g.toml"), file).unwrap();
    said(folder, &["run", "g.toml", "--out", "run", "--quiet"]);
    assert!(refused(folder, &["evaluate", "run", "glyphs"]).contains("--algorithm"));
    let found = json(folder, &["evaluate", "run", "glyphs", "--algorithm", "mile"]);
    assert_eq!(found["accuracy"], last_record(folder, "run")["accuracy"]);
}
