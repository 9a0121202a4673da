//! What an exchange costs: TLS over TCP, bare iroh streams and the engine with both transports, two processes on loopback, full duplex.
//!
//! Without arguments it starts itself in pairs and prints tables; with `links`, only the speed of links; with `large`, what agents with a
//! long vector take ([`large::Large`]). See `results/` for dated ones.

mod bare;
mod engine;
mod large;
mod tls;

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use mile_net::engine::Transport::{Quic, Tcp};
use mile_net::frame::{CHUNK, HEAD};
use mile_net::keys::SecretKey;

/// What one process of a pair is to do.
pub(crate) struct Part {
    pub(crate) me: usize,
    pub(crate) ports: [u16; 2],
    /// Numbers in the vector.
    pub(crate) dim: usize,
    /// Exchanges that are timed.
    pub(crate) reps: usize,
}

impl Part {
    pub(crate) fn key(agent: usize) -> SecretKey {
        SecretKey::from_bytes(&[agent as u8 + 1; 32])
    }

    pub(crate) fn address(&self, agent: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[agent]))
    }
}

/// When an exchange began and ended, by the clock that both processes share.
#[derive(Default)]
pub(crate) struct Times(Vec<[f64; 2]>);

impl Times {
    pub(crate) fn now() -> f64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(f64::NAN, |since| since.as_secs_f64())
    }

    pub(crate) fn add(&mut self, begun: f64) {
        self.0.push([begun, Self::now()]);
    }

    /// One line each.
    pub(crate) fn print(&self) {
        self.0.iter().for_each(|[begun, ended]| println!("exchange {begun:.6} {ended:.6}"));
    }
}

/// The middle one.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Largest memory this process has ever used, in bytes.
pub(crate) fn peak() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).map_or(f64::NAN, |kb| kb * 1024.0)
}

/// CPU time of this process so far, in seconds, to a hundredth.
pub(crate) fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Runs a pair. Returns the seconds an exchange takes once both are ready for it (the median and the shortest), the other numbers that the
/// first process prints in its last line, the CPU time of both for an exchange, and the seconds of a whole round.
fn pair(mode: &str, dim: usize, reps: usize) -> Vec<f64> {
    let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    let ports = sockets.each_ref().map(|socket| socket.local_addr().expect("bound").port().to_string());
    drop(sockets);
    let me = std::env::current_exe().expect("this program");
    let start = |agent: usize| {
        Command::new(&me)
            .args([mode, &agent.to_string(), &ports[0], &ports[1], &dim.to_string(), &reps.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let texts = [start(0), start(1)].map(|child| {
        let output = child.wait_with_output().expect("its output");
        assert!(output.status.success(), "{mode} failed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let numbers =
        |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
    let times = texts.each_ref().map(|text| {
        text.lines().filter(|line| line.starts_with("exchange")).map(numbers).collect::<Vec<_>>()
    });
    // The first makes the link, and is not counted.
    let took = times[0].iter().zip(&times[1]).skip(1).map(|(a, b)| a[1].max(b[1]) - a[0].max(b[0]));
    let took: Vec<f64> = took.collect();
    let best = took.iter().copied().fold(f64::INFINITY, f64::min);
    let last = texts.each_ref().map(|text| numbers(text.lines().last().unwrap_or_default()));
    let mut result = vec![median(took), best];
    result.extend(last[0].iter().take(4));
    result.push(last.iter().filter_map(|line| line.get(4)).sum::<f64>() / reps as f64);
    let rounds = times[0].len().saturating_sub(2) as f64;
    let span = |times: &[Vec<f64>]| Some(times.last()?[1] - times.get(1)?[1]);
    result.extend(span(&times[0]).map(|seconds| seconds / rounds));
    println!("{mode:>11} n = {dim:>9}: {result:.6?}");
    result
}

/// What is compared, in turns.
const MODES: [&str; 6] = ["tls", "bare", "quic", "quic-saving", "tcp", "tcp-saving"];

/// For each mode, the shortest median time of an exchange over all turns, and the least CPU time.
fn speed(dim: usize, reps: usize, turns: usize) -> String {
    let mut results: [Vec<Vec<f64>>; MODES.len()] = Default::default();
    for _ in 0..turns {
        for (results, mode) in results.iter_mut().zip(MODES) {
            results.push(pair(mode, dim, reps));
        }
    }
    let least = |k: usize, j: usize| results[k].iter().map(|line| line[j]).fold(f64::INFINITY, f64::min);
    let mut text = format!("| {} MB |", 4 * dim / 1_000_000);
    for k in 0..MODES.len() {
        text += &format!(" {:.1} ({:.1}) |", 1e3 * least(k, 0), 1e3 * least(k, 6));
    }
    let percent = |k: usize, of: usize| format!(" {:.0}% |", 100.0 * least(of, 0) / least(k, 0));
    text + &[percent(2, 1), percent(2, 0), percent(4, 0), percent(5, 0)].concat()
}

const SPEED_HEAD: &str = "
ms of an exchange (of CPU, both ends)

| vector | TLS over TCP | bare iroh | engine, QUIC | with a checkpoint every round | engine, TCP | with a checkpoint every round | QUIC / bare iroh | QUIC / TLS | TCP / TLS | TCP with checkpoints / TLS |
|---|---|---|---|---|---|---|---|---|---|---|";

/// Bytes that are not elements of the vector, with and without gossip, for one exchange on one edge and direction.
fn overhead(dim: usize) -> String {
    let (payload, gossip) = (4 * dim, HEAD + 8 * 260);
    let heads = HEAD * payload.div_ceil(CHUNK) + HEAD;
    let percent = |bytes: usize| 100.0 * bytes as f64 / payload as f64;
    format!("| {dim} | {heads} | {:.4}% | {:.4}% |", percent(heads), percent(heads + gossip))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((mode, rest)) if mode == "large" => return large::run(rest),
        Some((mode, rest)) if mode == "large-agent" => return large::agent(rest),
        _ => {}
    }
    if let [mode, rest @ ..] = &args[..]
        && let [me, first, second, dim, reps] =
            rest.iter().map(|word| word.parse().expect("a number")).collect::<Vec<usize>>()[..]
    {
        let part = Part { me, ports: [first as u16, second as u16], dim, reps };
        match mode.as_str() {
            "tls" => tls::run(&part),
            "bare" => bare::run(&part),
            "quic" => engine::run(&part, Quic, u64::MAX),
            "quic-saving" => engine::run(&part, Quic, 1),
            "tcp" => engine::run(&part, Tcp, u64::MAX),
            "tcp-saving" => engine::run(&part, Tcp, 1),
            "tcp-rarely" => engine::run(&part, Tcp, 10),
            other => panic!("no mode {other}"),
        }
        return;
    }
    println!(
        "columns: exchange s (median, shortest), copy s, local step s, checkpoint s, peak bytes, CPU s, round s\n"
    );
    let rows = [speed(1_000_000, 24, 5), speed(25_000_000, 4, 3)];
    println!("{SPEED_HEAD}");
    rows.iter().for_each(|row| println!("{row}"));
    if args == ["links"] {
        return;
    }
    let whole =
        |mode: &str| median((0..5).filter_map(|_| pair(mode, 1_000_000, 60).last().copied()).collect());
    let (each, tenth) = (whole("tcp-saving"), whole("tcp-rarely"));
    println!(
        "4 MB, a round: {:.1} ms with a checkpoint in each, {:.1} ms with one in ten",
        1e3 * each,
        1e3 * tenth
    );
    let memory = pair("tcp-saving", 10_000_000, 6);
    println!("\n| n | bytes of heads an exchange | overhead | with gossip |\n|---|---|---|---|");
    [1_000_000, 10_000_000, 25_000_000].iter().for_each(|dim| println!("{}", overhead(*dim)));
    let formula = 5.0 * 4.0 * 1e7;
    println!(
        "\npeak memory of an agent, n = 10^7 f32, MILE: {:.1} MB; 5 n vectors are {:.1} MB: {:.3} of it",
        memory[5] / 1e6,
        formula / 1e6,
        memory[5] / formula
    );
}
