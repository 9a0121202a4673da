//! The value of a column in one row.

/// What is read of a column. A text has only words; the columns of other files have types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    Nothing,
    Word,
    /// A number, or text to be read as one.
    Number,
    /// A number or a word, if it has such values.
    Any,
}

/// The value of a column in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Missing,
    Number(f64),
    Text(&'a str),
}
