//! Progress of stages: one report for each host and step.

use serde::{Deserialize, Serialize};

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The step would run: this is a dry run.
    Planned,
    /// The step changed something.
    Changed,
    /// The effect existed already.
    Unchanged,
    /// The step failed.
    Failed,
}

/// A report on a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Name of the host, or of the cluster.
    pub host: String,
    /// Name of the step.
    pub step: String,
    /// Outcome.
    pub outcome: StepOutcome,
    /// Error of a failed step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// A receiver of reports, as they happen, from several threads.
pub type Progress<'a> = &'a (dyn Fn(&StepReport) + Sync);
