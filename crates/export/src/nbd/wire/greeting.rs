//! The first words of each side.

use super::bytes::{Put, Reader};

/// `NBDMAGIC`.
const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`.
pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;

/// `NBD_FLAG_FIXED_NEWSTYLE`.
const FIXED_NEWSTYLE: u16 = 1 << 0;
/// `NBD_FLAG_NO_ZEROES`.
const NO_ZEROES: u16 = 1 << 1;

/// Bytes of the client's answer to the greeting.
pub(in crate::nbd) const CLIENT_FLAGS_LEN: usize = 4;

/// What the server says first.
pub(in crate::nbd) fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(INIT_PASSWD);
    bytes.put_u64(IHAVEOPT);
    bytes.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
    bytes
}

/// What the client made of the greeting. A client that leaves the fixed newstyle out gets it all the same: it will ask
/// for an export by name and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ClientFlags {
    /// The answer to `NBD_OPT_EXPORT_NAME` ends without 124 zero bytes.
    pub(in crate::nbd) no_zeroes: bool,
}

impl ClientFlags {
    /// The flags, or the bits if there are unknown ones: the connection must be dropped then.
    pub(in crate::nbd) fn decode(bytes: [u8; CLIENT_FLAGS_LEN]) -> Result<Self, u32> {
        let bits = Reader::new(&bytes).u32().unwrap_or(u32::MAX);
        match bits & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) {
            0 => Ok(Self { no_zeroes: bits & u32::from(NO_ZEROES) != 0 }),
            _ => Err(bits),
        }
    }
}
