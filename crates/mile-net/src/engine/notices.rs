//! Notices on connections of their own, beside the links: a link is not read while a piece of a message waits for its turn, which is just
//! when one wants to know who waits for whom.
//!
//! The end that has opened a link opens the connection for notices, too, a moment later, so that short runs do without.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mile::real::Real;
use tokio::time::{interval, sleep};

use super::Peer;
use super::close::LinkEnd;
use super::link;
use super::notice_board::Notices;
use super::purpose::Purpose;
use super::shared::Shared;
use super::transport::{Connection, Endpoint, Receiver, Sender};
use crate::board::Known;
use crate::frame::{Head, Kind, NOTICES};
use crate::notice::{FORM, Notice};
use crate::protocol::Fault;
use crate::status::Activity;

/// How often it is checked whether a connection is needed, and for how long its link must have been up.
const CHECK: Duration = Duration::from_secs(1);
/// The longest pause after a failure, which is doubled each time.
const LONGEST: Duration = Duration::from_secs(30);
/// The pause between two frames on a connection, and bytes a second on average.
const PAUSE: Duration = Duration::from_millis(100);
const RATE: f64 = NOTICES as f64;
/// How long the last notice may take to be sent.
const LAST: Duration = Duration::from_millis(500);

/// Posts notices about this agent until it leaves.
pub(super) async fn post_regularly<T: Real>(shared: Arc<Shared<T>>) {
    let Some(notices) = &shared.notices else { return };
    let mut due = interval(notices.interval);
    while !*notices.over.borrow() {
        due.tick().await;
        let status = shared.status();
        notices.post(status.notice(), shared.now());
    }
}

/// Posts the last notice, after which an agent has ended, and waits a moment until the neighbours have it.
pub(super) async fn end<T: Real>(shared: &Shared<T>) {
    let Some(notices) = &shared.notices else { return };
    let _ = notices.over.send_replace(true);
    let last = Notice { activity: Activity::Done, ..shared.status().notice() };
    notices.post(last, shared.now());
    let begun = Instant::now();
    while notices.open().values().any(|count| *count > 0) && begun.elapsed() < LAST {
        sleep(PAUSE / 10).await;
    }
}

/// Keeps a connection for notices to a neighbour while there is a link that this end has opened.
pub(super) async fn keep_connected<T: Real>(
    shared: Arc<Shared<T>>,
    endpoint: Arc<Endpoint>,
    id: usize,
    peer: Peer,
) {
    let Some(notices) = &shared.notices else { return };
    let (mut pause, mut ready) = (CHECK, false);
    while !*notices.over.borrow() {
        sleep(pause).await;
        let before = std::mem::replace(&mut ready, shared.lock().session.dialled(id));
        if !before || !ready || notices.has(id) {
            pause = CHECK;
            continue;
        }
        let begun = Instant::now();
        let end = match endpoint.connect(&peer, Purpose::Notices).await {
            Ok(connection) => run(&shared, connection, id).await,
            Err(end) => end.to_string(),
        };
        tracing::debug!(neighbour = id, "connection for notices: {end}");
        pause = if begun.elapsed() > LONGEST { CHECK } else { (2 * pause).min(LONGEST) };
    }
}

/// Serves a connection for notices until it ends; returns how it ended.
pub(super) async fn run<T: Real>(shared: &Shared<T>, mut connection: Connection, id: usize) -> String {
    let refuse = |why: &str| LinkEnd::Fault(Fault::RefusedByUs(why.into()));
    let mut entered = None;
    let end = match &shared.notices {
        None => refuse("agents of this run do not gossip (agent.gossip)"),
        Some(_) if !shared.lock().session.linked(id) => refuse("there is no link"),
        Some(notices) if !notices.enter(id) => refuse("too many connections for notices"),
        Some(notices) => {
            entered = Some(notices);
            let known = Mutex::new(Known::default());
            let (mut sender, mut receiver) = connection.halves();
            tokio::select! {
                end = receive(shared, notices, &mut receiver, &known) => end,
                end = send(shared, notices, &mut sender, &known) => end,
            }
        }
    };
    let text = end.to_string();
    connection.close(end).await;
    entered.into_iter().for_each(|notices| notices.leave(id));
    text
}

/// Takes in what the neighbour says.
async fn receive<T: Real>(
    shared: &Shared<T>,
    notices: &Notices,
    receiver: &mut Receiver<'_>,
    known: &Mutex<Known>,
) -> LinkEnd {
    loop {
        let frame = match link::control_frame::<T>(receiver).await {
            Ok((Head { kind: Kind::Notices, a: FORM, .. }, frame)) => frame,
            Ok(_) => {
                return LinkEnd::Fault(Fault::RefusedByUs("not a frame of notices of this version".into()));
            }
            Err(end) => return end,
        };
        let heard = {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            notices.board().hear(&frame, &mut known, shared.now())
        };
        match heard {
            Ok(true) => notices.changes.send_modify(|count| *count += 1),
            Ok(false) => {}
            Err(unreadable) => return LinkEnd::Fault(Fault::RefusedByUs(unreadable.to_string())),
        }
    }
}

/// Tells the neighbour what it does not know, until the last notice has been sent.
async fn send<T: Real>(
    shared: &Shared<T>,
    notices: &Notices,
    sender: &mut Sender<'_>,
    known: &Mutex<Known>,
) -> LinkEnd {
    let mut changes = notices.changes.subscribe();
    loop {
        let over = *notices.over.borrow();
        changes.mark_unchanged();
        let frame = {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            notices.board().frame(&mut known, shared.now())
        };
        let Some(frame) = frame else {
            if over {
                sender.finish().await;
                return LinkEnd::ClosedByUs;
            }
            tokio::select! {
                _ = changes.changed() => continue,
                end = sender.keep_alive() => return end,
            }
        };
        let pause =
            if over { Duration::ZERO } else { PAUSE.max(Duration::from_secs_f64(frame.len() as f64 / RATE)) };
        let head = Head { kind: Kind::Notices, length: frame.len(), a: FORM, b: 0 };
        if let Err(end) = sender.send(Bytes::copy_from_slice(&head.encode()), frame.into()).await {
            return end;
        }
        sleep(pause).await;
    }
}
