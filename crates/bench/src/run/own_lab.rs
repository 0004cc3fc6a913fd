//! A lab that a run makes for itself.
//!
//! Always true: it is taken away however the run ends; one that a killed run has left is used again by whoever goes on.

use std::sync::atomic::AtomicBool;

use super::{RunError, RunPlan, Store};
use crate::lab::{Lab, LabError, LabPlan, down, up};

/// Makes the run's own lab, if it is to have one, does `work` with it, and takes it away.
///
/// # Errors
/// Of the work, or of making the lab or taking it away.
pub fn with_own_lab<T, E: From<RunError>>(
    store: Store,
    mut plan: RunPlan,
    stop: &AtomicBool,
    work: impl FnOnce(Store, RunPlan) -> Result<T, E>,
) -> Result<T, E> {
    let Some(wanted) = plan.own_lab.clone() else { return work(store, plan) };
    let lab = made(&wanted, &plan.id, stop)?;
    plan.drives = lab.devices();
    plan.limits = Some(lab.limits);
    plan.lab = Some(lab);
    let done = store.save_plan(&plan).map_err(E::from).and_then(|()| work(store, plan));
    let gone = down(&wanted.name).map(drop);
    // Why the work ended comes first: it may be why the lab stays.
    let done = done?;
    gone.map_err(RunError::from)?;
    Ok(done)
}

/// The lab, made now unless a killed run has left it.
fn made(wanted: &LabPlan, run: &str, stop: &AtomicBool) -> Result<Lab, RunError> {
    // What the making was killed at is no lab.
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
