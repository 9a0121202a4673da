//! Files of which a process keeps only some rows.

use mile::problems::Shard;

use super::super::divided::{self, Divided, Use};
use super::super::encode;
use super::super::here::{Here, Told};
use super::super::rows::Outlines;
use super::super::statistics::Statistics;
use super::{Folder, long};

#[test]
fn of_a_file_that_all_ranks_read_each_keeps_the_rows_of_its_agents_only() {
    let rows = 60_000;
    let mut text = long(rows, true, "\r\n");
    text.insert_str(text.find("7,").unwrap(), "?,w1,3\r\n");
    let folder = Folder::with(&[("all.csv", &text), ("test.csv", &long(50, true, "\r\n"))]);
    let keys = "categorical = ['word']\nmissing = 'drop'\n";
    let classes = "loss = 'softmax'\ntarget = 'word'\nexclude = ['y']\nmissing = 'drop'\ntest = 0.1\n\
                   partition = { kind = 'dirichlet', alpha = 0.5 }\n";
    let regression = |test: &str| format!("{keys}test = {test}\n");
    for keys in [regression("0.3"), regression("'test.csv'"), classes.to_owned()] {
        let here = folder.config(5, &keys).unwrap();
        let whole = encode::load::<f64>(&here, &Outlines::default(), 4).unwrap();
        let outlines = Outlines::read(&here).unwrap();
        let told = here.spec.needs_statistics().then(|| {
            let (parts, with_words) = divided::parts_of(&here, &outlines, &[0, 1, 2, 3, 4]).unwrap();
            let statistics = with_words(Statistics::merge(parts).unwrap());
            assert_eq!(Some(&statistics), whole.about.statistics.as_ref());
            Told { statistics, rows: vec![[0; 2]; 5] }
        });
        let own = Here { told, ..here.only(vec![1, 3]) };
        assert_eq!(outlines.data.as_ref().unwrap().kept(), 0);
        let divided = Divided::read(&own, &outlines, 4, Use::Training).unwrap();
        let here = |shards: &[Shard<f64>]| shards[1].targets.len() + shards[3].targets.len();
        let own_test = if divided.other.is_some() { 0 } else { here(&whole.test) };
        assert_eq!(divided.rows.kept(), here(&whole.shards) + own_test, "{keys}");
        if let Some(other) = &divided.other {
            assert_eq!(other.kept(), here(&whole.test));
        }
        let found = encode::load::<f64>(&own, &outlines, 4).unwrap();
        for agent in [1, 3] {
            assert_eq!(found.shards[agent], whole.shards[agent]);
            assert_eq!(found.test[agent], whole.test[agent]);
        }
        assert_eq!(found.about, whole.about);
    }
    // Another file in its place is refused, and not mistaken for the one that was read first.
    let own = folder.config(5, keys).unwrap();
    let outlines = Outlines::read(&own).unwrap();
    folder.put("all.csv", long(rows + 1, true, "\n").as_bytes());
    let error = encode::load::<f64>(&own, &outlines, 4).err().unwrap().to_string();
    assert!(error.contains("all.csv"), "{error}");
}
