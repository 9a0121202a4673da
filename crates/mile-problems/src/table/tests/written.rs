//! Files that are not plain CSV in UTF-8: comments, encodings, formats of numbers, words for missing values.

use super::super::encode;
use super::super::rows::Outlines;
use super::{Folder, numbers, one, refuses, shard};

#[test]
fn a_line_that_begins_with_a_hash_is_a_row_unless_comments_are_asked_for() {
    let text = "c,a,y\n#1,1,2\nx,3,4\n";
    let found = one(text, "categorical = ['c']").unwrap();
    assert_eq!((found.shards[0].targets.len(), found.about.left_out), (2, [0, 0]));
    let found = one(text, "categorical = ['c']\ncomment = '#'").unwrap();
    assert_eq!((found.shards[0].targets.len(), found.about.left_out), (1, [0, 1]));
    let quoted = "# one, with a \"\nc,a,y\n# two\n\"x\n# no\",3,4\n#\n";
    assert_eq!(one(quoted, "categorical = ['c']\ncomment = '#'").unwrap().about.left_out, [0, 3]);
    refuses("a,y\n# made by hand\n1,2\n", "", &["line 2", "comment"]);
    refuses("a,y\n1,2\n#3,4\n", "", &["line 3", "comment"]);
    for bad in ["''", "'##'", "','", "'a'", "5"] {
        refuses("a,y\n1,2\n", &format!("comment = {bad}"), &["problem.comment"]);
    }
}

#[test]
fn rows_that_are_left_out_are_counted() {
    let text = "a,c,y\n1,u,1\n,u,2\n3,,3\n4,v,\n";
    let left_out = |keys: &str| {
        let found = one(text, &format!("categorical = ['c']\n{keys}")).unwrap();
        (found.shards[0].targets.clone(), found.about.left_out)
    };
    assert_eq!(left_out("missing = 'drop'"), (vec![1.0], [3, 0]));
    assert_eq!(left_out("missing = 'category'"), (vec![1.0, 2.0, 3.0], [1, 0]));
}

#[test]
fn other_encodings_are_read_or_named() {
    let folder = Folder::with(&[]);
    let text = "größe,y\n1,é\n2,ü\n";
    let keys = "loss = 'logistic'\nclasses = ['é', 'ü']";
    let utf16 = |bytes: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
        format!("{mark}{text}").encode_utf16().flat_map(bytes).collect()
    };
    let expected = numbers(&[1.0, 2.0], &[-1.0, 1.0]);
    let load = |keys: &str| {
        let found = folder.load(1, keys).unwrap();
        assert_eq!(found.about.features, ["größe"]);
        assert_eq!(found.shards[0], expected);
    };
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        folder.put("all.csv", &utf16(bytes, "\u{feff}"));
        load(keys);
    }
    folder.put("all.csv", &utf16(u16::to_le_bytes, ""));
    folder.refuses(1, keys, &["UTF-16", "utf-16le", "encoding"]);
    load(&format!("{keys}\nencoding = 'utf-16le'"));
    let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
    folder.put("all.csv", &latin);
    folder.refuses(1, keys, &["line 1", "größe", "latin1", "encoding"]);
    load(&format!("{keys}\nencoding = 'latin1'"));
    folder.put("all.csv", b"a,y\n1,2\n\xff,3\n");
    folder.refuses(1, "", &["line 3", "latin1"]);
    folder.refuses(1, "encoding = 'klingon'", &["problem.encoding", "klingon"]);
}

#[cfg(unix)]
#[test]
fn files_that_are_no_tables_are_named_by_what_they_are() {
    let folder = Folder::with(&[]);
    for (bytes, name) in [
        (&b"PK\x03\x04\x14\x00xl/workbook.xml"[..], "ZIP"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Excel"),
        (b"\x28\xb5\x2f\xfd\x24\x00", "zstd"),
        (b"\x93NUMPY\x01\x00", "arrays"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\n", "git lfs"),
        (b"<!DOCTYPE html>\n<html><body>a, b</body></html>\n", "web page"),
        (b"[{\"a\": 1, \"y\": 2}]", "JSON"),
        (b"\xff\xfe\x00\x00a\x00\x00\x00", "UTF-32"),
    ] {
        folder.put("all.csv", bytes);
        folder.refuses(1, "", &["all.csv", name]);
    }
    folder.put("all.csv", b"version,y\n1,2\n");
    assert_eq!(folder.load(1, "").unwrap().shards[0], numbers(&[1.0], &[2.0]));
}

#[test]
fn a_first_line_that_names_the_delimiter_is_no_header() {
    for (mark, end) in [("", "\n"), ("\u{feff}", "\r\n")] {
        let text = format!("{mark}sep=;{end}a;y{end}1;2{end}");
        assert_eq!(shard(&text, ""), numbers(&[1.0], &[2.0]));
        refuses(&format!("{text}3;4;5{end}"), "", &["line 4"]);
    }
    refuses("sep=;\n;\n1;2\n", "", &["line 2"]);
    assert_eq!(shard("sep=,y\n1,2\n", ""), numbers(&[1.0], &[2.0]), "a column of this name");
}

#[test]
fn numbers_that_are_too_small_for_their_use_are_named_by_line_and_column() {
    let text = "a,b,y\n1,1,1\n2,0,0\n3,-1,-2\n";
    refuses(text, "weights = 'b'", &["all.csv", "line 4", "b", "-1"]);
    refuses(text, "loss = 'poisson'\nexposure = 'b'", &["line 3", "b", "exposure", "0"]);
    refuses(text, "loss = 'poisson'\noffset = 'b'", &["line 4", "y", "-2"]);
    assert_eq!(shard("a,b,y\n1,0,-2\n", "weights = 'b'").weights, [0.0]);
    for (key, weight) in [("l2", "-1"), ("l2", "nan"), ("l1", "-0.5"), ("l1", "inf")] {
        refuses(text, &format!("{key} = {weight}"), &[&format!("problem.{key}: ")]);
    }
    // A row that is left out is not looked at.
    let gap = "a,b,y\n1,1,1\n,-1,1\n";
    assert_eq!(one(gap, "weights = 'b'\nmissing = 'drop'").unwrap().shards[0].weights, [1.0]);
}

#[test]
fn a_pipe_is_refused_before_it_is_opened() {
    let folder = Folder::with(&[]);
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("all.csv")).status().unwrap();
    assert!(made.success());
    // Opening it would wait for ever.
    folder.refuses(1, "", &["all.csv", "pipe"]);
    assert!(crate::digest::of_file(&folder.path().join("all.csv")).is_err());
    folder.refuses(1, "data = '.'", &["folder"]);
}

#[test]
fn numbers_are_read_in_the_formats_of_their_columns() {
    let text = "p;q;r;s;t;y\n1.234,5;12.5%;yes;18.11.2026;12:00;1\n2;50%;no;1.1.1970;06:00;2\n";
    let formats =
        "formats = { p = 'decimal-comma', q = 'percent', r = 'boolean', s = 'date-day-first', t = 'time' }";
    let expected = [1234.5, 0.125, 1.0, 20_775.0, 0.5, 2.0, 0.5, 0.0, 0.0, 0.25];
    assert_eq!(shard(text, formats), numbers(&expected, &[1.0, 2.0]));
    refuses(text, "", &["line 2", "'p'", "1.234,5", "decimal-comma", "formats"]);
    refuses(&text.replace("50%", "50"), formats, &["line 3", "'q'", "12.5%"]);
    refuses(text, "formats = { p = 'roman' }", &["problem.formats.p", "roman"]);
    refuses(text, "formats = { p = '?' }", &["problem.formats.p"]);
    refuses(text, "formats = { z = 'percent' }", &["problem.formats", "z"]);
    refuses(text, "formats = 'percent'", &["problem.formats"]);
    let words = "categorical = ['r']\nformats = { r = 'boolean' }";
    refuses("r;y\nyes;1\n", words, &["problem.formats", "r"]);
}

#[test]
fn words_for_missing_values_are_known_or_named() {
    let text = "a,b,y\n1,-999,1\nnone,2,2\n3,x,3\n5,4,4\n";
    let keys = "missing = 'mean'\nmissing_words = ['-999', 'x']";
    let expected = numbers(&[1.0, 3.0, 3.0, 2.0, 3.0, 3.0, 5.0, 4.0], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(shard(text, keys), expected);
    assert_eq!(shard(text, "missing = 'mean'\nmissing_words = { b = ['-999', 'x'] }"), expected);
    refuses(text, "missing = 'mean'\nmissing_words = { b = ['-999'] }", &["line 4", "'b'", "missing_words"]);
    refuses(text, "missing_words = { z = ['x'] }", &["missing_words", "z"]);
    refuses(text, "missing_words = 'x'", &["problem.missing_words"]);
    let none = one("c,y\nnone,1\nsome,2\n", "categorical = ['c']").unwrap();
    assert_eq!(none.about.features, ["c=none", "c=some"], "a word may be a category");
}

#[test]
fn missing_and_unknown_words_are_a_category_of_their_own_if_asked() {
    let files = [("all.csv", "c,a,y\nred,1,1\n,2,2\nblue,,3\n"), ("t.csv", "c,a,y\ngreen,5,1\nblue,6,2\n")];
    let folder = Folder::with(&files);
    let keys = "categorical = ['c']\nmissing = 'category'\ntest = 't.csv'";
    let found = folder.load(1, keys).unwrap();
    assert_eq!(found.about.features, ["c=blue", "c=red", "c=missing", "a"]);
    let rows = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 2.0, 1.0, 0.0, 0.0, 1.5];
    assert_eq!(found.shards[0], numbers(&rows, &[1.0, 2.0, 3.0]));
    assert_eq!(found.test[0], numbers(&[0.0, 0.0, 1.0, 5.0, 1.0, 0.0, 0.0, 6.0], &[1.0, 2.0]));
    let found = folder.load(1, &format!("{keys}\nintercept = true")).unwrap();
    assert_eq!(found.about.features, ["c=red", "c=missing", "a", "intercept"], "it is never the reference");
    // Without the key both are refused, by name.
    folder.refuses(1, "categorical = ['c']\nmissing = 'mean'", &["'c'", "category"]);
    folder.refuses(1, "categorical = ['c']\nmissing = 'drop'\ntest = 't.csv'", &["t.csv", "line 2", "green"]);
    // An agent that has only its own file, and statistics without its words.
    let parts = [("0.csv", "c,y\nu,1\n"), ("1.csv", "c,y\n,2\n")];
    let folder = Folder::with(&parts);
    let keys = "data = '{agent}.csv'\ncategorical = ['c']\nmissing = 'category'";
    let here = folder.config(2, keys).unwrap();
    let own = |agent| super::super::divided::statistics_of(&here.only(vec![agent]), agent).unwrap();
    let merged = super::Statistics::merge(vec![own(0), own(1)]).unwrap();
    merged.write(&folder.path().join("s.json")).unwrap();
    let given = folder.config(2, &format!("{keys}\nstatistics = 's.json'")).unwrap();
    let alone = encode::load::<f64>(&given.only(vec![1]), &Outlines::default(), 0).unwrap();
    assert_eq!(alone.shards[1], numbers(&[0.0, 1.0], &[2.0]));
    assert_eq!(alone.about.features, folder.load(2, keys).unwrap().about.features);
}
