//! What is chosen before a run: by one rank, for all.

use std::path::Path;

use mile::methods::catalogue::Catalogue;
use mile_lab::choices::choose_once;
use mile_lab::config::{Experiment, parse_table};
use mile_lab::objectives::Kinds;
use mile_lab::plan::Plan;
use mile_ranks::threads::Threads;
use toml::Table;

#[test]
fn numbers_for_auto_are_chosen_once() {
    let text = "rounds = 5\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\ndim = 3\n\
                [[algorithm]]\nname = 'mile'\nstep_size = 'auto'\nxi = 'auto'\nlocal_steps = 2\n";
    let resolved = |table: &Table| {
        Plan::new(Experiment::read(table, Path::new("")).unwrap()).unwrap().experiment.resolved.to_string()
    };
    let alone = resolved(&parse_table(text, &[]).unwrap());
    let found = Threads::run(2, |rank| {
        let mut table = parse_table(text, &[]).unwrap();
        choose_once(&mut table, Path::new(""), &Kinds::default(), &Catalogue::default(), &rank).unwrap();
        assert!(!table.to_string().contains("auto"), "{table}");
        resolved(&table)
    });
    assert_eq!(found, [alone.clone(), alone]);
}
