//! Downloads from a server in the test: whole, interrupted, resumed, wrong, missing.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

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
            // A client that has received enough may be gone.
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

/// The files of a small data set, whose contents are `one` to `four`.
const FILES: [DataFile; 4] = [
    DataFile {
        name: "train-images-idx3-ubyte",
        sha256: "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
    },
    DataFile {
        name: "train-labels-idx1-ubyte",
        sha256: "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",
    },
    DataFile {
        name: "t10k-images-idx3-ubyte",
        sha256: "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f",
    },
    DataFile {
        name: "t10k-labels-idx1-ubyte",
        sha256: "04efaf080f5a3e74e1c29d1ca6a48569382cbbcd324e8d59d2b83ef21c039f00",
    },
];

/// A data set of [`FILES`], compressed one by one or in an archive.
fn small(archive: Option<&'static str>) -> DatasetEntry {
    DatasetEntry { files: &FILES, archive, ..*catalog::find("mnist").unwrap() }
}

/// The files of a mirror; the second may be wrong.
fn served(second: &[u8]) -> Vec<(String, Vec<u8>)> {
    let contents = [b"one", second, b"three", b"four"];
    FILES.iter().zip(contents).map(|(file, content)| (format!("{}.gz", file.name), gzip(content))).collect()
}

/// A mirror where nobody answers: its port was free a moment ago.
fn unreachable() -> String {
    format!("http://{}/", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The attempts and the missing files of a download that failed.
fn unavailable(outcome: Result<PathBuf, DataError>) -> (Vec<String>, Vec<DataFile>) {
    match outcome {
        Err(DataError::Unavailable { name: "mnist", attempts, missing, .. }) => (attempts, missing),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_data_set_is_fetched_once() {
    let root = scratch("once");
    let (mirror, _) = serve(served(b"two"), Manner::Good);
    let mirrors = [mirror];
    let (mut stored, mut bytes) = (Vec::new(), Vec::new());
    let mut report = |progress: DownloadProgress<'_>| match progress {
        DownloadProgress::Stored(file) => stored.push(file.to_owned()),
        DownloadProgress::Bytes { file, done, total } if Some(done) == total => bytes.push(file.to_owned()),
        _ => {}
    };
    let directory = fetch(&small(None), &mirrors, &root, &mut report).unwrap();
    fetch(&small(None), &mirrors, &root, &mut report).unwrap();
    assert_eq!(stored, FILES.map(|file| file.name));
    assert_eq!(bytes, FILES.map(|file| format!("{}.gz", file.name)), "progress is told to the end");
    assert_eq!(fs::read(directory.join("train-labels-idx1-ubyte")).unwrap(), b"two");
    let mut expected: Vec<_> = FILES.iter().map(|file| file.name).chain([".lock"]).collect();
    expected.sort();
    assert_eq!(names_in(&directory), expected, "nothing else is left");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn wrong_content_is_refused_and_the_next_source_is_tried() {
    let root = scratch("wrong");
    let (bad, _) = serve(served(b"tow"), Manner::Good);
    let (good, _) = serve(served(b"two"), Manner::Good);
    let error = fetch(&small(None), std::slice::from_ref(&bad), &root, &mut |_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("train-labels-idx1-ubyte: expected content with sha256 3fc4ccfe"), "{text}");
    assert!(text.contains("mile data get mnist") && text.contains("t10k-images"), "{text}");
    let (_, missing) = unavailable(Err(error));
    assert_eq!(missing, FILES[1..], "what came before the wrong file is kept");
    assert!(!root.join("mnist/train-labels-idx1-ubyte").exists());
    assert!(fetch(&small(None), &[bad, good], &root, &mut |_| ()).is_ok());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_mirror_without_the_files_or_with_a_bad_connection_is_passed_over() {
    let root = scratch("passed");
    let (empty, _) = serve(vec![], Manner::Good);
    let (broken, ranges) = serve(served(b"two"), Manner::Broken);
    let (good, _) = serve(served(b"two"), Manner::Good);
    let mut failures = Vec::new();
    let mut report = |progress: DownloadProgress<'_>| {
        if let DownloadProgress::Failed(failure) = progress {
            failures.push(failure.to_owned());
        }
    };
    let directory = fetch(&small(None), &[empty, broken, good], &root, &mut report).unwrap();
    assert!(failures[0].contains("404") && failures[1].contains("interrupted"), "{failures:?}");
    assert_eq!(failures.len(), 2);
    assert_eq!(ranges.lock().unwrap().len(), TRIES - 1, "a bad connection gets more than one chance");
    assert!(FILES.iter().all(|file| is_stored(file, &directory).unwrap()));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn files_put_there_by_hand_are_checked_and_used() {
    let root = scratch("by-hand");
    let directory = root.join("mnist");
    fs::create_dir_all(&directory).unwrap();
    for (file, content) in FILES.iter().zip(["one", "tow", "three"]) {
        fs::write(directory.join(file.name), content).unwrap();
    }
    let (attempts, missing) = unavailable(fetch(&small(None), &[], &root, &mut |_| ()));
    assert_eq!(missing, [FILES[1], FILES[3]]);
    assert!(attempts[0].contains("train-labels-idx1-ubyte"), "{attempts:?}");
    fs::write(directory.join(FILES[1].name), "two").unwrap();
    fs::write(directory.join(format!("{}.gz", FILES[3].name)), gzip(b"four")).unwrap();
    let mut report = |progress: DownloadProgress<'_>| panic!("nothing is downloaded: {progress:?}");
    assert_eq!(fetch(&small(None), &[unreachable()], &root, &mut report).unwrap(), directory);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn an_interrupted_download_is_resumed() {
    for (manner, name) in [(Manner::Good, "resumed"), (Manner::Whole, "restarted")] {
        let root = scratch(name);
        let part = root.join("file.part");
        let body: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let (broken, _) = serve(vec![("file".into(), body.clone())], Manner::Broken);
        let error = http::download(&format!("{broken}file"), &part, "file", &mut |_| ()).unwrap_err();
        assert!(matches!(error, SourceError::Truncated { done: 100_000, total: 200_000 }), "{error}");
        let (good, ranges) = serve(vec![("file".into(), body.clone())], manner);
        let mut last = (0, None);
        let mut report = |progress: DownloadProgress<'_>| {
            if let DownloadProgress::Bytes { done, total, .. } = progress {
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
fn a_beginning_from_another_mirror_does_not_spoil_the_file() {
    let root = scratch("mixed");
    fs::create_dir_all(root.join("mnist")).unwrap();
    fs::write(root.join("mnist/train-images-idx3-ubyte.gz.part"), b"something else").unwrap();
    let (mirror, ranges) = serve(served(b"two"), Manner::Good);
    let directory = fetch(&small(None), &[mirror], &root, &mut |_| ()).unwrap();
    assert_eq!(*ranges.lock().unwrap(), ["14-"]);
    assert_eq!(fs::read(directory.join("train-images-idx3-ubyte")).unwrap(), b"one");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn an_unreachable_source_is_reported_with_a_remedy() {
    let root = scratch("offline");
    let error = fetch(&small(None), &[unreachable()], &root, &mut |_| ()).unwrap_err();
    let text = error.to_string();
    for file in FILES {
        assert!(text.contains(file.name) && text.contains(file.sha256), "{text}");
    }
    assert!(text.contains(&root.join("mnist").display().to_string()), "{text}");
    assert!(text.contains("experiments/data.sh mnist"), "{text}");
    let (empty, _) = serve(vec![], Manner::Good);
    let (attempts, missing) = unavailable(fetch(&small(None), &[empty], &root, &mut |_| ()));
    assert!(attempts[0].contains("404"), "{attempts:?}");
    assert_eq!(missing, FILES);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn private_mirrors_replace_the_public_ones() {
    let cifar = catalog::find("cifar10").unwrap();
    assert_eq!(mirrors(cifar, None), cifar.mirrors);
    assert_eq!(mirrors(cifar, Some(" ")), cifar.mirrors);
    let private = "http://a.example/data https://b.example/";
    assert_eq!(
        mirrors(cifar, Some(private)),
        ["http://a.example/data/cifar10/", "https://b.example/cifar10/"]
    );
    for entry in catalog::list() {
        assert!(entry.mirrors.iter().all(|url| url.starts_with("https://") && url.ends_with('/')));
        assert_eq!(entry.mirrors.is_empty(), entry.is_generated());
    }
}

/// A gzipped archive of the files, each in a folder that is not to be created.
fn archive(contents: &[&[u8]]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (file, content) in FILES.iter().zip(contents) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append_data(&mut header, format!("elsewhere/{}", file.name), *content).unwrap();
    }
    gzip(&builder.into_inner().unwrap())
}

#[test]
fn archives_are_unpacked() {
    let root = scratch("archive");
    let entry = small(Some("all.tar.gz"));
    let whole = archive(&[b"one", b"two", b"three", b"four"]);
    let (less, _) = serve(vec![("all.tar.gz".into(), archive(&[b"one", b"two"]))], Manner::Good);
    let (attempts, missing) = unavailable(fetch(&entry, std::slice::from_ref(&less), &root, &mut |_| ()));
    assert!(attempts[0].contains("t10k-images-idx3-ubyte"), "{attempts:?}");
    assert_eq!(missing, FILES[2..]);
    let (all, _) = serve(vec![("all.tar.gz".into(), whole.clone())], Manner::Good);
    let directory = fetch(&entry, &[less, all], &root, &mut |_| ()).unwrap();
    assert_eq!(fs::read(directory.join("t10k-labels-idx1-ubyte")).unwrap(), b"four");
    assert!(!directory.join("elsewhere").exists());

    let by_hand = scratch("archive-by-hand");
    fs::create_dir_all(by_hand.join("mnist")).unwrap();
    fs::write(by_hand.join("mnist/all.tar.gz"), whole).unwrap();
    let directory = fetch(&entry, &[], &by_hand, &mut |_| ()).unwrap();
    assert!(FILES.iter().all(|file| is_stored(file, &directory).unwrap()));
    [root, by_hand].iter().for_each(|root| fs::remove_dir_all(root).unwrap());
}
