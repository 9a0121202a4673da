//! Sends messages of many sizes between all ranks of an MPI job at once, and checks what arrives. `tests/mpi.sh` runs it.

use mile::agents::Failure;
use mile::ranks::{Ranks, Together};
use mile_ranks::mpi::Mpi;
use mile_ranks::transport::{RankTransport, Region};

/// Around the sizes beyond which Open MPI and MPICH no longer send at once (4 KiB in shared memory, 64 KiB by TCP), and far above.
const SIZES: [usize; 12] =
    [0, 1, 7, 4_000, 4_095, 4_096, 4_097, 65_535, 65_536, 65_537, 1_000_003, 20_000_001];
/// Bytes of a piece: small, as if counts in MPI were 14-bit numbers.
const PIECE: usize = 10_000;

fn message(from: usize, to: usize, size: usize) -> Vec<u8> {
    (0..size).map(|k| (k * 31 + from * 7 + to * 13) as u8).collect()
}

/// The messages once more, by address, as they are given from the memory of a GPU. Here it is the host's, which every MPI accepts.
fn by_address(
    mpi: &Mpi,
    others: &[usize],
    out: &[Vec<u8>],
    lengths: &[usize],
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut room: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
    let sent = |bytes: &Vec<u8>| Region { at: bytes.as_ptr() as u64, bytes: bytes.len() };
    let received = |bytes: &mut Vec<u8>| Region { at: bytes.as_mut_ptr() as u64, bytes: bytes.len() };
    let sends: Vec<(usize, Region)> = others.iter().copied().zip(out.iter().map(sent)).collect();
    let receives: Vec<(usize, Region)> = others.iter().copied().zip(room.iter_mut().map(received)).collect();
    // SAFETY: messages and rooms are vectors that nothing else uses until the call returns.
    unsafe { mpi.exchange_regions(&sends, &receives) }?;
    Ok(room)
}

fn main() -> Result<(), Failure> {
    let mpi = Mpi::join_with_pieces(PIECE)?;
    let (me, count) = (mpi.rank(), mpi.count());
    for shift in 0..SIZES.len() {
        // A different size to and from each rank in each round.
        let size = |from: usize, to: usize| SIZES[(from * 5 + to * 3 + shift) % SIZES.len()];
        let others: Vec<usize> = (0..count).filter(|other| *other != me).collect();
        let out: Vec<Vec<u8>> = others.iter().map(|to| message(me, *to, size(me, *to))).collect();
        let sends: Vec<(usize, &[u8])> =
            others.iter().zip(&out).map(|(to, bytes)| (*to, &bytes[..])).collect();
        let mut room: Vec<Vec<u8>> = others.iter().map(|from| vec![0; size(*from, me)]).collect();
        let mut receives: Vec<(usize, &mut [u8])> =
            others.iter().zip(&mut room).map(|(from, bytes)| (*from, &mut bytes[..])).collect();
        let (mut work, mut seen) = (5, vec![false; others.len()]);
        mpi.exchange(&sends, &mut receives, &mut |arrived| {
            for (k, bytes) in arrived.iter().enumerate().filter(|(_, bytes)| bytes.is_some()) {
                let expected = message(others[k], me, size(others[k], me));
                assert!(seen[k] || *bytes == Some(&expected[..]), "what has arrived is whole");
                seen[k] = true;
            }
            work -= i32::from(work > 0);
            work > 0
        })?;
        assert!(seen.iter().all(|seen| *seen), "everything was seen");
        for (from, bytes) in others.iter().zip(&room) {
            assert!(*bytes == message(*from, me, size(*from, me)), "rank {me} from {from}");
        }
        let lengths: Vec<usize> = room.iter().map(Vec::len).collect();
        assert!(by_address(&mpi, &others, &out, &lengths)? == room, "rank {me}, by address");
    }
    let together = Together::of(&mpi);
    // Some ranks have nothing to send, or none has anything.
    for (each, all_have) in [(1_000, 3), (1_000, 0), (0, 0)] {
        let own = message(me, me, each * me + all_have);
        let all = together.all_gather(&own)?;
        let expected = |rank: usize| message(rank, rank, each * rank + all_have);
        assert!(all.iter().enumerate().all(|(rank, bytes)| *bytes == expected(rank)));
        assert_eq!(together.gather(&own)?, (me == 0).then_some(all));
    }
    for from in 0..count {
        let mut bytes = if from == me { message(from, from, 25_001) } else { vec![1; 3] };
        together.broadcast(from, &mut bytes)?;
        assert!(bytes == message(from, from, 25_001));
    }
    assert_eq!(
        (together.any(1 << (me % 8))?, together.total(3)?),
        (((1u16 << count.min(8)) - 1) as u8, 3 * count as u64)
    );
    Ok(())
}
