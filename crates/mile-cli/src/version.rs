//! `mile --version`: what this program was built from, and how it computes here.

use std::sync::LazyLock;

use mile::isa::Isa;

/// The version, the commit, the features, and the instruction set of the kernels on this machine.
pub(crate) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let commit = option_env!("MILE_COMMIT").unwrap_or("unknown");
        let version = env!("CARGO_PKG_VERSION");
        format!("{version}\ncommit: {commit}\nfeatures: {}\nCPU: {}", features(), kernels())
    });
    &TEXT
}

/// The features that this program was built with.
fn features() -> String {
    let all = [("cuda", cfg!(feature = "cuda")), ("mpi", cfg!(feature = "mpi"))];
    let built: Vec<&str> = all.iter().filter(|(_, is_built)| *is_built).map(|(name, _)| *name).collect();
    if built.is_empty() { "none".to_owned() } else { built.join(", ") }
}

/// The kernels that are used on this machine.
fn kernels() -> &'static str {
    match Isa::best() {
        Isa::Avx512 => "AVX-512 kernels",
        Isa::Avx2 => "AVX2 kernels",
        _ => "portable kernels",
    }
}
