//! Errors of requests.

use std::io;

/// A result of a request.
pub type Result<T> = std::result::Result<T, S3Error>;

/// An error of a request.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    /// The address, the bucket or the key cannot be used in a request.
    #[error("{0}")]
    Invalid(String),
    /// The service cannot be reached.
    #[error("cannot connect to the S3 service on {address}: {source}")]
    Connect {
        /// Host and port.
        address: String,
        /// The error of the connection.
        source: io::Error,
    },
    /// The connection ended before the response did, or the service does not speak HTTP.
    #[error("the connection to the S3 service failed: {0}")]
    Connection(#[from] hyper::Error),
    /// The service sent nothing for this time.
    #[error("the S3 service did not respond within {0} s")]
    Timeout(u64),
    /// The service refused the request.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The code of S3, for example `NoSuchKey`.
        code: String,
        /// The message of the service.
        message: String,
    },
    /// The response is not one of S3.
    #[error("the S3 service sent an invalid response: {0}")]
    Response(String),
    /// The body of an object differs from its checksum.
    #[error("the object was damaged on its way: its CRC-64/NVME is {found}, not {wanted}")]
    Checksum {
        /// The checksum of the received body, in base64.
        found: String,
        /// The checksum that the service sent, in base64.
        wanted: String,
    },
}

impl S3Error {
    /// Returns the code of a refused request, for example `NoSuchKey`.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Returns true if the same request may succeed later: after a lost connection, a restart of
    /// the service, or an overload.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Connection(_) | Self::Timeout(_) => true,
            Self::Refused { status, code, .. } => {
                *status == 503 || *status == 500 || code == "RequestTimeout" || code == "IncompleteBody"
            }
            Self::Invalid(_) | Self::Response(_) | Self::Checksum { .. } => false,
        }
    }
}
