//! A lab that a run creates for itself.
//!
//! Invariant: the lab is removed however the run ends; a resumed run reuses the lab of a killed
//! one.

use std::sync::atomic::AtomicBool;

use super::{RunError, RunPlan, Store};
use crate::lab::{Lab, LabError, LabPlan, down, up};

/// Creates the run's own lab if the plan has one, does `work` with it, and removes it.
///
/// # Errors
/// Of the work, or of creating or removing the lab.
pub fn with_own_lab<T, E: From<RunError>>(
    store: Store,
    mut plan: RunPlan,
    stop: &AtomicBool,
    work: impl FnOnce(Store, RunPlan) -> Result<T, E>,
) -> Result<T, E> {
    let Some(wanted) = plan.own_lab.clone() else { return work(store, plan) };
    let lab = find_or_create(&wanted, &plan.id, stop)?;
    plan.drives = lab.devices();
    plan.limits = Some(lab.limits);
    plan.lab = Some(lab);
    let done = store.save_plan(&plan).map_err(E::from).and_then(|()| work(store, plan));
    let gone = down(&wanted.name).map(drop);
    // The error of the work takes precedence: it may be the reason why the lab cannot be removed.
    let done = done?;
    gone.map_err(RunError::from)?;
    Ok(done)
}

/// Returns the lab, created now unless a killed run left it behind.
fn find_or_create(wanted: &LabPlan, run: &str, stop: &AtomicBool) -> Result<Lab, RunError> {
    // An incomplete lab is removed and created again.
    if Lab::find(&wanted.name)?.is_some_and(|lab| !lab.complete) {
        down(&wanted.name)?;
    }
    match Lab::find(&wanted.name)? {
        Some(lab) => Ok(lab),
        None => up(wanted, stop).map_err(|error| match error {
            LabError::Interrupted => RunError::Interrupted(run.into()),
            error => error.into(),
        }),
    }
}
