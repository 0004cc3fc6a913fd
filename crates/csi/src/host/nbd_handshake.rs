//! The handshake of an NBD client, up to the transmission phase, which the kernel takes over.
//!
//! Always true: neither structured replies nor other extensions are negotiated, because the
//! kernel's client has none.
#![allow(clippy::big_endian_bytes, reason = "NBD has the byte order of networks")]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest time without an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Magic numbers of a server's greeting.
const GREETING: [&[u8; 8]; 2] = [b"NBDMAGIC", b"IHAVEOPT"];
/// Flags of the handshake: options have replies, and no zeros follow an export.
const FIXED_NEWSTYLE_NO_ZEROES: u16 = 0b11;
/// The option that opens an export.
const OPT_GO: u32 = 7;
/// Magic number of the replies to options.
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The last reply to an option.
const REP_ACK: u32 = 1;
/// A reply with information about an export.
const REP_INFO: u32 = 3;
/// Replies from this number on are errors.
const REP_ERROR: u32 = 1 << 31;
/// Information with the size and the flags of an export.
const INFO_EXPORT: u16 = 0;
/// Longest reply.
const REPLY_MAX: u32 = 64 << 10;

/// An export that a connection has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenedExport {
    /// Size in bytes.
    pub(super) size: u64,
    /// Transmission flags, as the server sent them.
    pub(super) flags: u16,
}

/// Connects to an export behind a Unix socket. Blocks.
///
/// # Errors
/// If the socket cannot be connected to, the server refuses the export, or it does not follow the
/// protocol.
pub(super) fn open(socket: &Path, name: &str) -> io::Result<(UnixStream, OpenedExport)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let export = negotiate(&mut stream, name)?;
    // The kernel waits for replies without an end.
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok((stream, export))
}

fn negotiate(stream: &mut (impl Read + Write), name: &str) -> io::Result<OpenedExport> {
    for magic in GREETING {
        if &read::<8>(stream)? != magic {
            return Err(invalid("the server does not speak NBD"));
        }
    }
    let flags = u16::from_be_bytes(read(stream)?) & FIXED_NEWSTYLE_NO_ZEROES;
    if flags != FIXED_NEWSTYLE_NO_ZEROES {
        return Err(invalid("the server is too old"));
    }
    stream.write_all(&u32::from(flags).to_be_bytes())?;
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    // The name, and the number of kinds of information that are asked for beyond the export's.
    let option = [&length.to_be_bytes()[..], name.as_bytes(), &[0; 2]].concat();
    let option_length = u32::try_from(option.len()).unwrap_or(u32::MAX);
    let header = [&GREETING[1][..], &OPT_GO.to_be_bytes(), &option_length.to_be_bytes()].concat();
    stream.write_all(&[header, option].concat())?;
    let mut opened = None;
    loop {
        let (kind, data) = reply(stream)?;
        match (kind, opened) {
            (REP_ACK, Some(export)) => return Ok(export),
            (REP_ACK, None) => return Err(invalid("the server did not describe the export")),
            (REP_INFO, _) => opened = export_info(&data).or(opened),
            (REP_ERROR.., _) => {
                let message = format!("the server refuses '{name}': {}", String::from_utf8_lossy(&data));
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, message));
            }
            _ => {}
        }
    }
}

/// Receives a reply to the option that opens an export. Returns its kind and data.
fn reply(stream: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    if u64::from_be_bytes(read(stream)?) != REPLY_MAGIC || u32::from_be_bytes(read(stream)?) != OPT_GO {
        return Err(invalid("the server answered another option"));
    }
    let (kind, length) = (u32::from_be_bytes(read(stream)?), u32::from_be_bytes(read(stream)?));
    if length > REPLY_MAX {
        return Err(invalid("a reply of the server is too long"));
    }
    let mut data = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

/// Decodes information about an export; `None` if it is of another kind.
fn export_info(data: &[u8]) -> Option<OpenedExport> {
    let (kind, rest) = data.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let flags = rest.first_chunk()?;
    let export = OpenedExport { size: u64::from_be_bytes(*size), flags: u16::from_be_bytes(*flags) };
    (u16::from_be_bytes(*kind) == INFO_EXPORT).then_some(export)
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's bytes, and what the client sends.
    struct Conversation {
        server: io::Cursor<Vec<u8>>,
        client: Vec<u8>,
    }

    impl Read for Conversation {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.server.read(into)
        }
    }

    impl Write for Conversation {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.client.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn option_reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap();
        let numbers = [OPT_GO, kind, length].map(u32::to_be_bytes).concat();
        [&REPLY_MAGIC.to_be_bytes()[..], &numbers, data].concat()
    }

    fn converse(replies: &[Vec<u8>]) -> (io::Result<OpenedExport>, Vec<u8>) {
        let server = [&b"NBDMAGICIHAVEOPT\0\x03"[..], &replies.concat()].concat();
        let mut conversation = Conversation { server: io::Cursor::new(server), client: Vec::new() };
        let opened = negotiate(&mut conversation, "fast/a");
        (opened, conversation.client)
    }

    #[test]
    fn an_export_is_opened_by_its_name() {
        let sizes = option_reply(REP_INFO, &[0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0]);
        let export = option_reply(REP_INFO, &[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 0x6d]);
        let (opened, sent) = converse(&[sizes, export, option_reply(REP_ACK, &[])]);
        assert_eq!(opened.unwrap(), OpenedExport { size: 1 << 20, flags: 0x16d });
        assert_eq!(sent, b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x0c\0\0\0\x06fast/a\0\0");
    }

    #[test]
    fn refusals_and_broken_servers_are_errors() {
        let (refused, _) = converse(&[option_reply(REP_ERROR | 6, b"no such export")]);
        assert!(refused.unwrap_err().to_string().contains("'fast/a': no such export"));
        assert!(converse(&[option_reply(REP_ACK, &[])]).0.is_err());
        assert!(converse(&[]).0.is_err());
        let mut long = option_reply(REP_INFO, &[]);
        long[16..20].copy_from_slice(&(REPLY_MAX + 1).to_be_bytes());
        assert_eq!(converse(&[long]).0.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut other =
            Conversation { server: io::Cursor::new(b"HTTP/1.1 400 Bad".to_vec()), client: vec![] };
        assert!(negotiate(&mut other, "fast/a").is_err());
        assert_eq!(other.client, b"");
    }
}
