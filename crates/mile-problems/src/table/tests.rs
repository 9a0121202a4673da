//! From the text of files to the numbers of the problem.

mod columns;
mod folds;
mod outlines;
mod speed;
mod written;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use mile::problems::Shard;

use super::encode::{self, Data};
use super::here::Here;
use super::rows::Outlines;
use super::spec;
use super::statistics::Statistics;
use crate::Setting;
use crate::reading::ReadingProgress;
use crate::section::Section;

/// Files in a separate folder.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, text)| folder.put(name, text.as_bytes()));
        folder
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path().join(name), bytes).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The section with these keys, besides the target y and the file all.csv, for this number of agents.
    fn config(&self, agents: usize, keys: &str) -> Result<Here, String> {
        let mut table: toml::Table = keys.parse().unwrap();
        let defaults = [("data", "all.csv"), ("target", "y"), ("loss", "least-squares")];
        for (key, value) in defaults {
            table.entry(key).or_insert(value.into());
        }
        let section = Section::new("problem", &table);
        let setting = Setting { agents, folder: self.path(), progress: &ReadingProgress::default() };
        let found = spec::read(&section, setting);
        found
            .and_then(|spec| section.finish().map(|_| Here::all(spec, setting)))
            .map_err(|error| error.to_string())
    }

    fn load(&self, agents: usize, keys: &str) -> Result<Data<f64>, String> {
        encode::load(&self.config(agents, keys)?, &Outlines::default(), 0).map_err(|error| error.to_string())
    }

    /// The error names these keys, files, lines, columns and values.
    #[track_caller]
    fn refuses(&self, agents: usize, keys: &str, names: &[&str]) {
        let message = self.load(agents, keys).err().unwrap_or_else(|| panic!("{keys} was accepted"));
        for name in names {
            assert!(message.contains(name), "'{message}' does not name '{name}'");
        }
    }
}

/// The numbers of a file for one agent.
fn one(text: &str, keys: &str) -> Result<Data<f64>, String> {
    Folder::with(&[("all.csv", text)]).load(1, keys)
}

#[track_caller]
fn shard(text: &str, keys: &str) -> Shard<f64> {
    one(text, keys).unwrap().shards.remove(0)
}

#[track_caller]
fn refuses(text: &str, keys: &str, names: &[&str]) {
    Folder::with(&[("all.csv", text)]).refuses(1, keys, names);
}

fn numbers(features: &[f64], targets: &[f64]) -> Shard<f64> {
    Shard { features: features.to_vec(), targets: targets.to_vec(), ..Shard::default() }
}

#[test]
fn the_same_table_in_many_spellings_gives_the_same_numbers() {
    let expected = numbers(&[1.0, -0.002, 3.5, 1e-3], &[7.0, 8.0]);
    for text in [
        "a,b,y\n1,-0.002,7\n3.5,1e-3,8\n",
        "a,b,y\n1,-0.002,7\n3.5,1e-3,8",
        "a,b,y\r\n1,-0.002,7\r\n3.5,1e-3,8\r\n",
        "\u{feff}a,b,y\n1,-0.002,7\n3.5,1e-3,8\n",
        "\n a , b ,y\n\n+1, -2e-3 ,7.0\n \n3.5,.001,8\n\n\n",
        "\"a\",\"b\",\"y\"\n\"1\",-0.002,\"7\"\n3.5,1e-3,8\n",
        "a;b;y\n1;-0.002;7\n3.5;1e-3;8\n",
        "a\tb\ty\n1\t-0.002\t7\n3.5\t1e-3\t8\n",
        "a|b|y\n1|-0.002|7\n3.5|1e-3|8\n",
    ] {
        assert_eq!(shard(text, ""), expected, "{text:?}");
    }
    assert_eq!(shard("a:b:y\n1:-0.002:7\n3.5:1e-3:8\n", "delimiter = ':'"), expected);
    let folder = Folder::with(&[]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"a,b,y\n1,-0.002,7\n3.5,1e-3,8\n").unwrap();
    folder.put("all.csv.gz", &packed.finish().unwrap());
    assert_eq!(folder.load(1, "data = 'all.csv.gz'").unwrap().shards[0], expected);
}

#[test]
fn delimiters_are_told_apart_or_asked_for() {
    let names = |text: &str| one(text, "").unwrap().about.features;
    assert_eq!(names("a,b;y\n1;2\n"), ["a,b"], "records have as many fields as the header");
    assert_eq!(names("a|1,b|1,y\n1,2,3\n"), ["a|1", "b|1"]);
    assert_eq!(names("p|q,y\n1,2\n"), ["p|q"]);
    refuses("a,b;c,d\n1,2;3,4\n", "", &[","]);
    refuses("a;b;y\n1,5;2;3\n", "", &["line 2", "a", "1,5"]);
    for bad in ["''", "',,'", "'\"'", "'a'", "5"] {
        refuses("a,y\n1,2\n", &format!("delimiter = {bad}"), &["problem.delimiter"]);
    }
}

#[test]
fn headers_that_leave_a_doubt_are_refused() {
    refuses("a,a,y\n1,2,3\n", "", &["line 1", "a"]);
    refuses(",a,y\n0,2,3\n", "", &[]);
    assert_eq!(one(",a,y\n0,2,3\n", "exclude = ['']").unwrap().about.features, ["a"]);
    refuses("a,y\n", "", &[]);
    refuses("\u{feff}", "", &[]);
}

#[test]
fn one_column_and_ten_thousand_columns_are_tables() {
    assert_eq!(shard("y\n3\n4\n", "intercept = true"), numbers(&[1.0, 1.0], &[3.0, 4.0]));
    let (mut header, mut row) = (String::new(), String::new());
    (0..10_000).for_each(|k| write!(header, "c{k},").and(write!(row, "{k},")).unwrap());
    let found = one(&format!("{header}y\n{row}-1\n"), "").unwrap();
    assert_eq!((found.columns, found.shards[0].features[9_999]), (10_000, 9_999.0));
    refuses(&format!("{header}y\n{row}-1\n"), "columns = ['d7']", &["d7"]);
}

/// A file of several blocks, whose rows have two lines each if they are quoted; row k is k, 3 words, and -k/2.
fn long(rows: usize, quoted: bool, end: &str) -> String {
    let mut text = format!("a,word,y{end}");
    for k in 0..rows {
        let word = if quoted { format!("\"w, \"\"{}\"\"{end}x\"", k % 3) } else { format!("w{}", k % 3) };
        write!(text, "{k},{word},{}{end}", -0.5 * k as f64).unwrap();
    }
    text
}

#[test]
fn blocks_of_a_large_file_are_read_as_one_file_and_name_the_right_line() {
    let rows = 150_000;
    for (quoted, end) in [(false, "\n"), (true, "\n"), (true, "\r\n")] {
        let mut text = long(rows, quoted, end);
        assert!(text.len() > 2_500_000);
        let folder = Folder::with(&[("all.csv", &text)]);
        let found = folder.load(2, "categorical = ['word']").unwrap();
        let owner = |agent: usize| {
            let shard = &found.shards[agent];
            let rows = shard.features.chunks_exact(4).zip(&shard.targets);
            rows.map(|(row, target)| {
                let k = row[0] as usize;
                let place = row[1..].iter().position(|one| *one == 1.0).unwrap();
                assert!(place == k % 3 && row[1..].iter().sum::<f64>() == 1.0 && *target == -0.5 * row[0]);
                k
            })
        };
        let mut seen: Vec<usize> = owner(0).chain(owner(1)).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..rows));
        write!(text, "{end}# comment{end}{end}1,w,x").unwrap();
        folder.put("all.csv", text.as_bytes());
        let line = 1 + rows * if quoted { 2 } else { 1 } + 4;
        folder.refuses(
            1,
            "exclude = ['word']\ncomment = '#'",
            &[&format!("line {line}, column 'y'"), "'x' is not a number"],
        );
    }
}

#[test]
fn features_are_the_columns_that_are_asked_for() {
    let text = "a,b,c,y\n1,x,3,4\n";
    let found = one(text, "columns = ['c', 'a']").unwrap();
    assert_eq!(found.about.features, ["c", "a"]);
    assert_eq!(found.shards[0], numbers(&[3.0, 1.0], &[4.0]));
    assert_eq!(shard(text, "exclude = ['b']"), numbers(&[1.0, 3.0], &[4.0]));
    refuses(text, "exclude = ['bb']", &["problem.exclude", "bb", "b"]);
    refuses(text, "columns = ['a', 'y']", &["y", "problem.columns"]);
    refuses(text, "columns = ['a']\nexclude = ['b']", &["problem.exclude"]);
    refuses(text, "columns = ['a', 'a']", &["problem.columns"]);
    refuses(text, "", &["line 2", "b"]);
}

#[test]
fn categories_of_all_agents_are_features_in_their_order() {
    let files = [("0.csv", "c,a,y\nred,1,5\n10,2,6\n"), ("1.csv", "c,a,y\n9.0,3,7\nred,4,8\n")];
    let folder = Folder::with(&files);
    let found = folder.load(2, "data = '{agent}.csv'\ncategorical = ['c']").unwrap();
    assert_eq!(found.about.features, ["c=9", "c=10", "c=red", "a"]);
    assert_eq!(found.shards[0], numbers(&[0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 2.0], &[5.0, 6.0]));
    assert_eq!(found.shards[1], numbers(&[1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0, 4.0], &[7.0, 8.0]));
    let found = folder.load(2, "data = '{agent}.csv'\ncategorical = ['c']\nintercept = true").unwrap();
    assert_eq!(found.about.features, ["c=10", "c=red", "a", "intercept"]);
    assert_eq!(found.shards[1], numbers(&[0.0, 0.0, 3.0, 1.0, 0.0, 1.0, 4.0, 1.0], &[7.0, 8.0]));
    folder.refuses(2, "data = '{agent}.csv'\ncategorical = ['y']", &["problem.categorical", "y"]);
}

#[test]
fn missing_values_are_refused_filled_or_dropped() {
    let text = "a,b,y\n1,,1\nNA,4,2\n5,NaN,3\n3,null,4\n6,2,\n";
    refuses(text, "", &["line 2", "a", "b", "y", "mean", "drop"]);
    let filled = shard(text, "missing = 'mean'");
    assert_eq!(filled.targets, [1.0, 2.0, 3.0, 4.0], "a row without a target is left out");
    assert_eq!(shard(text, "missing = 'drop'\nexclude = ['b']"), numbers(&[1.0, 5.0, 3.0], &[1.0, 3.0, 4.0]));
    let filled = shard("a,b,y\n1,,1\nNA,4,2\n5,2,3\n", "missing = 'mean'");
    assert_eq!(filled, numbers(&[1.0, 3.0, 3.0, 4.0, 5.0, 2.0], &[1.0, 2.0, 3.0]));
    refuses("a,y\n,1\n,2\n", "missing = 'mean'", &["a"]);
    refuses("a,y\n1e308,1\n-1e308,2\n", "standardise = true", &["a"]);
    refuses("a,y\n,1\n,2\n", "missing = 'drop'", &[]);
    refuses("a,c,y\n1,,1\n", "missing = 'mean'\ncategorical = ['c']", &["c"]);
    refuses("a,y\n1,1\n", "missing = 'median'", &["problem.missing", "median"]);
}

#[test]
fn standardised_features_have_mean_zero_and_deviation_one_over_all_agents() {
    let files = [("0.csv", "a,k,c,y\n1,7,u,1\n2,7,v,2\n6,7,u,3\n"), ("1.csv", "a,k,c,y\n11,7,v,4\n")];
    let keys = "data = '{agent}.csv'\ncategorical = ['c']\nstandardise = true\nintercept = true";
    let found = Folder::with(&files).load(2, keys).unwrap();
    assert_eq!(found.about.features, ["a", "k", "c=v", "intercept"]);
    let rows: Vec<&[f64]> = found.shards.iter().flat_map(|shard| shard.features.chunks_exact(4)).collect();
    // Mean 5, and squares 16 + 9 + 1 + 36 = 62.
    for (row, value) in rows.iter().zip([1.0, 2.0, 6.0, 11.0]) {
        assert!((row[0] - (value - 5.0) / (62.0f64 / 4.0).sqrt()).abs() < 1e-15, "{row:?}");
        assert_eq!((row[1], row[3]), (0.0, 1.0), "a constant column becomes 0");
    }
    assert_eq!(rows.iter().map(|row| row[2]).collect::<Vec<_>>(), [0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn statistics_that_are_exchanged_give_the_bits_of_all_data_in_one_place() {
    let folder = Folder::with(&[]);
    for agent in 0..3 {
        let mut text = "a,c,y\n".to_owned();
        for k in 0..20 + agent {
            let a = ((k * 7919 + agent * 31) % 2003) as f64 / 7.0;
            writeln!(
                text,
                "{},{},{}",
                if k == 4 { String::new() } else { a.to_string() },
                (k + agent) % 5,
                k % 3
            )
            .unwrap();
        }
        folder.put(&format!("{agent}.csv"), text.as_bytes());
    }
    let keys = "data = '{agent}.csv'\nloss = 'softmax'\ncategorical = ['c']\nstandardise = true\nmissing = 'mean'\n\
                test = 0.3\nweights = 'rows'";
    let all = folder.load(3, keys).unwrap();
    let here = folder.config(3, keys).unwrap();
    let own = |agent: usize| {
        let path = folder.path().join(format!("own-{agent}.json"));
        let own = here.only(vec![agent]);
        super::divided::statistics_of(&own, agent).unwrap().write(&path).unwrap();
        Statistics::read(&path).unwrap()
    };
    let merged = Statistics::merge(vec![own(2), own(0), own(1)]).unwrap();
    assert_eq!(Some(&merged), all.about.statistics.as_ref());
    assert_eq!(merged.agents, [0, 1, 2]);
    assert_eq!(merged.classes, ["0", "1", "2"]);
    merged.write(&folder.path().join("statistics.json")).unwrap();
    let given = folder.config(3, &format!("{keys}\nstatistics = 'statistics.json'")).unwrap();
    for agent in 0..3 {
        let alone: Data<f64> = encode::load(&given.only(vec![agent]), &Outlines::default(), 0).unwrap();
        assert_eq!(alone.shards[agent], all.shards[agent]);
        assert_eq!(alone.test[agent], all.test[agent]);
        assert_eq!(alone.about.features, all.about.features);
    }
    let named = Some(["0", "1", "2"].map(str::to_owned).to_vec());
    let mut spec = (*here.spec).clone();
    spec.columns.classes = named;
    let alone = Here { spec: Arc::new(spec), ..here.only(vec![1]) };
    let alone = encode::load::<f64>(&alone, &Outlines::default(), 0).err().unwrap().to_string();
    assert!(alone.contains("problem.statistics"), "{alone}");
    Statistics::merge(vec![own(2), own(0)]).unwrap().write(&folder.path().join("statistics.json")).unwrap();
    folder.refuses(3, &format!("{keys}\nstatistics = 'statistics.json'"), &["statistics.json"]);
    folder.put("1.csv", b"a,c,y\n1,0,2\n");
    assert_eq!(own(1).classes, ["2"], "one agent may have one class");
    assert!(Statistics::merge(vec![own(0), own(0)]).is_err(), "an agent counts once");
    assert!(Statistics::merge(vec![merged, own(0)]).is_err(), "what was merged is not merged again");
    assert!(Statistics::merge(Vec::new()).is_err());
}

#[test]
fn a_part_of_each_agents_rows_is_held_out_and_one_row_is_left() {
    let mut text = "who,a,y\n".to_owned();
    (0..31).for_each(|k| writeln!(text, "{},{k},{k}", if k < 1 { "a" } else { "b" }).unwrap());
    let folder = Folder::with(&[("all.csv", &text)]);
    let load = |keys: &str| folder.load(2, &format!("by = 'who'\n{keys}")).unwrap();
    let found = load("test = 0.2");
    let rows = |shards: &[Shard<f64>]| -> Vec<usize> { shards.iter().map(|s| s.targets.len()).collect() };
    assert_eq!((rows(&found.shards), rows(&found.test)), (vec![1, 24], vec![0, 6]));
    let mut all = [&found.shards[1].targets[..], &found.test[1].targets].concat();
    all.sort_by(f64::total_cmp);
    assert!(all.iter().map(|y| *y as usize).eq(1..31), "each row is in one of them");
    assert_ne!(load("test = 0.2\nseed = 1").test, found.test);
    let agents = &found.about.agents;
    assert_eq!((agents[0].training.clone(), agents[0].test.len(), &agents[0].source[..]), (vec![0], 0, "a"));
    let held_out: Vec<f64> = agents[1].test.iter().map(|row| f64::from(*row)).collect();
    assert_eq!((agents[1].training.len(), &held_out), (24, &found.test[1].targets), "row k has the target k");
    assert_eq!(rows(&load("test = 0.999").shards), [1, 1]);
    for bad in ["0", "1.0", "-0.1", "true"] {
        folder.refuses(2, &format!("test = {bad}"), &["problem.test"]);
    }
}

#[test]
fn all_seeds_have_the_same_held_out_rows_and_statistics_whatever_the_partition() {
    let mut text = "a,y\n".to_owned();
    (0..90).for_each(|k| writeln!(text, "{},{}", (k * 7919 % 2003) as f64 / 7.0, k % 3).unwrap());
    let folder = Folder::with(&[("all.csv", &text)]);
    let keys =
        "loss = 'softmax'\npartition = { kind = 'dirichlet', alpha = 0.5 }\ntest = 0.2\nstandardise = true";
    let here = folder.config(4, keys).unwrap();
    let load = |seed: u64| encode::load::<f64>(&here, &Outlines::default(), seed).unwrap();
    let (first, second) = (load(0), load(1));
    assert_ne!(first.shards, second.shards);
    assert_eq!(first.test, second.test);
    assert_eq!(first.test.iter().map(|shard| shard.targets.len()).collect::<Vec<_>>(), [5, 5, 4, 4]);
    assert_eq!(first.about.statistics, second.about.statistics);
    let mut all: Vec<f64> =
        first.shards.iter().chain(&first.test).flat_map(|shard| shard.features.clone()).collect();
    let mut expected: Vec<f64> = (0..90).map(|k| (k * 7919 % 2003) as f64 / 7.0).collect();
    let column = &first.about.statistics.as_ref().unwrap().columns[0];
    assert_eq!((column.count, first.about.statistics.as_ref().unwrap().rows), (72, 72));
    expected.iter_mut().for_each(|a| *a = (*a - column.mean) / column.deviation());
    all.sort_by(f64::total_cmp);
    expected.sort_by(f64::total_cmp);
    assert_eq!(all, expected, "each row is in one place");
    let other = folder.config(4, &format!("{keys}\nseed = 7")).unwrap();
    assert_ne!(encode::load::<f64>(&other, &Outlines::default(), 0).unwrap().test, first.test);
}

#[test]
fn held_out_rows_of_a_file_go_to_their_agents_or_are_shared() {
    let train = "who,a,y\nu,1,1\nv,2,2\nv,4,4\n";
    let folder = Folder::with(&[("all.csv", train), ("t.csv", "y,who,a\n7,v,70\n8,u,80\n9,v,90\n")]);
    let found = folder.load(2, "by = 'who'\ntest = 't.csv'").unwrap();
    assert_eq!(found.test, [numbers(&[80.0], &[8.0]), numbers(&[70.0, 90.0], &[7.0, 9.0])]);
    let found = folder.load(2, "exclude = ['who']\ntest = 't.csv'\nstandardise = true").unwrap();
    let scaled = |a: f64| (a - 7.0 / 3.0) / (14.0f64 / 9.0).sqrt();
    let counts: Vec<&[f64]> = found.test.iter().map(|shard| &shard.targets[..]).collect();
    assert_eq!(counts, [&[7.0, 9.0][..], &[8.0]]);
    assert!((found.test[1].features[0] - scaled(80.0)).abs() < 1e-13, "by the training rows' mean");
    folder.put("t.csv", b"who,a,y\nw,1,1\n");
    folder.refuses(2, "by = 'who'\ntest = 't.csv'", &["t.csv", "line 2", "who", "w"]);
    folder.put("t.csv", b"who,b,y\nu,1,1\n");
    folder.refuses(2, "by = 'who'\ntest = 't.csv'", &["t.csv"]);
    let own = [
        ("0.csv", "a,y\n1,1\n"),
        ("1.csv", "a,y\n2,2\n"),
        ("t-0.csv", "a,y\n3,3\n"),
        ("t-1.csv", "a,y\n4,4\n"),
    ];
    let found = Folder::with(&own).load(2, "data = '{agent}.csv'\ntest = 't-{agent}.csv'").unwrap();
    assert_eq!(found.test, [numbers(&[3.0], &[3.0]), numbers(&[4.0], &[4.0])]);
}

#[test]
fn classes_of_softmax_are_all_values_sorted_or_those_given() {
    let text = "a,y\n1,10\n2,9\n3,10.0\n4,-1\n";
    let found = one(text, "loss = 'softmax'").unwrap();
    assert_eq!(found.about.classes, ["-1", "9", "10"]);
    assert_eq!(found.shards[0].targets, [2.0, 1.0, 2.0, 0.0]);
    let found = one(text, "loss = 'softmax'\nclasses = [10, 9, 8, -1]").unwrap();
    assert_eq!(found.shards[0].targets, [0.0, 1.0, 0.0, 3.0]);
    refuses(text, "loss = 'softmax'\nclasses = [10, 9]", &["line 5", "y", "-1"]);
    refuses("a,y\n1,2\n", "loss = 'softmax'", &[]);
    refuses(text, "loss = 'huber'\ndelta = 1\nclasses = [1, 2]", &["problem.classes"]);
    let folder = Folder::with(&[("0.csv", text), ("1.csv", text)]);
    let here = folder.config(2, "data = '{agent}.csv'\nloss = 'softmax'").unwrap();
    let alone = encode::load::<f64>(&here.only(vec![0]), &Outlines::default(), 0).err().unwrap().to_string();
    assert!(alone.contains("problem.classes"), "{alone}");
    refuses(text, "loss = 'huber'", &["problem.delta"]);
    refuses(text, "loss = 'welsch'\nc = 0", &["problem.c", "0"]);
}

#[test]
fn rows_are_divided_in_one_way_only() {
    let folder = Folder::with(&[("all.csv", "who,a,y\nu,1,1\nv,2,2\n")]);
    folder.refuses(2, "by = 'who'\npartition = 'iid'", &["problem.partition"]);
    let dirichlet = "partition = { kind = 'dirichlet', alpha = 1.0 }";
    folder.refuses(2, &format!("by = 'who'\n{dirichlet}"), &["problem.partition"]);
    folder.refuses(2, &format!("data = '{{agent}}.csv'\n{dirichlet}"), &["problem.partition"]);
    folder.refuses(2, "by = 'y'", &["problem.by", "y"]);
}
