//! Prepared pools of a sweep. The preparation takes longer than most operations, so that several
//! points of a sweep start from copies of one prepared pool.

use super::perform::prepare;
use super::{ExpectedState, SweepOp, SweepOptions};
use crate::random::mix;
use crate::run::Machine;

/// Points of a sweep that start from the same prepared pool.
const POINTS_PER_POOL: u64 = 64;

/// Prepares the pools that an operation is swept on.
pub(super) struct PreparedPools<'a> {
    pub(super) operation: SweepOp,
    pub(super) options: &'a SweepOptions<'a>,
    /// The last prepared pool, and its number.
    last: Option<(u64, Machine, ExpectedState)>,
}

impl<'a> PreparedPools<'a> {
    pub(super) fn new(operation: SweepOp, options: &'a SweepOptions<'a>) -> Self {
        Self { operation, options, last: None }
    }

    /// Copies a machine with a prepared pool for this point of the sweep, and the content of the
    /// pool. The outcomes of one point start from the same pool and differ by their seed.
    ///
    /// # Errors
    /// Describes an error of the preparation.
    pub(super) fn copy_for(&mut self, point: u64, seed: u64) -> Result<(Machine, ExpectedState), String> {
        let number = point / POINTS_PER_POOL;
        let (machine, expected) = match self.last.take() {
            Some((last, machine, expected)) if last == number => (machine, expected),
            _ => self.prepare(number)?,
        };
        let copies = (machine.copy(seed), expected.clone());
        self.last = Some((number, machine, expected));
        Ok(copies)
    }

    fn prepare(&self, number: u64) -> Result<(Machine, ExpectedState), String> {
        let machine = self.options.machine(self.operation, mix(number ^ 1 << 59));
        let mut expected = ExpectedState::of(self.operation, self.options);
        prepare(self.operation, &machine, &mut expected)?;
        Ok((machine, expected))
    }
}
