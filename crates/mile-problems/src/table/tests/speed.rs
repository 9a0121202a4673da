//! How fast tables are read.

use std::fmt::Write as _;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::super::look::TableLook;
use super::Folder;
use crate::reading::ReadingProgress;

const ROWS: u64 = 1_000_000;

fn value(row: u64, column: u64) -> f64 {
    let bits = (row * 20 + column).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    ((bits as f64 / (1u64 << 53) as f64 - 0.5) * 1e6).round() / 1e6
}

fn parquet(folder: &Folder) {
    let column =
        |k: u64| -> ArrayRef { Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| value(row, k)))) };
    let mut columns: Vec<(String, ArrayRef)> = (0..20).map(|k| (format!("c{k}"), column(k))).collect();
    columns.push(("y".into(), Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| (row % 2) as i64)))));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let snappy = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let file = File::create(folder.path().join("all.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(snappy)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// The CPU time of this process, in hundredths of a second; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// A million rows of 20 numbers, about 190 MB: run it alone, with --release for the speed of a release.
#[test]
#[ignore = "a measurement, not a test: prints the speed of reading; takes a minute and 400 MB of disk"]
fn speed_of_reading() {
    let folder = Folder::with(&[]);
    let mut text = (0..20).map(|k| format!("c{k},")).collect::<String>() + "y\n";
    for row in 0..ROWS {
        (0..20).for_each(|k| write!(text, "{:.6},", value(row, k)).unwrap());
        writeln!(text, "{}", row % 2).unwrap();
    }
    folder.put("all.csv", text.as_bytes());
    parquet(&folder);
    let timed = |what: &str, work: &dyn Fn()| {
        let mut best = [f64::INFINITY; 2];
        for _ in 0..5 {
            let (begun, cpu) = (Instant::now(), cpu_seconds());
            work();
            best = [best[0].min(begun.elapsed().as_secs_f64()), best[1].min(cpu_seconds() - cpu)];
        }
        eprintln!("{:.2} s, {:.2} s of CPU time: {what}", best[0], best[1]);
    };
    for file in ["all.csv", "all.parquet"] {
        for keys in ["", "loss = 'logistic'", "standardise = true\ntest = 0.2"] {
            let keys = format!("data = '{file}'\n{keys}");
            timed(&format!("{keys:?}"), &|| assert_eq!(folder.load(8, &keys).unwrap().columns, 20));
        }
        timed(&format!("a look at {file}"), &|| {
            assert_eq!(
                TableLook::at(&folder.path().join(file), None, &ReadingProgress::default()).unwrap().rows,
                ROWS
            );
        });
    }
}
