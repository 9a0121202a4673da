//! Metrics over HTTP, for a few clients at a time. A new one is always served: if there are too many, the oldest makes room.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use mile::real::Real;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use super::NetworkEngineError;
use super::shared::Shared;

/// Most clients at a time.
const CLIENTS: usize = 16;
/// How long a client may take to ask, and to ask and read the answer.
const ASK: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(5);
/// The pause after the system has refused a connection, for instance because too many files are open.
const REFUSED: Duration = Duration::from_millis(500);

/// The server of metrics; it stops when this is dropped.
pub(super) struct Metrics {
    pub(super) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves metrics as Prometheus text. Call within the runtime.
pub(super) fn serve<T: Real>(
    shared: Arc<Shared<T>>,
    address: SocketAddr,
) -> Result<Metrics, NetworkEngineError> {
    let failed = |source: std::io::Error| NetworkEngineError::serve("metrics", address, source);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let serving = tokio::spawn(async move {
        let mut clients: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(REFUSED).await;
                continue;
            };
            clients.retain(|client| !client.is_finished());
            if clients.len() >= CLIENTS {
                clients.pop_front().into_iter().for_each(|oldest| oldest.abort());
            }
            let shared = shared.clone();
            let client = tokio::spawn(async move {
                let answer = service_fn(move |_: Request<hyper::body::Incoming>| {
                    let text = Bytes::from(shared.status().prometheus());
                    let response = Response::builder().header(CONTENT_TYPE, "text/plain; version=0.0.4");
                    let response = response.body(Full::new(text));
                    async move { Ok::<_, Infallible>(response.unwrap_or_default()) }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(ASK).keep_alive(false);
                let _ = timeout(ALL, http.serve_connection(TokioIo::new(stream), answer)).await;
            });
            clients.push_back(client.abort_handle());
        }
    });
    Ok(Metrics { address: bound, serving })
}
