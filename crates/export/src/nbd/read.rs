//! Reads: in one piece, or data and holes apart.
//!
//! Always true: what is sent for a range covers it, each byte once; data goes from the volume into the memory that it is
//! sent from. A hole was one when the volume was asked, which was while the read was on its way: that it is told as zeros
//! is one of the answers that the read may have.

use std::rc::Rc;

use reactor::Buffer;

use super::budget::Charge;
use super::execute::{Joint, Part};
use super::limits::{BULK, HOLE_MIN, PIECE};
use super::outbox::Reply;
use super::session::Session;
use super::wire::{Cookie, Head, Range};
use crate::{Extent, Volume};

impl<V: Volume + 'static> Session<V> {
    pub(super) async fn read(self: Rc<Self>, cookie: Cookie, range: Range, whole: bool, charge: Charge) {
        if whole || !self.agreement.structured || range.length < HOLE_MIN {
            return self.read_whole(cookie, range, charge).await;
        }
        let found = self.agreement.volume.extents(range.offset, range.length.into()).await;
        // What cannot be told apart is read.
        match plan(range, &found.unwrap_or_default()).as_slice() {
            [Segment { hole: false, .. }] => self.read_whole(cookie, range, charge).await,
            segments => self.read_segments(cookie, segments, charge).await,
        }
    }

    async fn read_whole(&self, cookie: Cookie, range: Range, charge: Charge) {
        let data = Buffer::new(range.length as usize).span();
        if let Err(error) = self.agreement.volume.read(range.offset, &data).await {
            return self.fail(cookie, &error, charge);
        }
        let head = match self.agreement.structured {
            true => Head::data(cookie, range, true),
            false => Head::simple(cookie, None),
        };
        let reply = Reply::last(head, charge).with(data);
        match range.length {
            BULK.. => self.outbox.push_bulk(reply),
            _ => self.outbox.push(reply),
        }
    }

    /// Sends each segment as soon as it is there. All go one way, so that the last word comes last.
    async fn read_segments(self: Rc<Self>, cookie: Cookie, segments: &[Segment], charge: Charge) {
        let joint = Rc::new(Joint::default());
        for Segment { range, hole } in segments.iter().copied() {
            if hole {
                self.outbox.push_bulk(Reply::part(Head::hole(cookie, range, false)));
            } else {
                self.begin(self.clone().read_segment(cookie, range, joint.part()));
            }
        }
        self.outbox.push_bulk(match joint.ended().await {
            Ok(()) => Reply::last(Head::none(cookie), charge),
            Err(error) => self.failure(cookie, &error, charge),
        });
    }

    async fn read_segment(self: Rc<Self>, cookie: Cookie, range: Range, part: Part) {
        let data = Buffer::new(range.length as usize).span();
        let done = self.agreement.volume.read(range.offset, &data).await;
        if done.is_ok() {
            self.outbox.push_bulk(Reply::part(Head::data(cookie, range, false)).with(data));
        }
        part.end(done);
    }
}

/// A part of a read that is answered by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    range: Range,
    hole: bool,
}

/// How a read is cut, given what its range holds: holes that are worth it, and data in pieces. Where the extents end
/// early, there is data.
fn plan(range: Range, extents: &[Extent]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let end = range.offset + u64::from(range.length);
    let (mut data_from, mut at) = (range.offset, range.offset);
    for extent in extents {
        let next = at.saturating_add(extent.length).min(end);
        if !extent.data && next - at >= HOLE_MIN.into() {
            push_data(&mut segments, data_from, at);
            segments.extend(Range::between(at, next).map(|range| Segment { range, hole: true }));
            data_from = next;
        }
        at = next;
    }
    push_data(&mut segments, data_from, end);
    segments
}

fn push_data(segments: &mut Vec<Segment>, from: u64, to: u64) {
    let pieces = Range::between(from, to).into_iter().flat_map(|range| range.pieces(PIECE));
    segments.extend(pieces.map(|range| Segment { range, hole: false }));
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
