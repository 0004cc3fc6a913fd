//! A load in guests: fio in each one with the same job file; the results are merged.
//!
//! Invariant: all guests start at the same time, as far as their agents allow. Each guest has its
//! own clock.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::{Agent, AgentError};
use crate::fio::{self, FioError};
use crate::load::{Load, LoadResult, Second, Slice, Target};
use crate::result::ReadWrite;

/// Runs a load on devices of guests. Its files are written to `folder` with the prefix `name`,
/// followed by the guest's number if there are several.
pub(crate) fn run_loads(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<LoadResult, FioError> {
    let parts = parts(load.slices);
    if let [(agent, _)] = parts.as_slice() {
        return run_load(load, agent, folder, name, stop);
    }
    let ran: Vec<(&Part, Result<LoadResult, FioError>)> = std::thread::scope(|scope| {
        let begun: Vec<_> = (1..)
            .zip(&parts)
            .map(|(number, part)| {
                let one = move || {
                    let slices: Vec<Slice> =
                        part.1.iter().filter_map(|index| load.slices.get(*index)).cloned().collect();
                    let name = format!("{name}-machine{number}");
                    let load = Load { slices: &slices, log: load.log.map(|_| name.as_str()), ..load.clone() };
                    run_load(&load, &part.0, folder, &name, stop)
                };
                (part, scope.spawn(one))
            })
            .collect();
        let end = |(part, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            (part, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        };
        begun.into_iter().map(end).collect()
    });
    merge_guests(load.slices.len(), ran)
}

/// Groups the slices by guest.
type Part = (PathBuf, Vec<usize>);

fn parts(slices: &[Slice]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, slice) in slices.iter().enumerate() {
        let Target::Machine { agent, .. } = &slice.target else { continue };
        match parts.iter_mut().find(|(known, _)| known == agent) {
            Some((_, indices)) => indices.push(index),
            None => parts.push((agent.clone(), vec![index])),
        }
    }
    parts
}

/// Merges the results of several guests: instances in order, seconds added up.
fn merge_guests(
    instances: usize,
    parts: Vec<(&Part, Result<LoadResult, FioError>)>,
) -> Result<LoadResult, FioError> {
    let mut all = LoadResult::default();
    all.output.instances.resize(instances, ReadWrite::default());
    let mut seconds: Option<Vec<Second>> = None;
    for ((_, indices), ran) in parts {
        let ran = ran?;
        all.output.version = ran.output.version;
        // Seconds after the first guest has ended do not cover all of them.
        all.ended = all.ended.into_iter().chain(ran.ended).min();
        for (index, did) in indices.iter().zip(ran.output.instances) {
            if let Some(place) = all.output.instances.get_mut(*index) {
                *place = did;
            }
        }
        seconds = Some(match seconds {
            None => ran.seconds,
            Some(before) => before.iter().zip(&ran.seconds).map(|(one, other)| sum(*one, *other)).collect(),
        });
    }
    all.output.version.push_str(" in guests");
    all.seconds = seconds.unwrap_or_default();
    Ok(all)
}

fn sum(one: Second, other: Second) -> Second {
    Second { at: one.at, read: one.read + other.read, write: one.write + other.write }
}

/// Runs a load on devices of the guest behind `agent`. Its files are written to `folder` with the
/// prefix `name`.
fn run_load(
    load: &Load<'_>,
    agent: &Path,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<LoadResult, FioError> {
    let (agent, job) = (Agent::new(agent), &load.job.name);
    let in_guest = |error: AgentError| match error {
        AgentError::Interrupted => FioError::Interrupted,
        error => FioError::Failed { job: job.clone(), message: error.to_string() },
    };
    let keep = |ending: &str, bytes: &[u8]| {
        let path = folder.join(format!("{name}{ending}"));
        std::fs::write(&path, bytes).map_err(|source| FioError::File { path, source })
    };
    let text = load.text();
    keep(".fio", text.as_bytes())?;
    let script = format!(
        "cd /tmp && rm -f *.fio *.json *.log && cat >{name}.fio <<'END_OF_JOB' || exit 1\n{text}\nEND_OF_JOB\n\
         fio --output-format=json+ --output={name}.json {name}.fio"
    );
    let ran = agent.run_script(&script, stop).map_err(in_guest)?;
    // The following steps take seconds with emulated processors.
    let ended = Instant::now();
    if ran.status != 0 {
        let said = String::from_utf8_lossy(&ran.output);
        return Err(FioError::Failed { job: job.clone(), message: fio::first_error_lines(&said) });
    }
    let fetch = |file: String| {
        let said = agent.run_script(&format!("cat /tmp/{file}"), stop).map_err(in_guest)?;
        Ok(if said.status == 0 { said.output } else { Vec::new() })
    };
    let json = fetch(format!("{name}.json"))?;
    keep(".json", &json)?;
    let output = fio::parse(job, &String::from_utf8_lossy(&json))?;
    let mut seconds = Vec::new();
    if let Some(log) = load.log {
        let lines = fetch(format!("{log}_iops.log"))?;
        keep("_iops.log", &lines)?;
        seconds = fio::seconds(&String::from_utf8_lossy(&lines), load.length);
    }
    Ok(LoadResult { output, seconds, ended: Some(ended), ..LoadResult::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Direction;

    fn slice(agent: &str) -> Slice {
        let target = Target::Machine { agent: agent.into(), device: "/dev/vda".into() };
        Slice { target, offset: 0, bytes: 1 << 20 }
    }

    fn ran(iops: &[f64], rates: &[f64]) -> LoadResult {
        let did = |iops: &f64| ReadWrite {
            read: Some(Direction { iops: *iops, ..Direction::default() }),
            ..ReadWrite::default()
        };
        let second = |(at, read): (f64, &f64)| Second { at, read: *read, write: 1.0 };
        let mut ran = LoadResult::default();
        ran.output.version = "fio-3".into();
        ran.output.instances = iops.iter().map(did).collect();
        ran.seconds = [1.0, 2.0, 3.0].into_iter().zip(rates).map(second).collect();
        ran
    }

    #[test]
    fn results_of_guests_are_merged_in_instance_order() {
        let slices = [slice("a"), slice("b"), slice("a"), slice("c")];
        let parts = parts(&slices);
        let [a, b, c] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!((&a.1, &b.1, &c.1), (&vec![0, 2], &vec![1], &vec![3]));
        let of = |a_ran| {
            let (b_ran, c_ran) = (ran(&[20.0], &[5.0, 6.0]), ran(&[40.0], &[7.0, 8.0, 9.0]));
            merge_guests(4, vec![(a, a_ran), (b, Ok(b_ran)), (c, Ok(c_ran))])
        };
        let all = of(Ok(ran(&[10.0, 30.0], &[1.0, 2.0, 3.0]))).unwrap();
        let iops: Vec<f64> = all.output.instances.iter().map(|one| one.read.as_ref().unwrap().iops).collect();
        assert_eq!(iops, [10.0, 20.0, 30.0, 40.0]);
        // A second that not all guests completed is dropped.
        let seconds: Vec<(f64, f64, f64)> =
            all.seconds.iter().map(|second| (second.at, second.read, second.write)).collect();
        assert_eq!(seconds, [(1.0, 13.0, 3.0), (2.0, 16.0, 3.0)]);
        assert_eq!(all.output.version, "fio-3 in guests");
        assert!(matches!(of(Err(FioError::Interrupted)), Err(FioError::Interrupted)));
    }
}
