//! The notices that an agent knows, what wakes the connections on which they are passed on, and how many there are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::activity::Activity;
use crate::board::{self, Board};
use crate::notice::Notice;

/// Most connections with one neighbour: an earlier one may not know yet that it has ended.
const MOST: usize = 2;

/// The board of an agent, and its connections.
pub(super) struct Notices {
    board: Mutex<Board>,
    open: Mutex<BTreeMap<usize, usize>>,
    /// Counts changes of the board.
    pub(super) changes: watch::Sender<u64>,
    /// Whether the agent ends, and posts its last notice.
    pub(super) over: watch::Sender<bool>,
    pub(super) interval: Duration,
}

impl Notices {
    pub(super) fn new(me: usize, agents: usize) -> Self {
        Self {
            board: Mutex::new(Board::new(me, agents)),
            open: Mutex::new(BTreeMap::new()),
            changes: watch::Sender::new(0),
            over: watch::Sender::new(false),
            interval: Duration::from_millis(board::interval(agents)),
        }
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, neighbour: usize) -> bool {
        self.open().get(&neighbour).is_some_and(|count| *count > 0)
    }

    /// Counts a connection, if there may be another one.
    pub(super) fn enter(&self, neighbour: usize) -> bool {
        let mut open = self.open();
        let count = open.entry(neighbour).or_default();
        *count += 1;
        if *count > MOST {
            *count -= 1;
            return false;
        }
        true
    }

    pub(super) fn leave(&self, neighbour: usize) {
        self.open().entry(neighbour).and_modify(|count| *count = count.saturating_sub(1));
    }

    /// Posts a notice about this agent; after the last one, which says that it has ended, no other.
    pub(super) fn post(&self, own: Notice, now: u64) {
        {
            let mut board = self.board();
            if *self.over.borrow() && own.activity != Activity::Done {
                return;
            }
            board.post(own, now);
        }
        self.changes.send_modify(|count| *count += 1);
    }
}
