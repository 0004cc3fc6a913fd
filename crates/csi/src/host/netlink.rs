//! Generic netlink: messages to kernel modules that have no system call of their own.
//!
//! Must not know: the families and their commands.
#![allow(clippy::host_endian_bytes, reason = "netlink has the byte order of the host")]

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Message type of an error, or of an acknowledgement with the error 0.
const ERROR: u16 = 2;
/// The family that returns the numbers of families.
const CONTROL: u16 = 16;
/// Its command for the number of a family.
const GET_FAMILY: u8 = 3;
/// Its attribute with the number of a family.
const FAMILY_ID: u16 = 1;
/// Its attribute with the name of a family.
const FAMILY_NAME: u16 = 2;
/// Flags of a message: a request that is acknowledged.
const REQUEST_ACKNOWLEDGED: u16 = 1 | 4;
/// Version of the families and of their messages.
const VERSION: u8 = 1;
/// Flag of an attribute that consists of attributes.
const NESTED: u16 = 1 << 15;
/// Length of the header of a message.
const HEADER: usize = 16;
/// Length of the header of a family's message.
const FAMILY_HEADER: usize = 4;
/// Length of the header of an attribute.
const ATTRIBUTE_HEADER: usize = 4;
/// Longest message that is received.
const MESSAGE_MAX: usize = 16 << 10;

/// Attributes of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute with these bytes.
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute with a number of 32 bits.
    pub(super) fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute with a number of 64 bits.
    pub(super) fn u64(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute with a text, which ends with a zero byte.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that consists of attributes.
    pub(super) fn nested(self, kind: u16, value: &Self) -> Self {
        self.bytes(kind | NESTED, &value.0)
    }

    /// Returns the number of 32 bits of an attribute.
    pub(super) fn get_u32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.get(kind)?.try_into().ok()?))
    }

    fn get(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = self.0.as_slice();
        while let (Some(length), Some(found)) = (u16_at(rest, 0), u16_at(rest, 2)) {
            let length = usize::from(length);
            let value = rest.get(ATTRIBUTE_HEADER..length)?;
            if found & !NESTED == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        None
    }
}

/// A family of messages, on a socket of its own.
#[derive(Debug)]
pub(super) struct Family {
    socket: OwnedFd,
    number: u16,
    sequence: u32,
}

impl Family {
    /// Opens a family by its name.
    ///
    /// # Errors
    /// If the kernel has no such family, or refuses the socket.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::GENERIC))?;
        let mut control = Self { socket, number: CONTROL, sequence: 0 };
        let found = control.call(GET_FAMILY, &Attributes::default().text(FAMILY_NAME, name))?;
        let number = found.get(FAMILY_ID).and_then(|value| u16_at(value, 0));
        let number = number.ok_or_else(|| invalid("the kernel returned no number of the family"))?;
        Ok(Self { number, ..control })
    }

    /// Executes a command. Returns the attributes of the kernel's reply, if it has one.
    ///
    /// # Errors
    /// If the kernel refuses the command.
    pub(super) fn call(&mut self, command: u8, attributes: &Attributes) -> io::Result<Attributes> {
        self.sequence += 1;
        let request = encode(self.number, self.sequence, command, attributes);
        sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut reply = Attributes::default();
        let mut buffer = vec![0; MESSAGE_MAX];
        loop {
            let (_, received) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            let received = buffer.get(..received).ok_or_else(|| invalid("a message is too long"))?;
            match decode(received, self.sequence)? {
                Decoded { ended: true, .. } => return Ok(reply),
                Decoded { reply: Some(found), .. } => reply = found,
                Decoded { reply: None, .. } => {}
            }
        }
    }
}

fn encode(family: u16, sequence: u32, command: u8, attributes: &Attributes) -> Vec<u8> {
    let length = HEADER + FAMILY_HEADER + attributes.0.len();
    let mut message = Vec::with_capacity(length);
    message.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend_from_slice(&family.to_ne_bytes());
    message.extend_from_slice(&REQUEST_ACKNOWLEDGED.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    // The port of the sender, which the kernel knows.
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(&[command, VERSION, 0, 0]);
    message.extend_from_slice(&attributes.0);
    message
}

/// The messages of one datagram.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    /// Attributes of the last reply.
    reply: Option<Attributes>,
    /// True if the command was acknowledged.
    ended: bool,
}

/// Decodes the messages of a datagram; ignores those of other commands.
fn decode(mut datagram: &[u8], sequence: u32) -> io::Result<Decoded> {
    let mut decoded = Decoded::default();
    while let (Some(length), Some(kind), Some(of)) =
        (u32_at(datagram, 0), u16_at(datagram, 4), u32_at(datagram, 8))
    {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(payload) = datagram.get(HEADER..length) else {
            return Err(invalid("a message is incomplete"));
        };
        if of == sequence && kind == ERROR {
            let code = u32_at(payload, 0).ok_or_else(|| invalid("an error has no number"))?;
            match code.cast_signed() {
                0 => decoded.ended = true,
                code => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            }
        } else if of == sequence {
            let attributes = payload.get(FAMILY_HEADER..).unwrap_or_default();
            decoded.reply = Some(Attributes(attributes.to_vec()));
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(decoded)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + payload.len()).unwrap();
        let mut message = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 2]].concat();
        message.extend([sequence.to_ne_bytes(), [0; 4]].concat());
        message.extend(payload);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    #[test]
    fn the_kernel_knows_its_own_family() {
        assert_eq!(Family::open("nlctrl").unwrap().number, CONTROL);
        let absent = Family::open("no-such-family").unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound, "{absent}");
    }

    #[test]
    fn attributes_are_found_after_others() {
        let inner = Attributes::default().u32(1, 9);
        let all = Attributes::default().text(2, "ab").nested(7, &inner).u64(3, 5).u32(4, 6);
        assert_eq!((all.get_u32(4), all.get(2), all.get_u32(5)), (Some(6), Some(&b"ab\0"[..]), None));
        assert_eq!(Attributes(all.get(7).unwrap().to_vec()), inner);
        // A length that is too small or too large ends the search.
        for length in [0_u16, 3, 200] {
            let broken = Attributes([&length.to_ne_bytes()[..], &[1, 0, 0, 0]].concat());
            assert_eq!(broken.get(9), None);
        }
    }

    #[test]
    fn replies_errors_and_acknowledgements_are_told_apart() {
        let reply = Attributes::default().u32(1, 3);
        let payload = [&[1, 1, 0, 0][..], &reply.0].concat();
        let other = message(20, 6, &payload);
        let done = message(ERROR, 7, &[0; 20]);
        let all = [other, message(20, 7, &payload), done].concat();
        assert_eq!(decode(&all, 7).unwrap(), Decoded { reply: Some(reply), ended: true });
        let refused = message(ERROR, 7, &[&(-22_i32).to_ne_bytes()[..], &[0; 16]].concat());
        assert_eq!(decode(&refused, 7).unwrap_err().raw_os_error(), Some(22));
        assert_eq!(decode(&refused, 8).unwrap(), Decoded::default());
        assert!(decode(&all[..all.len() - 4], 7).is_err());
        assert!(decode(&message(ERROR, 7, &[]), 7).is_err());
    }
}
