//! The watchdog of a connection whose client stalls.

use std::rc::Rc;
use std::time::Duration;

use reactor::{Notify, Reactor};

/// Notifies `stalled` when one direction of a connection makes no progress for `limit`.
///
/// `look` returns the [`crate::transport::Progress::stage`] of each direction. It is called once
/// per `limit`, instead of setting a timer for each message.
pub(crate) async fn watch_stalls(look: impl Fn() -> [Option<u64>; 2], limit: Duration, stalled: Rc<Notify>) {
    let mut before = look();
    loop {
        Reactor::current().sleep(limit).await;
        let now = look();
        if now.iter().zip(&before).any(|(now, before)| now.is_some() && now == before) {
            return stalled.notify();
        }
        before = now;
    }
}
