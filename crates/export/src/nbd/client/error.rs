//! Errors of the NBD client.

use std::borrow::Cow;
use std::io;

/// A request or a connection that failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// The server refused the export or an option.
    #[error("{0}")]
    Refused(String),
    /// The server answered a request with an error.
    #[error("{}{}", io::Error::from_raw_os_error(raw(*number)), suffix(message))]
    Server {
        /// The protocol's number of the error, which is Linux's.
        number: u32,
        /// The server's explanation; may be empty.
        message: String,
    },
    /// The server does not follow the protocol.
    #[error("{0}")]
    Protocol(Cow<'static, str>),
}

fn raw(number: u32) -> i32 {
    // 5 is EIO.
    i32::try_from(number).unwrap_or(5)
}

fn suffix(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl ClientError {
    pub(super) fn protocol(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Protocol(message.into())
    }

    pub(super) fn server(number: u32, message: impl Into<String>) -> Self {
        Self::Server { number, message: message.into() }
    }

    /// The number of the error that the server answered with, if it did.
    pub fn server_error(&self) -> Option<u32> {
        match self {
            Self::Server { number, .. } => Some(*number),
            Self::Connection(_) | Self::Refused(_) | Self::Protocol(_) => None,
        }
    }
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Connection(error) => error,
            ClientError::Server { number, ref message } => {
                let known = io::Error::from_raw_os_error(raw(number));
                if message.is_empty() { known } else { io::Error::new(known.kind(), error.to_string()) }
            }
            ClientError::Refused(_) | ClientError::Protocol(_) => {
                io::Error::new(io::ErrorKind::InvalidData, error.to_string())
            }
        }
    }
}
