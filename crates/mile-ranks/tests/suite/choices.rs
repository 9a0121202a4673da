//! What is chosen before a run: by one rank, for all.

use std::path::Path;
use std::sync::Arc;

use mile_lab::Lab;
use mile_lab::choices::choose_once;
use mile_lab::spec::{Spec, parse_table};
use mile_ranks::RankEngines;
use mile_ranks::threads::Threads;

#[test]
fn numbers_for_auto_are_chosen_once() {
    let text = "rounds = 5\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\ndim = 3\n\
                [[algorithm]]\nname = 'mile'\nstep_size = 'auto'\nxi = 'auto'\nlocal_steps = 2\n";
    let table = parse_table(text, &[]).unwrap();
    let alone = Lab::default().plan(&table, Path::new(""), None).unwrap().spec.to_table();
    let found = Threads::run(2, |rank| {
        let mut chosen = Spec::read(&table, Path::new("")).unwrap();
        choose_once(&mut chosen, mile::ranks::Together::of(&rank)).unwrap();
        let algorithm = &chosen.algorithms[0];
        assert!(!algorithm.auto_step_size && !algorithm.has_auto(), "{algorithm:?}");
        let lab = Lab::default().on(Arc::new(RankEngines::new(Arc::new(rank))));
        lab.plan(&table, Path::new(""), None).unwrap().spec.to_table()
    });
    assert_eq!(found, [alone.clone(), alone]);
}
