//! Messages that are sent at once, before a connection has a send queue.
//!
//! Always true: a message is sent completely, or the connection ends.

use reactor::Buffer;

use super::disconnect::QueueCloseReason;
use crate::transport::{ByteSink, Link, ReplyHead};

/// Sends a message.
pub(super) async fn send(link: &Link, bytes: &[u8]) -> Result<(), QueueCloseReason> {
    link.write_all(&[Buffer::copy_of(bytes).span()]).await?;
    Ok(())
}

/// Sends an encoded reply without data.
pub(super) async fn send_head(link: &Link, head: &ReplyHead) -> Result<(), QueueCloseReason> {
    send(link, head.as_bytes()).await
}
