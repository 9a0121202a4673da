//! The server below the live view: GET over HTTP, one answer for each connection.
//!
//! It runs on its own thread. A client that is slow or asks for nothing takes one of a limited number of places, for a
//! limited time, and delays no other.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// Most clients at a time; others wait until one is served.
const CLIENTS: usize = 64;
/// How long a client may take to ask, and to ask and read the answer.
const ASK: Duration = Duration::from_secs(5);
const ALL: Duration = Duration::from_secs(60);
/// How long clients that are being served are waited for when the server stops.
const STOP: Duration = Duration::from_secs(2);
/// The pause after the system has refused a connection, for instance because too many files are open.
const REFUSED: Duration = Duration::from_millis(500);

/// The answer to a client.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Type of the body, which is UTF-8.
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    fn response(self) -> Response<Full<Bytes>> {
        let response = Response::builder()
            .status(self.status)
            .header(CONTENT_TYPE, format!("{}; charset=utf-8", self.kind))
            .header(CACHE_CONTROL, "no-store")
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff");
        response.body(Full::new(self.body.into())).unwrap_or_default()
    }
}

/// A running server. It stops when this is dropped, after the clients that are being served have their answers.
pub(super) struct Server {
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to answer the connections of `listener`.
    pub(super) fn start<F>(listener: TcpListener, answer: F) -> io::Result<Self>
    where
        F: Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
    {
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _within = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let serving = move || runtime.block_on(serve(listener, Arc::new(answer), stopped));
        let thread = std::thread::Builder::new().name("live view".into()).spawn(serving)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers connections until the sender of `stopped` is gone.
async fn serve<F>(
    listener: tokio::net::TcpListener,
    answer: Arc<F>,
    mut stopped: oneshot::Receiver<Infallible>,
) where
    F: Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
{
    let clients = Arc::new(Semaphore::new(CLIENTS));
    let open = GracefulShutdown::new();
    loop {
        let accepted = async {
            let place = clients.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            _ = &mut stopped => break,
            accepted = accepted => match accepted {
                (place, Ok((stream, _))) => (place, stream),
                (_, Err(_)) => {
                    sleep(REFUSED).await;
                    continue;
                }
            },
        };
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let response = answer(&request).response();
            async move { Ok::<_, Infallible>(response) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(ASK).keep_alive(false);
        let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A closed connection is not an error.
            let _ = timeout(ALL, connection).await;
            drop(place);
        });
    }
    let _ = timeout(STOP, open.shutdown()).await;
}
