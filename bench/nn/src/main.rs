//! Measures the gradients of the paper's two networks and of two with the other kinds of layers, and exports networks for PyTorch to check.
//!
//! `bench-nn speed` prints one JSON object: the FMA peak of a core and, for each network and batch, the time of
//! one agent-gradient with all threads at work, one agent each. `bench-nn export DIR` writes networks,
//! images, and mile-nn's results for them. `run.py` calls both.

mod export;
mod peak;
mod speed;

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["speed", threads, windows, names] => {
            let number = |text: &str| text.parse().expect("a number");
            println!("{}", speed::measure(number(threads), number(windows), names));
        }
        ["export", directory] => export::write(Path::new(directory)).expect("the export is written"),
        _ => {
            eprintln!("usage: bench-nn speed THREADS WINDOWS NETWORK,... | bench-nn export DIR");
            std::process::exit(2);
        }
    }
}
