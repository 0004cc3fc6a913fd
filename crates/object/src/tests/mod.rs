//! Tests of the store on a volume against the store in memory.

mod audit;
mod cut_device;
mod cut_sweep;
mod failed_operations;
mod full_pool;
pub(crate) mod observed_volume;
mod power_cut;
mod random;
mod random_cuts;
mod readers;
mod same_results;
mod scenarios;
mod sharing;
