//! Failures of the benchmarks that run the engine in this process.

/// A failure of a benchmark.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A failure of the engine.
    #[error("{0}")]
    Engine(#[from] engine::Error),
    /// Memory for the drives could not be allocated.
    #[error("cannot allocate memory for the drives: {0}")]
    Memory(reactor::IoError),
    /// A zram device could not be created.
    #[error("cannot create a zram device: {0}")]
    Zram(std::io::Error),
    /// Files for the drives could not be created.
    #[error("cannot create files for the drives: {0}")]
    Files(#[from] std::io::Error),
    /// A device or file could not be opened as a drive.
    #[error("{0}")]
    Drive(#[from] reactor::OpenDriveError),
    /// The platform supports no I/O backend.
    #[error("no I/O backend is available: {0}")]
    Platform(reactor::PlatformError),
}
