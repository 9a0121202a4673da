//! What was saved is read, and nothing else is mistaken for it.

use super::*;
use crate::edge::RoundRange;
use crate::outbox::{Message, MessageForm};
use mile::method::{Layout, Unit};

fn terms() -> Terms {
    let facts = BTreeMap::from([("seeds".into(), "[0]".into())]);
    Terms { run: "test".into(), dim: 3, precision: "f32".into(), facts }
}

/// Saves a state with this memory.
fn save(folder: &Folder, memory: &Memory<f32>) -> State<f32> {
    let costs = Costs { vectors_sent: 7, exchanges: 7, bytes_sent: 168, gradient_evals: 31 };
    let progress = Progress { step: 30, round: 6, step_size: 0.1, costs };
    let vectors = vec![vec![1.5f32, -2.0, f32::NAN], vec![0.25, 0.0, -0.0]];
    let gossip = Gossip::new(3);
    let layout = Layout::new([("x", Unit::Fixed), ("c", Unit::StepSize)], ["g"]);
    let end = RoundEnd {
        job: 1,
        mark: memory.mark,
        progress: &progress,
        layout: &layout,
        vectors: &vectors,
        gossip: &gossip,
        last: false,
    };
    folder.save(1, &terms(), &end, Some(b"statistics"), memory).unwrap();
    end.state()
}

fn write(folder: &Folder, elements: usize) -> (State<f32>, Memory<f32>) {
    let mark = Mark { exchange: 7, round: 6 };
    let message = Message {
        mark: Mark { exchange: 6, round: 5 },
        vectors: (0..elements).map(|k| 9.0 + k as f32).collect(),
        form: MessageForm::Whole,
        gossip: vec![f64::INFINITY],
    };
    let mut decisions = Decisions::default();
    decisions.add(RoundRange { from: 5, to: 6, used: false }).unwrap();
    let memory = Memory {
        mark,
        known: BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]),
        outbox: vec![KeptMessage { content: Content::Memory(Arc::new(message)), recipients: vec![2] }],
        decisions: BTreeMap::from([(2, decisions)]),
        scales: vec![1.0, 0.1f64.cbrt()],
    };
    (save(folder, &memory), memory)
}

/// Everything that was saved, as text: NaN is equal to itself there.
fn all(state: &State<f32>, memory: &Memory<f32>) -> String {
    let Memory { mark, known, outbox, decisions, scales } = memory;
    let messages: Vec<_> = outbox
        .iter()
        .map(|KeptMessage { content, recipients }| {
            let elements = content.read(0..content.elements()).unwrap().into_owned();
            (content.mark(), elements, content.gossip().to_vec(), recipients)
        })
        .collect();
    format!("{state:?} {mark:?} {known:?} {messages:?} {decisions:?} {scales:?}")
}

#[test]
fn what_was_saved_is_read_and_nothing_else_is_mistaken_for_it() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
    assert!(folder.load::<f32>(1, &terms()).unwrap().state.is_none());
    let (state, memory) = write(&folder, 3);
    let expected = all(&state, &memory);
    let read = folder.load::<f32>(1, &terms()).unwrap();
    assert_eq!(all(&read.state.unwrap(), &read.memory), expected);
    assert_eq!(read.objective.as_deref(), Some(&b"statistics"[..]));
    assert_eq!(standing(home.path()).unwrap(), Some(Mark { exchange: 7, round: 6 }));
    assert_eq!(folder.belongs_to().unwrap(), Some((terms(), 1, 6)));

    let path = folder.path().join(CHECKPOINT);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = folder.load::<f32>(1, &terms()).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{length}: {error}");
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    let error = folder.load::<f32>(1, &terms()).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "one byte more: {error}");
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&path, &damaged).unwrap();
        // A flipped bit in what is not used, such as a tensor's shape, does no harm.
        if let Ok(read) = folder.load::<f32>(1, &terms()) {
            assert_eq!(all(&read.state.unwrap(), &read.memory), expected, "byte {place}");
            assert_eq!(read.objective.as_deref(), Some(&b"statistics"[..]), "byte {place}");
        }
    }
}

#[test]
fn large_messages_are_read_from_the_checkpoint_and_copied_into_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
    let small = write(&folder, 3).1;
    assert!(folder.stored(&small).unwrap().is_empty());
    let (state, memory) = write(&folder, LARGE / 4);
    let expected = all(&state, &memory);
    let [stored] = &folder.stored(&memory).unwrap()[..] else { panic!("one message") };
    let recipients = vec![2];
    let outbox = vec![KeptMessage { content: Content::Disk(stored.clone()), recipients }];
    let memory = Memory { outbox, ..memory };
    assert_eq!(all(&state, &memory), expected);
    let path = folder.path().join(CHECKPOINT);
    let before = fs::read(&path).unwrap();
    save(&folder, &memory);
    assert_eq!(fs::read(&path).unwrap(), before);
    let read = folder.load::<f32>(1, &terms()).unwrap();
    assert_eq!(all(&read.state.unwrap(), &read.memory), expected);
    assert_eq!(folder.stored(&memory).unwrap().len(), 1);
    // The last number of the message, which is followed by the three of x.
    let mut damaged = before;
    let place = damaged.len() - 3 * size_of::<f32>() - 1;
    damaged[place] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let error = folder.stored(&memory).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
}

#[test]
fn a_checkpoint_of_another_run_or_agent_is_refused_with_what_differs() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
    write(&folder, 3);
    let refused = |agent, terms: &Terms| match folder.load::<f32>(agent, terms).unwrap_err() {
        CheckpointError::Foreign { what, .. } => what,
        other => panic!("{other}"),
    };
    assert!(refused(2, &terms()).contains("agent 2"));
    let mut other = terms();
    other.facts.insert("seeds".into(), "[1]".into());
    assert!(refused(1, &other).contains("seeds"));
    let error = folder.load::<f64>(1, &terms()).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
}

#[test]
fn decisions_on_disk_come_before_those_in_the_checkpoint_and_are_whole_or_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
    let (_, memory) = write(&folder, 3);
    let mut later = memory.decisions.clone();
    later.get_mut(&2).unwrap().add(RoundRange { from: 7, to: 9, used: true }).unwrap();
    folder.save_decisions(&later).unwrap();
    assert_eq!(folder.load::<f32>(1, &terms()).unwrap().memory.decisions, later);
    let path = folder.path().join(DECISIONS);
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(folder.load::<f32>(1, &terms()).is_err(), "byte {place}");
    }
}

#[test]
fn what_neighbours_confirmed_before_the_agent_left_is_known_at_the_next_start_of_the_same_run() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
    let later = Mark { exchange: 7, round: 6 };
    let farewell = Farewell { mark: later, known: BTreeMap::from([(2, later)]), parted: [2].into() };
    let known = || folder.load::<f32>(1, &terms()).unwrap().memory.known;
    farewell.write(home.path()).unwrap();
    assert!(known().is_empty(), "without a checkpoint it is of another run");
    write(&folder, 3);
    assert_eq!(known(), BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]), "and is removed");
    farewell.write(home.path()).unwrap();
    assert_eq!((known(), Farewell::read(home.path())), (farewell.known.clone(), Some(farewell)));
    let path = home.path().join(FAREWELL);
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(known(), BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]), "byte {place}");
    }
}

#[test]
fn every_start_has_a_larger_number() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
    assert_eq!([(); 3].map(|()| folder.incarnation().unwrap()), [1, 2, 3]);
    for damaged in ["", "-1", "two", "18446744073709551615"] {
        fs::write(folder.path().join(INCARNATION), damaged).unwrap();
        let error = folder.incarnation().unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{damaged}: {error}");
    }
}

#[test]
fn a_folder_is_locked_while_it_is_open_and_a_predecessor_that_ends_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("new");
    let folder = Folder::open(&path, Duration::ZERO).unwrap();
    let leftover = path.join(".decisions.safetensors.aB3xYz");
    fs::write(&leftover, "half of it").unwrap();
    let second = Folder::open(&path, Duration::from_millis(30)).unwrap_err();
    assert!(matches!(second, CheckpointError::InUse(_)), "{second}");
    assert!(leftover.exists(), "it may be in use");
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(folder);
    });
    Folder::open(&path, Duration::from_secs(20)).unwrap();
    ending.join().unwrap();
    assert!(!leftover.exists());
}
