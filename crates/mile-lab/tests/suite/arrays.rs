//! Array files: what NumPy and safetensors write is read, and errors name the file and the array.

use std::path::Path;
use std::sync::Arc;

use mile::problems::{Draw, Metric, Problem};
use mile::ranks::{Alone, Together};
use mile_lab::engines::Scalar;
use mile_lab::recorded_metrics::Models;
use mile_lab::spec::Spec;

const EXPERIMENT: &str = r#"
rounds = 2
[network]
agents = 1
[problem]
kind = "arrays"
batch = "full"
[[algorithm]]
name = "mile"
step_size = 0.1
"#;

/// The folder with files that NumPy wrote.
fn written_by_numpy() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"))
}

fn spec(folder: &Path, set: &[&str]) -> Result<Spec, String> {
    let set: Vec<String> =
        set.iter().map(|key| format!("problem.{key}").replace("problem.network", "network")).collect();
    Spec::parse(EXPERIMENT, folder, &set).map_err(|error| error.to_string())
}

fn problem(folder: &Path, set: &[&str]) -> Result<Arc<dyn Problem<f64>>, String> {
    f64::problem(&*spec(folder, set)?.objectives, 3).map_err(|error| error.to_string())
}

/// The error names these keys, files, arrays and shapes.
#[track_caller]
fn refuses(folder: &Path, set: &[&str], names: &[&str]) {
    let message = problem(folder, set).err().unwrap_or_else(|| panic!("{set:?} was accepted"));
    for name in names {
        assert!(message.contains(name), "'{message}' does not name '{name}'");
    }
}

/// What `arrays.py` writes: element k of an array.
fn number(k: usize) -> f64 {
    (k * 7 % 250) as f64
}

/// Parameters of a linear model: weights `[input][output]`, then biases.
fn weights(inputs: usize, outputs: usize) -> Vec<f64> {
    (0..(inputs + 1) * outputs).map(|k| ((k * 13 % 31) as f64 - 15.0) / 10.0).collect()
}

fn outputs(x: &[f64], parameters: &[f64], count: usize) -> Vec<f64> {
    let bias = &parameters[x.len() * count..];
    (0..count)
        .map(|o| bias[o] + x.iter().enumerate().map(|(i, x)| x * parameters[i * count + o]).sum::<f64>())
        .collect()
}

fn cross_entropy(x: &[f64], parameters: &[f64], label: usize) -> f64 {
    let scores = outputs(x, parameters, 3);
    scores.iter().map(|s| s.exp()).sum::<f64>().ln() - scores[label]
}

#[track_caller]
fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} {b}");
}

/// The mean loss of 12 samples whose numbers are `at(sample, row, column, channel)`.
fn expected(shape: [usize; 3], at: impl Fn(usize, usize, usize, usize) -> f64) -> f64 {
    let [height, width, channels] = shape;
    let parameters = weights(height * width * channels, 3);
    let loss = |s: usize| {
        let places =
            (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..channels).map(move |c| (y, x, c))));
        let x: Vec<f64> = places.map(|(y, x, c)| at(s, y, x, c)).collect();
        cross_entropy(&x, &parameters, s % 3)
    };
    (0..12).map(loss).sum::<f64>() / 12.0
}

#[test]
fn what_numpy_and_safetensors_write_is_read() {
    let loss = |set: &[&str]| {
        let problem = problem(written_by_numpy(), set).unwrap();
        problem.loss(0, &weights(problem.dim() / 3 - 1, 3)).unwrap()
    };
    // Compressed; bytes, which are divided by 255; no channels.
    close(loss(&["data=arrays.npz"]), expected([4, 3, 1], |s, y, x, _| number(s * 12 + y * 3 + x) / 255.0));
    // Column-major doubles and big-endian labels, under other names.
    let last = expected([4, 3, 2], |s, y, x, c| number(((s * 4 + y) * 3 + x) * 2 + c) / 100.0);
    close(loss(&["data=plain.npz", "inputs=images", "targets=labels"]), last);
    // Channels first, in single precision.
    let first =
        expected([4, 3, 2], |s, y, x, c| f64::from((number(((s * 2 + c) * 4 + y) * 3 + x) / 100.0) as f32));
    close(loss(&["data=arrays.safetensors", "layout=nchw"]), first);
    assert!((first - last).abs() > 1e-3, "the test tells the two layouts apart");
}

/// What is measured for a model on held-out samples.
fn measure(problem: &dyn Problem<f64>, x: &[f64]) -> Vec<f64> {
    problem.held_out().unwrap().measure(x).unwrap()
}

#[test]
fn least_squares_is_half_the_squared_distance_from_the_targets() {
    let problem =
        problem(written_by_numpy(), &["inputs=x.npy", "targets=y.npy", "loss=least-squares"]).unwrap();
    let parameters = weights(5, 2);
    let loss = |s: usize| {
        let x: Vec<f64> = (0..5).map(|i| f64::from((number(s * 5 + i) / 100.0) as f32)).collect();
        let distances = outputs(&x, &parameters, 2).into_iter().zip([0, 1]);
        distances.map(|(output, i)| (output - number(s * 2 + i) / 100.0).powi(2)).sum::<f64>() / 2.0
    };
    assert_eq!(problem.dim(), parameters.len());
    close(problem.loss(0, &parameters).unwrap(), (0..12).map(loss).sum::<f64>() / 12.0);
    assert!(problem.held_out().is_none() && problem.class_counts().is_none());
}

#[test]
fn the_accuracy_is_measured_on_test_arrays_or_on_what_is_held_out() {
    let folder = written_by_numpy();
    assert!(problem(folder, &["data=arrays.npz"]).unwrap().held_out().is_none());
    let named = ["data=arrays.npz", "test_inputs=x_test", "test_targets=y_test"];
    for set in
        [&named[..], &["data=arrays.npz", "test=arrays.npz", "test_inputs=x_test", "test_targets=y_test"]]
    {
        let problem = problem(folder, set).unwrap();
        let mut x = vec![0.0; problem.dim()];
        // All test samples have label 0: the bias of the largest output decides.
        x[36] = 1.0;
        assert_eq!(measure(&*problem, &x), [1.0]);
        x[37] = 2.0;
        assert_eq!(measure(&*problem, &x), [0.0]);
    }
    let held_out = problem(folder, &["data=arrays.npz", "test=0.5", "network.agents=2"]).unwrap();
    let counts = held_out.class_counts().unwrap();
    assert!(counts.iter().all(|classes| classes.iter().sum::<usize>() == 3), "{counts:?}");
    assert_eq!(measure(&*held_out, &[0.0; 39])[0] * 6.0 % 1.0, 0.0);
    let set = ["data=arrays.npz", "test=0.5", "network.agents=2"];
    let objectives = spec(folder, &set).unwrap().objectives;
    let measured = |seed: u64| measure(&*f64::problem(&*objectives, seed).unwrap(), &weights(12, 3));
    let trained = |seed: u64| f64::problem(&*objectives, seed).unwrap().loss(0, &weights(12, 3)).unwrap();
    assert!((1..5).all(|seed| measured(seed) == measured(0)), "all seeds are tested on the same samples");
    assert!((1..5).any(|seed| trained(seed) != trained(0)), "which are divided in another way");
    let one =
        problem(folder, &["data=arrays.npz", "test=0.5", "test_samples=1", "network.agents=2"]).unwrap();
    assert!([0.0, 1.0].contains(&measure(&*one, &weights(12, 3))[0]));
}

#[test]
fn all_models_that_fit_are_taken() {
    let dim = |set: &[&str]| problem(written_by_numpy(), set).unwrap().dim();
    assert_eq!(dim(&["data=arrays.npz", "model=mlp"]), 12 * 128 + 128 + 128 * 3 + 3);
    let cnn = "model=[{ kind = \"conv\", out = 5, kernel = 3, padding = 1 }, { kind = \"relu\" }, { kind = \"dense\", out = 3 }]";
    assert_eq!(dim(&["data=arrays.npz", cnn]), 9 * 5 + 5 + 60 * 3 + 3);
    assert_eq!(dim(&["data=arrays.safetensors", "layout=nchw", "model=linear"]), 25 * 3);
    let set = ["inputs=x.npy", "targets=y.npy", "loss=least-squares", "model=cifar-cnn"];
    refuses(written_by_numpy(), &set, &["1 x 1 x 32"]);
}

/// The bytes of a `.npy` file.
fn npy(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), numbers].concat()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A folder with pairs of files `x-K.npy` and `y-K.npy`.
fn pairs(pairs: &[(Vec<u8>, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (k, (x, y)) in pairs.iter().enumerate() {
        std::fs::write(folder.path().join(format!("x-{k}.npy")), x).unwrap();
        std::fs::write(folder.path().join(format!("y-{k}.npy")), y).unwrap();
    }
    folder
}

const EACH: [&str; 2] = ["inputs=x-{agent}.npy", "targets=y-{agent}.npy"];

fn two_agents() -> tempfile::TempDir {
    pairs(&[
        (npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])), npy("|u1", "(3,)", &[0, 1, 1])),
        (npy("<f4", "(2, 2)", &floats(&[-1.0, 0.5, 0.25, -2.0])), npy("|u1", "(2,)", &[2, 0])),
    ])
}

#[test]
fn a_file_for_each_agent_is_its_own_data() {
    let folder = two_agents();
    let set = [&EACH[..], &["network.agents=2"]].concat();
    let spec = spec(folder.path(), &set).unwrap();
    let problem = f64::problem(&*spec.objectives, 0).unwrap();
    assert_eq!(problem.class_counts().unwrap(), [[1, 2, 0], [1, 0, 1]]);
    let parameters = weights(2, 3);
    let second = cross_entropy(&[-1.0, 0.5], &parameters, 2) + cross_entropy(&[0.25, -2.0], &parameters, 0);
    close(problem.loss(1, &parameters).unwrap(), second / 2.0);

    // A process that has only the second agent's files.
    std::fs::remove_file(folder.path().join("x-0.npy")).unwrap();
    std::fs::remove_file(folder.path().join("y-0.npy")).unwrap();
    let own = spec.objectives.for_agent(1).unwrap();
    close(f64::problem(&*own, 0).unwrap().loss(1, &parameters).unwrap(), second / 2.0);
    let digests = own.digests().unwrap();
    assert_eq!(digests.keys().collect::<Vec<_>>(), ["problem.inputs[1]", "problem.targets[1]"]);
    let shared = own.shared_facts(1).unwrap();
    assert_eq!(
        (shared["problem.shape"].value.as_str(), shared["problem.outputs"].value.as_str()),
        ("1 x 1 x 2", "3")
    );
    assert!(spec.objectives.digests().is_err(), "the first agent's files are gone");
}

/// Compares what a rank knows about an agent it hosts with what one process does.
fn same_on_a_rank(folder: &Path, set: &[&str], agent: usize) {
    let objectives = spec(folder, set).unwrap().objectives;
    let own = objectives.for_ranks(&[agent], Together::of(&Alone)).unwrap().unwrap();
    assert_eq!(own.data_bytes(0).unwrap(), objectives.data_bytes(0).unwrap());
    let (all, own) = (f64::problem(&*objectives, 4).unwrap(), f64::problem(&*own, 4).unwrap());
    let x: Vec<f64> = (0..all.dim()).map(|k| ((k * 13 % 31) as f64 - 15.0) / 100.0).collect();
    assert_eq!(own.loss(agent, &x).unwrap(), all.loss(agent, &x).unwrap(), "{set:?}");
    let gradient = |problem: &dyn Problem<f64>| {
        let mut gradient = vec![0.0; x.len()];
        problem.sample_gradient(agent, &x, Draw { seed: 1, step: 2 }, &mut gradient).unwrap();
        gradient
    };
    assert_eq!(gradient(&*own), gradient(&*all), "{set:?}");
    let measured = |problem: &dyn Problem<f64>| problem.held_out().map(|_| measure(problem, &x));
    assert_eq!(measured(&*own), measured(&*all), "{set:?}");
    assert_eq!(own.class_counts(), all.class_counts());
    assert!(own.loss(1 - agent, &x).is_err(), "its samples are elsewhere");
}

#[test]
fn a_rank_reads_the_samples_of_its_agents_from_files_of_every_format() {
    let folder = two_agents();
    let own = [&EACH[..], &["test=0.4"]].concat();
    let files: [(&Path, &[&str]); 6] = [
        (written_by_numpy(), &["data=arrays.npz", "test=0.5"]),
        (written_by_numpy(), &["data=arrays.npz", "test_inputs=x_test", "test_targets=y_test"]),
        (written_by_numpy(), &["data=plain.npz", "inputs=images", "targets=labels"]),
        (written_by_numpy(), &["data=arrays.safetensors", "layout=nchw", "test=0.5"]),
        (written_by_numpy(), &["inputs=x.npy", "targets=y.npy", "loss=least-squares", "test=0.3"]),
        (folder.path(), &own),
    ];
    for (folder, set) in files {
        for agent in [0, 1] {
            same_on_a_rank(folder, &[set, &["network.agents=2", "batch=2"]].concat(), agent);
        }
    }
    // The inputs of other agents are not read: a file that is wrong only there is not noticed.
    let wrong = npy("<f4", "(2, 2)", &floats(&[f32::NAN, 0.5, 0.25, -2.0]));
    std::fs::write(folder.path().join("x-1.npy"), wrong).unwrap();
    let set = [&EACH[..], &["network.agents=2"]].concat();
    let objectives = spec(folder.path(), &set).unwrap().objectives;
    let hosting = |agent: usize| {
        f64::problem(&*objectives.for_ranks(&[agent], Together::of(&Alone)).unwrap().unwrap(), 0)
    };
    assert!(hosting(0).is_ok());
    let error = hosting(1).err().unwrap().to_string();
    assert!(error.contains("x-1.npy"), "{error}");
    // A file that is shorter than it says is noticed by all.
    std::fs::write(folder.path().join("x-1.npy"), npy("<f4", "(2, 2)", &[0; 12])).unwrap();
    let error = f64::problem(&*objectives.for_ranks(&[0], Together::of(&Alone)).unwrap().unwrap(), 0)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("[2, 2]"), "{error}");
}

#[test]
fn the_samples_that_an_agent_holds_out_are_the_same_without_the_others_files() {
    let folder = two_agents();
    let set = [&EACH[..], &["network.agents=2", "test=0.4"]].concat();
    // Only the second agent's file has the third class.
    let set = [&set[..], &["classes=3"]].concat();
    let objectives = spec(folder.path(), &set).unwrap().objectives;
    let (all, own) = (f64::problem(&*objectives, 5).unwrap(), objectives.for_agent(0).unwrap());
    let own = f64::problem(&*own, 5).unwrap();
    assert_eq!(own.class_counts().unwrap()[0].iter().sum::<usize>(), 2);
    assert_eq!(all.class_counts().unwrap()[0], own.class_counts().unwrap()[0]);
    close(all.loss(0, &weights(2, 3)).unwrap(), own.loss(0, &weights(2, 3)).unwrap());
}

#[test]
fn facts_tell_data_apart_but_not_paths() {
    let paths = |set: &[&str]| spec(written_by_numpy(), set).unwrap().objectives.path_keys();
    assert_eq!(paths(&["data=arrays.npz", "test=0.5"]), ["data"]);
    assert_eq!(paths(&["data=arrays.npz", "test=arrays.npz"]), ["data", "test"]);
    assert_eq!(paths(&["data=arrays.npz", "test_inputs=x_test", "test_targets=y_test"]), ["data"]);
    assert_eq!(paths(&["inputs=x.npy", "targets=y.npy"]), ["inputs", "targets"]);
    let objectives = spec(written_by_numpy(), &["data=arrays.npz"]).unwrap().objectives;
    assert_eq!(objectives.digests().unwrap().keys().collect::<Vec<_>>(), ["problem.data"]);
    assert_eq!(
        objectives.digests().unwrap()["problem.data"],
        objectives.shared_facts(0).unwrap()["problem.data"]
    );
    assert_eq!(objectives.files(), [("data", written_by_numpy().join("arrays.npz"))]);
    assert!(objectives.for_agent(0).is_none());
}

#[test]
fn wrong_arrays_are_refused_with_file_and_array() {
    let numpy = written_by_numpy();
    refuses(numpy, &["data=arrays.npz", "inputs=a"], &["arrays.npz", "a"]);
    refuses(numpy, &["data=arrays.safetensors", "targets=b"], &["arrays.safetensors", "b"]);
    refuses(numpy, &["data=absent.npz"], &["absent.npz"]);
    refuses(numpy, &["data=plain.npz", "inputs=half", "targets=labels"], &["half", "<f2", "float32"]);
    refuses(numpy, &["data=arrays.npz", "inputs=y", "targets=y"], &["y", "[12]"]);
    refuses(numpy, &["data=arrays.npz", "targets=y_test"], &["y_test"]);
    refuses(numpy, &["data=arrays.npz", "targets=x"], &["x", "[12, 4, 3]"]);
    refuses(numpy, &["inputs=x.npy", "targets=y.npy"], &["y.npy", "[12, 2]"]);
    let other = ["data=arrays.npz", "test=arrays.safetensors"];
    refuses(numpy, &other, &["arrays.safetensors", "2 x 4 x 3", "4 x 3 x 1"]);

    let x = || npy("<f4", "(2, 2)", &floats(&[1.0, 2.0, 3.0, 4.0]));
    let one = |x: Vec<u8>, y: Vec<u8>, expected: &[&str]| refuses(pairs(&[(x, y)]).path(), &EACH, expected);
    let labels = |labels: &[u8]| npy("|i1", &format!("({},)", labels.len()), labels);
    one(npy("<f4", "(2, 2)", &floats(&[1.0, 2.0, f32::NAN, 4.0])), labels(&[0, 1]), &["x-0.npy"]);
    one(x(), npy("<f4", "(2,)", &floats(&[0.0, 1.0])), &["y-0.npy", "least-squares"]);
    one(x(), labels(&[0, 255]), &["y-0.npy"]);
    one(x(), npy("<i2", "(2,)", &[0, 0, 0, 1]), &["y-0.npy"]);
    one(x(), labels(&[1, 2]), &[]);
    one(x(), labels(&[0, 0]), &[]);
    one(npy("<f4", "(0, 2)", &[]), labels(&[]), &["x-0.npy"]);
    one(npy("<f4", "(2, 0)", &[]), labels(&[0, 1]), &["x-0.npy"]);
    one(npy("<i4", "(1, 1)", &[0; 4]), labels(&[0]), &["x-0.npy", "uint8", "float32"]);
    one(npy("<f4", "(2, 2)", &[0; 15]), labels(&[0, 1]), &["x-0.npy", "[2, 2]"]);
    one(npy("<f4", "(99999999999, 99999999999)", &[0; 16]), labels(&[0, 1]), &["x-0.npy"]);
    one(b"\x93NUMPY\x01\x00\xff\xff".to_vec(), labels(&[0, 1]), &["x-0.npy"]);
    one(b"hello".to_vec(), labels(&[0, 1]), &["x-0.npy"]);
    let two = pairs(&[(x(), labels(&[0, 1])), (npy("<f4", "(1, 4)", &floats(&[1.0; 4])), labels(&[1]))]);
    let set = [&EACH[..], &["network.agents=2"]].concat();
    refuses(two.path(), &set, &["x-1.npy", "1 x 1 x 4", "x-0.npy"]);
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    let numpy = written_by_numpy();
    refuses(numpy, &[], &["problem.data", ".npz"]);
    refuses(numpy, &["data=x.npy"], &["problem.data"]);
    refuses(numpy, &["inputs=x.npy"], &["problem.targets"]);
    refuses(numpy, &["inputs=x", "targets=y"], &["problem.inputs"]);
    refuses(numpy, &["data=arrays.npz", "test=1.5"], &["problem.test"]);
    refuses(numpy, &["data=arrays.npz", "test=x.npy"], &["problem.test", ".safetensors"]);
    refuses(numpy, &["data=arrays.npz", "test=0.01"], &["problem.test"]);
    refuses(numpy, &["data=arrays.npz", "test_inputs=x_test"], &["problem.test_targets"]);
    refuses(numpy, &["data=arrays.npz", "test_samples=4"], &["problem.test_samples"]);
    refuses(numpy, &["data=arrays.npz", "test=0.5", "test_samples=7"], &["problem.test_samples"]);
    refuses(numpy, &["data=arrays.npz", "classes=1"], &["problem.classes"]);
    refuses(numpy, &["data=arrays.npz", "classes=2"], &["y"]);
    refuses(numpy, &["data=arrays.npz", "network.agents=13"], &["problem.partition"]);
    let numbers = ["inputs=x.npy", "targets=y.npy", "loss=least-squares"];
    refuses(numpy, &[&numbers[..], &["partition=\"shards\""]].concat(), &["problem.partition"]);
    refuses(numpy, &[&numbers[..], &["partition={ kind = \"dirichlet\", alpha = 1 }"]].concat(), &[]);
    refuses(numpy, &[&numbers[..], &["classes=2"]].concat(), &["problem.classes"]);
    refuses(numpy, &["inputs=x-{agent}.npy", "targets=y.npy"], &["problem.targets", "{agent}"]);
    let each = [&EACH[..], &["partition={ kind = \"dirichlet\", alpha = 1 }"]].concat();
    refuses(numpy, &each, &["problem.partition"]);
}

#[test]
fn numbers_are_predicted_in_a_whole_run_and_their_error_is_measured() {
    let spec = format!(
        "rounds = 30\n[network]\nagents = 2\n[problem]\nkind = 'arrays'\ninputs = '{0}/x.npy'\ntargets = '{0}/y.npy'\n\
         loss = 'least-squares'\ntest_inputs = '{0}/x.npy'\ntest_targets = '{0}/y.npy'\nbatch = 'full'\n[[algorithm]]\nname = 'mile'\nstep_size = 0.05\n",
        written_by_numpy().display()
    );
    let folder = tempfile::tempdir().unwrap();
    let results = mile_lab::Lab::default().quiet().run(&spec, folder.path()).unwrap();
    let rmse: Vec<f64> = mile_lab::store::read_records(folder.path())
        .unwrap()
        .iter()
        .map(|record| record.held_out.get(Metric::Rmse, Models::Average).unwrap())
        .collect();
    assert!(results.is_complete && rmse.len() > 2);
    assert!(rmse[rmse.len() - 1] < 0.9 * rmse[0], "{rmse:?}");
}

#[test]
fn samples_that_are_chosen_are_at_most_those_that_were_held_out() {
    // A fifth of six samples is one for each of two agents, and a fifth of twelve is two.
    let set = ["data=arrays.npz", "test=0.2", "network.agents=2"];
    let objectives = spec(written_by_numpy(), &set).unwrap().objectives;
    let chosen = objectives.evaluating(3, 5).unwrap();
    assert_eq!(measure(&*f64::problem(&*chosen, 0).unwrap(), &[0.0; 39]).len(), 1);
    refuses(
        written_by_numpy(),
        &["data=arrays.npz", "test=0.2", "network.agents=2", "test_samples=5"],
        &["test_samples"],
    );
}
