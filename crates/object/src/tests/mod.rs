//! Tests of the store on a volume against the store in memory.

mod cut_sweep;
mod power_cut;
mod random;
mod readers;
mod same_results;
