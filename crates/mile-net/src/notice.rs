//! What an agent says about itself to the whole network, and how it is sent.
//!
//! A notice has 80 bytes and five more for each edge, all little-endian: number of the agent (4), number of edges (2), activity (1), which
//! of the optional numbers are there (1), age (4), time in that activity (4), then eight numbers of 8 bytes each, then the edges, each
//! with the neighbour's number (4) and its state (1). A frame has one notice after another.

use serde::{Deserialize, Serialize};

use crate::activity::{Activity, Awaited};
use crate::frame::NOTICES;

/// The version of this form; a frame of another one is refused.
pub const FORM: u64 = 1;

/// Bytes of a notice without edges.
const FIXED: usize = 80;
/// Bytes of an edge.
const EDGE: usize = 5;
/// Most edges in a notice, so that it fits into a frame.
pub const MOST_EDGES: usize = (NOTICES - FIXED) / EDGE;

const ACTIVITIES: [Activity; 4] = [Activity::Computing, Activity::Waiting, Activity::Leaving, Activity::Done];
const AWAITED: [Option<Awaited>; 5] = [
    None,
    Some(Awaited::Message),
    Some(Awaited::Decision),
    Some(Awaited::Confirmation),
    Some(Awaited::Farewell),
];

/// What an agent says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Which agent.
    pub agent: usize,
    /// A later notice of the same agent has a larger one.
    pub version: u64,
    /// How often the agent has been started.
    pub incarnation: u64,
    /// Rounds done, over all jobs.
    pub round: u64,
    /// Rounds to do, over all jobs, where known.
    pub rounds: Option<u64>,
    /// What it was doing.
    pub activity: Activity,
    /// For how many milliseconds, when it said so.
    pub activity_ms: u32,
    /// Its own loss at the last evaluation, if that is a number.
    pub own_loss: Option<f64>,
    /// Bytes sent to its neighbours since this start.
    pub sent: u64,
    /// Bytes received from them.
    pub received: u64,
    /// The round in which its model was found to have diverged.
    pub diverged: Option<u64>,
    /// Its edges, in increasing neighbour.
    pub edges: Vec<NoticedEdge>,
}

/// One end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticedEdge {
    /// The neighbour.
    pub id: usize,
    /// Whether it is connected.
    pub linked: bool,
    /// What is awaited from it.
    pub waiting: Option<Awaited>,
}

/// Bytes that are not a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an unreadable notice: {0}")]
pub struct Unreadable(&'static str);

/// Appends a notice of this age.
pub fn write(notice: &Notice, age_ms: u32, bytes: &mut Vec<u8>) {
    let edges = &notice.edges[..notice.edges.len().min(MOST_EDGES)];
    let activity = ACTIVITIES.iter().position(|activity| *activity == notice.activity).unwrap_or(0);
    let there = [notice.rounds.is_some(), notice.own_loss.is_some(), notice.diverged.is_some()]
        .into_iter()
        .enumerate();
    let there = there.fold(0u8, |bits, (k, is_there)| bits | u8::from(is_there) << k);
    bytes.extend((notice.agent as u32).to_le_bytes());
    bytes.extend((edges.len() as u16).to_le_bytes());
    bytes.extend([activity as u8, there]);
    bytes.extend(age_ms.to_le_bytes());
    bytes.extend(notice.activity_ms.to_le_bytes());
    let numbers = [
        notice.version,
        notice.incarnation,
        notice.round,
        notice.rounds.unwrap_or(0),
        notice.own_loss.unwrap_or(0.0).to_bits(),
        notice.sent,
        notice.received,
        notice.diverged.unwrap_or(0),
    ];
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    for edge in edges {
        let awaited = AWAITED.iter().position(|awaited| *awaited == edge.waiting).unwrap_or(0);
        bytes.extend((edge.id as u32).to_le_bytes());
        bytes.push(u8::from(edge.linked) | (awaited as u8) << 1);
    }
}

/// Bytes of a notice.
pub fn length(notice: &Notice) -> usize {
    FIXED + EDGE * notice.edges.len().min(MOST_EDGES)
}

/// Reads the notices in a frame, each with its age in milliseconds. Agents have numbers below `agents`.
pub fn read(mut bytes: &[u8], agents: usize) -> Result<Vec<(Notice, u32)>, Unreadable> {
    let mut notices = Vec::new();
    while !bytes.is_empty() {
        notices.push(read_one(&mut bytes, agents)?);
    }
    Ok(notices)
}

fn read_one(bytes: &mut &[u8], agents: usize) -> Result<(Notice, u32), Unreadable> {
    let agent = read_agent(bytes, agents)?;
    let count = u16::from_le_bytes(take(bytes)?) as usize;
    let [activity, there] = take(bytes)?;
    let activity = ACTIVITIES.get(usize::from(activity)).ok_or(Unreadable("an unknown activity"))?;
    if there >> 3 != 0 {
        return Err(Unreadable("unknown optional numbers"));
    }
    let (age_ms, activity_ms) = (u32::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?));
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = u64::from_le_bytes(take(bytes)?);
    }
    let [version, incarnation, round, rounds, own_loss, sent, received, diverged] = numbers;
    let own_loss = (there & 2 != 0).then_some(f64::from_bits(own_loss));
    if own_loss.is_some_and(|loss| !loss.is_finite()) {
        return Err(Unreadable("a loss that is not finite"));
    }
    if count > MOST_EDGES || count >= agents {
        return Err(Unreadable("too many edges"));
    }
    let mut edges: Vec<NoticedEdge> = Vec::with_capacity(count.min(bytes.len() / EDGE));
    for _ in 0..count {
        let edge = read_edge(bytes, agents)?;
        if edge.id == agent || edges.last().is_some_and(|last| last.id >= edge.id) {
            return Err(Unreadable("edges out of order"));
        }
        edges.push(edge);
    }
    let notice = Notice {
        agent,
        version,
        incarnation,
        round,
        rounds: (there & 1 != 0).then_some(rounds),
        activity: *activity,
        activity_ms,
        own_loss,
        sent,
        received,
        diverged: (there & 4 != 0).then_some(diverged),
        edges,
    };
    Ok((notice, age_ms))
}

fn read_edge(bytes: &mut &[u8], agents: usize) -> Result<NoticedEdge, Unreadable> {
    let id = read_agent(bytes, agents)?;
    let [state] = take(bytes)?;
    let waiting = AWAITED.get(usize::from(state >> 1)).ok_or(Unreadable("an unknown state of an edge"))?;
    Ok(NoticedEdge { id, linked: state & 1 != 0, waiting: *waiting })
}

fn read_agent(bytes: &mut &[u8], agents: usize) -> Result<usize, Unreadable> {
    let agent = u32::from_le_bytes(take(bytes)?) as usize;
    if agent < agents { Ok(agent) } else { Err(Unreadable("the number of no agent")) }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(Unreadable("it ends too early"))?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edges() -> impl Strategy<Value = Vec<NoticedEdge>> {
        let state = (any::<bool>(), prop::sample::select(AWAITED.to_vec()));
        let edge = |(id, (linked, waiting))| NoticedEdge { id, linked, waiting };
        prop::collection::btree_map(1usize..100, state, 0..20)
            .prop_map(move |edges| edges.into_iter().map(edge).collect())
    }

    fn notice() -> impl Strategy<Value = Notice> {
        let numbers = (any::<[u64; 5]>(), any::<u32>(), prop::sample::select(ACTIVITIES.to_vec()));
        let optional = (any::<Option<u64>>(), prop::option::of(-1e300..1e300), any::<Option<u64>>());
        (numbers, optional, edges()).prop_map(|((numbers, activity_ms, activity), optional, edges)| {
            let [version, incarnation, round, sent, received] = numbers;
            let (rounds, own_loss, diverged) = optional;
            Notice {
                agent: 0,
                version,
                incarnation,
                round,
                rounds,
                activity,
                activity_ms,
                own_loss,
                sent,
                received,
                diverged,
                edges,
            }
        })
    }

    proptest! {
        #[test]
        fn notices_are_read_as_they_were_written(
            notices in prop::collection::vec((notice(), any::<u32>()), 0..5),
        ) {
            let mut bytes = Vec::new();
            notices.iter().for_each(|(notice, age)| write(notice, *age, &mut bytes));
            let lengths: usize = notices.iter().map(|(notice, _)| length(notice)).sum();
            prop_assert_eq!(bytes.len(), lengths);
            prop_assert_eq!(read(&bytes, 100), Ok(notices));
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(notices) = read(&bytes, 7) {
                prop_assert!(notices.iter().all(|(notice, _)| notice.agent < 7 && notice.edges.len() < 7));
                let mut again = Vec::new();
                notices.iter().for_each(|(notice, age)| write(notice, *age, &mut again));
                prop_assert_eq!(again.len(), bytes.len());
            }
        }
    }

    #[test]
    fn what_no_agent_sends_is_refused() {
        let edge = |id| NoticedEdge { id, linked: true, waiting: None };
        let sound = Notice {
            agent: 1,
            version: 1,
            incarnation: 1,
            round: 5,
            rounds: None,
            activity: Activity::Waiting,
            activity_ms: 0,
            own_loss: Some(0.5),
            sent: 0,
            received: 0,
            diverged: None,
            edges: vec![edge(0), edge(2)],
        };
        let form = |notice: &Notice| {
            let mut bytes = Vec::new();
            write(notice, 7, &mut bytes);
            bytes
        };
        assert_eq!(read(&form(&sound), 3), Ok(vec![(sound.clone(), 7)]));
        let changed = |change: &dyn Fn(&mut Notice)| {
            let mut notice = sound.clone();
            change(&mut notice);
            read(&form(&notice), 3)
        };
        changed(&|notice| notice.agent = 3).unwrap_err();
        changed(&|notice| notice.own_loss = Some(f64::NAN)).unwrap_err();
        changed(&|notice| notice.edges[1].id = 3).unwrap_err();
        changed(&|notice| notice.edges[1].id = 1).unwrap_err();
        changed(&|notice| notice.edges.swap(0, 1)).unwrap_err();
        let bytes = form(&sound);
        for length in 1..bytes.len() {
            read(&bytes[..length], 3).unwrap_err();
        }
        for (place, value) in [(6, 4), (7, 8), (84, 10)] {
            let mut bytes = bytes.clone();
            bytes[place] = value;
            read(&bytes, 3).unwrap_err();
        }
    }

    #[test]
    fn the_notice_of_an_agent_with_very_many_edges_fits_into_a_frame() {
        let edges = (1..5000).map(|id| NoticedEdge { id, linked: true, waiting: None }).collect();
        let hub = Notice {
            agent: 0,
            version: 1,
            incarnation: 1,
            round: 0,
            rounds: None,
            activity: Activity::Computing,
            activity_ms: 0,
            own_loss: None,
            sent: 0,
            received: 0,
            diverged: None,
            edges,
        };
        let mut bytes = Vec::new();
        write(&hub, 0, &mut bytes);
        assert!(bytes.len() <= NOTICES && bytes.len() == length(&hub));
        assert_eq!(read(&bytes, 5000).unwrap()[0].0.edges.len(), MOST_EDGES);
    }
}
