//! The beginning of TLS connections.
//!
//! The first byte of a connection shows whether its host uses TLS: a record begins with the type of
//! its content, a PDU with its own type. Always true: the session begins only after the host has
//! proven that it knows the key of an export; a host without a proof receives an alert.

use std::sync::Arc;

use super::direct_replies::send;
use super::disconnect::QueueCloseReason;
use super::pdu_reader::PduReader;
use super::target::NvmeTarget;
use super::tls::{KeyRefusal, TlsPeer, choose_key};
use crate::transport::{Link, TlsStream};

/// The type of a record with messages of a handshake.
const HANDSHAKE: u8 = 22;
/// Bytes of the header of a record.
const RECORD_HEADER: usize = 5;
/// The most bytes of the first message: those of one record.
const HELLO_MAX: usize = 16 << 10;

/// Begins TLS on a connection if its host does, and lets `reader` continue within it. Returns the
/// host that has proven its key; `None` without TLS.
pub(super) async fn accept_tls<S>(
    reader: &mut PduReader,
    target: &Arc<NvmeTarget<S>>,
) -> Result<Option<TlsPeer>, QueueCloseReason> {
    if reader.recv.first_byte().await? != HANDSHAKE {
        return Ok(None);
    }
    let header = reader.recv.body::<RECORD_HEADER>().await?;
    let [_, major, _, high, low] = header;
    let length = usize::from(high) << 8 | usize::from(low);
    let chosen = if major == 3 && (1..=HELLO_MAX).contains(&length) {
        let hello = reader.recv.bytes(length).await?;
        choose_key(&hello, |subsystem, host| target.tls_key(subsystem, host)).map(|chosen| (chosen, hello))
    } else {
        Err(KeyRefusal::Malformed)
    };
    let ((key, peer), hello) = match chosen {
        Ok(chosen) => chosen,
        Err(refusal) => {
            let _ = send(reader.recv.link(), &alert(refusal.alert())).await;
            return Err(QueueCloseReason::TlsRefused(refusal));
        }
    };
    let received = [&header[..], &hello, &reader.recv.take_unread()].concat();
    let stream = TlsStream::accept(reader.recv.link().stream().clone(), &key, &received)?;
    let link = Link::Tls(stream.clone());
    stream.negotiate().await.map_err(|error| QueueCloseReason::from(error).within(&link))?;
    reader.continue_on(link);
    Ok(Some(peer))
}

/// The record of a fatal alert, before a session exists.
fn alert(description: u8) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, description]
}
