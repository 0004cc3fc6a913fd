//! Messages that are sent at once, before a connection has a send queue.
//!
//! Always true: a message is sent completely, or the connection ends.

use reactor::{Buffer, Stream};

use super::disconnect::QueueCloseReason;
use crate::transport::ReplyHead;

/// Sends a message.
pub(super) async fn send(stream: &Stream, bytes: &[u8]) -> Result<(), QueueCloseReason> {
    stream.write_all(&[Buffer::copy_of(bytes).span()]).await?;
    Ok(())
}

/// Sends an encoded reply without data.
pub(super) async fn send_head(stream: &Stream, head: &ReplyHead) -> Result<(), QueueCloseReason> {
    send(stream, head.as_bytes()).await
}
