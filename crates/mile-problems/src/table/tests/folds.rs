//! Folds of a cross-validation: every row is held out once.

use super::*;

/// Held-out and training rows of each agent, by the number of each row in column a.
fn rows(folder: &Folder, agents: usize, keys: &str, fold: usize, of: usize) -> [Vec<Vec<usize>>; 2] {
    let keys = format!("{keys}\ntest = {{ fold = {fold}, of = {of} }}");
    let found = folder.load(agents, &keys).unwrap();
    let numbers = |shards: &[Shard<f64>]| -> Vec<Vec<usize>> {
        shards.iter().map(|shard| shard.features.iter().map(|a| *a as usize).collect()).collect()
    };
    [numbers(&found.test), numbers(&found.shards)]
}

#[test]
fn every_agent_holds_out_each_of_its_own_rows_in_one_fold() {
    let sizes = [11, 4, 1];
    let mut text = "a,who,y\n".to_owned();
    let owners = sizes.iter().enumerate().flat_map(|(agent, size)| vec![agent; *size]);
    owners.clone().enumerate().for_each(|(k, agent)| writeln!(text, "{k},{agent},{k}").unwrap());
    let folder = Folder::with(&[("all.csv", &text)]);
    let owners: Vec<usize> = owners.collect();
    let mut held: Vec<usize> = Vec::new();
    for fold in 1..=4 {
        let [test, training] = rows(&folder, 3, "by = 'who'", fold, 4);
        for agent in 0..3 {
            let mut own = [test[agent].clone(), training[agent].clone()].concat();
            own.sort_unstable();
            let expected: Vec<usize> = (0..16).filter(|k| owners[*k] == agent).collect();
            assert_eq!(own, expected);
            assert!(!training[agent].is_empty());
        }
        assert!((2..=3).contains(&test[0].len()) && test[1].len() == 1, "{test:?}");
        held.extend(test.concat());
    }
    held.sort_unstable();
    assert_eq!(held, (0..15).collect::<Vec<_>>(), "an agent's only row is never held out");
}

#[test]
fn rows_that_the_seed_divides_are_held_out_before_and_are_the_same_for_all_seeds() {
    let mut text = "a,y\n".to_owned();
    (0..17).for_each(|k| writeln!(text, "{k},{k}").unwrap());
    let folder = Folder::with(&[("all.csv", &text)]);
    let mut held: Vec<usize> = Vec::new();
    for fold in 1..=5 {
        held.extend(rows(&folder, 3, "", fold, 5)[0].concat());
    }
    held.sort_unstable();
    assert_eq!(held, (0..17).collect::<Vec<_>>());
    let here = folder.config(3, "test = { fold = 2, of = 5 }").unwrap();
    let of_seed = |seed| {
        let found: Data<f64> = encode::load(&here, &Outlines::default(), seed).unwrap();
        let held: Vec<f64> = found.test.iter().flat_map(|shard| shard.features.clone()).collect();
        (held, found.shards)
    };
    assert_eq!(of_seed(0).0, of_seed(1).0);
    assert_ne!(of_seed(0).1, of_seed(1).1);
}

#[test]
fn a_fold_that_does_not_exist_is_refused() {
    for bad in ["{ fold = 0, of = 5 }", "{ fold = 6, of = 5 }", "{ fold = 1, of = 1 }", "{ of = 5 }", "{}"] {
        refuses("a,y\n1,2\n3,4\n", &format!("test = {bad}"), &["problem.test"]);
    }
    refuses("a,y\n1,2\n3,4\n", "test = { fold = 1, of = 2, seed = 3 }", &["problem.test"]);
}
