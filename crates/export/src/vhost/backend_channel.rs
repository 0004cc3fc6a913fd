//! The backend channel, on which the device notifies the front end of a changed size.
//!
//! Implements the two messages of the vhost-user specification that the `vhost` crate does not
//! support: `SET_BACKEND_REQ_FD` is received here, `BACKEND_CONFIG_CHANGE_MSG` is sent here.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

const SET_BACKEND_REQ_FD: u32 = 21;
const CONFIG_CHANGE: u32 = 2;
/// Bytes of a header: request, flags, size of the payload.
const HEADER: usize = 12;
const VERSION_1: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// Receives the next message if it is `SET_BACKEND_REQ_FD`, and passes the channel to `keep` before
/// the reply is sent. The reply is sent if `acknowledge` and the message requests one. Returns
/// false, and leaves the message unread, if it is another one.
///
/// # Errors
/// Fails if the connection has failed or the message is malformed.
pub(super) fn receive_channel(
    stream: &UnixStream,
    acknowledge: bool,
    keep: impl FnOnce(OwnedFd),
) -> io::Result<bool> {
    let mut header = [0; HEADER];
    let (seen, _) = rustix::net::recv(stream, &mut header, RecvFlags::PEEK)?;
    if seen < HEADER || field(&header, 0) != SET_BACKEND_REQ_FD {
        return Ok(false);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut header)];
    let received = rustix::net::recvmsg(stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let (flags, size) = (field(&header, 4), field(&header, 8));
    let malformed =
        || io::Error::new(io::ErrorKind::InvalidData, "a SET_BACKEND_REQ_FD message without a descriptor");
    if received.bytes != HEADER || size != 0 {
        return Err(malformed());
    }
    keep(descriptor.ok_or_else(malformed)?);
    if acknowledge && flags & NEED_REPLY != 0 {
        let mut reply = message(SET_BACKEND_REQ_FD, VERSION_1 | REPLY, 8).to_vec();
        reply.extend([0; 8]);
        (&*stream).write_all(&reply)?;
    }
    Ok(true)
}

/// Notifies the front end that the configuration has changed. The front end then reads it.
///
/// # Errors
/// Fails if the front end has not read earlier notifications, or is gone.
pub(super) fn notify_config_changed(channel: &OwnedFd) -> io::Result<()> {
    let message = message(CONFIG_CHANGE, VERSION_1, 0);
    rustix::net::send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

#[allow(clippy::host_endian_bytes, reason = "both ends are on this machine")]
fn field(header: &[u8; HEADER], at: usize) -> u32 {
    let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

#[allow(clippy::host_endian_bytes, reason = "both ends are on this machine")]
fn message(request: u32, flags: u32, size: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let fields = [request, flags, size].into_iter().flat_map(u32::to_ne_bytes);
    bytes.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
    bytes
}
