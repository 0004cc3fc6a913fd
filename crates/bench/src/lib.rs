//! Benchmark suites, load runners, comparisons and published figures.
//!
//! Owns the measurements and their methods: the benchmarks of the engine and the codec on memory
//! drives, each with a correctness figure next to its time. Uses pools and volumes through their
//! public API only.

pub mod analysis;
mod bench_error;
mod block_stamps;
pub mod bounds;
pub mod churn;
pub mod codec_bench;
pub mod compare;
mod disk_bench;
pub mod draw;
mod drives;
mod local_platform;
mod zram;
pub use bench_error::BenchError;
pub use disk_bench::{DiskBenchOptions, EmbeddedError, Line, Round};
pub use drives::Drives;
pub mod engine_bench;
pub mod fairness;
mod file_pool;
pub mod fio;
pub mod guest;
mod histogram;
pub mod human;
pub mod lab;
pub mod load;
mod machine;
mod memory_pool;
pub mod nbd;
pub mod network;
pub mod nvme;
pub mod objects;
pub mod observe;
mod overwrite;
pub mod peers;
pub mod pods;
mod program;
pub mod rados;
pub mod rebuild;
mod remote_load;
pub mod report;
mod result;
pub mod run;
pub mod runner;
mod sample;
pub mod scale;
pub mod snapshots;
pub mod stale_processes;
mod suite;
pub mod system;
pub mod vhost;
mod volume_load;

pub use histogram::Histogram;
pub use machine::machine;
pub use result::{Direction, DirectionFigures, JobResult, ReadWrite};
pub use sample::Sample;
pub use suite::{
    Case, Figure, Job, ObjectGenerator, ObjectJob, Published, ScaledSuite, Scaling, Suite, SuiteError, Unit,
    Workload,
};
