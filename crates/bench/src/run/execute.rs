//! Executes the steps of a run.
//!
//! Invariant: however the run ends, every system that was set up is torn down, and all results are
//! in the run's folder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::carry::{fill_job, limit_objects, limit_request_size, slices, use_all_drives};
use super::running_system::RunningSystem;
use super::steady::steadiness;
use super::{
    Measured, Missing, RAW, RunError, RunPlan, Step, StepKind, Store, SystemRecord, blend, interrupted, steps,
};
use crate::fio;
use crate::lab::Lab;
use crate::load::{Length, Load, LoadResult, Slice, Target};
use crate::observe::{Observation, Observer, Watch};
use crate::rados;
use crate::result::ReadWrite;
use crate::runner::{self, LoadError};
use crate::stale_processes;
use crate::suite::{Case, Job};
use crate::system::{Requirements, System, SystemError, file_size};
use crate::vhost;

/// Maximum number of attempts to measure a steady state.
const ATTEMPTS_MAX: u32 = 3;

/// A progress event of a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step starts: its number, the number of steps, its name.
    Step(usize, usize, String),
    /// Preparation of a measurement.
    Preparing(String),
    /// A measurement has completed.
    Done(Box<Measured>),
    /// A note for the user.
    Note(String),
}

/// A run in progress.
pub struct Run<'a> {
    store: Store,
    plan: RunPlan,
    systems: Vec<Box<dyn System>>,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(Event),
    /// The running system of each target, if it is set up.
    running: Vec<Option<RunningSystem>>,
    described: Vec<SystemRecord>,
}

impl<'a> Run<'a> {
    /// Returns a run of `plan` with results in `store`; `systems` are its targets, in order.
    pub fn new(
        store: Store,
        plan: RunPlan,
        systems: Vec<Box<dyn System>>,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(Event),
    ) -> Self {
        let running = vec![None; systems.len()];
        Self { store, plan, systems, stop, progress, running, described: Vec::new() }
    }

    /// Executes the missing steps and returns all results of the run.
    ///
    /// # Errors
    /// If the run cannot complete. A failed measurement is a result, not an error.
    pub fn go(mut self) -> Result<Vec<Measured>, RunError> {
        self.end_stale_processes()?;
        let done = self.join_lab().and_then(|()| self.all_steps());
        let down = self.tear_down_all();
        if let (Err(_), Err(error)) = (&done, &down) {
            (self.progress)(Event::Note(format!("a target was not removed completely: {error}")));
        }
        done.and(down)?;
        self.store.results()
    }

    /// Ends processes that an earlier process of this run left behind: fio first, which uses the
    /// others.
    fn end_stale_processes(&mut self) -> Result<(), RunError> {
        let fio_folder = self.store.fio_folder();
        for folder in [fio_folder.as_path(), self.store.folder()] {
            stale_processes::end_all(folder).map_err(|error| RunError::file(folder, error))?;
        }
        for system in &mut self.systems {
            system.clean_up(self.store.folder())?;
        }
        Ok(())
    }

    /// Moves this process into the lab's throttled cgroup.
    fn join_lab(&mut self) -> Result<(), RunError> {
        let Some(lab) = &self.plan.lab else { return Ok(()) };
        if Lab::find(&lab.name)?.as_ref() != Some(lab) {
            return Err(RunError::OtherLab(self.plan.id.clone()));
        }
        lab.throttle.join(std::process::id())?;
        Ok(())
    }

    fn all_steps(&mut self) -> Result<(), RunError> {
        let takes: Vec<bool> = self.systems.iter().map(|system| system.info().takes_drives).collect();
        let steps = steps(&self.plan, &takes);
        let results = self.store.results()?;
        let total = steps.len();
        for (index, step) in steps.iter().enumerate() {
            if Store::is_done(&results, &step.key, step.results(&self.plan)) {
                continue;
            }
            (self.progress)(Event::Step(index + 1, total, step.key.clone()));
            let measured = self.one_step(step)?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted(self.plan.id.clone()));
            }
            self.store.add(&measured)?;
            measured.into_iter().for_each(|one| (self.progress)(Event::Done(Box::new(one))));
        }
        Ok(())
    }

    /// Executes one step. A failure of the system or of fio is a result.
    fn one_step(&mut self, step: &Step) -> Result<Vec<Measured>, RunError> {
        let (target, cases) = match &step.kind {
            StepKind::Raw(case) => (None, vec![case.clone()]),
            StepKind::Case { target, case } => {
                (Some(*target), self.plan.scaled.cases.get(*case).cloned().into_iter().collect())
            }
            StepKind::Blend { target } => (Some(*target), self.plan.scaled.cases.clone()),
        };
        let measured = match (&step.kind, target) {
            (StepKind::Raw(case), _) => self.raw(step, case),
            (StepKind::Blend { .. }, Some(target)) => self.blend(step, target),
            (_, Some(target)) => cases.iter().map(|case| self.case(step, target, case)).collect(),
            (_, None) => Ok(Vec::new()),
        };
        match measured {
            Ok(measured) => Ok(measured),
            Err(StepError::Run(error)) => Err(error),
            Err(StepError::Missing(missing)) => Ok(cases
                .into_iter()
                .map(|case| self.blank(step, target, case, Some(missing.clone())))
                .collect()),
        }
    }

    /// Returns a result without figures.
    fn blank(&self, step: &Step, target: Option<usize>, case: Case, missing: Option<Missing>) -> Measured {
        let name = target.and_then(|target| self.plan.targets.get(target)).map_or(RAW, |target| &target.name);
        Measured {
            step: step.key.clone(),
            target: name.into(),
            repeat: step.repeat,
            case,
            runner: String::new(),
            at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            all: None,
            others: BTreeMap::new(),
            instance_iops: Vec::new(),
            seconds: Vec::new(),
            steady: None,
            attempts: 0,
            observation: Observation::default(),
            state: None,
            missing,
        }
    }

    /// Measures all drives together.
    fn raw(&mut self, step: &Step, case: &Case) -> Result<Vec<Measured>, StepError> {
        if case.job.writes() && !self.plan.overwrite && self.plan.lab.is_none() {
            return Err(skipped("it would overwrite the drives; use --overwrite to permit it"));
        }
        self.tear_down_all()?;
        let slice = |path: &PathBuf| {
            let bytes = file_size(path).map_err(|error| failed(&error))?;
            Ok(Slice { target: Target::File(path.clone()), offset: 0, bytes })
        };
        let slices = self.plan.drives.iter().map(slice).collect::<Result<Vec<_>, StepError>>()?;
        let mut measured = self.blank(step, None, case.clone(), None);
        self.measure(step, case, &slices, (&[], false), &mut measured)?;
        Ok(vec![measured])
    }

    /// Measures a case on a target.
    fn case(&mut self, step: &Step, target: usize, case: &Case) -> Result<Measured, StepError> {
        self.check_permitted(target, &case.job)?;
        let running = self.ensure_set_up(step, target)?;
        let about = self.systems.get(target).map(|system| system.info());
        let (case, more) =
            use_all_drives(case, about.as_ref().and_then(|about| about.layout), running.extents.len());
        let slices = slices(&running.extents, case.instances, self.plan.scaled.instance_bytes, &case.job)
            .ok_or_else(|| skipped("the volumes are too small for that many instances"))?;
        let (case, fewer) = limit_objects(&case, &slices);
        let case = &case;
        if let Some(reason) = runner::refusal(&slices, &case.job) {
            return Err(skipped(reason));
        }
        if running.needs_fill(&case.job, &slices) {
            self.fill(step, target, &slices, case.job.block_bytes)?;
        }
        if case.job.degraded {
            self.degrade(target)?;
        }
        let running = self.running.get(target).cloned().flatten().unwrap_or_default();
        let mut measured = self.blank(step, Some(target), case.clone(), None);
        let (carried, split) = limit_request_size(case, &slices);
        let remark = about.and_then(|about| about.remark);
        let remarks: Vec<String> =
            running.degraded.into_iter().chain(remark).chain(more).chain(fewer).chain(split).collect();
        measured.state = (!remarks.is_empty()).then(|| remarks.join("; "));
        let processes = self.processes(target);
        if carried.job.writes() && !vhost::can_stamp(carried.job.block_bytes) {
            self.clear_stamped(target);
        }
        let stamped = self.running.get(target).and_then(Option::as_ref).is_some_and(|one| one.stamped);
        self.measure(step, &carried, &slices, (&processes, stamped), &mut measured)?;
        Ok(measured)
    }

    /// Measures all cases on a target in staggered order.
    fn blend(&mut self, step: &Step, target: usize) -> Result<Vec<Measured>, StepError> {
        let cases = self.plan.scaled.cases.clone();
        for case in &cases {
            self.check_permitted(target, &case.job)?;
        }
        let running = self.ensure_set_up(step, target)?;
        let Some(first) = cases.first() else { return Ok(Vec::new()) };
        let longest = cases.iter().max_by_key(|case| case.job.block_bytes).unwrap_or(first);
        let slices = slices(&running.extents, first.instances, self.plan.scaled.instance_bytes, &longest.job)
            .ok_or_else(|| skipped("the volumes are too small for that many instances"))?;
        if let Some(reason) = cases.iter().find_map(|case| runner::refusal(&slices, &case.job)) {
            return Err(skipped(reason));
        }
        self.fill(step, target, &slices, longest.job.block_bytes)?;
        let watch = self.watch(self.processes(target), &slices);
        let blended = blend::run(&blend::Blend {
            cases: &cases,
            slices: &slices,
            ramp: self.plan.scaled.ramp_s,
            run: self.plan.scaled.run_s,
            stagger: self.plan.scaled.stagger_s,
            folder: &self.store.fio_folder(),
            name: &fio::file_name(&step.key),
            stop: self.stop,
            watch,
            stamped: false,
        })
        .map_err(|error| self.step_error(error))?;
        self.clear_stamped(target);
        let measured = blended.cases.into_iter().zip(cases).map(|(instances, case)| {
            let mut measured = self.blank(step, Some(target), case, None);
            let mut all = ReadWrite::default();
            instances.iter().for_each(|instance| all.merge(instance));
            measured.instance_iops = instances.iter().map(ReadWrite::iops).collect();
            measured.all = Some(all.mean_of(instances.len()));
            measured.runner.clone_from(&blended.runner);
            measured.attempts = 1;
            measured.observation = blended.observation.clone();
            measured.state = Some("staggered instances; figures are the mean per instance".into());
            measured
        });
        Ok(measured.collect())
    }

    /// Checks that a job would not overwrite protected data and that the system supports it.
    fn check_permitted(&self, target: usize, job: &Job) -> Result<(), StepError> {
        let Some(about) = self.systems.get(target).map(|system| system.info()) else { return Ok(()) };
        if job.degraded && !about.degrades {
            return Err(skipped("the system does not support failing a drive"));
        }
        // Objects are in a bucket of the load, which replaces nothing.
        let replaces = job.writes() && job.objects.is_none();
        if replaces && !about.is_writable() && !self.plan.overwrite {
            return Err(skipped("it would overwrite the target; use --overwrite to permit it"));
        }
        Ok(())
    }

    /// Sets a target up for this round, unless it is set up already.
    fn ensure_set_up(&mut self, step: &Step, target: usize) -> Result<RunningSystem, StepError> {
        if let Some(running) = self.running.get(target).cloned().flatten()
            && running.round == step.repeat
        {
            return Ok(running);
        }
        let about = self.systems.get(target).map(|system| system.info());
        let Some(about) = about else { return Err(skipped("the target does not exist")) };
        if about.takes_drives {
            self.tear_down_all()?;
        } else {
            self.tear_down(target)?;
        }
        (self.progress)(Event::Preparing(format!("setting up {}", about.name)));
        let counts = self.plan.scaled.cases.iter().map(|case| case.instances);
        let requirements = Requirements {
            instances: counts.max().unwrap_or(1),
            instance_bytes: self.plan.scaled.instance_bytes,
            concurrent_targets: self.concurrent_targets(),
            drives: &self.plan.drives,
            scheme: self.plan.suite.scheme.as_deref(),
            pools: self.plan.suite.pools,
            machine_cpus: self.plan.suite.machine_cpus,
            workload: self.plan.suite.workload(),
            folder: self.store.folder(),
            stop: self.stop,
        };
        let Some(system) = self.systems.get_mut(target) else {
            return Err(skipped("the target does not exist"));
        };
        system.set_up(&requirements).map_err(|error| failed(&error))?;
        let (extents, about) = (system.targets(), system.info());
        // A target without permission to overwrite is measured with its existing contents.
        let keeps_contents = !about.is_writable() && !self.plan.overwrite;
        let running = RunningSystem::new(step.repeat, extents, keeps_contents);
        if let Some(place) = self.running.get_mut(target) {
            *place = Some(running.clone());
        }
        self.described.retain(|described| described.target != about.name);
        self.described.push(SystemRecord { target: about.name.clone(), about });
        let mut known = self.store.systems()?;
        known.retain(|old| self.described.iter().all(|new| new.target != old.target));
        known.extend(self.described.iter().cloned());
        self.store.save_systems(&known)?;
        Ok(running)
    }

    /// Returns the number of targets that stay set up at the same time: a target on the run's
    /// drives is torn down before the next one uses them.
    fn concurrent_targets(&self) -> u32 {
        let concurrent = self.systems.iter().filter(|system| !system.info().takes_drives).count();
        u32::try_from(concurrent).unwrap_or(u32::MAX).max(1)
    }

    /// Writes the slices from end to end, if permitted.
    fn fill(
        &mut self,
        step: &Step,
        target: usize,
        slices: &[Slice],
        block_bytes: u64,
    ) -> Result<(), StepError> {
        let is_writable = self.systems.get(target).is_some_and(|system| system.info().is_writable());
        if !is_writable && !self.plan.overwrite {
            (self.progress)(Event::Note(
                "measured with its existing contents: writing is not permitted".into(),
            ));
            return Ok(());
        }
        let bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
        (self.progress)(Event::Preparing(format!("writing {} MiB from end to end", bytes >> 20)));
        let mut job = fill_job();
        if rados::is_target(slices) {
            job.block_bytes = block_bytes;
        }
        if let Some(running) = self.running.get_mut(target).and_then(Option::as_mut) {
            running.begin_fill();
        }
        let load = Load { job: &job, slices, length: Length::Once, log: None, stamped: false };
        let name = format!("{}-fill", fio::file_name(&step.key));
        runner::run(&load, &self.store.fio_folder(), &name, self.stop, |_| {})
            .map_err(|error| self.step_error(error))?;
        if let Some(running) = self.running.get_mut(target).and_then(Option::as_mut) {
            running.end_fill(slices, runner::runs_in_process(slices), job.block_bytes);
        }
        Ok(())
    }

    /// Records that reads of this target can no longer be verified.
    fn clear_stamped(&mut self, target: usize) {
        if let Some(running) = self.running.get_mut(target).and_then(Option::as_mut) {
            running.stamped = false;
        }
    }

    fn degrade(&mut self, target: usize) -> Result<(), StepError> {
        let Some(running) = self.running.get_mut(target).and_then(Option::as_mut) else { return Ok(()) };
        if running.degraded.is_some() {
            return Ok(());
        }
        let Some(system) = self.systems.get_mut(target) else { return Ok(()) };
        let done = system.degrade().map_err(|error| failed(&error))?;
        (self.progress)(Event::Note(done.clone()));
        running.degraded = Some(done);
        Ok(())
    }

    /// Measures a case; repeats writes until they reach a steady state.
    fn measure(
        &mut self,
        step: &Step,
        case: &Case,
        slices: &[Slice],
        (processes, stamped): (&[(String, u32)], bool),
        measured: &mut Measured,
    ) -> Result<(), StepError> {
        let repeats = case.job.writes() && case.job.objects.is_none() && measured.target != RAW;
        let most = if repeats && !self.plan.scaling.quick { ATTEMPTS_MAX } else { 1 };
        for attempt in 1..=most {
            let name = format!("{}-{attempt}", fio::file_name(&step.key));
            let (ran, observation) = self
                .load(&name, &case.job, slices, (processes, stamped))
                .map_err(|error| self.step_error(error))?;
            measured.attempts = attempt;
            measured.steady = steadiness(&ran.seconds);
            measured.instance_iops = ran.output.instances.iter().map(ReadWrite::iops).collect();
            measured.all = Some(ran.output.merged());
            measured.others = ran.others;
            measured.runner = ran.output.version;
            measured.seconds = ran.seconds;
            measured.observation = observation;
            if measured.steady.is_none_or(|steady| steady.steady) {
                break;
            }
        }
        Ok(())
    }

    fn load(
        &self,
        name: &str,
        job: &Job,
        slices: &[Slice],
        (processes, stamped): (&[(String, u32)], bool),
    ) -> Result<(LoadResult, Observation), LoadError> {
        let (ramp, run) = (self.plan.scaled.ramp_s, self.plan.scaled.run_s);
        let load = Load { job, slices, length: Length::Seconds { ramp, run }, log: Some(name), stamped };
        let mut observer = Observer::start(self.watch(processes.to_vec(), slices));
        let ran = runner::run(&load, &self.store.fio_folder(), name, self.stop, |process| {
            observer.watch("load", process);
        });
        // The last sample of the load is up to half a second before its end, and the ramp-up must
        // not count.
        let ended = ran.as_ref().ok().and_then(|ran| ran.ended);
        let observation = observer.finish((run - 1.0).max(1.0), ended);
        Ok((ran?, observation))
    }

    fn watch(&self, processes: Vec<(String, u32)>, slices: &[Slice]) -> Watch {
        let here = if runner::runs_in_process(slices) { "load" } else { "bench" };
        Watch { processes, drives: self.plan.drives.clone(), here: here.into() }
    }

    fn processes(&self, target: usize) -> Vec<(String, u32)> {
        let Some(system) = self.systems.get(target) else { return Vec::new() };
        let name = system.info().name;
        let its = system.processes().into_iter().map(|process| (name.clone(), process));
        its.chain(system.load_processes().into_iter().map(|process| ("machines".to_owned(), process)))
            .collect()
    }

    fn tear_down_all(&mut self) -> Result<(), RunError> {
        let mut result = Ok(());
        for target in 0..self.systems.len() {
            result = result.and(self.tear_down(target));
        }
        result
    }

    /// Tears a target down, if it is set up.
    fn tear_down(&mut self, target: usize) -> Result<(), RunError> {
        let is_set_up = self.running.get_mut(target).is_some_and(|running| running.take().is_some());
        match self.systems.get_mut(target) {
            Some(system) if is_set_up => system.tear_down().map_err(RunError::System),
            _ => Ok(()),
        }
    }

    /// Converts a failed load: an interruption ends the run, other failures are results.
    fn step_error(&self, error: LoadError) -> StepError {
        let error = &error;
        if interrupted(error) || self.stop.load(Ordering::Relaxed) {
            StepError::Run(RunError::Interrupted(self.plan.id.clone()))
        } else {
            failed(error)
        }
    }
}

/// A failure during a step.
enum StepError {
    /// The run ends.
    Run(RunError),
    /// The step has no result, and the run continues.
    Missing(Missing),
}

impl From<RunError> for StepError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<SystemError> for StepError {
    fn from(error: SystemError) -> Self {
        failed(&error)
    }
}

fn failed(error: &impl std::fmt::Display) -> StepError {
    StepError::Missing(Missing::Failed(error.to_string()))
}

fn skipped(why: &str) -> StepError {
    StepError::Missing(Missing::LeftOut(why.into()))
}
