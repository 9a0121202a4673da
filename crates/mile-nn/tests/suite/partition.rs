//! Laws of every partition, and the limits of the Dirichlet one.

use mile_nn::partition::{Partition, PartitionError, hold_out, label_counts};
use proptest::prelude::*;

fn any_partition() -> impl Strategy<Value = Partition> {
    prop_oneof![
        Just(Partition::Iid {}),
        (0.3f64..100.0).prop_map(|alpha| Partition::Dirichlet { alpha }),
        (1usize..4).prop_map(|per_agent| Partition::Shards { per_agent }),
        (3usize..=5).prop_map(|classes| Partition::LabelQuantity { classes }),
    ]
}

fn balanced(samples: usize, classes: usize) -> Vec<u8> {
    (0..samples).map(|i| (i % classes) as u8).collect()
}

proptest! {
    #[test]
    fn every_sample_goes_to_exactly_one_agent(
        partition in any_partition(),
        labels in prop::collection::vec(0u8..5, 200..400),
        agents in 2usize..9,
        seed: u64,
    ) {
        let parts = partition.split(&labels, 5, agents, seed).unwrap();
        prop_assert_eq!(parts.len(), agents);
        prop_assert!(parts.iter().all(|part| !part.is_empty()));
        let mut all = parts.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..labels.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn the_split_is_a_function_of_the_seed(partition in any_partition(), seed in 0u64..1000) {
        let labels = balanced(300, 5);
        let first = partition.split(&labels, 5, 4, seed).unwrap();
        prop_assert_eq!(&first, &partition.split(&labels, 5, 4, seed).unwrap());
        // Two seeds may coincide (four shards have only 24 orders), but not many.
        let differs = |other| partition.split(&labels, 5, 4, seed + other).unwrap() != first;
        prop_assert!((1..20).any(differs));
    }

    #[test]
    fn label_quantity_gives_each_agent_that_many_classes(classes in 1usize..=10, seed: u64) {
        let labels = balanced(5000, 10);
        let parts = Partition::LabelQuantity { classes }.split(&labels, 10, 10, seed).unwrap();
        for counts in label_counts(&parts, &labels, 10) {
            prop_assert_eq!(counts.iter().filter(|&&c| c > 0).count(), classes);
        }
    }
}

#[test]
fn as_alpha_grows_the_classes_are_divided_evenly() {
    let labels = balanced(10_000, 10);
    let parts = Partition::Dirichlet { alpha: 1e7 }.split(&labels, 10, 10, 3).unwrap();
    for count in label_counts(&parts, &labels, 10).concat() {
        assert!((98..=102).contains(&count), "{count} of 100");
    }
}

#[test]
fn as_alpha_vanishes_each_class_has_one_owner() {
    // Three agents and ten classes: an agent without any class is improbable enough to be redrawn.
    let labels = balanced(1000, 10);
    let parts = Partition::Dirichlet { alpha: 1e-6 }.split(&labels, 10, 3, 3).unwrap();
    let counts = label_counts(&parts, &labels, 10);
    for class in 0..10 {
        assert_eq!(counts.iter().filter(|c| c[class] > 0).count(), 1, "class {class} has one owner");
    }
}

#[test]
fn smaller_alpha_is_more_heterogeneous() {
    let labels = balanced(10_000, 10);
    let spread = |alpha| {
        let parts = Partition::Dirichlet { alpha }.split(&labels, 10, 10, 0).unwrap();
        let counts = label_counts(&parts, &labels, 10).concat();
        counts.iter().map(|&c| (c as f64 - 100.0).powi(2)).sum::<f64>()
    };
    assert!(spread(0.3) > spread(1.0) && spread(1.0) > spread(10.0));
}

#[test]
fn shards_hold_few_labels() {
    let labels = balanced(1000, 10);
    let parts = Partition::Shards { per_agent: 2 }.split(&labels, 10, 10, 0).unwrap();
    for counts in label_counts(&parts, &labels, 10) {
        assert!(counts.iter().filter(|&&c| c > 0).count() <= 3);
        assert_eq!(counts.iter().sum::<usize>(), 100);
    }
}

#[test]
fn an_agent_left_empty_is_an_error() {
    // Two classes, each with one owner: a third agent must stay empty.
    let error = Partition::Dirichlet { alpha: 1e-9 }.split(&balanced(100, 2), 2, 3, 0).unwrap_err();
    assert!(matches!(error, PartitionError::EmptyAgent { draws: 100, .. }));
}

#[test]
fn wrong_parameters_are_refused() {
    let labels = balanced(20, 10);
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Partition::Dirichlet { alpha }.split(&labels, 10, 2, 0).unwrap_err();
        assert!(matches!(error, PartitionError::InvalidAlpha { .. }));
    }
    for per_agent in [0, 11, usize::MAX] {
        let error = Partition::Shards { per_agent }.split(&labels, 10, 2, 0).unwrap_err();
        assert!(matches!(error, PartitionError::InvalidShards { .. }));
    }
    for classes in [0, 4, 11] {
        let error = Partition::LabelQuantity { classes }.split(&labels, 10, 2, 0).unwrap_err();
        assert!(matches!(error, PartitionError::InvalidClasses { least: 5, .. }));
    }
    assert_eq!(Partition::Iid {}.split(&labels, 10, 0, 0), Err(PartitionError::NoAgents));
    assert!(matches!(Partition::Iid {}.split(&labels, 10, 21, 0), Err(PartitionError::TooFewSamples { .. })));
    assert!(matches!(
        Partition::Iid {}.split(&labels, 3, 2, 0),
        Err(PartitionError::LabelOutOfRange { index: 3, label: 3, classes: 3 })
    ));
}

#[test]
fn an_experiment_file_can_name_it() {
    #[derive(serde::Deserialize)]
    struct Problem {
        partition: Partition,
    }
    let read = |text: &str| toml::from_str::<Problem>(text).map(|p| p.partition);
    assert_eq!(
        read("partition = { kind = \"dirichlet\", alpha = 1.0 }").unwrap(),
        Partition::Dirichlet { alpha: 1.0 }
    );
    assert_eq!(read("partition = { kind = \"iid\" }").unwrap(), Partition::Iid {});
    assert_eq!(
        read("partition = { kind = \"label-quantity\", classes = 2 }").unwrap(),
        Partition::LabelQuantity { classes: 2 }
    );
    assert!(read("partition = { kind = \"iid\", alpha = 1.0 }").is_err(), "unknown keys are refused");
}

#[test]
fn what_is_held_out_is_a_part_of_each_agents_samples_by_the_seed() {
    let parts: Vec<Vec<u32>> = vec![(0..10).collect(), (10..15).collect(), vec![15]];
    let split = |fraction: f64, seed: u64| {
        let mut kept = parts.clone();
        let taken = hold_out(&mut kept, fraction, seed);
        for (part, kept) in parts.iter().zip(&kept) {
            let missing = part.iter().filter(|i| !kept.contains(i));
            assert!(missing.clone().all(|i| taken.contains(i)) && kept.iter().all(|i| part.contains(i)));
            assert_eq!(kept.len() + missing.count(), part.len());
        }
        (kept.iter().map(Vec::len).collect::<Vec<_>>(), taken)
    };
    assert_eq!(split(0.2, 0).0, [8, 4, 1]);
    assert_eq!(split(0.99, 0).0, [1, 1, 1], "an agent keeps a sample");
    assert_eq!(split(0.2, 0), split(0.2, 0));
    assert!((1..5).any(|seed| split(0.2, seed).1 != split(0.2, 0).1));
}
