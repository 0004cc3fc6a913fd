//! Doing a run, step after step.
//!
//! Always true: however it ends, every system that was set up has been taken down, and what was measured is in the folder.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::carry::{carried, fill_job, on_all, slices};
use super::steady::steadiness;
use super::{
    Described, Measured, Missing, RAW, RunError, RunPlan, Step, StepKind, Store, blend, interrupted, steps,
};
use crate::fio;
use crate::lab::Lab;
use crate::load::{self, Length, Load, LoadError, LoadResult, Slice, Target};
use crate::observe::{Observation, Observer, Watch};
use crate::result::ReadWrite;
use crate::stale_processes;
use crate::suite::{Case, Job, Prepare};
use crate::system::{Requirements, System, SystemError, TargetExtent, file_size};
use crate::vhost;

/// How often something that has not settled is measured.
const ATTEMPTS_MAX: u32 = 3;

/// What goes on.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step begins: its number, how many there are, its name.
    Step(usize, usize, String),
    /// Something that is done before a measurement.
    Doing(String),
    /// A measurement has ended.
    Done(Box<Measured>),
    /// Something that a reader should know.
    Note(String),
}

/// A run under way.
pub struct Run<'a> {
    store: Store,
    plan: RunPlan,
    systems: Vec<Box<dyn System>>,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(Event),
    /// Of each target: it stands.
    standing: Vec<Option<Standing>>,
    described: Vec<Described>,
}

/// A system that stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    round: u32,
    spots: Vec<TargetExtent>,
    filled: bool,
    /// All that is there was written by loads that can tell it from anything else.
    stamped: bool,
    /// What was done to it.
    degraded: Option<String>,
}

impl<'a> Run<'a> {
    /// A run of `plan`, into `store`; `systems` are its targets, in their order.
    pub fn new(
        store: Store,
        plan: RunPlan,
        systems: Vec<Box<dyn System>>,
        stop: &'a AtomicBool,
        tell: &'a mut dyn FnMut(Event),
    ) -> Self {
        let standing = vec![None; systems.len()];
        Self { store, plan, systems, stop, tell, standing, described: Vec::new() }
    }

    /// Does what is not done yet; gives everything that the run has measured.
    ///
    /// # Errors
    /// Why it could not be done to its end. A measurement that fails is a result that says so, not an error.
    pub fn go(mut self) -> Result<Vec<Measured>, RunError> {
        self.end_leftovers()?;
        let done = self.enter().and_then(|()| self.all_steps());
        let down = self.take_down_all();
        done.and(down)?;
        self.store.results()
    }

    /// Ends what an earlier process of this run has left.
    fn end_leftovers(&mut self) -> Result<(), RunError> {
        for folder in [self.store.folder(), &self.store.fio_folder()] {
            stale_processes::end_all(folder).map_err(|error| RunError::file(folder, error))?;
        }
        for system in &mut self.systems {
            system.clean_up(self.store.folder())?;
        }
        Ok(())
    }

    /// Goes where the lab's limits count.
    fn enter(&mut self) -> Result<(), RunError> {
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
            let count =
                if matches!(step.kind, StepKind::Blend { .. }) { self.plan.scaled.cases.len() } else { 1 };
            if Store::is_done(&results, &step.key, count) {
                continue;
            }
            (self.tell)(Event::Step(index + 1, total, step.key.clone()));
            let measured = self.one_step(step)?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted(self.plan.id.clone()));
            }
            self.store.add(&measured)?;
            measured.into_iter().for_each(|one| (self.tell)(Event::Done(Box::new(one))));
        }
        Ok(())
    }

    /// Does one step. What its systems or fio cannot do is a result.
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
            Err(Trouble::Run(error)) => Err(error),
            Err(Trouble::Missing(missing)) => Ok(cases
                .into_iter()
                .map(|case| self.blank(step, target, case, Some(missing.clone())))
                .collect()),
        }
    }

    /// A result without figures.
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
            instance_iops: Vec::new(),
            seconds: Vec::new(),
            steady: None,
            attempts: 0,
            observation: Observation::default(),
            state: None,
            missing,
        }
    }

    /// The drives themselves, all at once.
    fn raw(&mut self, step: &Step, case: &Case) -> Result<Vec<Measured>, Trouble> {
        if case.job.writes() && !self.plan.overwrite && self.plan.lab.is_none() {
            return Err(left_out("it would overwrite the drives: say --overwrite if that may be"));
        }
        self.take_down_all()?;
        let slice = |path: &PathBuf| {
            let bytes = file_size(path).map_err(|error| failed(&error))?;
            Ok(Slice { target: Target::File(path.clone()), offset: 0, bytes })
        };
        let slices = self.plan.drives.iter().map(slice).collect::<Result<Vec<_>, Trouble>>()?;
        let mut measured = self.blank(step, None, case.clone(), None);
        self.measure(step, case, &slices, (&[], false), &mut measured)?;
        Ok(vec![measured])
    }

    /// A case on a target.
    fn case(&mut self, step: &Step, target: usize, case: &Case) -> Result<Measured, Trouble> {
        self.may(target, &case.job)?;
        let standing = self.stand(step, target)?;
        let about = self.systems.get(target).map(|system| system.info());
        let (case, more) = on_all(case, about.as_ref().and_then(|about| about.layout), standing.spots.len());
        let case = &case;
        let slices = slices(&standing.spots, case.instances, self.plan.scaled.instance_bytes, &case.job)
            .ok_or_else(|| left_out("its volumes are too small for that many instances"))?;
        if case.job.latency.is_some() && load::runs_in_process(&slices) {
            return Err(left_out("the load over vhost-user cannot keep a latency"));
        }
        if !standing.filled || case.job.prepare == Some(Prepare::Sequential) {
            self.fill(step, target, &slices)?;
        }
        if case.job.degraded {
            self.degrade(target)?;
        }
        let standing = self.standing.get(target).cloned().flatten().unwrap_or_default();
        let mut measured = self.blank(step, Some(target), case.clone(), None);
        let (carried, said) = carried(case, &slices);
        let remark = about.and_then(|about| about.remark);
        let said: Vec<String> = standing.degraded.into_iter().chain(remark).chain(more).chain(said).collect();
        measured.state = (!said.is_empty()).then(|| said.join("; "));
        let processes = self.processes(target);
        if carried.job.writes() && !vhost::marks(carried.job.block_bytes) {
            self.no_more_marks(target);
        }
        let stamped = self.standing.get(target).and_then(Option::as_ref).is_some_and(|one| one.stamped);
        self.measure(step, &carried, &slices, (&processes, stamped), &mut measured)?;
        Ok(measured)
    }

    /// All cases on a target, each instance by itself.
    fn blend(&mut self, step: &Step, target: usize) -> Result<Vec<Measured>, Trouble> {
        let cases = self.plan.scaled.cases.clone();
        for case in &cases {
            self.may(target, &case.job)?;
        }
        let standing = self.stand(step, target)?;
        let Some(first) = cases.first() else { return Ok(Vec::new()) };
        let longest = cases.iter().max_by_key(|case| case.job.block_bytes).unwrap_or(first);
        let slices = slices(&standing.spots, first.instances, self.plan.scaled.instance_bytes, &longest.job)
            .ok_or_else(|| left_out("its volumes are too small for that many instances"))?;
        self.fill(step, target, &slices)?;
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
        .map_err(|error| self.trouble(error))?;
        self.no_more_marks(target);
        let measured = blended.cases.into_iter().zip(cases).map(|(instances, case)| {
            let mut measured = self.blank(step, Some(target), case, None);
            let mut all = ReadWrite::default();
            instances.iter().for_each(|instance| all.merge(instance));
            measured.instance_iops = instances.iter().map(ReadWrite::iops).collect();
            measured.all = Some(all.mean_of(instances.len()));
            measured.runner.clone_from(&blended.runner);
            measured.attempts = 1;
            measured.observation = blended.observation.clone();
            measured.state = Some("each instance by itself; figures are of a mean instance".into());
            measured
        });
        Ok(measured.collect())
    }

    /// Refuses what would overwrite what nobody gave away, and what a system cannot do.
    fn may(&self, target: usize, job: &Job) -> Result<(), Trouble> {
        let Some(about) = self.systems.get(target).map(|system| system.info()) else { return Ok(()) };
        if job.degraded && !about.degrades {
            return Err(left_out("a drive of it cannot be failed from here"));
        }
        if job.writes() && !about.takes_drives && !self.plan.overwrite {
            return Err(left_out("it would overwrite the target: say --overwrite if that may be"));
        }
        Ok(())
    }

    /// Sets a target up for this round, unless it stands.
    fn stand(&mut self, step: &Step, target: usize) -> Result<Standing, Trouble> {
        if let Some(standing) = self.standing.get(target).cloned().flatten()
            && standing.round == step.repeat
        {
            return Ok(standing);
        }
        let about = self.systems.get(target).map(|system| system.info());
        let Some(about) = about else { return Err(left_out("there is no such target")) };
        if about.takes_drives {
            self.take_down_all()?;
        }
        (self.tell)(Event::Doing(format!("setting up {}", about.name)));
        let counts = self.plan.scaled.cases.iter().map(|case| case.instances);
        let wish = Requirements {
            instances: counts.max().unwrap_or(1),
            instance_bytes: self.plan.scaled.instance_bytes,
            drives: &self.plan.drives,
            scheme: self.plan.suite.scheme.as_deref(),
            pools: self.plan.suite.pools,
            machine_cpus: self.plan.suite.machine_cpus,
            folder: self.store.folder(),
            stop: self.stop,
        };
        let Some(system) = self.systems.get_mut(target) else {
            return Err(left_out("there is no such target"));
        };
        system.set_up(&wish).map_err(|error| failed(&error))?;
        let (spots, about) = (system.targets(), system.info());
        // What a user did not give away is measured with what is on it.
        let filled = !about.takes_drives && !self.plan.overwrite;
        let standing = Standing { round: step.repeat, spots, filled, ..Standing::default() };
        if let Some(place) = self.standing.get_mut(target) {
            *place = Some(standing.clone());
        }
        self.described.retain(|described| described.target != about.name);
        self.described.push(Described { target: about.name.clone(), about });
        let mut known = self.store.systems()?;
        known.retain(|old| self.described.iter().all(|new| new.target != old.target));
        known.extend(self.described.iter().cloned());
        self.store.save_systems(&known)?;
        Ok(standing)
    }

    /// Writes the slices from end to end, where that may be.
    fn fill(&mut self, step: &Step, target: usize, slices: &[Slice]) -> Result<(), Trouble> {
        let takes_drives = self.systems.get(target).is_some_and(|system| system.info().takes_drives);
        if !takes_drives && !self.plan.overwrite {
            (self.tell)(Event::Note("it is measured with what is on it: nothing may be written".into()));
            return Ok(());
        }
        let bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
        (self.tell)(Event::Doing(format!("writing {} MiB from end to end", bytes >> 20)));
        let job = fill_job();
        let load = Load { job: &job, slices, length: Length::Once, log: None, stamped: false };
        let name = format!("{}-fill", fio::file_name(&step.key));
        load::run(&load, &self.store.fio_folder(), &name, self.stop, |_| {})
            .map_err(|error| self.trouble(error))?;
        if let Some(standing) = self.standing.get_mut(target).and_then(Option::as_mut) {
            (standing.filled, standing.stamped) = (true, load::runs_in_process(slices));
        }
        Ok(())
    }

    /// From here on what is read cannot be told from what should be there.
    fn no_more_marks(&mut self, target: usize) {
        if let Some(standing) = self.standing.get_mut(target).and_then(Option::as_mut) {
            standing.stamped = false;
        }
    }

    fn degrade(&mut self, target: usize) -> Result<(), Trouble> {
        let Some(standing) = self.standing.get_mut(target).and_then(Option::as_mut) else { return Ok(()) };
        if standing.degraded.is_some() {
            return Ok(());
        }
        let Some(system) = self.systems.get_mut(target) else { return Ok(()) };
        let done = system.degrade().map_err(|error| failed(&error))?;
        (self.tell)(Event::Note(done.clone()));
        standing.degraded = Some(done);
        Ok(())
    }

    /// Measures, again if it writes and has not settled.
    fn measure(
        &mut self,
        step: &Step,
        case: &Case,
        slices: &[Slice],
        (processes, stamped): (&[(String, u32)], bool),
        measured: &mut Measured,
    ) -> Result<(), Trouble> {
        let most = if case.job.writes() && !self.plan.scaling.quick && measured.target != RAW {
            ATTEMPTS_MAX
        } else {
            1
        };
        for attempt in 1..=most {
            let name = format!("{}-{attempt}", fio::file_name(&step.key));
            let (ran, observation) = self
                .load(&name, &case.job, slices, (processes, stamped))
                .map_err(|error| self.trouble(error))?;
            measured.attempts = attempt;
            measured.steady = steadiness(&ran.seconds);
            measured.instance_iops = ran.output.instances.iter().map(ReadWrite::iops).collect();
            measured.all = Some(ran.output.merged());
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
        let ran = load::run(&load, &self.store.fio_folder(), name, self.stop, |process| {
            observer.watch("load", process);
        });
        // The last look at the load is up to half a second before its end, and the ramp must not count.
        let ended = ran.as_ref().ok().and_then(|ran| ran.ended);
        let observation = observer.finish((run - 1.0).max(1.0), ended);
        Ok((ran?, observation))
    }

    fn watch(&self, processes: Vec<(String, u32)>, slices: &[Slice]) -> Watch {
        let here = if load::runs_in_process(slices) { "load" } else { "bench" };
        Watch { processes, drives: self.plan.drives.clone(), here: here.into() }
    }

    fn processes(&self, target: usize) -> Vec<(String, u32)> {
        let Some(system) = self.systems.get(target) else { return Vec::new() };
        let name = system.info().name;
        let its = system.processes().into_iter().map(|process| (name.clone(), process));
        its.chain(system.load_processes().into_iter().map(|process| ("machines".to_owned(), process)))
            .collect()
    }

    fn take_down_all(&mut self) -> Result<(), RunError> {
        let mut result = Ok(());
        for (system, standing) in self.systems.iter_mut().zip(&mut self.standing) {
            if standing.take().is_some()
                && let Err(error) = system.tear_down()
            {
                result = Err(RunError::System(error));
            }
        }
        result
    }

    /// What a failed load is: an end of the run if the user wants one, else a result.
    fn trouble(&self, error: LoadError) -> Trouble {
        let error = &error;
        if interrupted(error) || self.stop.load(Ordering::Relaxed) {
            Trouble::Run(RunError::Interrupted(self.plan.id.clone()))
        } else {
            failed(error)
        }
    }
}

/// What can be in the way of a measurement.
enum Trouble {
    /// The run ends.
    Run(RunError),
    /// There is no result, and the run goes on.
    Missing(Missing),
}

impl From<RunError> for Trouble {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<SystemError> for Trouble {
    fn from(error: SystemError) -> Self {
        failed(&error)
    }
}

fn failed(error: &impl std::fmt::Display) -> Trouble {
    Trouble::Missing(Missing::Failed(error.to_string()))
}

fn left_out(why: &str) -> Trouble {
    Trouble::Missing(Missing::LeftOut(why.into()))
}
