//! Rust sources as words and marks: enough to see which paths they use.

/// The code without comments and tests. A string is its text after a `"`, and `::` is one mark.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    without_tests(all_tokens(text))
}

/// The code with its tests, without comments.
pub(crate) fn all_tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, token) = match first {
            _ if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
            _ if rest.starts_with("/*") => (block_comment(rest), None),
            _ if rest.starts_with("::") => (2, Some("::".into())),
            '\'' => (quoted(rest), None),
            c if c.is_whitespace() => (c.len_utf8(), None),
            c if c.is_alphanumeric() || c == '_' || c == '"' => match string(rest) {
                Some((length, content)) => (length, Some(format!("\"{content}"))),
                None => {
                    let word =
                        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                    (word.len(), Some(word.into()))
                }
            },
            c => (c.len_utf8(), Some(c.into())),
        };
        found.extend(token);
        rest = &rest[length..];
    }
    found
}

/// Length of a comment, which may contain others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of a character, or of the mark of a lifetime.
fn quoted(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        // What is escaped may be a quote itself.
        (Some((_, '\\')), Some(_)) => chars.find(|(_, c)| *c == '\'').map_or(text.len(), |(end, _)| end + 1),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// Length and content of the string a text begins with, if it does.
fn string(text: &str) -> Option<(usize, &str)> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = text.strip_prefix(prefix).map(|rest| rest.trim_start_matches('#'));
        after.is_some_and(|rest| rest.starts_with('"'))
    })?;
    let marks = text[prefix.len()..].find('"')?;
    let begin = prefix.len() + marks + 1;
    let close = format!("\"{}", "#".repeat(marks));
    let raw = prefix.ends_with('r');
    let mut escaped = false;
    for (at, c) in text[begin..].char_indices() {
        if !escaped && text[begin + at..].starts_with(&close) {
            return Some((begin + at + close.len(), &text[begin..begin + at]));
        }
        escaped = !raw && c == '\\' && !escaped;
    }
    Some((text.len(), &text[begin..]))
}

/// What is not below `#[cfg(test)]`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut rest = &tokens[..];
    while let [first, after @ ..] = rest {
        if rest.iter().take(7).eq(["#", "[", "cfg", "(", "test", ")", "]"]) {
            rest = &rest[7 + item(&rest[7..])..];
        } else {
            kept.push(first.clone());
            rest = after;
        }
    }
    kept
}

/// Length of the item at the beginning: up to a semicolon or a closing brace outside all brackets.
fn item(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(token.as_str(), ";" | "}") {
            return at + 1;
        }
    }
    tokens.len()
}

#[test]
fn comments_strings_and_tests_are_no_code() {
    let text = r##"
        // crate::a
        /* crate::b /* crate::c */ crate::d */
        fn f<'a>(x: &'a str) -> char { let _ = ("crate::e \" crate::f", r#"crate::"g""#, '"', '\''); '{' }
        #[cfg(test)]
        fn helper(x: [u8; 3]) { crate::h() }
        #[cfg(test)]
        mod tests { use crate::i; }
        fn g() { crate::j() }
    "##;
    let found = tokens(text);
    let paths: Vec<&String> =
        found.windows(3).filter(|t| t[0] == "crate" && t[1] == "::").map(|t| &t[2]).collect();
    assert_eq!(paths, ["j"]);
    let strings: Vec<&String> = found.iter().filter(|token| token.starts_with('"')).collect();
    assert_eq!(strings, ["\"crate::e \\\" crate::f", "\"crate::\"g\""]);
}
