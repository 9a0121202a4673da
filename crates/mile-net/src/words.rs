//! Words of a neighbour, for logs and status reports.

/// Most characters that are kept.
const MOST: usize = 1000;

/// The text that a neighbour sent, with a sign in place of what cannot be printed. Text that has been through this is unchanged by it,
/// however often it is passed on.
pub(crate) fn words(bytes: &[u8]) -> String {
    let printable = |c: char| match c.escape_debug().len() {
        1 => c,
        _ if matches!(c, '"' | '\'' | '\\') => c,
        _ => char::REPLACEMENT_CHARACTER,
    };
    String::from_utf8_lossy(bytes).chars().take(MOST).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_printable_and_stay_the_same_however_often_they_are_passed_on() {
        let said = "agent.transport = \"quic\" at C:\\mile, l'\u{e9}tat\x1b[2J\r\n\u{202e}";
        let shown = words(said.as_bytes());
        assert_eq!(
            shown,
            "agent.transport = \"quic\" at C:\\mile, l'\u{e9}tat\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(words(shown.as_bytes()), shown);
        assert_eq!(words(&[b'a', 0xff]), "a\u{fffd}");
        assert_eq!(words("x".repeat(5000).as_bytes()).len(), MOST);
    }
}
