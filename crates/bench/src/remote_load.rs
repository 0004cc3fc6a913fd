//! A load on several hosts, such as guests and pods: each runs its slices with the same job file,
//! and the results are merged.
//!
//! Invariant: all hosts start at the same time, as far as the way to them allows. Each host has its
//! own clock.

use crate::fio::FioError;
use crate::load::{Load, LoadResult, Second, Slice, Target};
use crate::result::ReadWrite;

/// Names of a load on several hosts.
#[derive(Clone, Copy)]
pub(crate) struct PartNames<'a> {
    /// Prefix of the load's files.
    pub(crate) prefix: &'a str,
    /// Follows the prefix, with the host's number, if there are several hosts.
    pub(crate) host: &'static str,
    /// The hosts in reports.
    pub(crate) hosts: &'static str,
}

/// Runs a load in parts, one for each host that `host` returns for the slices. `run` runs a part,
/// whose files have the prefix that it gets.
pub(crate) fn run_parts<H: PartialEq + Sync>(
    load: &Load<'_>,
    names: PartNames<'_>,
    host: impl Fn(&Target) -> Option<H>,
    run: impl Fn(&Load<'_>, &H, &str) -> Result<LoadResult, FioError> + Sync,
) -> Result<LoadResult, FioError> {
    let parts = parts(load.slices, host);
    if let [(host, _)] = parts.as_slice() {
        return run(load, host, names.prefix);
    }
    let run = &run;
    let ran: Vec<(&Part<H>, Result<LoadResult, FioError>)> = std::thread::scope(|scope| {
        let begun: Vec<_> = (1..)
            .zip(&parts)
            .map(|(number, part)| {
                let one = move || {
                    let slices: Vec<Slice> =
                        part.1.iter().filter_map(|index| load.slices.get(*index)).cloned().collect();
                    let name = format!("{}-{}{number}", names.prefix, names.host);
                    let load = Load { slices: &slices, log: load.log.map(|_| name.as_str()), ..load.clone() };
                    run(&load, &part.0, &name)
                };
                (part, scope.spawn(one))
            })
            .collect();
        let end = |(part, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            (part, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        };
        begun.into_iter().map(end).collect()
    });
    merge(load.slices.len(), names.hosts, ran)
}

/// A host, and the indices of its slices.
type Part<H> = (H, Vec<usize>);

fn parts<H: PartialEq>(slices: &[Slice], host: impl Fn(&Target) -> Option<H>) -> Vec<Part<H>> {
    let mut parts: Vec<Part<H>> = Vec::new();
    for (index, slice) in slices.iter().enumerate() {
        let Some(host) = host(&slice.target) else { continue };
        match parts.iter_mut().find(|(known, _)| *known == host) {
            Some((_, indices)) => indices.push(index),
            None => parts.push((host, vec![index])),
        }
    }
    parts
}

/// Merges the results of several hosts: instances in order, seconds added up.
fn merge<H>(
    instances: usize,
    hosts: &str,
    parts: Vec<(&Part<H>, Result<LoadResult, FioError>)>,
) -> Result<LoadResult, FioError> {
    let mut all = LoadResult::default();
    all.output.instances.resize(instances, ReadWrite::default());
    let mut seconds: Option<Vec<Second>> = None;
    for ((_, indices), ran) in parts {
        let ran = ran?;
        all.output.version = ran.output.version;
        // Seconds after the first host has ended do not cover all of them.
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
    all.output.version.push_str(&format!(" in {hosts}"));
    all.seconds = seconds.unwrap_or_default();
    Ok(all)
}

fn sum(one: Second, other: Second) -> Second {
    Second { at: one.at, read: one.read + other.read, write: one.write + other.write }
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
    fn results_of_hosts_are_merged_in_instance_order() {
        let slices = [slice("a"), slice("b"), slice("a"), slice("c")];
        let parts = parts(&slices, |target| match target {
            Target::Machine { agent, .. } => Some(agent.clone()),
            _ => None,
        });
        let [a, b, c] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!((&a.1, &b.1, &c.1), (&vec![0, 2], &vec![1], &vec![3]));
        let of = |a_ran| {
            let (b_ran, c_ran) = (ran(&[20.0], &[5.0, 6.0]), ran(&[40.0], &[7.0, 8.0, 9.0]));
            merge(4, "guests", vec![(a, a_ran), (b, Ok(b_ran)), (c, Ok(c_ran))])
        };
        let all = of(Ok(ran(&[10.0, 30.0], &[1.0, 2.0, 3.0]))).unwrap();
        let iops: Vec<f64> = all.output.instances.iter().map(|one| one.read.as_ref().unwrap().iops).collect();
        assert_eq!(iops, [10.0, 20.0, 30.0, 40.0]);
        // A second that not all hosts completed is dropped.
        let seconds: Vec<(f64, f64, f64)> =
            all.seconds.iter().map(|second| (second.at, second.read, second.write)).collect();
        assert_eq!(seconds, [(1.0, 13.0, 3.0), (2.0, 16.0, 3.0)]);
        assert_eq!(all.output.version, "fio-3 in guests");
        assert!(matches!(of(Err(FioError::Interrupted)), Err(FioError::Interrupted)));
    }
}
