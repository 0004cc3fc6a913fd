//! The MD5 of bodies: threads that hash the pieces of several uploads at the same time.
//!
//! The steps of one MD5 depend on each other, so one upload is hashed at a fraction of the speed of
//! several together. A thread therefore collects pieces while they are stored. It hashes them when
//! every upload in progress has one, when they fill all lanes, or when an upload has stored its
//! piece and waits for the hash. Always true: a digest is that of its body alone, whatever other
//! bodies are hashed; without the threads, pieces are hashed by their caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use codec::{MD5_LANES, Md5Stream, md5_update_many};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Shorter pieces are hashed by their caller: handing them over costs as much.
const PIECE_MIN: usize = 64 << 10;
/// Processors for each thread: one thread hashes as fast as they receive bodies.
const CPUS_PER_THREAD: usize = 8;

/// A piece of an upload.
struct Md5Piece {
    stream: Md5Stream,
    bytes: Bytes,
    done: oneshot::Sender<Md5Stream>,
}

/// A message to a thread.
enum Md5Message {
    Piece(Md5Piece),
    /// An upload waits for the hash of its piece.
    Needed,
}

/// A thread that hashes, and its uploads in progress.
struct Md5Thread {
    messages: Sender<Md5Message>,
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
    let thread = Arc::new(Md5Thread { messages: sender, uploads: Arc::default() });
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
fn hash(receiver: &Receiver<Md5Message>, uploads: &AtomicUsize) {
    let mut group = Vec::new();
    while let Ok(first) = receiver.recv() {
        let mut is_needed = false;
        // The messages that arrived during the last group: their pieces are hashed together.
        for message in std::iter::once(first).chain(receiver.try_iter()) {
            match message {
                Md5Message::Piece(piece) => group.push(piece),
                Md5Message::Needed => is_needed = true,
            }
            if group.len() == MD5_LANES {
                break;
            }
        }
        if is_needed || group.len() >= MD5_LANES.min(uploads.load(Ordering::Relaxed)) {
            hash_group(&mut group);
        }
    }
}

/// Hashes pieces together, and returns them to their uploads.
fn hash_group(group: &mut Vec<Md5Piece>) {
    let mut streams: Vec<(&mut Md5Stream, &[u8])> =
        group.iter_mut().map(|piece| (&mut piece.stream, &*piece.bytes)).collect();
    md5_update_many(&mut streams);
    for piece in group.drain(..) {
        // The upload may have ended.
        let _ = piece.done.send(piece.stream);
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

/// A piece that is to be hashed.
pub(crate) struct SubmittedPiece {
    md5: BodyMd5,
    bytes: Bytes,
    /// Absent if the caller hashes the piece.
    hashed: Option<oneshot::Receiver<Md5Stream>>,
}

impl SubmittedPiece {
    /// Returns the MD5 with the piece. Called once the piece is stored, because the thread may wait
    /// for other pieces until then.
    pub(crate) async fn hashed(self) -> BodyMd5 {
        let Self { mut md5, bytes, hashed } = self;
        let stream = match (hashed, &md5.thread) {
            (Some(hashed), Some(thread)) => thread.hashed(hashed).await,
            _ => None,
        };
        match stream {
            Some(stream) => md5.stream = stream,
            None => md5.stream.update(&bytes),
        }
        md5
    }
}

impl Md5Thread {
    /// Waits for the hash of a piece; `None` if the thread has ended.
    async fn hashed(&self, mut hashed: oneshot::Receiver<Md5Stream>) -> Option<Md5Stream> {
        match hashed.try_recv() {
            Ok(stream) => Some(stream),
            Err(TryRecvError::Empty) => {
                self.messages.send(Md5Message::Needed).ok()?;
                hashed.await.ok()
            }
            Err(TryRecvError::Closed) => None,
        }
    }
}

impl BodyMd5 {
    /// Appends a piece. It is hashed while the caller stores it.
    pub(crate) fn submit(mut self, bytes: Bytes) -> SubmittedPiece {
        let hashed = self.thread.clone().filter(|_| bytes.len() >= PIECE_MIN).and_then(|thread| {
            let (done, hashed) = oneshot::channel();
            self.counted.get_or_insert_with(|| UploadCount::new(thread.clone()));
            let piece = Md5Piece { stream: self.stream.clone(), bytes: bytes.clone(), done };
            thread.messages.send(Md5Message::Piece(piece)).is_ok().then_some(hashed)
        });
        SubmittedPiece { md5: self, bytes, hashed }
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
            md5 = md5.submit(now).hashed().await;
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
    async fn a_piece_is_hashed_when_every_upload_has_one_or_when_it_is_needed() {
        let service = Md5Service::start();
        let submit = |seed| service.begin().submit(body(seed, PIECE_MIN));
        // The only upload in progress has a piece in the queue.
        let mut one = submit(1);
        let digest = one.hashed.take().unwrap().await.unwrap().finish();
        assert_eq!(digest.as_slice(), Md5::checksum(&body(1, PIECE_MIN)).as_slice());
        // That upload has none in the queue now, and no upload waits for the piece of another one.
        let three = submit(3);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(three.hashed.as_ref().is_some_and(oneshot::Receiver::is_empty));
        let digest = three.hashed().await.finish();
        assert_eq!(digest.as_slice(), Md5::checksum(&body(3, PIECE_MIN)).as_slice());
    }

    #[tokio::test]
    async fn bodies_are_hashed_without_threads_and_after_their_end() {
        let expected = Md5::checksum(&body(1, 300_000));
        let service = Md5Service { threads: Vec::new(), next: AtomicUsize::new(0) };
        assert_eq!(digest(&service, body(1, 300_000), 100_000).await.as_slice(), expected.as_slice());
        let (sender, receiver) = channel();
        let thread = Arc::new(Md5Thread { messages: sender, uploads: Arc::default() });
        let service = Md5Service { threads: vec![thread], next: AtomicUsize::new(0) };
        drop(receiver);
        assert_eq!(digest(&service, body(1, 300_000), 100_000).await.as_slice(), expected.as_slice());
    }
}
