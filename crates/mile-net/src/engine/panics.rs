//! Panics in the network's threads. The QUIC library holds locks that a panic poisons, and what is dropped afterwards panics
//! again, which would abort the process or leave it waiting forever. So a panic there is noted where it happens: the computing
//! thread ends with an error, or the process exits at once if it was asked to.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};

/// The names of all network threads begin with this.
const PREFIX: &str = "network-";
/// No exit code: panics are noted only.
const STAY: i32 = i32::MIN;

static ENGINES: AtomicU64 = AtomicU64::new(0);
static EXIT: AtomicI32 = AtomicI32::new(STAY);
static NOTED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// A name for the network threads of one engine. From now on their panics are noted.
pub(super) fn name_threads() -> String {
    install_hook();
    format!("{PREFIX}{}", ENGINES.fetch_add(1, Relaxed))
}

/// What a thread of this name panicked with, if one did.
pub(super) fn noted(name: &str) -> Option<String> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// Makes a panic in a network thread end the process with this code and a message, before anything is dropped. For programs with a
/// supervisor that restarts them.
pub fn exit_on_panic(code: u8) {
    install_hook();
    EXIT.store(code.into(), Relaxed);
}

fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            note(info);
            previous(info);
        }));
    });
}

fn note(info: &PanicHookInfo) {
    let thread = std::thread::current();
    let Some(name) = thread.name().filter(|name| name.starts_with(PREFIX)) else { return };
    let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
    let what = format!("{}{}", text(info.payload()), place.unwrap_or_default());
    let code = EXIT.load(Relaxed);
    if code != STAY {
        eprintln!("mile: {}", explain(&what));
        std::process::exit(code);
    }
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.entry(name.to_owned()).or_insert(what);
}

/// The message about a panic.
pub(super) fn explain(what: &str) -> String {
    format!(
        "the network thread failed: {what}; the last checkpoint is intact: start the agent again, and please report this"
    )
}

fn text(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Panics when it is dropped, like the owner of a poisoned lock.
    struct Poisoned;

    impl Drop for Poisoned {
        fn drop(&mut self) {
            panic!("poisoned");
        }
    }

    #[test]
    fn a_panic_in_a_network_thread_ends_the_process_with_a_code_and_a_message() {
        const CHILD: &str = "MILE_TEST_PANIC";
        let test =
            "engine::panics::tests::a_panic_in_a_network_thread_ends_the_process_with_a_code_and_a_message";
        if std::env::var_os(CHILD).is_some() {
            exit_on_panic(7);
            let thread = std::thread::Builder::new().name(name_threads()).spawn(|| {
                let _poisoned = Poisoned;
                panic!("advance out of bounds");
            });
            let _ = thread.unwrap().join();
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args([test, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("advance out of bounds"), "{said}");
    }

    #[test]
    fn without_an_exit_code_a_panic_is_noted_for_the_engine_it_belongs_to() {
        let (ours, other) = (name_threads(), name_threads());
        let thread = std::thread::Builder::new().name(ours.clone()).spawn(|| panic!("of no {}", "use"));
        thread.unwrap().join().unwrap_err();
        assert!(noted(&ours).unwrap().starts_with("of no use (crates/mile-net/src/engine/panics.rs:"));
        assert_eq!(noted(&other), None);
    }
}
