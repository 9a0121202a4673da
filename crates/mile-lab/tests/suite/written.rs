//! What an experiment writes is the experiment: for experiments drawn at random over all keys, `config.toml` and `agent.toml` read
//! back as equal ones, and a run of `config.toml` has the bits of the run that wrote it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile::methods::catalogue::{self, Entry};
use mile::random::{Purpose, stream};
use mile_lab::execute::execute;
use mile_lab::objectives::Kinds;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSettings, AgentSpec, NeighbourSpec, Spec};
use mile_lab::store::read_records;
use rand::{Rng, RngExt};
use toml::Table;

/// Draws keys and values.
struct Draw(Box<dyn Rng>);

impl Draw {
    fn new(seed: u64) -> Self {
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
fn spec(draw: &mut Draw, folder: &Path) -> String {
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
        let rule = draw.one_of(&["consensus = 1e-9", "loss_change = 1e-9", "consensus = 1e-2, every = 2"]);
        let _ = writeln!(text, "stop = {{ {rule} }}");
    }
    if draw.yes(0.5) {
        let _ = writeln!(text, "precision = \"{}\"", draw.one_of(&["f32", "f64"]));
    }
    text += &network(draw);
    text += &problem(draw, folder);
    if draw.yes(0.5) {
        let _ =
            writeln!(text, "[start]\nvalue = \"{}\"", draw.one_of(&["zeros", "common", "random", "model"]));
    }
    for k in 0..draw.whole(1, 2) {
        text += &algorithm(draw, k, rounds);
    }
    if draw.yes(0.15) {
        let _ = writeln!(text, "[[event]]\nround = 2\nreplace = {}\nlost = 1", draw.whole(0, 3));
    }
    if draw.yes(0.2) {
        let laws =
            ["0.1", "{ from = 0.1, to = 0.2 }", "{ least = 0.1, mean = 0.2 }", "{ trace = [0.1, 0.3] }"];
        let (step, latency, bandwidth) = (draw.one_of(&laws), draw.one_of(&laws), draw.one_of(&laws));
        let _ = writeln!(text, "[time]\nstep = {step}\nlatency = {latency}\nbandwidth = {bandwidth}");
    }
    text
}

fn network(draw: &mut Draw) -> String {
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
    if !finite && draw.yes(0.7) {
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
        let _ = writeln!(text, "bursts = {{ begin = 0.1, end = {} }}", draw.number(0.1, 0.9));
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
    if draw.yes(0.4) {
        let (condition, spread) = (draw.number(2.0, 20.0), draw.number(0.1, 2.0));
        return format!(
            "[problem]\nkind = \"quadratic\"\ndim = 3\ncondition = {condition}\nheterogeneity = {spread}\n"
        );
    }
    if draw.yes(0.2) {
        let batch = draw.one_of(&["\"full\"", "8"]);
        let partition = draw.one_of(&["{ kind = \"dirichlet\", alpha = 1.0 }", "{ kind = \"iid\" }"]);
        return format!(
            "[problem]\nkind = \"images\"\ndataset = \"glyphs\"\nmodel = \"linear\"\nbatch = {batch}\npartition = {partition}\n\
             eval_samples = 20\ntest_samples = 30\n"
        );
    }
    let path = folder.join("rows.csv");
    let rows: String = (0..40)
        .map(|k| format!("{},{},{}\n", (k * 7 % 11) as f64 / 3.0, (k * 5 % 13) as f64 - 6.0, k % 3))
        .collect();
    std::fs::write(&path, format!("a,b,y\n{rows}")).unwrap();
    let losses = ["\"least-squares\"", "\"huber\"\ndelta = 0.5", "\"welsch\"\nc = 2.0"];
    let mut text = format!(
        "[problem]\nkind = \"table\"\ndata = {:?}\ntarget = \"y\"\nloss = {}\n",
        path.display().to_string(),
        draw.one_of(&losses)
    );
    let keys = [
        "l2 = 0.1",
        "intercept = true",
        "standardise = true",
        "batch = 4",
        "partition = \"iid\"",
        "test = 0.2",
        "weights = \"agents\"",
        "exclude = [\"b\"]",
    ];
    for key in keys {
        if draw.yes(0.3) {
            let _ = writeln!(text, "{key}");
        }
    }
    if !text.contains("partition") {
        text += "partition = { kind = \"iid\", seed = 3 }\n";
    }
    text
}

fn algorithm(draw: &mut Draw, k: u64, rounds: u64) -> String {
    let entry: &Entry = &catalogue::ALL[draw.0.random_range(0..catalogue::ALL.len())];
    // MILE has the most keys.
    let name = if draw.yes(0.5) { "mile" } else { &*entry.name };
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
    ];
    for (key, values) in values {
        if entry.takes(key) && draw.yes(0.3) && !text.contains(&format!("{key} =")) {
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
fn settings(draw: &mut Draw) -> AgentSettings {
    let mut text = String::from("[agent]\n");
    let keys = [
        "keep = 3",
        "outbox = 40",
        "timeout = 2.5",
        "linger = 7.0",
        "snapshots = true",
        "transport = \"tcp\"",
    ];
    for key in keys {
        if draw.yes(0.4) {
            let _ = writeln!(text, "{key}");
        }
    }
    if draw.yes(0.5) {
        let _ = writeln!(text, "checkpoint_every = {}", draw.whole(1, 5));
    }
    AgentSettings::of_swarm(&text.parse().unwrap()).unwrap()
}

/// The file of agent 0 reads back as the experiment and the settings it was made of.
fn check_agent_file(draw: &mut Draw, spec: &Spec, text: &str) {
    let membership = spec.membership().unwrap();
    let settings = settings(draw);
    let mut spec = spec.clone();
    if settings.apply(&mut spec).is_err() {
        return;
    }
    let neighbour =
        |(id, edge)| (id, NeighbourSpec { key: format!("k{id}"), edge, addresses: vec![format!("h:{id}")] });
    let neighbours: BTreeMap<usize, NeighbourSpec> =
        membership.edges_of(0).into_iter().map(neighbour).collect();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    let listen = "127.0.0.1:7100".parse().unwrap();
    let agent =
        AgentSpec { id: 0, key: at.join("key"), listen, folder: at.join("state"), settings, neighbours };
    let path = at.join("agent.toml");
    std::fs::write(&path, agent.to_table(&spec).to_string()).unwrap();
    let (read, again) =
        AgentSpec::load(&path, &Kinds::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read, spec, "{text}");
    assert_eq!(again, agent, "{text}");
}

fn run(plan: &Plan, folder: &Path) {
    execute(plan, folder, false, &Silent, &AtomicBool::new(false)).unwrap();
}

/// All tensors of final states, and records without times.
fn results(folder: &Path) -> (BTreeMap<String, Vec<u8>>, String) {
    let states = std::fs::read_dir(folder.join("final")).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
    });
    let mut records = read_records(folder).unwrap();
    records.iter_mut().for_each(|record| record.wall_s = 0.0);
    (states.collect(), format!("{records:?}"))
}

#[test]
fn what_is_written_reads_back_and_runs_to_the_same_bits() {
    let here = Path::new("");
    let (mut read, mut planned) = (0, 0);
    for seed in 0..240 {
        let folder = tempfile::tempdir().unwrap();
        let draw = &mut Draw::new(seed);
        let text = spec(draw, folder.path());
        let Ok(given) = Spec::parse(&text, here, &[]) else { continue };
        read += 1;
        let again = Spec::parse(&given.to_table().to_string(), here, &[]);
        assert_eq!(again.unwrap_or_else(|error| panic!("{error}\n{text}")), given, "seed {seed}\n{text}");

        let Ok(plan) = Plan::new(given) else { continue };
        planned += 1;
        check_agent_file(draw, &plan.spec, &text);
        let first = folder.path().join("first");
        run(&plan, &first);
        let config = std::fs::read_to_string(first.join("config.toml")).unwrap();
        assert_eq!(config.parse::<Table>().unwrap(), plan.spec.to_table(), "seed {seed}\n{text}");
        let second = Plan::new(Spec::parse(&config, here, &[]).unwrap())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}\n{config}"));
        assert_eq!(second.spec, plan.spec, "seed {seed}\n{text}");
        let folder = folder.path().join("second");
        run(&second, &folder);
        assert_eq!(results(&first), results(&folder), "seed {seed}\n{text}");
    }
    assert!(read > 100 && planned > 60, "too few experiments can be run: {read} read, {planned} planned");
}

#[test]
fn a_growing_weight_with_compression_is_written_as_it_is() {
    let text = "rounds = 6\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\ndim = 40\n[[algorithm]]\nname = 'mile'\n\
                step_size = 0.01\nlocal_steps = 2\nxi = { from = 0.001, to = 0.1, rounds = 5 }\ngamma = 0.5\ncompression = { top_k = 0.2 }\n";
    let here = Path::new("");
    let plan = Plan::new(Spec::parse(text, here, &[]).unwrap()).unwrap();
    let written = plan.spec.to_table()["algorithm"][0]["xi"].clone();
    assert_eq!(written, "xi = { from = 0.001, to = 0.1, rounds = 5 }".parse::<Table>().unwrap()["xi"]);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&plan, first.path());
    let config = std::fs::read_to_string(first.path().join("config.toml")).unwrap();
    run(&Plan::new(Spec::parse(&config, here, &[]).unwrap()).unwrap(), second.path());
    assert_eq!(results(first.path()), results(second.path()));
}
