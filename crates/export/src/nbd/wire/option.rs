//! What a client asks for during the handshake.

use super::bytes::Reader;
use super::context::ContextQuery;
use super::greeting::IHAVEOPT;
use super::option_reply::OptionError;
use super::{BadMagic, STRING_MAX};

/// Bytes of an option's header.
pub(in crate::nbd) const OPTION_HEADER_LEN: usize = 16;

/// `NBD_OPT_*`.
mod code {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const STARTTLS: u32 = 5;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
    pub(super) const STRUCTURED_REPLY: u32 = 8;
    pub(super) const LIST_META_CONTEXT: u32 = 9;
    pub(super) const SET_META_CONTEXT: u32 = 10;
}

/// An option that has been announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct OptionHeader {
    /// Which, as the client named it.
    pub(in crate::nbd) code: u32,
    /// Bytes of data that follow.
    pub(in crate::nbd) length: u32,
}

impl OptionHeader {
    pub(in crate::nbd) fn decode(bytes: &[u8; OPTION_HEADER_LEN]) -> Result<Self, BadMagic> {
        let mut reader = Reader::new(bytes);
        match (reader.u64(), reader.u32(), reader.u32()) {
            (Some(IHAVEOPT), Some(code), Some(length)) => Ok(Self { code, length }),
            (magic, ..) => Err(BadMagic(magic.unwrap_or(0))),
        }
    }

    /// True if an answer of any kind is impossible: the connection can only go on or end.
    pub(in crate::nbd) fn is_unanswerable(self) -> bool {
        self.code == code::EXPORT_NAME
    }
}

/// An option, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum ClientOption<'a> {
    /// Use this export; no answer but its size is possible.
    ExportName(&'a str),
    /// End the connection.
    Abort,
    /// Name every export.
    List,
    /// Encrypt the connection.
    StartTls,
    /// Describe an export.
    Info(InfoRequest<'a>),
    /// Describe an export and use it.
    Go(InfoRequest<'a>),
    /// Use structured replies from now on.
    StructuredReply,
    /// Name the metadata contexts of an export.
    ListContexts(ContextQuery<'a>),
    /// Use these metadata contexts, and no others.
    SetContexts(ContextQuery<'a>),
}

/// What is to be told of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct InfoRequest<'a> {
    /// Its name, or nothing for the only one.
    pub(in crate::nbd) export: &'a str,
    /// Its name is to be told.
    pub(in crate::nbd) name: bool,
    /// Its description is to be told.
    pub(in crate::nbd) description: bool,
}

/// An option that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct BadOption {
    pub(in crate::nbd) error: OptionError,
    /// For people.
    pub(in crate::nbd) message: &'static str,
}

const fn invalid(message: &'static str) -> BadOption {
    BadOption { error: OptionError::Invalid, message }
}

const TOO_SHORT: BadOption = invalid("the option's data ends too early");
const TOO_LONG: BadOption = invalid("the option's data goes on after its end");

impl<'a> ClientOption<'a> {
    /// The option `code` with this data.
    pub(in crate::nbd) fn decode(code: u32, data: &'a [u8]) -> Result<Self, BadOption> {
        let mut reader = Reader::new(data);
        let option = match code {
            code::EXPORT_NAME => Self::ExportName(string(&mut reader, data.len())?),
            code::ABORT => {
                // Whatever else the client says: it will not listen any more.
                return Ok(Self::Abort);
            }
            code::LIST => Self::List,
            code::STARTTLS => Self::StartTls,
            code::INFO => Self::Info(InfoRequest::decode(&mut reader)?),
            code::GO => Self::Go(InfoRequest::decode(&mut reader)?),
            code::STRUCTURED_REPLY => Self::StructuredReply,
            code::LIST_META_CONTEXT => Self::ListContexts(ContextQuery::decode(&mut reader)?),
            code::SET_META_CONTEXT => Self::SetContexts(ContextQuery::decode(&mut reader)?),
            _ => {
                return Err(BadOption {
                    error: OptionError::Unsupported,
                    message: "the option is not known here",
                });
            }
        };
        if reader.is_at_end() { Ok(option) } else { Err(TOO_LONG) }
    }
}

impl<'a> InfoRequest<'a> {
    /// `NBD_INFO_NAME`.
    const NAME: u16 = 1;
    /// `NBD_INFO_DESCRIPTION`.
    const DESCRIPTION: u16 = 2;

    fn decode(reader: &mut Reader<'a>) -> Result<Self, BadOption> {
        let export = counted_string(reader)?;
        let mut request = Self { export, name: false, description: false };
        let count = reader.u16().ok_or(TOO_SHORT)?;
        for _ in 0..count {
            match reader.u16().ok_or(TOO_SHORT)? {
                Self::NAME => request.name = true,
                Self::DESCRIPTION => request.description = true,
                // Told without being asked for, or not known.
                _ => {}
            }
        }
        Ok(request)
    }
}

/// A string behind its length.
pub(super) fn counted_string<'a>(reader: &mut Reader<'a>) -> Result<&'a str, BadOption> {
    let length = reader.u32().ok_or(TOO_SHORT)?;
    string(reader, usize::try_from(length).unwrap_or(usize::MAX))
}

/// A string of `length` bytes.
fn string<'a>(reader: &mut Reader<'a>, length: usize) -> Result<&'a str, BadOption> {
    if length > STRING_MAX {
        return Err(BadOption { error: OptionError::TooBig, message: "a name is longer than 4096 bytes" });
    }
    let bytes = reader.take(length).ok_or(TOO_SHORT)?;
    let string = str::from_utf8(bytes).map_err(|_| invalid("a name is not UTF-8"))?;
    if string.contains('\0') { Err(invalid("a name contains a NUL")) } else { Ok(string) }
}

/// How many of something follow.
pub(super) fn count(reader: &mut Reader<'_>) -> Result<u32, BadOption> {
    reader.u32().ok_or(TOO_SHORT)
}
