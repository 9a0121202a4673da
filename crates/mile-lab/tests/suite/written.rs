//! What an experiment writes is the experiment: for experiments drawn at random over all keys, `config.toml` and every `agent.toml`
//! read back as equal ones, and a run of `config.toml` has the bits of the run that wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile::methods::catalogue::Catalogue;
use mile_lab::execute::execute;
use mile_lab::keys::{Key, reference};
use mile_lab::objectives::Kinds;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSpec, NeighbourSpec, Spec};
use mile_lab::store::read_records;
use toml::{Table, Value};

use crate::drawn::{self, Draw};

/// The files of all agents read back as the experiment and the settings they were made of; returns one of them.
fn check_agent_files(draw: &mut Draw, spec: &Spec, text: &str) -> Option<Table> {
    let membership = spec.membership().unwrap();
    let mut settings = drawn::settings(draw);
    let mut spec = spec.clone();
    settings.apply(&mut spec).ok()?;
    // From now on the experiment has the rule by which they stop.
    settings.stop = None;
    let neighbour =
        |(id, edge)| (id, NeighbourSpec { key: format!("k{id}"), edge, addresses: vec![format!("h:{id}")] });
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    let path = at.join("agent.toml");
    let mut written = Table::new();
    for id in 0..membership.numbers() {
        let neighbours: BTreeMap<usize, NeighbourSpec> =
            membership.edges_of(id).into_iter().map(neighbour).collect();
        let (key, state, settings) = (at.join("key"), at.join("state"), settings.clone());
        let listen = "127.0.0.1:7100".parse().unwrap();
        let agent = AgentSpec { id, key, listen, folder: state, settings, neighbours };
        written = agent.to_table(&spec);
        std::fs::write(&path, written.to_string()).unwrap();
        let (read, again) = AgentSpec::load(&path, &Kinds::default(), &Catalogue::default())
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read, spec, "agent {id}\n{text}");
        assert_eq!(again, agent, "{text}");
    }
    Some(written)
}

/// The keys of a file, each after its section as the reference of keys has it.
fn keys_in(table: &Table, section: &str, found: &mut BTreeSet<(String, String)>) {
    let kind = table.get("kind").and_then(Value::as_str);
    let section = match (section, kind) {
        ("problem", Some(kind)) => format!("problem ({kind})"),
        (section, _) => section.to_owned(),
    };
    for (key, value) in table {
        found.insert((section.clone(), key.clone()));
        let inner = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        let tables = value.as_array().into_iter().flatten().chain([value]).filter_map(Value::as_table);
        tables.for_each(|table| keys_in(table, &inner, found));
    }
}

/// Keys that no drawn experiment has, and where they are tested.
const NOT_DRAWN: &[(&str, &str)] = &[
    ("sweep", ""), // a sweep writes sweep.toml and an experiment for each point: sweep.rs
    ("problem (table)", "statistics"), // of several owners: tables.rs
    ("problem (images)", "data_dir"), // of data sets that are not built in
    ("agent", "stop"), // written as the experiment's own rule
    ("agent.stop", ""),
];

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
    let (mut read, mut planned, mut seen) = (0, 0, BTreeSet::new());
    for seed in 0..320 {
        let folder = tempfile::tempdir().unwrap();
        let draw = &mut Draw::new(seed);
        let text = drawn::spec(draw, folder.path());
        let Ok(given) = Spec::parse(&text, here, &[]) else { continue };
        read += 1;
        keys_in(&text.parse().unwrap(), "", &mut seen);
        let again = Spec::parse(&given.to_table().to_string(), here, &[]);
        assert_eq!(again.unwrap_or_else(|error| panic!("{error}\n{text}")), given, "seed {seed}\n{text}");

        let Ok(plan) = Plan::new(given) else { continue };
        planned += 1;
        let agent = check_agent_files(draw, &plan.spec, &text);
        agent.iter().for_each(|file| keys_in(file, "", &mut seen));
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
    assert!(read > 130 && planned > 80, "too few experiments can be run: {read} read, {planned} planned");
    let is_drawn = |key: &Key| {
        let names = key.aliases.iter().chain([&key.name]);
        names.into_iter().any(|name| seen.contains(&(key.section.clone(), name.clone())))
            || NOT_DRAWN
                .iter()
                .any(|(section, name)| key.section == *section && (name.is_empty() || key.name == *name))
            || (key.section.is_empty() && key.name == "sweep")
    };
    let missed: Vec<String> = reference()
        .iter()
        .filter(|key| !is_drawn(key))
        .map(|key| format!("{}.{}", key.section, key.name))
        .collect();
    assert!(missed.is_empty(), "never drawn: {missed:?}");
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
