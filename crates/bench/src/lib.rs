//! Suites as data, load runners, comparisons and published figures.
//!
//! Owns what is measured and how: the engine's and the codec's own benchmarks, on memory, with a correctness figure
//! beside each time. Must not know the engine's insides: it is a user of pools and volumes like any other.

pub mod codec_bench;
pub mod engine_bench;
pub mod fio;
pub mod lab;
mod machine;
mod memory_pool;
pub mod nbd;
mod result;
mod sample;
mod suite;

pub use machine::machine;
pub use result::{JobResult, Side};
pub use sample::Sample;
pub use suite::{Figure, Job, Published, Suite, SuiteError};
