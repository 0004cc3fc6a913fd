//! Objects of the daemon's host that other commands own: virtual machines and benchmark runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A virtual machine of the daemon's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostMachine {
    /// Name of the machine.
    pub name: String,
    /// Time of its start; absent if it is stopped.
    pub started: Option<u64>,
    /// Number of its processors.
    pub cpus: u32,
    /// Size of its memory in bytes.
    pub memory: u64,
    /// Its disks as `pool/volume`, in order.
    pub disks: Vec<String>,
}

/// The open serial console of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineConsole {
    /// Number of the console, for its output and input.
    pub console: u64,
}

/// Input for the serial console of a machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineInput {
    /// The characters, up to 4096 bytes.
    pub data: String,
}

impl fmt::Debug for MachineInput {
    /// Writes no input, which can be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineInput").finish_non_exhaustive()
    }
}

/// The state of a run of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BenchmarkState {
    /// A process executes it.
    Running,
    /// Measurements are missing or have failed. 'gabion bench resume' repeats them.
    Incomplete,
    /// All measurements are stored.
    Complete,
}

/// A stored run of the benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkRun {
    /// Identifier of the run.
    pub id: String,
    /// Time of its start, in seconds since 1970.
    pub started: u64,
    /// State of its measurements.
    pub state: BenchmarkState,
    /// Systems that were measured.
    pub targets: Vec<String>,
    /// Number of results. With at least one, the run has a report.
    pub results: u64,
    /// Arguments of the command that began it.
    pub command: String,
}
