//! Experiments drawn at random over all keys.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile::methods::catalogue::{self, Entry};
use mile::random::{Purpose, stream};
use mile_lab::execute::execute;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSettings, Spec};
use rand::{Rng, RngExt};

/// Draws keys and values.
pub(crate) struct Draw(Box<dyn Rng>);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Box::new(stream(seed, Purpose::Probe, 0, 0)))
    }

    fn one_of(&mut self, choices: &[&str]) -> String {
        choices[self.0.random_range(0..choices.len())].to_owned()
    }

    fn whole(&mut self, from: u64, to: u64) -> u64 {
        self.0.random_range(from..=to)
    }

    /// A number with few digits, so that a failure can be read.
    fn number(&mut self, from: f64, to: f64) -> f64 {
        let part = self.whole(1, 99) as f64 / 100.0;
        (1e4 * (from + part * (to - from))).round() / 1e4
    }

    fn yes(&mut self, chance: f64) -> bool {
        self.0.random_bool(chance)
    }
}

/// The text of an experiment; many of these can be run.
pub(crate) fn spec(draw: &mut Draw, folder: &Path) -> String {
    let mut text = String::new();
    let rounds = draw.whole(3, 6);
    let _ = writeln!(text, "name = \"drawn\"\nrounds = {rounds}");
    if draw.yes(0.5) {
        let _ = writeln!(text, "seeds = [{}, {}]", draw.whole(0, 3), draw.whole(4, 9));
    }
    if draw.yes(0.4) {
        let _ = writeln!(text, "eval_every = {}", draw.whole(1, 4));
    }
    if draw.yes(0.3) {
        let _ = writeln!(text, "eval_agents = {}", draw.one_of(&["2", "\"all\""]));
    }
    if draw.yes(0.2) {
        let _ = writeln!(text, "agent_metrics = true");
    }
    if draw.yes(0.2) {
        let rule = draw.one_of(&[
            "consensus = 1e-9",
            "loss_change = 1e-9",
            "grad_norm = 1e-9",
            "consensus = 1e-2, every = 2",
        ]);
        let _ = writeln!(text, "stop = {{ {rule} }}");
    }
    if draw.yes(0.5) {
        let _ = writeln!(text, "precision = \"{}\"", draw.one_of(&["f32", "f64"]));
    }
    text += &network(draw, folder);
    let problem = problem(draw, folder);
    text += &problem;
    if draw.yes(0.5) {
        text += &start(draw, folder, problem.contains("\"quadratic\""));
    }
    for k in 0..draw.whole(1, 2) {
        text += &algorithm(draw, k, rounds, problem.contains("l1 ="));
    }
    if problem.contains("\"python\"") {
        text += &method_in_a_file(folder);
    }
    // Agents leave and join networks whose edges are always up.
    let are_up = ["drop_rate", "bursts", "absence", "time_varying"].iter().all(|key| !text.contains(key));
    if draw.yes(if are_up { 0.3 } else { 0.05 }) {
        text += &events(draw);
    }
    if !text.contains("[[event]]") && draw.yes(0.15) {
        text += &attack(draw);
    }
    if draw.yes(0.2) {
        let laws =
            ["0.1", "{ from = 0.1, to = 0.2 }", "{ least = 0.1, mean = 0.2 }", "{ trace = [0.1, 0.3] }"];
        let (step, latency, bandwidth) = (draw.one_of(&laws), draw.one_of(&laws), draw.one_of(&laws));
        let _ = writeln!(text, "[time]\nstep = {step}\nlatency = {latency}\nbandwidth = {bandwidth}");
        if draw.yes(0.3) {
            text += "edges = [[0, 1, 0.2, 1e5]]\n";
        }
    }
    text
}

/// A path as a file of an experiment has it.
fn path(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, contents).unwrap();
    format!("{:?}", path.display().to_string())
}

/// Where agents start; a model of three numbers suits quadratics only.
fn start(draw: &mut Draw, folder: &Path, is_quadratic: bool) -> String {
    if is_quadratic && draw.yes(0.4) {
        // What a run of another experiment has left: four models of three numbers.
        let text = "rounds = 1\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\ndim = 3\n[[algorithm]]\nname = 'led'\nlr = 0.1\n";
        let plan = Plan::new(Spec::parse(text, Path::new(""), &[]).unwrap()).unwrap();
        let earlier = folder.join("earlier");
        execute(&plan, &earlier, false, &Silent, &AtomicBool::new(false)).unwrap();
        let state = earlier.join("final/led-seed0.safetensors");
        return format!("[start]\nfile = {:?}\n", state.display().to_string());
    }
    format!("[start]\nvalue = \"{}\"\n", draw.one_of(&["zeros", "common", "random", "model"]))
}

fn attack(draw: &mut Draw) -> String {
    let agents = draw.one_of(&["[1]", "[0, 3]"]);
    let kind = draw.one_of(&["sign-flip", "alie", "dissensus", "slow", "noise"]);
    let strength = some_of(draw, &["strength = 0.5"]);
    format!("[attack]\nagents = {agents}\nkind = \"{kind}\"\n{strength}")
}

fn events(draw: &mut Draw) -> String {
    let one = match draw.whole(0, 2) {
        0 => format!("replace = {}\nlost = 1", draw.whole(0, 3)),
        1 => "leave = 3\nedges = [[0, 2]]".to_owned(),
        _ => "join = 4\nneighbours = [0, 2]".to_owned(),
    };
    format!("[[event]]\nround = 2\n{one}\n")
}

fn network(draw: &mut Draw, folder: &Path) -> String {
    let topologies = [
        "\"ring\"",
        "\"path\"",
        "\"star\"",
        "\"complete\"",
        "\"exponential\"",
        "\"erdos-renyi\"\np = 0.9",
        "\"random-regular\"\ndegree = 3",
        "\"small-world\"\ndegree = 2\nrewire = 0.3",
        "\"file\"\nedges = [[0, 1], [1, 2], [2, 3], [0, 3]]",
    ];
    let finite = draw.yes(0.15);
    let mut text = match finite {
        true => {
            let own = "{ weights = [[[0, 1, 0.5], [2, 3, 0.25]], [[0, 2, 0.125], [1, 3, 0.5]]] }";
            let varying = ["\"one-peer-hypercube\"", "\"base-k\"", "\"base-k\"\ndegree = 2", own];
            format!("[network]\nagents = 4\ntime_varying = {}\n", draw.one_of(&varying))
        }
        false => format!("[network]\nagents = 4\ntopology = {}\n", draw.one_of(&topologies)),
    };
    if !finite && draw.yes(0.1) {
        let ring = "0.5 0.25 0 0.25\n0.25 0.5 0.25 0\n0 0.25 0.5 0.25\n0.25 0 0.25 0.5\n";
        let matrix = match draw.yes(0.5) {
            true => path(folder, "matrix.txt", ring),
            false => "[[0, 1, 0.3], [1, 2, 0.3], [2, 3, 0.3], [0, 3, 0.3]]".to_owned(),
        };
        text = format!("[network]\nagents = 4\ntopology = \"ring\"\nmixing = \"file\"\nmatrix = {matrix}\n");
    } else if !finite && draw.yes(0.7) {
        let rules = ["metropolis", "lazy-metropolis", "max-degree", "best-constant", "fdla"];
        let _ = writeln!(text, "mixing = \"{}\"", draw.one_of(&rules));
    }
    if !finite && draw.yes(0.2) {
        let _ = writeln!(text, "time_varying = \"{}\"", draw.one_of(&["random-matching", "matchings"]));
    }
    if draw.yes(0.2) {
        let _ = writeln!(text, "drop_rate = {}", draw.number(0.0, 0.5));
    }
    if draw.yes(0.1) {
        let loss = draw.one_of(&["", ", loss = 0.5"]);
        let _ = writeln!(text, "bursts = {{ begin = 0.1, end = {}{loss} }}", draw.number(0.1, 0.9));
    }
    if draw.yes(0.1) {
        let _ = writeln!(text, "absence = {{ begin = 0.05, end = {} }}", draw.number(0.1, 0.9));
    }
    if draw.yes(0.3) {
        let _ = writeln!(text, "seed = {}", draw.whole(0, 9));
    }
    text
}

fn problem(draw: &mut Draw, folder: &Path) -> String {
    match draw.whole(0, 10) {
        0..=3 => quadratic(draw),
        4 => images(draw),
        5 => arrays(draw),
        10 => python(draw, folder),
        _ => table(draw, folder),
    }
}

/// Each of some lines, or not.
fn some_of(draw: &mut Draw, lines: &[&str]) -> String {
    lines.iter().filter(|_| draw.yes(0.3)).fold(String::new(), |text, line| text + line + "\n")
}

fn quadratic(draw: &mut Draw) -> String {
    let (condition, spread) = (draw.number(2.0, 20.0), draw.number(0.1, 2.0));
    let seed = some_of(draw, &["seed = 5"]);
    format!(
        "[problem]\nkind = \"quadratic\"\ndim = 3\ncondition = {condition}\nheterogeneity = {spread}\n{seed}"
    )
}

fn images(draw: &mut Draw) -> String {
    let batch = draw.one_of(&["\"full\"", "8", "{ epoch = 8 }"]);
    let partition = draw.one_of(&["{ kind = \"dirichlet\", alpha = 1.0 }", "{ kind = \"iid\" }"]);
    let more = some_of(draw, &["weight_decay = 0.01", "seed = 5"]);
    format!(
        "[problem]\nkind = \"images\"\ndataset = \"glyphs\"\nmodel = \"linear\"\nbatch = {batch}\npartition = {partition}\n\
         eval_samples = 20\ntest_samples = 30\n{more}"
    )
}

/// Twelve samples that NumPy wrote (`tests/data/arrays.py`).
fn arrays(draw: &mut Draw) -> String {
    let file = |name: &str| format!("{:?}", format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR")));
    let source = match draw.whole(0, 3) {
        0 => format!("data = {}\n", file("arrays.npz")),
        1 => format!(
            "data = {}\ntest_inputs = \"x_test\"\ntest_targets = \"y_test\"\nclasses = 3\n",
            file("arrays.npz")
        ),
        2 => format!("data = {}\nlayout = \"nchw\"\n", file("arrays.safetensors")),
        _ => format!("inputs = {}\ntargets = {}\nloss = \"least-squares\"\n", file("x.npy"), file("y.npy")),
    };
    let keys = [
        "test = 0.3",
        "model = [{ kind = \"dense\", out = 3 }]",
        "batch = 2",
        "partition = { kind = \"shards\", per_agent = 2 }",
        "eval_samples = 2",
        "test_samples = 2",
        "weight_decay = 0.01",
        "seed = 5",
    ];
    format!("[problem]\nkind = \"arrays\"\n{source}{}", some_of(draw, &keys))
}

/// Read and written by every program, computed by the Python package only.
fn python(draw: &mut Draw, folder: &Path) -> String {
    let file = format!("{:?}", format!("{}:problem", folder.join("train.py").display()));
    let keys = [
        "arguments = { width = 64, rates = [0.1, 0.2] }",
        "files = [\"model.py\", \"beside/words.txt\"]",
        "eval_samples = 20\ntest_samples = 30",
    ];
    format!("[problem]\nkind = \"python\"\nfactory = {file}\n{}", some_of(draw, &keys))
}

/// A method that is read and written by every program too, beside such objectives.
fn method_in_a_file(folder: &Path) -> String {
    let file = format!("{:?}", format!("{}:Own", folder.join("train.py").display()));
    format!(
        "[[algorithm]]\nfactory = {file}\narguments = {{ rates = [0.1, 0.2] }}\nfiles = [\"beside.py\"]\nstep_size = 0.05\n"
    )
}

/// Forty rows: numbers, also as they are written in Germany, words, four owners, weights and exposures.
fn table(draw: &mut Draw, folder: &Path) -> String {
    let has_gaps = draw.yes(0.3);
    let row = |k: usize| {
        let (a, b) = ((k * 7 % 11) as f64 / 3.0, (k * 5 % 13) as f64 - 6.0);
        let word = if has_gaps && k % 9 == 4 { "" } else { ["red", "blue"][k % 2] };
        let price = if has_gaps && k % 8 == 3 { "gone".to_owned() } else { format!("{},5", k % 6) };
        format!("{a};{b};{word};{price};{};{};{}\n", k % 4, 1 + k % 3, k % 3)
    };
    let rows = |some: std::ops::Range<usize>| {
        let header = "a;b;word;price;owner;years;y\n# exported by hand\n".to_owned();
        some.map(row).fold(header, |text, row| text + &row)
    };
    let one_each = draw.yes(0.2);
    let data = match one_each {
        true => {
            (0..4).for_each(|k| drop(path(folder, &format!("agent-{k}.csv"), rows(10 * k..10 * k + 10))));
            format!("{:?}", folder.join("agent-{agent}.csv").display().to_string())
        }
        false => path(folder, "rows.csv", rows(0..40)),
    };
    let losses = [
        "\"least-squares\"",
        "\"huber\"\ndelta = 0.5",
        "\"welsch\"\nc = 2.0",
        "\"softmax\"\nclasses = [\"0\", \"1\", \"2\"]",
        "\"poisson\"\nexposure = \"years\"",
        "\"least-squares\"\nl1 = 0.01",
    ];
    let loss = draw.one_of(&losses);
    let mut text = format!(
        "[problem]\nkind = \"table\"\ndata = {data}\ntarget = \"y\"\nloss = {loss}\ncomment = \"#\"\ndelimiter = \";\"\n\
         formats = {{ price = \"decimal-comma\" }}\n"
    );
    let categorical = draw.yes(0.4);
    text += match (categorical, draw.yes(0.3)) {
        (true, _) => "categorical = [\"word\"]\nexclude = [\"owner\"]\n",
        (false, true) => "columns = [\"a\", \"price\"]\n",
        (false, false) => "exclude = [\"word\", \"owner\"]\n",
    };
    if has_gaps {
        let missing = draw.one_of(&["mean", "category", "drop"]);
        let _ = writeln!(text, "missing = \"{missing}\"\nmissing_words = {{ price = [\"gone\"] }}");
    }
    let weights = draw.one_of(&["agents", "rows", "years"]);
    let weights = format!("weights = \"{weights}\"");
    let test = format!("test = {}", draw.one_of(&["0.2", "{ fold = 1, of = 3 }"]));
    let batch = format!("batch = {}", draw.one_of(&["4", "{ epoch = 4 }"]));
    let keys = [
        "l2 = 0.1",
        "intercept = true",
        "standardise = true",
        "encoding = \"latin1\"",
        "seed = 5",
        &weights,
        &test,
        &batch,
    ];
    text += &some_of(draw, &keys);
    if draw.yes(0.1) && !text.contains("exposure") {
        text += "offset = \"b\"\n";
    }
    text += match (one_each, draw.whole(0, 3)) {
        (true, _) => "",
        (false, 0) => "by = \"owner\"\n",
        (false, 1) => "partition = \"iid\"\n",
        (false, _) => "partition = { kind = \"iid\", seed = 3 }\n",
    };
    text
}

/// A method with some of its keys; only some methods know penalties that are not smooth.
fn algorithm(draw: &mut Draw, k: u64, rounds: u64, has_l1: bool) -> String {
    let entry: &Entry = &catalogue::ALL[draw.0.random_range(0..catalogue::ALL.len())];
    // MILE has the most keys.
    let proximal = draw.one_of(&["extra", "ed", "nids", "dsgd", "local-dsgd"]);
    let name = match has_l1 {
        true => &*proximal,
        false if draw.yes(0.5) => "mile",
        false => &*entry.name,
    };
    let entry = catalogue::find(name).unwrap();
    let mut text = format!("[[algorithm]]\nname = \"{name}\"\nlabel = \"{name} {k}\"\n");
    let step_size = if draw.yes(0.2) { "\"auto\"".into() } else { draw.number(0.001, 0.05).to_string() };
    let _ = writeln!(text, "{} = {step_size}", draw.one_of(&["step_size", "lr"]));
    if entry.takes("local_steps") && draw.yes(0.7) {
        let own = entry.takes_own_steps() && draw.yes(0.3);
        let steps = if own { "[2, 1, 3, 3]".into() } else { draw.whole(1, 4).to_string() };
        let _ = writeln!(text, "{} = {steps}", draw.one_of(&["local_steps", "tau"]));
    }
    let (a, b) = (draw.number(0.0, 0.2), draw.number(0.2, 1.0));
    let share = draw.number(0.2, 0.9);
    let threshold = format!("{{ robust = \"clip\", threshold = {b} }}");
    let robust = |rule: &str, byzantine: u64| format!("{{ robust = \"{rule}\", byzantine = {byzantine} }}");
    let exchanges = match name {
        "mile" => vec!["\"pairs\"".into(), "\"rounds\"".into(), "\"rounds\"".into(), threshold],
        _ => vec![
            robust("clip", 1),
            robust("clip", 0),
            robust("trimmed-mean", 1),
            "\"rounds\"".into(),
            threshold,
        ],
    };
    let values = [
        ("xi", vec![a.to_string(), "\"paper\"".into(), "\"auto\"".into(), "\"adaptive\"".into()]),
        ("xi", vec![format!("{{ from = {a}, to = {b}, rounds = 3 }}"), format!("{{ adaptive = {a} }}")]),
        ("gamma", vec![b.to_string(), "\"auto\"".into()]),
        ("beta", vec![b.to_string()]),
        ("rho", vec![a.to_string()]),
        ("eta_s", vec![b.to_string()]),
        ("communications", vec!["2".into()]),
        ("probability", vec![b.to_string()]),
        ("chi", vec!["1.5".into()]),
        ("gossip", vec!["2".into()]),
        ("variant", vec!["\"cta\"".into(), "\"atc\"".into()]),
        ("momentum", vec!["0.5".into()]),
        ("nesterov", vec!["true".into(), "false".into()]),
        (
            "optimizer",
            vec![
                "\"adamw\"".into(),
                format!("{{ name = \"amsgrad\", betas = [{share}, 0.99], eps = 1e-6 }}"),
                "{ name = \"sgd\", momentum = 0.5, nesterov = true }".into(),
                "{ name = \"muon\", exclude = [\"head\"], decay = 0.01 }".into(),
                "\"sgd\"".into(),
            ],
        ),
        (
            "correction",
            vec!["\"step\"".into(), "\"gradient\"".into(), format!("{{ kind = \"gradient\", scale = {b} }}")],
        ),
        ("clip", vec![b.to_string()]),
        ("share_moments", vec!["1".into(), "2".into()]),
        ("outer", vec!["{ momentum = 0.5, step_size = 0.7 }".into(), format!("{{ step_size = {b} }}")]),
        (
            "compression",
            vec![
                "\"8-bit\"".into(),
                "\"bf16\"".into(),
                "\"fp16\"".into(),
                format!("{{ top_k = {share} }}"),
                "\"none\"".into(),
            ],
        ),
        ("exchange", exchanges),
    ];
    // Most methods are drawn a few times only.
    let chance = if name == "mile" { 0.3 } else { 0.6 };
    for (key, values) in values {
        let has_no_moments =
            key == "share_moments" && !["adamw", "amsgrad"].iter().any(|name| text.contains(name));
        if entry.takes(key) && draw.yes(chance) && !has_no_moments && !text.contains(&format!("{key} =")) {
            let value = &values[draw.0.random_range(0..values.len())];
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    if draw.yes(0.4) {
        let schedules = [
            "\"cosine\"",
            "{ kind = \"step\", every = 2, factor = 0.5 }",
            "{ kind = \"cosine\", warmup = 2, floor = 0.1 }",
            "{ warmup = 1 }",
        ];
        let _ = writeln!(text, "schedule = {}", draw.one_of(&schedules));
    }
    if draw.yes(0.2) {
        let _ = writeln!(
            text,
            "change = [{{ round = {}, step_size = 0.003, schedule = {{ warmup = 1 }} }}]",
            draw.whole(1, rounds)
        );
    }
    text
}

/// Settings of all agents.
pub(crate) fn settings(draw: &mut Draw) -> AgentSettings {
    let mut text = String::from("[agent]\n");
    let keys = [
        "keep = 3",
        "outbox = 40",
        "gossip = false",
        "message_range = 1e6",
        "on_missing = \"skip-edge\"\ndeadline = 4.5",
        "timeout = 2.5",
        "linger = 7.0",
        "snapshots = true",
        "metrics = \"127.0.0.1:9100\"",
        "page_token = \"/etc/mile/token\"\npage = \"127.0.0.1:7181\"",
        "stop = { consensus = 1e-7 }",
    ];
    text += &some_of(draw, &keys);
    text += ["", "transport = \"tcp\"\n", "transport = \"quic\"\nrelay = \"https://relay.example.org\"\n"]
        [draw.whole(0, 2) as usize];
    if draw.yes(0.5) {
        let _ = writeln!(text, "checkpoint_every = {}", draw.whole(1, 5));
    }
    AgentSettings::of_swarm(&text.parse().unwrap()).unwrap_or_else(|_| settings(draw))
}
