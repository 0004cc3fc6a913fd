//! The size of a volume from the range that a request accepts.

use api::Size;
use tonic::Status;

use crate::proto::csi::CapacityRange;

/// Volumes have a multiple of this size in bytes, unless the limit of a request is lower.
const ALIGNMENT: u64 = 1 << 20;
/// Smallest unit of a size in bytes.
const BLOCK: u64 = 4096;
/// Largest volume in bytes.
const VOLUME_MAX: u64 = 1 << 50;

/// Sizes that a request accepts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SizeRange {
    /// Smallest size; 0 for any.
    required: u64,
    /// Largest size; `u64::MAX` for any.
    limit: u64,
}

impl SizeRange {
    /// Parses the range of a request.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if no size is in the range.
    pub(super) fn parse(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let (required, limit) = range.map_or((0, 0), |range| (range.required_bytes, range.limit_bytes));
        let (Ok(required), Ok(limit)) = (u64::try_from(required), u64::try_from(limit)) else {
            return Err(Status::out_of_range("capacity_range: sizes must not be negative"));
        };
        let limit = if limit == 0 { u64::MAX } else { limit };
        if required > limit {
            let problem = format!("required_bytes {required} exceeds limit_bytes {limit}");
            return Err(Status::out_of_range(format!("capacity_range: {problem}")));
        }
        Ok(Self { required, limit })
    }

    /// Returns true if the range has neither bound.
    pub(super) fn is_any(&self) -> bool {
        self.required == 0 && self.limit == u64::MAX
    }

    /// Returns true if a volume of `size` bytes fulfils the request.
    pub(super) fn accepts(&self, size: u64) -> bool {
        (self.required..=self.limit).contains(&size)
    }

    /// Returns true if a volume of `size` bytes is smaller than the request demands.
    pub(super) fn exceeds(&self, size: u64) -> bool {
        self.required > size
    }

    /// Returns the size of a new volume: at least `minimum`, and `default` if the request demands
    /// no size.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if no such size is in the range.
    pub(super) fn choose(&self, minimum: u64, default: u64) -> Result<u64, Status> {
        let wanted = if self.required == 0 { default.min(self.limit) } else { self.required }.max(minimum);
        let sizes = [ALIGNMENT, BLOCK].map(|unit| wanted.checked_next_multiple_of(unit));
        let fits = |size: &u64| *size <= self.limit.min(VOLUME_MAX);
        sizes.into_iter().flatten().find(fits).ok_or_else(|| {
            let problem = if wanted > VOLUME_MAX {
                format!("{} exceeds the largest volume, {}", Size(wanted), Size(VOLUME_MAX))
            } else {
                format!("limit_bytes {} is below the smallest possible size, {wanted}", self.limit)
            };
            Status::out_of_range(format!("capacity_range: {problem}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required: i64, limit: i64) -> Result<SizeRange, Status> {
        SizeRange::parse(Some(&CapacityRange { required_bytes: required, limit_bytes: limit }))
    }

    #[test]
    fn sizes_are_rounded_up_within_the_limit() {
        const MIB: u64 = 1 << 20;
        let cases = [
            ((0, 0), 0, Some(64 * MIB)),
            ((1, 0), 0, Some(MIB)),
            ((1, 8192), 0, Some(4096)),
            ((1, 4095), 0, None),
            ((5 << 20, 0), 300 * MIB, Some(300 * MIB)),
            ((5 << 20, 6 << 20), 300 * MIB, None),
            ((0, 8192), 0, Some(8192)),
            ((1 << 51, 0), 0, None),
        ];
        for ((required, limit), minimum, expected) in cases {
            let chosen = range(required, limit).unwrap().choose(minimum, 64 * MIB);
            assert_eq!(chosen.ok(), expected, "{required} {limit} {minimum}");
        }
        for (required, limit) in [(2, 1), (-1, 0), (0, -1)] {
            assert_eq!(range(required, limit).unwrap_err().code(), tonic::Code::OutOfRange);
        }
        assert!(SizeRange::parse(None).unwrap().is_any());
    }
}
