//! The sizes of recycled buffers.
//!
//! Powers of two up to 4 MiB, then four sizes per doubling, so that a large buffer is at most a
//! quarter longer than requested. The largest one holds the longest record of the engine in all
//! schemes that store less than four times their data.

/// Alignment of every buffer in bytes: the largest that direct I/O requires.
pub const ALIGNMENT: usize = 4096;

/// Largest buffer that is recycled, in bytes.
pub(crate) const RECYCLED_MAX: usize = 16 << 20;
/// Largest size of the powers of two, in bytes.
const POWERS_MAX: usize = 4 << 20;
/// Number of the powers of two.
const POWERS: usize = (POWERS_MAX / ALIGNMENT).ilog2() as usize + 1;
/// Sizes between a power of two above them and the next one.
const STEPS: usize = 4;
/// Number of size classes.
pub(crate) const CLASSES: usize = POWERS + STEPS * (RECYCLED_MAX / POWERS_MAX).ilog2() as usize;

/// Returns the capacity in bytes of a buffer of `len` bytes.
pub(crate) fn capacity_for(len: usize) -> usize {
    match len {
        0..=POWERS_MAX => len.max(ALIGNMENT).next_power_of_two(),
        len if len <= RECYCLED_MAX => len.next_multiple_of(len.next_power_of_two() / 2 / STEPS),
        len => len.next_multiple_of(ALIGNMENT),
    }
}

/// Returns the size class of a capacity, or `None` if buffers of this size are not recycled.
pub(crate) fn class_of(capacity: usize) -> Option<usize> {
    match capacity {
        0..=POWERS_MAX => Some((capacity / ALIGNMENT).ilog2() as usize),
        capacity if capacity <= RECYCLED_MAX => {
            let base = capacity.next_power_of_two() / 2;
            let doublings = (base / POWERS_MAX).ilog2() as usize;
            let steps = (capacity - base) / (base / STEPS);
            Some(POWERS + doublings * STEPS + steps - 1)
        }
        _ => None,
    }
}

/// Returns the capacity in bytes of the buffers of a class.
pub(crate) fn capacity_of(class: usize) -> usize {
    match class.checked_sub(POWERS) {
        None => ALIGNMENT << class,
        Some(above) => {
            let base = POWERS_MAX << (above / STEPS);
            base + (above % STEPS + 1) * (base / STEPS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_one_capacity() {
        for class in 0..CLASSES {
            let capacity = capacity_of(class);
            assert_eq!(class_of(capacity), Some(class), "{capacity} bytes");
            assert_eq!(capacity_for(capacity), capacity);
            assert!(capacity.is_multiple_of(ALIGNMENT));
        }
        assert_eq!(capacity_of(CLASSES - 1), RECYCLED_MAX);
        assert_eq!(class_of(capacity_for(RECYCLED_MAX + 1)), None);
    }

    #[test]
    fn a_large_buffer_is_at_most_a_quarter_too_long() {
        for len in (POWERS_MAX + 1..=RECYCLED_MAX).step_by(100_003) {
            let capacity = capacity_for(len);
            assert!(capacity >= len && capacity - len <= len / STEPS, "{capacity} bytes for {len}");
            assert!(class_of(capacity).is_some_and(|class| class < CLASSES));
        }
    }
}
