//! Reads, sent whole or as data and holes.
//!
//! Always true: the reply covers the range, each byte once; data is read into the memory that it is
//! sent from. A hole is reported as of the time of the query, which is a valid result for a read in
//! flight at that time.

use std::rc::Rc;

use reactor::Buffer;

use super::limits::{BULK, HOLE_MIN, UNIT};
use super::session::NbdSession;
use super::wire::{ByteRange, Cookie, Head};
use crate::transport::{Charge, CompletionGroup, CompletionGuard, QueuedReply};
use crate::{Extent, Volume};

impl<V: Volume + 'static> NbdSession<V> {
    pub(super) async fn read(self: Rc<Self>, cookie: Cookie, range: ByteRange, whole: bool, charge: Charge) {
        if whole || !self.negotiated.structured || range.length < HOLE_MIN {
            return self.read_whole(cookie, range, charge).await;
        }
        let found = self.negotiated.volume.extents(range.offset, range.length.into()).await;
        // Without extents the range is read whole.
        match plan(range, &found.unwrap_or_default()).as_slice() {
            [Segment { hole: false, .. }] => self.read_whole(cookie, range, charge).await,
            segments => self.read_segments(cookie, segments, charge).await,
        }
    }

    async fn read_whole(&self, cookie: Cookie, range: ByteRange, charge: Charge) {
        let data = Buffer::new(range.length as usize).span();
        if let Err(error) = self.negotiated.volume.read(range.offset, &data).await {
            return self.fail(cookie, &error, charge);
        }
        let head = match self.negotiated.structured {
            true => Head::data(cookie, range, true),
            false => Head::simple(cookie, None),
        };
        let reply = QueuedReply::last(head, charge).with(data);
        match range.length {
            BULK.. => self.send_queue.push_bulk(reply),
            _ => self.send_queue.push(reply),
        }
    }

    /// Sends each segment as soon as it is read. All of them go to one queue, so that the last part
    /// is sent last.
    async fn read_segments(self: Rc<Self>, cookie: Cookie, segments: &[Segment], charge: Charge) {
        let group = Rc::new(CompletionGroup::default());
        for Segment { range, hole } in segments.iter().copied() {
            if hole {
                self.send_queue.push_bulk(QueuedReply::part(Head::hole(cookie, range, false)));
            } else {
                self.begin(self.clone().read_segment(cookie, range, group.part()));
            }
        }
        self.send_queue.push_bulk(match group.ended().await {
            Ok(()) => QueuedReply::last(Head::none(cookie), charge),
            Err(error) => self.failure(cookie, &error, charge),
        });
    }

    async fn read_segment(self: Rc<Self>, cookie: Cookie, range: ByteRange, part: CompletionGuard) {
        let data = Buffer::new(range.length as usize).span();
        let done = self.negotiated.volume.read(range.offset, &data).await;
        if done.is_ok() {
            self.send_queue.push_bulk(QueuedReply::part(Head::data(cookie, range, false)).with(data));
        }
        part.end(done);
    }
}

/// A part of a read with a reply chunk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    range: ByteRange,
    hole: bool,
}

/// Splits a read into large holes, and data in units of [`UNIT`]. A range without extents is data.
fn plan(range: ByteRange, extents: &[Extent]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let end = range.offset + u64::from(range.length);
    let (mut data_from, mut at) = (range.offset, range.offset);
    for extent in extents {
        let next = at.saturating_add(extent.length).min(end);
        if !extent.data && next - at >= HOLE_MIN.into() {
            push_data(&mut segments, data_from, at);
            segments.extend(ByteRange::between(at, next).map(|range| Segment { range, hole: true }));
            data_from = next;
        }
        at = next;
    }
    push_data(&mut segments, data_from, end);
    segments
}

fn push_data(segments: &mut Vec<Segment>, from: u64, to: u64) {
    let pieces = ByteRange::between(from, to).into_iter().flat_map(|range| range.pieces(UNIT));
    segments.extend(pieces.map(|range| Segment { range, hole: false }));
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
