//! Suites as data, load runners, comparisons and published figures.
//!
//! Owns what is measured and how: the engine's and the codec's own benchmarks, on memory, with a correctness figure
//! beside each time. Must not know the engine's insides: it is a user of pools and volumes like any other.

pub mod analysis;
pub mod bounds;
pub mod churn;
pub mod codec_bench;
pub mod compare;
mod drives;
pub mod engine_bench;
pub mod fairness;
mod file_pool;
pub mod fio;
pub mod guest;
mod histogram;
pub mod lab;
pub mod leftover;
pub mod load;
mod machine;
mod marks;
mod memory_pool;
pub mod nbd;
pub mod observe;
mod overwrite;
pub mod peers;
mod program;
pub mod rebuild;
pub mod report;
mod result;
pub mod run;
mod sample;
pub mod scale;
pub mod snapshots;
mod suite;
pub mod system;
mod users;
pub mod vhost;
pub mod words;

pub use histogram::Histogram;
pub use machine::machine;
pub use result::{Both, Direction, JobResult, Side};
pub use sample::Sample;
pub use suite::{Case, Figure, Job, Published, Scaled, Scaling, Suite, SuiteError, Unit};
