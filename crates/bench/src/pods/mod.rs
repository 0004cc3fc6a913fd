//! Pods of a Kubernetes cluster that run fio on their volumes, reached by `kubectl`.
//!
//! Invariant: all objects of a run have its label, and nothing without that label is deleted.

mod kubectl;
mod load;
mod objects;
#[cfg(test)]
mod tests;

pub use kubectl::{Kubectl, KubectlError};
pub(crate) use load::run_loads;
pub use objects::{PodPlan, VolumeMode, run_label};
