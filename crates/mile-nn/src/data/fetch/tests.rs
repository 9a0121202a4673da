//! Fetching from a server of the test's own: whole, broken off, taken up again, wrong.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use super::sources::Digest;
use super::*;

/// How the server treats a request.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Ranges are honoured.
    Good,
    /// Ranges are ignored.
    Whole,
    /// The body breaks off half way.
    Broken,
}

/// Serves `files` by the last part of the path, and keeps the ranges it was asked for.
fn serve(files: Vec<(String, Vec<u8>)>, manner: Manner) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let seen = ranges.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let Some(first) = lines.next() else { continue };
            let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let name = first.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
            let Some((_, body)) = files.iter().find(|(file, _)| *file == name) else {
                stream
                    .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .unwrap();
                continue;
            };
            let range = headers
                .iter()
                .find_map(|h| h.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
            seen.lock().unwrap().extend(range.clone());
            let start = range
                .filter(|_| manner == Manner::Good)
                .map_or(0, |r| r.trim_end_matches('-').parse().unwrap());
            let rest = &body[start..];
            let status = match start {
                0 => "200 OK\r\n".to_owned(),
                _ => format!(
                    "206 Partial Content\r\nContent-Range: bytes {start}-{}/{}\r\n",
                    body.len() - 1,
                    body.len()
                ),
            };
            let head =
                format!("HTTP/1.1 {status}Content-Length: {}\r\nConnection: close\r\n\r\n", rest.len());
            stream.write_all(head.as_bytes()).unwrap();
            let sent = if manner == Manner::Broken { rest.len() / 2 } else { rest.len() };
            // A client that has seen enough may have gone.
            let _ = stream.write_all(&rest[..sent]);
        }
    });
    (address, ranges)
}

fn scratch(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mile-nn-fetch-{}-{test}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Digests of `one` and `two`.
const ONE: Digest = Digest::Md5("f97c5d29941bfb1b2fdab0874906ab82");
const TWO: Digest = Digest::Md5("b8a9f715dbb64fd5c56e7783c6820a61");

fn small_recipe(sources: Vec<Source>) -> Recipe {
    Recipe {
        files: vec![("train-images-idx3-ubyte", ONE), ("train-labels-idx1-ubyte", TWO)],
        members: vec![],
        sources,
    }
}

fn served(second: &[u8]) -> Vec<(String, Vec<u8>)> {
    vec![
        ("train-images-idx3-ubyte.gz".into(), gzip(b"one")),
        ("train-labels-idx1-ubyte.gz".into(), gzip(second)),
    ]
}

fn mnist() -> &'static Entry {
    catalog::find("mnist").unwrap()
}

#[test]
fn a_data_set_is_fetched_once() {
    let root = scratch("once");
    let (address, _) = serve(served(b"two"), Manner::Good);
    let recipe = small_recipe(vec![Source::Files(address)]);
    let mut stored = Vec::new();
    let mut report = |progress: Progress<'_>| {
        if let Progress::Stored(file) = progress {
            stored.push(file.to_owned());
        }
    };
    let directory = fetch(mnist(), &recipe, &root, &mut report).unwrap();
    fetch(mnist(), &recipe, &root, &mut report).unwrap();
    assert_eq!(stored, ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]);
    assert_eq!(fs::read(directory.join("train-labels-idx1-ubyte")).unwrap(), b"two");
    let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        [".lock", "train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
        "nothing else is left"
    );
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn wrong_content_is_refused_and_the_next_source_is_tried() {
    let root = scratch("wrong");
    let (bad, _) = serve(served(b"tow"), Manner::Good);
    let (good, _) = serve(served(b"two"), Manner::Good);
    let error =
        fetch(mnist(), &small_recipe(vec![Source::Files(bad.clone())]), &root, &mut |_| ()).unwrap_err();
    let DataError::Unavailable { name: "mnist", attempts, files, .. } = error else { panic!("{error}") };
    assert!(attempts.len() == 1 && attempts[0].contains("train-labels-idx1-ubyte"), "{attempts:?}");
    assert!(files.contains("t10k-images"), "{files}");
    assert!(!root.join("mnist/train-labels-idx1-ubyte").exists());
    let both = small_recipe(vec![Source::Files(bad), Source::Files(good)]);
    assert!(fetch(mnist(), &both, &root, &mut |_| ()).is_ok());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn what_broke_off_is_taken_up_again() {
    for (manner, name) in [(Manner::Good, "resumed"), (Manner::Whole, "restarted")] {
        let root = scratch(name);
        let part = root.join("file.part");
        let body: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let (broken, _) = serve(vec![("file".into(), body.clone())], Manner::Broken);
        let error = http::download(&format!("{broken}file"), &part, "file", &mut |_| ()).unwrap_err();
        assert!(matches!(error, SourceError::Truncated { done: 100_000, total: 200_000 }), "{error}");
        let (good, ranges) = serve(vec![("file".into(), body.clone())], manner);
        let mut last = (0, None);
        let mut report = |progress: Progress<'_>| {
            if let Progress::Bytes { done, total, .. } = progress {
                last = (done, total);
            }
        };
        http::download(&format!("{good}file"), &part, "file", &mut report).unwrap();
        assert_eq!(fs::read(&part).unwrap(), body, "{name}");
        assert_eq!(last, (200_000, Some(200_000)));
        assert_eq!(*ranges.lock().unwrap(), ["100000-"]);
        fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn an_unreachable_source_is_named_with_the_files() {
    let root = scratch("offline");
    // A port that was free a moment ago: nobody answers there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let recipe = small_recipe(vec![Source::Files(format!("http://127.0.0.1:{port}/"))]);
    let error = fetch(mnist(), &recipe, &root, &mut |_| ()).unwrap_err();
    let DataError::Unavailable { name: "mnist", files, .. } = error else { panic!("{error}") };
    assert!(files.contains("train-images-idx3-ubyte"), "{files}");
    let (empty, _) = serve(vec![], Manner::Good);
    let error = fetch(mnist(), &small_recipe(vec![Source::Files(empty)]), &root, &mut |_| ()).unwrap_err();
    let DataError::Unavailable { attempts, .. } = error else { panic!("{error}") };
    assert!(attempts[0].contains("404"), "{attempts:?}");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn archives_and_pictures_are_converted_to_batches() {
    // A picture of two images of one colour each, and their labels.
    let mut picture = Vec::new();
    let mut encoder = png::Encoder::new(&mut picture, 1024, 2);
    encoder.set_color(png::ColorType::Rgb);
    let rows: Vec<u8> = [[1u8, 2, 3], [4, 5, 6]].iter().flat_map(|c| c.repeat(1024)).collect();
    encoder.write_header().unwrap().write_image_data(&rows).unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in
        [("package/test_batch.png", picture.as_slice()), ("package/test_lables.json", b"[7,9]")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append_data(&mut header, name, content).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let names = ["test_batch.png", "test_lables.json"];
    let mut found = package::members(Box::new(std::io::Cursor::new(archive)), &names).unwrap();
    let batch = package::content_of("test_batch.bin", &mut found).unwrap();
    assert_eq!(batch.len(), 2 * 3073);
    assert_eq!((batch[0], batch[1], batch[1025], batch[2049]), (7, 1, 2, 3));
    assert_eq!((batch[3073], batch[3074]), (9, 4));
    let error = package::content_of("data_batch_1.bin", &mut found).unwrap_err();
    assert!(matches!(error, SourceError::Missing { .. }), "{error}");
}
