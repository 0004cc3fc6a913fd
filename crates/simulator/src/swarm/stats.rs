//! Counters of a swarm run, for the summary.

/// The counters of a run, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations on volumes.
    pub operations: u64,
    /// Operations of drives.
    pub drive_operations: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Drives lost.
    pub lost_drives: u64,
    /// Records replayed by recoveries.
    pub replayed: u64,
    /// Cells completed by recoveries.
    pub completed: u64,
    /// Writes refused for lack of space.
    pub no_space: u64,
    /// Blocks that the cleaner moved.
    pub moved: u64,
    /// Compactions.
    pub compactions: u64,
    /// Lost drives that were rebuilt completely.
    pub rebuilt: u64,
    /// Drives that joined.
    pub added: u64,
    /// Drives that returned.
    pub returned: u64,
    /// Drives listed as failing at the end of an opening.
    pub failing: u64,
    /// Completed scrubs.
    pub scrubs: u64,
    /// Damaged blocks found by scrubs.
    pub damaged: u64,
    /// Scrubs started by the schedule.
    pub scheduled: u64,
    /// Volumes deleted while others opened them.
    pub deleted_in_use: u64,
    /// Drives that hung.
    pub hung_drives: u64,
    /// File systems under drives that became full.
    pub full_hosts: u64,
    /// Losses beyond the scheme's tolerance.
    pub excess_losses: u64,
    /// Damage beyond the scheme's tolerance.
    pub excess_damage: u64,
    /// Reads of damaged pools that returned an error.
    pub unreadable: u64,
    /// Pools with separately used halves.
    pub used_apart: u64,
    /// Compare-and-write requests.
    pub compared: u64,
    /// Copies from snapshots.
    pub copied: u64,
    /// Pools that lacked a drive and were too full for a deletion.
    pub full_degraded: u64,
    /// Groups of snapshots taken of several volumes together.
    pub groups: u64,
    /// Map nodes that were only in memory at the end of an opening.
    pub unsaved_nodes: u64,
}

impl Stats {
    /// Adds the counters of another run.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.drive_operations += other.drive_operations;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.lost_drives += other.lost_drives;
        self.replayed += other.replayed;
        self.completed += other.completed;
        self.no_space += other.no_space;
        self.moved += other.moved;
        self.compactions += other.compactions;
        self.rebuilt += other.rebuilt;
        self.added += other.added;
        self.returned += other.returned;
        self.failing += other.failing;
        self.scrubs += other.scrubs;
        self.damaged += other.damaged;
        self.scheduled += other.scheduled;
        self.deleted_in_use += other.deleted_in_use;
        self.hung_drives += other.hung_drives;
        self.full_hosts += other.full_hosts;
        self.excess_losses += other.excess_losses;
        self.excess_damage += other.excess_damage;
        self.unreadable += other.unreadable;
        self.used_apart += other.used_apart;
        self.compared += other.compared;
        self.copied += other.copied;
        self.full_degraded += other.full_degraded;
        self.groups += other.groups;
        self.unsaved_nodes += other.unsaved_nodes;
    }
}
