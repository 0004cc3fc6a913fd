//! The client's handshake: from a new connection to an export.
#![allow(clippy::big_endian_bytes, reason = "NBD is big-endian")]

use super::{ANSWER_MAX, Client, ClientError, Replies, Transport, length};

/// `NBD_OPT_*`.
pub(super) mod option {
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
    pub(in super::super) const SET_META_CONTEXT: u32 = 10;
}

/// `NBD_REP_*`.
pub(super) mod answer {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const META_CONTEXT: u32 = 4;
    pub(in super::super) const ERROR: u32 = 1 << 31;
}

/// `IHAVEOPT`.
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
/// The magic of answers to options.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_FLAG_C_FIXED_NEWSTYLE` and `NBD_FLAG_C_NO_ZEROES`.
const CLIENT_FLAGS: u32 = 3;
/// `NBD_INFO_EXPORT`.
const INFO_EXPORT: u16 = 0;
/// `NBD_INFO_BLOCK_SIZE`: requested as a promise to respect it.
const INFO_BLOCK_SIZE: u16 = 3;
/// The most parts of an answer to an option.
pub(super) const PARTS_MAX: usize = 4096;

/// A string after its length.
fn counted(text: &str) -> Result<Vec<u8>, ClientError> {
    let mut bytes = length(text.len())?.to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    Ok(bytes)
}

impl<T: Transport> Client<T> {
    /// Negotiates the export, its replies and metadata context.
    pub(super) async fn negotiate(&mut self, export: &str) -> Result<(), ClientError> {
        let greeting = self.array::<18>().await?;
        if !greeting.starts_with(b"NBDMAGICIHAVEOPT") {
            return Err(ClientError::protocol("the server does not speak NBD"));
        }
        self.transport.write_all(&CLIENT_FLAGS.to_be_bytes()).await?;
        if self.replies == Replies::Structured {
            self.option(option::STRUCTURED_REPLY, &[]).await?;
            let mut query = counted(export)?;
            query.extend(1u32.to_be_bytes());
            query.extend(counted("base:allocation")?);
            let contexts = self.option(option::SET_META_CONTEXT, &query).await?;
            if !contexts.iter().any(|(kind, _)| *kind == answer::META_CONTEXT) {
                return Err(ClientError::protocol("the server does not report allocation"));
            }
        }
        let mut go = counted(export)?;
        go.extend(1u16.to_be_bytes());
        go.extend(INFO_BLOCK_SIZE.to_be_bytes());
        for (kind, data) in self.option(option::GO, &go).await? {
            if let (answer::INFO, Some((about, rest))) = (kind, data.split_first_chunk::<2>())
                && u16::from_be_bytes(*about) == INFO_EXPORT
                && let Some((size, flags)) = rest.split_first_chunk::<8>()
            {
                self.size = u64::from_be_bytes(*size);
                self.flags = flags.first_chunk::<2>().map_or(0, |flags| u16::from_be_bytes(*flags));
                return Ok(());
            }
        }
        Err(ClientError::protocol("the server does not report the export's size"))
    }

    /// Sends an option. Returns the parts of the answer before the acknowledgement: their types and
    /// data.
    pub(super) async fn option(
        &mut self,
        option: u32,
        data: &[u8],
    ) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let mut request = OPTION_MAGIC.to_vec();
        request.extend(option.to_be_bytes());
        request.extend(length(data.len())?.to_be_bytes());
        request.extend(data);
        self.transport.write_all(&request).await?;
        let mut answers = Vec::new();
        let mut room = ANSWER_MAX;
        while answers.len() < PARTS_MAX {
            let (magic, of, kind) = (self.u64().await?, self.u32().await?, self.u32().await?);
            if magic != OPTION_REPLY_MAGIC || of != option {
                return Err(ClientError::protocol("bad answer to an option"));
            }
            let length = self.u32().await?;
            let data = self.bytes(length, &mut room).await?;
            match kind {
                answer::ACK => return Ok(answers),
                kind if kind & answer::ERROR != 0 => {
                    let message = String::from_utf8_lossy(&data).into_owned();
                    let unexplained = || format!("the server refused option {option} ({kind:#x})");
                    return Err(ClientError::Refused(if message.is_empty() {
                        unexplained()
                    } else {
                        message
                    }));
                }
                kind => answers.push((kind, data)),
            }
        }
        Err(ClientError::protocol("answer in too many parts"))
    }
}
