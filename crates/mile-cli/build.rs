//! Tells the program which commit it is built from: that which `MILE_COMMIT` names, that of a published package, or that of the Git
//! checkout; none if all are unknown.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MILE_COMMIT");
    if std::env::var_os("MILE_COMMIT").is_some() {
        return;
    }
    let commit = match published() {
        Some(commit) => Some(commit),
        None => checked_out(),
    };
    if let Some(commit) = commit {
        println!("cargo:rustc-env=MILE_COMMIT={commit}");
    }
}

/// The commit in the file that `cargo package` adds.
fn published() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    Some(rest.split('"').nth(1)?.to_owned())
}

/// The commit of the checkout that this folder is a part of.
fn checked_out() -> Option<String> {
    // A folder within another project's checkout, such as a vendored copy, is not a checkout of this one.
    let is_ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = git(&["rev-parse", "HEAD"]).filter(|_| is_ours)?;
    // Every commit and checkout is noted there.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    Some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
