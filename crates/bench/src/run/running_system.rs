//! A system that is set up, and the contents that the run has written to it.

use crate::load::Slice;
use crate::rados;
use crate::suite::{Job, Prepare};
use crate::system::TargetExtent;

/// A system that is set up.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningSystem {
    pub(super) round: u32,
    pub(super) extents: Vec<TargetExtent>,
    /// True if it is measured with its existing contents.
    pub(super) keeps_contents: bool,
    /// The slices that were written from end to end.
    filled: Vec<Slice>,
    /// True if all blocks of them were written by loads that stamp them, so that reads can be
    /// verified.
    pub(super) stamped: bool,
    /// Size of the objects that were written for reads, on a target of objects of a Ceph pool.
    object_bytes: Option<u64>,
    /// Description of the failed drive.
    pub(super) degraded: Option<String>,
}

impl RunningSystem {
    /// Returns a system that was set up for a round, without contents of the run.
    pub(super) fn new(round: u32, extents: Vec<TargetExtent>, keeps_contents: bool) -> Self {
        Self { round, extents, keeps_contents, ..Self::default() }
    }

    /// True if the volumes must be written before a job. Objects of a Ceph pool are written before
    /// they are read, with the size of the job's operations.
    pub(super) fn needs_fill(&self, job: &Job, slices: &[Slice]) -> bool {
        if rados::is_target(slices) {
            let is_filled = self.object_bytes == Some(job.block_bytes) && self.filled.len() >= slices.len();
            return job.read_percent > 0 && !is_filled;
        }
        let covers = |filled: &Slice, slice: &Slice| {
            filled.target == slice.target
                && filled.offset <= slice.offset
                && filled.offset + filled.bytes >= slice.offset + slice.bytes
        };
        let is_filled = self.keeps_contents
            || slices.iter().all(|slice| self.filled.iter().any(|filled| covers(filled, slice)));
        job.objects.is_none() && (!is_filled || job.prepare == Some(Prepare::Sequential))
    }

    /// Records that the slices are about to be written: a failed fill leaves other contents.
    pub(super) fn begin_fill(&mut self) {
        (self.filled, self.stamped, self.object_bytes) = (Vec::new(), false, None);
    }

    /// Records that slices were written from end to end, in operations of `block_bytes`.
    pub(super) fn end_fill(&mut self, slices: &[Slice], stamped: bool, block_bytes: u64) {
        (self.filled, self.stamped, self.object_bytes) = (slices.to_vec(), stamped, Some(block_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::super::carry::fill_job;
    use super::*;
    use crate::load::{RadosTarget, Target};

    fn read(block_bytes: u64) -> Job {
        Job { block_bytes, read_percent: 100, ..fill_job() }
    }

    #[test]
    fn volumes_are_filled_once_unless_a_fill_fails() {
        let slice = |offset, bytes| Slice { target: Target::File("/a".into()), offset, bytes };
        let mut running = RunningSystem::default();
        assert!(running.needs_fill(&read(4096), &[slice(0, 8192)]));
        running.begin_fill();
        running.end_fill(&[slice(0, 8192)], true, 1 << 20);
        assert!(running.stamped && !running.needs_fill(&read(65536), &[slice(4096, 4096)]));
        assert!(running.needs_fill(&read(4096), &[slice(4096, 8192)]), "beyond the end");
        running.begin_fill();
        assert!(
            !running.stamped && running.needs_fill(&read(4096), &[slice(0, 8192)]),
            "after a failed fill"
        );
    }

    #[test]
    fn objects_are_filled_for_each_size_and_for_more_instances() {
        let target = Target::Rados(RadosTarget {
            conf: "/c".into(),
            user: "client.admin".into(),
            keyring: "/k".into(),
            pool: "rbd".into(),
            namespace: "run".into(),
            write_max: 1 << 30,
        });
        let slices = vec![Slice { target, offset: 0, bytes: 1 << 26 }; 2];
        let mut running = RunningSystem::default();
        running.end_fill(&slices[..1], false, 4096);
        assert!(!running.needs_fill(&read(4096), &slices[..1]));
        assert!(running.needs_fill(&read(4096), &slices), "the second instance has no objects");
        assert!(running.needs_fill(&read(65536), &slices[..1]));
        running.begin_fill();
        assert!(running.needs_fill(&read(4096), &slices[..1]), "the fill has removed the objects");
        assert!(!running.needs_fill(&fill_job(), &slices), "writes need none");
    }
}
