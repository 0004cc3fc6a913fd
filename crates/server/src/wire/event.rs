//! What happened to a pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Somebody should look.
    Warning,
    /// Something is lost or refused.
    Error,
}

/// Something that happened to a pool. The pool keeps the last 800 of them at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number, from 1 in the life of the pool, without gaps.
    pub number: u64,
    /// When it happened.
    pub at: u64,
    /// What happened, as one word that does not change: `drive_lost`, `volume_created`.
    pub kind: String,
    /// How much it matters.
    pub severity: Severity,
    /// What happened, in a sentence.
    pub message: String,
    /// The number of the drive that it happened to.
    pub drive: Option<u16>,
}
