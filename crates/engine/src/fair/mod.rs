//! Fairness between volumes: what a volume may take altogether ([`Meter`]), and who is next where several want to ([`Gate`]).
//!
//! Must not know: what is done, shards.

mod depth;
mod flow;
mod gate;
mod meter;

pub(crate) use gate::{Gate, Turn};
pub(crate) use meter::Limits;
pub(crate) use meter::Meter;
