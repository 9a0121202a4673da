//! Files that are not readable tables, recognised by their first bytes, so that the error names the true cause.

/// First bytes, what begins with them, and what to do about it.
const KINDS: [(&[u8], &str); 18] = [
    (b"PK\x03\x04", "a ZIP archive, such as an Excel workbook; save the table as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook; save the table as CSV"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd; unpack it, or compress it with gzip"),
    (b"\xfd7zXZ\x00", "a file compressed with xz; unpack it, or compress it with gzip"),
    (b"BZh91AY", "a file compressed with bzip2; unpack it, or compress it with gzip"),
    (b"\x89HDF\r\n", "an HDF5 file; save the table as CSV or Parquet"),
    (b"SQLite format 3", "an SQLite database; save the table as CSV or Parquet"),
    (b"\x93NUMPY", "a NumPy array; set kind = \"arrays\", or save the table as CSV"),
    (b"%PDF-", "a PDF document; save the table as CSV"),
    (b"\xff\xfe\x00\x00", "a UTF-32 text; save it as UTF-8"),
    (b"\x00\x00\xfe\xff", "a UTF-32 text; save it as UTF-8"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself with git lfs pull"),
    (b"<!DOCTYPE", "a web page; download the file itself"),
    (b"<!doctype", "a web page; download the file itself"),
    (b"<html", "a web page; download the file itself"),
    (b"<?xml", "an XML document; save the table as CSV"),
    (b"[{", "JSON; save the table as CSV or Parquet"),
    (b"{\"", "JSON; save the table as CSV or Parquet"),
];

/// What a file is if it holds no table, and what to do about it; `None` if it may hold one.
pub(super) fn kind(first: &[u8]) -> Option<&'static str> {
    KINDS.iter().find(|(mark, _)| first.starts_with(mark)).map(|(_, kind)| *kind)
}
