//! Handshake options of clients.

use super::bytes::Reader;
use super::context::ContextQuery;
use super::greeting::IHAVEOPT;
use super::option_error::{BadOption, OptionError, TOO_LONG, TOO_SHORT};
use super::strings::{counted_string, string};
use super::types::BadMagic;

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

/// The header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct OptionHeader {
    /// The option's code.
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

    /// Returns true if the option has no error reply.
    pub(in crate::nbd) fn is_unanswerable(self) -> bool {
        self.code == code::EXPORT_NAME
    }
}

/// A decoded option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum ClientOption<'a> {
    /// Open this export; the only reply is its size.
    ExportName(&'a str),
    /// End the connection.
    Abort,
    /// List the exports.
    List,
    /// Encrypt the connection.
    StartTls,
    /// Describe an export.
    Info(InfoRequest<'a>),
    /// Describe and open an export.
    Go(InfoRequest<'a>),
    /// Use structured replies.
    StructuredReply,
    /// List the metadata contexts of an export.
    ListContexts(ContextQuery<'a>),
    /// Select metadata contexts.
    SetContexts(ContextQuery<'a>),
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct InfoRequest<'a> {
    /// The export's name; empty for the default export.
    pub(in crate::nbd) export: &'a str,
    /// The name is requested.
    pub(in crate::nbd) name: bool,
    /// The description is requested.
    pub(in crate::nbd) description: bool,
}

impl<'a> ClientOption<'a> {
    /// Decodes the data of option `code`.
    pub(in crate::nbd) fn decode(code: u32, data: &'a [u8]) -> Result<Self, BadOption> {
        let mut reader = Reader::new(data);
        let option = match code {
            code::EXPORT_NAME => Self::ExportName(string(&mut reader, data.len())?),
            code::ABORT => {
                // The client does not wait for a reply.
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
                return Err(BadOption { error: OptionError::Unsupported, message: "unknown option" });
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
                // Sent without a request, or unknown.
                _ => {}
            }
        }
        Ok(request)
    }
}
