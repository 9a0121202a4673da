//! Whatever the frames, notices are read or refused, the board stays within bounds, and what it sends can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mile_net::board::{Board, Known};
use mile_net::frame::NOTICES;
use mile_net::notice;

const AGENTS: usize = 5;

fuzz_target!(|frames: Vec<Vec<u8>>| {
    let mut board = Board::new(0, AGENTS);
    let (mut from, mut to) = (Known::default(), Known::default());
    for (now, frame) in frames.iter().enumerate() {
        if board.hear(frame, &mut from, now as u64).is_ok() {
            assert!(notice::read(frame, AGENTS).is_ok());
        }
        if let Some(sent) = board.frame(&mut to, now as u64) {
            assert!(sent.len() <= NOTICES);
            notice::read(&sent, AGENTS).expect("what it sends can be read");
        }
        assert_eq!(board.frame(&mut to, now as u64), None, "nothing is sent twice");
        let all = board.all(now as u64);
        assert!(all.len() < AGENTS, "nobody else can post for this agent");
    }
});
