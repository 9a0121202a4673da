//! Parquet and Arrow files.

use std::fs::File;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, DictionaryArray, Float32Array, Float64Array, Int64Array, ListArray,
    RecordBatch, StringArray, TimestampMillisecondArray, types::Int32Type,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::super::look::TableLook;
use super::Folder;
use crate::reading::ReadingProgress;

/// 300 rows with a column of each kind.
fn batch() -> RecordBatch {
    let rows = 300i64;
    let dictionary: DictionaryArray<Int32Type> =
        (0..rows).map(|k| (k % 7 != 0).then(|| ["u", "v"][k as usize % 2])).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("whole", Arc::new(Int64Array::from_iter((0..rows).map(|k| (k % 5 != 0).then_some(k))))),
        ("single", Arc::new(Float32Array::from_iter_values((0..rows).map(|k| k as f32 / 2.0)))),
        ("yes", Arc::new(BooleanArray::from_iter((0..rows).map(|k| Some(k % 3 == 0))))),
        ("word", Arc::new(dictionary)),
        ("text", Arc::new(StringArray::from_iter_values((0..rows).map(|k| format!("{k},5"))))),
        ("day", Arc::new(Date32Array::from_iter_values((0..rows).map(|k| k as i32 + 20_000)))),
        ("time", Arc::new(TimestampMillisecondArray::from_iter_values((0..rows).map(|k| k * 43_200_000)))),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>((0..rows).map(|_| Some([Some(1)])))),
        ),
        ("y", Arc::new(Float64Array::from_iter_values((0..rows).map(|k| k as f64 * 0.1)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// The same rows as text.
fn text() -> String {
    let mut text = "whole,single,yes,word,text,day,time,list,y\n".to_owned();
    for k in 0..300 {
        let whole = if k % 5 == 0 { String::new() } else { k.to_string() };
        let word = if k % 7 == 0 { "" } else { ["u", "v"][k % 2] };
        let (single, yes, day) = (k as f64 / 2.0, u8::from(k % 3 == 0), k + 20_000);
        let (time, y) = (k as f64 / 2.0, k as f64 * 0.1);
        text += &format!("{whole},{single},{yes},{word},\"{k},5\",{day},{time},,{y}\n");
    }
    text
}

fn written(folder: &Folder) -> [&'static str; 5] {
    let batch = batch();
    let create = |name: &str| File::create(folder.path().join(name)).unwrap();
    let codecs =
        [("snappy.parquet", Compression::SNAPPY), ("zstd.parquet", Compression::ZSTD(ZstdLevel::default()))];
    for (name, codec) in codecs {
        let groups =
            WriterProperties::builder().set_compression(codec).set_max_row_group_row_count(Some(64)).build();
        let mut writer = ArrowWriter::try_new(create(name), batch.schema(), Some(groups)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    for name in ["one.arrow", "parts.arrow"] {
        let mut writer = FileWriter::try_new(create(name), &batch.schema()).unwrap();
        let step = if name == "one.arrow" { 300 } else { 77 };
        (0..300).step_by(step).for_each(|k| writer.write(&batch.slice(k, step.min(300 - k))).unwrap());
        writer.finish().unwrap();
    }
    let mut writer = StreamWriter::try_new(create("stream.arrows"), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    ["snappy.parquet", "zstd.parquet", "one.arrow", "parts.arrow", "stream.arrows"]
}

const KEYS: &str = "categorical = ['word']\nexclude = ['list']\nformats = { text = 'decimal-comma' }\n\
                    missing = 'category'\ntest = 0.2";

#[test]
fn parquet_and_arrow_files_give_the_numbers_of_the_same_text() {
    let folder = Folder::with(&[("all.csv", &text())]);
    let expected = folder.load(3, KEYS).unwrap();
    for name in written(&folder) {
        let found = folder.load(3, &format!("data = '{name}'\n{KEYS}")).unwrap();
        assert_eq!(found.shards, expected.shards, "{name}");
        assert_eq!(found.test, expected.test, "{name}");
        assert_eq!(found.about.features, expected.about.features);
        let words = "missing = 'category'\nexclude = ['list', 'text']";
        folder.refuses(3, &format!("data = '{name}'\n{words}"), &[name, "'word'", "row 2"]);
        let list = "missing = 'mean'\ncolumns = ['list']";
        folder.refuses(3, &format!("data = '{name}'\n{list}"), &[name, "'list'"]);
        folder.refuses(3, &format!("data = '{name}'\ncolumns = ['z']"), &[name, "z", "whole"]);
        let by = "by = 'whole'\nmissing = 'drop'\nexclude = ['list', 'text', 'word']\n";
        let of = |data: &str| folder.load(240, &format!("data = '{data}'\n{by}")).unwrap();
        assert_eq!(of(name).shards, of("all.csv").shards, "whole numbers name agents as in a text");
    }
}

#[test]
fn broken_files_are_refused_by_name() {
    let folder = Folder::with(&[]);
    for name in written(&folder) {
        let whole = std::fs::read(folder.path().join(name)).unwrap();
        for end in [8, whole.len() / 2, whole.len() - 8] {
            folder.put("broken", &whole[..end]);
            let found = folder.load(3, &format!("data = 'broken'\n{KEYS}"));
            // A stream may end with a batch; nothing that was cut is taken for a number.
            assert!(found.is_err() || name == "stream.arrows", "{name} up to {end}");
        }
    }
    folder.put("old.feather", b"FEA1....");
    folder.refuses(1, "data = 'old.feather'", &["old.feather", "Feather"]);
}

#[test]
fn a_look_at_a_file_sees_the_columns_of_the_same_text() {
    let folder = Folder::with(&[("all.csv", &text())]);
    let look =
        |name: &str| TableLook::at(&folder.path().join(name), None, &ReadingProgress::default()).unwrap();
    let expected = look("all.csv");
    for name in written(&folder) {
        let found = look(name);
        assert_eq!((found.rows, found.delimiter), (300, None));
        for (found, expected) in found.columns.iter().zip(&expected.columns) {
            assert_eq!(found, expected, "{name}");
        }
    }
}
