//! Differences between the states of an image.
//!
//! Contains unsafe code: a callback of `librbd` that appends to a list.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::client::{check, text};
use crate::error::Result;
use crate::library::{ImageHandle, RbdLibrary};

/// A range of an image that differs from an older state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageDiff {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// True for data; false for a range that now reads as zeros.
    pub data: bool,
}

/// Lists the ranges that differ between the snapshot `from`, or an empty image, and the opened
/// state. Blocks its thread. `whole_objects` reports complete objects, which is fast.
///
/// # Errors
/// `NotFound` without the snapshot; `Io`.
pub(super) fn diff(
    library: &RbdLibrary,
    image: ImageHandle,
    from: Option<&str>,
    range: (u64, u64),
    whole_objects: bool,
) -> Result<Vec<ImageDiff>> {
    let from = from.map(text).transpose()?;
    let from = from.as_ref().map_or(ptr::null(), |name| name.as_ptr());
    let mut ranges: Vec<ImageDiff> = Vec::new();
    let argument = (&raw mut ranges).cast();
    let (offset, length) = range;
    // SAFETY: the image is open; the callback gets the list, which outlives the call.
    let code =
        unsafe { (library.diff)(image, from, offset, length, 1, whole_objects.into(), append, argument) };
    check(code, "cannot compare states of an image")?;
    ranges.sort_unstable_by_key(|range| range.offset);
    Ok(ranges)
}

/// Appends a range to the list.
unsafe extern "C" fn append(offset: u64, length: usize, exists: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the list of `diff`, which waits for the call that uses it.
    let ranges = unsafe { &mut *argument.cast::<Vec<ImageDiff>>() };
    ranges.push(ImageDiff { offset, length: length as u64, data: exists != 0 });
    0
}
