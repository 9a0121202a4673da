//! Signed texts: TOML whose first line is a signature of everything after it.
//!
//! The key that signed is named in the text. White space at the ends of lines is not signed, because mail changes it.

use std::path::Path;

use mile_lab::error::LabError;
use mile_net::keys::{PublicKey, SecretKey, Signature};
use toml::{Table, Value};

/// The form of these texts; another one is refused.
pub(crate) const FORM: i64 = 1;
/// Most bytes that are read.
const LONGEST: u64 = 4 << 20;

/// A kind of text: the name of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    /// To one who may join.
    Invitation,
    /// From one who joins.
    Answer,
}

impl Letter {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Invitation => "invitation",
            Self::Answer => "answer",
        }
    }

    /// The text with its signature. Its section names the key.
    pub(crate) fn signed(self, body: &str, key: &SecretKey) -> String {
        let signature = key.sign(&self.signed_bytes(body)).to_bytes();
        let digits: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("signature = \"{digits}\"\n{body}")
    }

    /// Reads a text, and checks that the key it names has signed it.
    pub(crate) fn read(self, path: &Path) -> Result<(Table, PublicKey), LabError> {
        let failed = |problem: String| LabError::Directory { path: path.to_owned(), problem };
        let unreadable = |error: std::io::Error| failed(format!("cannot read the {}: {error}", self.name()));
        if std::fs::metadata(path).map_err(unreadable)?.len() > LONGEST {
            return Err(failed(format!("longer than any {}", self.name())));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        self.open(&text).map_err(failed)
    }

    /// The content of a text, and who has signed it.
    fn open(self, text: &str) -> Result<(Table, PublicKey), String> {
        let name = self.name();
        let text = text.trim_start_matches(['\u{feff}', '\r', '\n', ' ']);
        let (first, body) = text.split_once('\n').unwrap_or((text, ""));
        let digits = first.trim_end().strip_prefix("signature = \"").and_then(|rest| rest.strip_suffix('"'));
        let signature = digits.and_then(signature).ok_or_else(|| {
            format!("expected an {name} of mile, whose first line is its signature, got another text")
        })?;
        let mut table: Table = text.parse().map_err(|error| format!("an unreadable {name}: {error}"))?;
        table.remove("signature");
        let section = table.get(name).and_then(Value::as_table);
        let section = section
            .ok_or_else(|| format!("expected a section [{name}], got none; is it another kind of text?"))?;
        match section.get("form").and_then(Value::as_integer) {
            Some(FORM) => {}
            other => {
                let other = other.map_or("none".into(), |form| form.to_string());
                return Err(format!(
                    "{name}.form: expected {FORM}, got {other}; use the release of mile that wrote it"
                ));
            }
        }
        let key = section.get("key").and_then(Value::as_str).and_then(|key| key.parse::<PublicKey>().ok());
        let key =
            key.ok_or_else(|| format!("{name}.key: expected a public key; ask for the {name} again"))?;
        key.verify(&self.signed_bytes(body), &signature).map_err(|_| {
            format!("the signature is not that of {key} for this text: it was changed on the way; ask for the {name} again")
        })?;
        Ok((table, key))
    }

    fn signed_bytes(self, body: &str) -> Vec<u8> {
        let lines: Vec<&str> = body.trim_end().lines().map(str::trim_end).collect();
        format!("mile {} {FORM}\n{}", self.name(), lines.join("\n")).into_bytes()
    }
}

fn signature(digits: &str) -> Option<Signature> {
    let mut bytes = [0; Signature::LENGTH];
    let pairs = digits.as_bytes().chunks(2);
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Signature::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(key: &SecretKey) -> String {
        let body = format!("# for you\nname = \"a run\"\n[answer]\nform = 1\nkey = \"{}\"\n", key.public());
        Letter::Answer.signed(&body, key)
    }

    #[test]
    fn a_text_is_read_as_it_was_signed_also_after_mail_has_changed_its_line_ends() {
        let key = SecretKey::generate();
        let text = text(&key);
        let (table, signer) = Letter::Answer.open(&text).unwrap();
        assert_eq!((table["name"].as_str(), signer), (Some("a run"), key.public()));
        assert!(!table.contains_key("signature"));
        let mailed = format!("\u{feff}\r\n{}\r\n\r\n", text.replace('\n', "  \r\n"));
        Letter::Answer.open(&mailed).unwrap();
    }

    #[test]
    fn a_text_that_was_changed_or_is_of_another_kind_or_key_is_refused() {
        let (key, other) = (SecretKey::generate(), SecretKey::generate());
        let text = text(&key);
        let refused = |text: &str| Letter::Answer.open(text).unwrap_err();
        assert!(refused(&text.replace("a run", "a fun")).contains("signature"));
        assert!(refused(&text.replace("# for you\n", "")).contains("signature"));
        assert!(
            refused(&text.replace(&key.public().to_string(), &other.public().to_string()))
                .contains("signature")
        );
        assert!(refused(&text.replace("form = 1", "form = 2")).contains("form"));
        assert!(refused(&text.replacen("signature = \"", "signature = \"0", 1)).contains("first line"));
        assert!(refused(text.split_once('\n').unwrap().1).contains("first line"));
        assert!(refused("").contains("first line"));
        assert!(Letter::Invitation.open(&text).unwrap_err().contains("[invitation]"));
        let as_invitation = Letter::Invitation.signed("[answer]\nform = 1\n", &key);
        refused(&as_invitation);
    }
}
