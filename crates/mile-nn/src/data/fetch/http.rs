//! Resumable downloads.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use super::{DownloadProgress, Report, SourceError};

/// Downloads `url` into `part`, and resumes from what is there already. An interrupted download leaves `part` for the
/// next attempt.
pub(super) fn download(url: &str, part: &Path, file: &str, report: Report<'_>) -> Result<(), SourceError> {
    let have = fs::metadata(part).map_or(0, |metadata| metadata.len());
    let mut response = request(url, have)?;
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        // `part` is not shorter than the file on the server: start again.
        fs::remove_file(part)?;
        response = request(url, 0)?;
    }
    if !response.status().is_success() {
        return Err(Box::new(ureq::Error::StatusCode(response.status().as_u16())).into());
    }
    let resumed = response.status() == StatusCode::PARTIAL_CONTENT && continues_at(&response, have);
    let mut done = if resumed { have } else { 0 };
    let total = length(&response).map(|length| done + length);
    let mut output =
        OpenOptions::new().create(true).write(true).append(resumed).truncate(!resumed).open(part)?;
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        report(DownloadProgress::Bytes { file, done, total });
        let read = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => match total {
                Some(total) => return Err(SourceError::Truncated { done, total }),
                None => return Err(error.into()),
            },
        };
        output.write_all(&buffer[..read])?;
        done += read as u64;
    }
    match total {
        Some(total) if done != total => Err(SourceError::Truncated { done, total }),
        _ => Ok(output.sync_all()?),
    }
}

fn request(url: &str, have: u64) -> Result<Response<Body>, SourceError> {
    // The whole body may take a long time, but the response must start soon.
    let config = Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(1800)))
        // A mirror over HTTPS must not redirect elsewhere.
        .https_only(url.starts_with("https://"))
        .http_status_as_error(false);
    let agent: Agent = config.build().into();
    let mut request = agent.get(url);
    if have > 0 {
        request = request.header(header::RANGE, format!("bytes={have}-"));
    }
    request.call().map_err(|error| Box::new(error).into())
}

fn length(response: &Response<Body>) -> Option<u64> {
    response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether a partial response begins at byte `have`: `Content-Range: bytes HAVE-...`.
fn continues_at(response: &Response<Body>, have: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let start = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
    start == Some(have)
}
