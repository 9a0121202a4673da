//! Ranks that are threads of one process, for tests and for trying things out: messages go through channels.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mile::agents::Failure;
use mile::ranks::{Ranks, Together};

use crate::transport::{Arrived, RankTransport, Region};

/// A rank that waits longer than this for another gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// One of several ranks that are threads.
pub struct Threads {
    rank: usize,
    others: Vec<Sender<(usize, Vec<u8>)>>,
    inbox: Mutex<Inbox>,
}

struct Inbox {
    receiver: Receiver<(usize, Vec<u8>)>,
    /// Messages that arrived before they were asked for, by sender.
    waiting: HashMap<usize, VecDeque<Vec<u8>>>,
}

impl Inbox {
    /// The next message of a rank, if it has arrived.
    fn try_take(&mut self, from: usize) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(message) = self.waiting.get_mut(&from).and_then(VecDeque::pop_front) {
                return Ok(Some(message));
            }
            match self.receiver.try_recv() {
                Ok((sender, message)) => self.waiting.entry(sender).or_default().push_back(message),
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err("the other ranks are gone".into()),
            }
        }
    }

    /// Waits for a message of any rank.
    fn wait(&mut self) -> Result<(), Failure> {
        match self.receiver.recv_timeout(PATIENCE) {
            Ok((sender, message)) => {
                self.waiting.entry(sender).or_default().push_back(message);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Err("another rank does not answer".into()),
            Err(RecvTimeoutError::Disconnected) => Err("the other ranks are gone".into()),
        }
    }

    fn take(&mut self, from: usize) -> Result<Vec<u8>, Failure> {
        loop {
            match self.try_take(from)? {
                Some(message) => return Ok(message),
                None => self.wait()?,
            }
        }
    }
}

impl Threads {
    /// `ranks` ranks, one for each thread.
    pub fn world(ranks: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
        let one = |(rank, receiver)| Self {
            rank,
            others: senders.clone(),
            inbox: Mutex::new(Inbox { receiver, waiting: HashMap::new() }),
        };
        receivers.into_iter().enumerate().map(one).collect()
    }

    /// Runs `work` on `ranks` ranks, and returns what each of them produces, in order.
    ///
    /// # Panics
    /// If one of them does.
    pub fn run<V: Send>(ranks: usize, work: impl Fn(Self) -> V + Sync) -> Vec<V> {
        std::thread::scope(|scope| {
            let start = |rank: Self| scope.spawn(|| work(rank));
            let threads: Vec<_> = Self::world(ranks).into_iter().map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, V>| thread.join();
            let made: Result<Vec<V>, _> = threads.into_iter().map(join).collect();
            made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<(), Failure> {
        let gone = |_| Failure::from(format!("rank {to} is gone"));
        self.others[to].send((self.rank, message.to_vec())).map_err(gone)
    }

    fn inbox(&self) -> std::sync::MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ranks for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.others.len()
    }

    fn name(&self) -> String {
        format!("rank {} in this process", self.rank)
    }

    fn all_gather(&self, _: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        // A single rank may run several jobs at once, and they must not take each other's messages.
        if self.count() == 1 {
            return Ok(vec![own.to_vec()]);
        }
        (0..self.count()).try_for_each(|to| self.send(to, own))?;
        let mut inbox = self.inbox();
        (0..self.count()).map(|from| inbox.take(from)).collect()
    }

    fn gather(&self, _: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        if self.count() == 1 {
            return Ok(Some(vec![own.to_vec()]));
        }
        self.send(0, own)?;
        if self.rank > 0 {
            return Ok(None);
        }
        let mut inbox = self.inbox();
        (0..self.count()).map(|from| inbox.take(from)).collect::<Result<_, _>>().map(Some)
    }

    fn broadcast(&self, _: Together<'_>, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        if self.rank != from {
            *bytes = self.inbox().take(from)?;
            return Ok(());
        }
        (0..self.count()).filter(|to| *to != from).try_for_each(|to| self.send(to, bytes))
    }
}

impl RankTransport for Threads {
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        meanwhile: &mut dyn FnMut(&Arrived<'_>) -> bool,
    ) -> Result<(), Failure> {
        sends
            .iter()
            .filter(|(_, bytes)| !bytes.is_empty())
            .try_for_each(|(to, bytes)| self.send(*to, bytes))?;
        let mut is_here: Vec<bool> = receives.iter().map(|(_, bytes)| bytes.is_empty()).collect();
        loop {
            let mut waits_for = Vec::new();
            for (is_here, (from, bytes)) in is_here.iter_mut().zip(&mut *receives).filter(|(here, _)| !**here)
            {
                // Messages from a rank arrive in order: none is there before those given earlier.
                if waits_for.contains(from) {
                    continue;
                }
                if let Some(message) = self.inbox().try_take(*from)? {
                    if message.len() != bytes.len() {
                        let (got, expected) = (message.len(), bytes.len());
                        return Err(format!("rank {from} sent {got} bytes instead of {expected}").into());
                    }
                    bytes.copy_from_slice(&message);
                    *is_here = true;
                } else {
                    waits_for.push(*from);
                }
            }
            let arrived: Vec<Option<&[u8]>> =
                receives.iter().zip(&is_here).map(|((_, bytes), here)| here.then_some(&**bytes)).collect();
            if meanwhile(&arrived) {
                continue;
            }
            if is_here.iter().all(|here| *here) {
                return Ok(());
            }
            self.inbox().wait()?;
        }
    }

    fn takes_device_memory(&self) -> bool {
        false
    }

    unsafe fn exchange_regions(
        &self,
        sends: &[(usize, Region)],
        receives: &[(usize, Region)],
    ) -> Result<(), Failure> {
        let filled = |(_, region): &&(usize, Region)| region.bytes > 0;
        // SAFETY: the caller reserves these regions for this call, and they are host memory.
        let sends: Vec<(usize, &[u8])> = unsafe {
            let bytes = |to: &Region| std::slice::from_raw_parts(to.at as *const u8, to.bytes);
            sends.iter().filter(filled).map(|(to, region)| (*to, bytes(region))).collect()
        };
        // SAFETY: as above, and they do not overlap.
        let mut receives: Vec<(usize, &mut [u8])> = unsafe {
            let bytes = |to: &Region| std::slice::from_raw_parts_mut(to.at as *mut u8, to.bytes);
            receives.iter().filter(filled).map(|(from, region)| (*from, bytes(region))).collect()
        };
        self.exchange(&sends, &mut receives, &mut |_| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_lengths_arrive_at_the_right_rank_with_work_in_between() {
        for ranks in [1, 2, 5] {
            let found = Threads::run(ranks, |rank| {
                let me = rank.rank();
                for round in 0..20usize {
                    let length = |from: usize, to: usize| (from * 7 + to * 3 + round) % 5 * 1000;
                    let message = |from: usize, to: usize| vec![(from * 16 + to) as u8; length(from, to)];
                    let others: Vec<usize> = (0..ranks).filter(|other| *other != me).collect();
                    let out: Vec<Vec<u8>> = others.iter().map(|to| message(me, *to)).collect();
                    let sends: Vec<(usize, &[u8])> =
                        others.iter().zip(&out).map(|(to, bytes)| (*to, &bytes[..])).collect();
                    let mut room: Vec<Vec<u8>> =
                        others.iter().map(|from| vec![0; length(*from, me)]).collect();
                    let mut receives: Vec<(usize, &mut [u8])> =
                        others.iter().zip(&mut room).map(|(from, bytes)| (*from, &mut bytes[..])).collect();
                    let mut left = 3;
                    rank.exchange(&sends, &mut receives, &mut |_| {
                        left -= i32::from(left > 0);
                        left > 0
                    })
                    .unwrap();
                    assert!(others.iter().zip(&room).all(|(from, bytes)| *bytes == message(*from, me)));
                    let region = |bytes: &[u8]| Region { at: bytes.as_ptr() as u64, bytes: bytes.len() };
                    let sends: Vec<_> = others.iter().zip(&out).map(|(to, out)| (*to, region(out))).collect();
                    let empty = |from: &usize| Box::<[u8]>::from(vec![0; length(*from, me)]);
                    let mut room: Vec<Box<[u8]>> = others.iter().map(empty).collect();
                    let one = |(from, room): (&usize, &mut Box<[u8]>)| {
                        (*from, Region { at: room.as_mut_ptr() as u64, bytes: room.len() })
                    };
                    let receives: Vec<_> = others.iter().zip(&mut room).map(one).collect();
                    // SAFETY: messages and rooms are vectors of this thread that nothing else uses.
                    unsafe { rank.exchange_regions(&sends, &receives) }.unwrap();
                    assert!(others.iter().zip(&room).all(|(from, bytes)| **bytes == message(*from, me)));
                }
                let mut from_last = vec![me as u8];
                let together = Together::of(&rank);
                together.broadcast(ranks - 1, &mut from_last).unwrap();
                let all = together.all_gather(&[me as u8]).unwrap();
                (all, together.gather(&[7; 3]).unwrap().is_some(), from_last)
            });
            for (me, (all, is_first, last)) in found.into_iter().enumerate() {
                assert_eq!(all, (0..ranks).map(|rank| vec![rank as u8]).collect::<Vec<_>>());
                assert_eq!((is_first, last), (me == 0, vec![ranks as u8 - 1]));
            }
        }
    }
}
