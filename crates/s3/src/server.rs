//! The HTTP server.
//!
//! Always true: the number of connections, the time for a request's headers, and the memory for
//! each request are bounded; a stopped server has finished or dropped all of its connections.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use object::ObjectStore;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::chunk_limit::ChunkLimit;
use crate::gateway::{Gateway, KeyAuth, KeyStore};
use crate::request_check::check_request;

/// The largest number of connections. Others wait in the queue of the socket.
const CONNECTIONS_MAX: usize = 4096;
/// The time for the headers of a request, and for the next request of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest headers of a request in bytes.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The time that requests have to finish when the server is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Threads that may block, for reads and large bodies.
const BLOCKING_THREADS: usize = 64;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// The region that clients must use.
    pub region: String,
    /// The number of threads for connections.
    pub threads: usize,
}

impl Default for S3Options {
    fn default() -> Self {
        Self { region: "us-east-1".to_owned(), threads: 2 }
    }
}

/// A running server. Dropping it stops it.
pub struct S3Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    runtime: Option<Runtime>,
}

impl S3Server {
    /// Starts a server on a bound socket.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start(
        listener: TcpListener,
        store: Arc<dyn ObjectStore>,
        keys: Arc<dyn KeyStore>,
        options: &S3Options,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("s3")
            .enable_all()
            .build()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let region: Arc<str> = options.region.as_str().into();
        let mut builder = S3ServiceBuilder::new(Gateway { store, region: region.clone() });
        builder.set_auth(KeyAuth(keys));
        let front = FrontService { service: builder.build(), region };
        let (stop, stopped) = watch::channel(false);
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        drop(guard);
        runtime.spawn(accept(listener, front, stopped));
        Ok(Self { address, stop, runtime: Some(runtime) })
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return };
        // Not on a thread of another runtime, which may not block.
        let stopping = std::thread::spawn({
            let stop = self.stop.clone();
            move || {
                runtime.block_on(async {
                    // All connections hold a receiver.
                    let _ = tokio::time::timeout(STOP_TIMEOUT, stop.closed()).await;
                });
                runtime.shutdown_timeout(Duration::from_secs(1));
            }
        });
        if stopping.join().is_err() {
            tracing::error!("the S3 server did not stop cleanly");
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, front: FrontService, mut stopped: watch::Receiver<bool>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = wait_for_stop(&mut stopped) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Answers are written as a whole; a failure costs latency only.
        let _ = stream.set_nodelay(true);
        let (front, stopped) = (front.clone(), stopped.clone());
        tokio::spawn(async move {
            serve_connection(stream, front, stopped).await;
            drop(permit);
        });
    }
}

async fn serve_connection(
    stream: tokio::net::TcpStream,
    front: FrontService,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let front = front.clone();
        async move { front.call(request).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => log_end(result),
        () = wait_for_stop(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            log_end(connection.await);
        }
    }
}

async fn wait_for_stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "an S3 connection ended with an error");
    }
}

/// Checks requests and passes them on to the protocol library.
#[derive(Clone)]
struct FrontService {
    service: S3Service,
    region: Arc<str>,
}

impl FrontService {
    async fn call(&self, request: Request<Incoming>) -> Result<Response<s3s::Body>, s3s::HttpError> {
        if let Err(error) = check_request(&request, &self.region) {
            return error.to_http_response().map_err(|error| s3s::HttpError::new(Box::new(error)));
        }
        let is_signed_stream = request
            .headers()
            .get("x-amz-content-sha256")
            .is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD"));
        let request = request.map(s3s::Body::from);
        let request = match is_signed_stream {
            true => request.map(|body| s3s::Body::http_body(ChunkLimit::new(body))),
            false => request,
        };
        self.service.call(request).await
    }
}
