//! The greeting of the server and the flags of the client.

use super::bytes::{Put, Reader};

/// `NBDMAGIC`.
const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`.
pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;

/// `NBD_FLAG_FIXED_NEWSTYLE`.
const FIXED_NEWSTYLE: u16 = 1 << 0;
/// `NBD_FLAG_NO_ZEROES`.
const NO_ZEROES: u16 = 1 << 1;

/// Bytes of the client's flags.
pub(in crate::nbd) const CLIENT_FLAGS_LEN: usize = 4;

/// Encodes the server's greeting.
pub(in crate::nbd) fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(INIT_PASSWD);
    bytes.put_u64(IHAVEOPT);
    bytes.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
    bytes
}

/// The client's flags. A client without fixed newstyle is accepted: it sends `NBD_OPT_EXPORT_NAME`
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ClientFlags {
    /// The reply to `NBD_OPT_EXPORT_NAME` ends without 124 zero bytes.
    pub(in crate::nbd) no_zeroes: bool,
}

impl ClientFlags {
    /// Decodes the flags. Unknown bits are returned as the error: the connection must be closed
    /// then.
    pub(in crate::nbd) fn decode(bytes: [u8; CLIENT_FLAGS_LEN]) -> Result<Self, u32> {
        let bits = Reader::new(&bytes).u32().unwrap_or(u32::MAX);
        match bits & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) {
            0 => Ok(Self { no_zeroes: bits & u32::from(NO_ZEROES) != 0 }),
            _ => Err(bits),
        }
    }
}
