//! The MD5 of bodies: threads that hash the pieces of several uploads at the same time.
//!
//! The steps of one MD5 depend on each other, so one upload is hashed at a fraction of the speed of
//! several together. Always true: a digest is that of its body alone, whatever other bodies are
//! hashed; without the threads, pieces are hashed by their caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use codec::{MD5_LANES, Md5Stream, md5_update_many};
use tokio::sync::oneshot;

/// Shorter pieces are hashed by their caller: handing them over costs as much.
const PIECE_MIN: usize = 64 << 10;
/// Time for which a thread waits for the pieces of other uploads in progress.
const LINGER: Duration = Duration::from_millis(1);
/// Processors for each thread: one thread hashes as fast as they receive bodies.
const CPUS_PER_THREAD: usize = 8;

/// A piece of an upload.
struct Md5Piece {
    stream: Md5Stream,
    bytes: Bytes,
    done: oneshot::Sender<Md5Stream>,
}

/// A thread that hashes, and its uploads in progress.
struct Md5Thread {
    pieces: Sender<Md5Piece>,
    uploads: Arc<AtomicUsize>,
}

/// The threads. They end when the service and all its digests are dropped.
pub(crate) struct Md5Service {
    threads: Vec<Arc<Md5Thread>>,
    next: AtomicUsize,
}

impl Md5Service {
    /// Starts the threads.
    pub(crate) fn start() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cpus.div_ceil(CPUS_PER_THREAD)).filter_map(|_| start_thread()).collect();
        Self { threads, next: AtomicUsize::new(0) }
    }

    /// Begins the digest of a body.
    pub(crate) fn begin(&self) -> BodyMd5 {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let thread = turn.checked_rem(self.threads.len()).and_then(|index| self.threads.get(index));
        BodyMd5 { stream: Md5Stream::new(), thread: thread.cloned(), counted: None }
    }
}

fn start_thread() -> Option<Arc<Md5Thread>> {
    let (sender, receiver) = channel();
    let thread = Arc::new(Md5Thread { pieces: sender, uploads: Arc::default() });
    let uploads = thread.uploads.clone();
    let started = std::thread::Builder::new().name("s3-md5".into()).spawn(move || hash(&receiver, &uploads));
    match started {
        Ok(_) => Some(thread),
        Err(error) => {
            tracing::warn!(%error, "no thread for MD5 could be started; uploads are hashed one by one");
            None
        }
    }
}

/// Hashes pieces until all senders are dropped.
fn hash(receiver: &Receiver<Md5Piece>, uploads: &AtomicUsize) {
    while let Ok(first) = receiver.recv() {
        let mut group = vec![first];
        let deadline = Instant::now() + LINGER;
        while group.len() < MD5_LANES.min(uploads.load(Ordering::Relaxed)) {
            let left = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left) {
                Ok(piece) => group.push(piece),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let mut streams: Vec<(&mut Md5Stream, &[u8])> =
            group.iter_mut().map(|piece| (&mut piece.stream, &*piece.bytes)).collect();
        md5_update_many(&mut streams);
        for piece in group {
            // The upload may have ended.
            let _ = piece.done.send(piece.stream);
        }
    }
}

/// Counts an upload of a thread while it lives.
struct UploadCount(Arc<Md5Thread>);

impl UploadCount {
    fn new(thread: Arc<Md5Thread>) -> Self {
        thread.uploads.fetch_add(1, Ordering::Relaxed);
        Self(thread)
    }
}

impl Drop for UploadCount {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The MD5 of a body in progress.
pub(crate) struct BodyMd5 {
    stream: Md5Stream,
    thread: Option<Arc<Md5Thread>>,
    /// Present from the first piece on that the thread hashed.
    counted: Option<UploadCount>,
}

impl BodyMd5 {
    /// Appends a piece. The returned future may be awaited while the piece is stored.
    pub(crate) async fn update(mut self, bytes: Bytes) -> Self {
        if bytes.len() < PIECE_MIN {
            self.stream.update(&bytes);
            return self;
        }
        let Some(thread) = &self.thread else {
            self.stream.update(&bytes);
            return self;
        };
        if self.counted.is_none() {
            self.counted = Some(UploadCount::new(thread.clone()));
        }
        let (done, hashed) = oneshot::channel();
        let piece = Md5Piece { stream: self.stream.clone(), bytes: bytes.clone(), done };
        let is_sent = thread.pieces.send(piece).is_ok();
        match hashed.await {
            Ok(stream) if is_sent => self.stream = stream,
            // The thread has ended: `stream` does not include the piece.
            _ => self.stream.update(&bytes),
        }
        self
    }

    /// Returns the digest.
    pub(crate) fn finish(self) -> [u8; 16] {
        self.stream.finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use s3s::crypto::{Checksum, Md5};

    use super::*;

    /// Returns a body of `length` bytes, different for each `seed`.
    fn body(seed: usize, length: usize) -> Bytes {
        (0..length).map(|at| u8::try_from((at * 31 + seed * 7 + at / 251) % 256).unwrap_or(0)).collect()
    }

    async fn digest(service: &Md5Service, body: Bytes, piece: usize) -> [u8; 16] {
        let mut md5 = service.begin();
        let mut rest = body;
        while !rest.is_empty() {
            let now = rest.split_to(piece.min(rest.len()));
            md5 = md5.update(now).await;
        }
        md5.finish()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn digests_of_concurrent_bodies_are_their_own() {
        let service = Md5Service::start();
        assert!(!service.threads.is_empty());
        let bodies: Vec<Bytes> = (0..40).map(|seed| body(seed, seed * 37_123)).collect();
        for piece in [70_000, PIECE_MIN, 1 << 20] {
            let digests = join_all(bodies.iter().map(|body| digest(&service, body.clone(), piece))).await;
            for (body, digest) in bodies.iter().zip(digests) {
                assert_eq!(digest.as_slice(), Md5::checksum(body).as_slice(), "{} bytes", body.len());
            }
        }
        let uploads = service.threads.iter().map(|thread| thread.uploads.load(Ordering::Relaxed));
        assert_eq!(uploads.sum::<usize>(), 0, "all uploads have ended");
    }

    #[tokio::test]
    async fn bodies_are_hashed_without_threads_and_after_their_end() {
        let expected = Md5::checksum(&body(1, 300_000));
        let service = Md5Service { threads: Vec::new(), next: AtomicUsize::new(0) };
        assert_eq!(digest(&service, body(1, 300_000), 100_000).await.as_slice(), expected.as_slice());
        let (sender, receiver) = channel();
        let thread = Arc::new(Md5Thread { pieces: sender, uploads: Arc::default() });
        let service = Md5Service { threads: vec![thread], next: AtomicUsize::new(0) };
        drop(receiver);
        assert_eq!(digest(&service, body(1, 300_000), 100_000).await.as_slice(), expected.as_slice());
    }
}
