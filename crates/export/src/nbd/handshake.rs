//! The handshake: from a new connection to an open export.
//!
//! Owns the negotiated options. Always true: each option is answered before the next one is read;
//! the data of an option is limited. Must not know the encoding.

use reactor::{Buffer, Stream};

use super::disconnect::{DisconnectReason, ProtocolViolation};
use super::execute::CONTEXT;
use super::limits::{OPTION_MAX, OPTIONS_MAX, PAYLOAD_MAX, PREFERRED};
use super::session::NegotiatedExport;
use super::wire::{
    ClientFlags, ClientOption, ContextQuery, ExportFacts, InfoRequest, OptionError, OptionHeader,
    OptionReplies, export_name_reply, greeting,
};
use crate::transport::RecvBuffer;
use crate::{Exports, OpenError, OpenErrorKind, OpenExport, Volume};

/// Performs the handshake. Returns the negotiated export, or the reason why the connection ends.
pub(super) async fn negotiate<E: Exports>(
    stream: &Stream,
    recv: &mut RecvBuffer,
    exports: &E,
) -> Result<NegotiatedExport<E::Volume>, DisconnectReason> {
    send(stream, &greeting()).await?;
    let flags = ClientFlags::decode(recv.header().await?).map_err(ProtocolViolation::UnknownFlags)?;
    let mut handshake = Handshake { stream, exports, flags, structured: false, allocation_of: None };
    for _ in 0..OPTIONS_MAX {
        let header = OptionHeader::decode(&recv.header().await?)?;
        if header.length > OPTION_MAX {
            return Err(ProtocolViolation::OptionLength(header.length).into());
        }
        let data = recv.bytes(header.length as usize).await?;
        if let Some(negotiated) = handshake.consider(header, &data).await? {
            return Ok(negotiated);
        }
    }
    Err(ProtocolViolation::TooManyOptions.into())
}

async fn send(stream: &Stream, bytes: &[u8]) -> Result<(), DisconnectReason> {
    stream.write_all(&[Buffer::copy_of(bytes).span()]).await?;
    Ok(())
}

struct Handshake<'a, E> {
    stream: &'a Stream,
    exports: &'a E,
    flags: ClientFlags,
    structured: bool,
    /// The export for which the allocation context was selected, as the client named it.
    allocation_of: Option<String>,
}

/// An export that a client may open.
struct FoundExport<V> {
    /// The export's name, also if the client sent none.
    name: String,
    export: OpenExport<V>,
}

impl<E: Exports> Handshake<'_, E> {
    /// Answers one option. Returns the negotiated export if it was the last option.
    async fn consider(
        &mut self,
        header: OptionHeader,
        data: &[u8],
    ) -> Result<Option<NegotiatedExport<E::Volume>>, DisconnectReason> {
        let mut replies = OptionReplies::to(header.code);
        let answer = match ClientOption::decode(header.code, data) {
            Ok(ClientOption::ExportName(name)) => return self.export_name(name).await.map(Some),
            Ok(ClientOption::Go(request)) => return self.go(request, replies).await,
            Ok(ClientOption::Abort) => {
                // The client may have closed the connection already.
                let _ = send(self.stream, &replies.acknowledge()).await;
                return Err(DisconnectReason::Disconnected);
            }
            Ok(ClientOption::Info(request)) => match self.describe(request, &mut replies).await {
                Ok(_) => replies.acknowledge(),
                Err(error) => refuse_open(replies, &error),
            },
            Ok(ClientOption::List) => {
                for export in self.exports.list().await {
                    replies.export(&export.name, &export.description);
                }
                replies.acknowledge()
            }
            Ok(ClientOption::StartTls) => replies.refuse(OptionError::Unsupported, "TLS is not supported"),
            Ok(ClientOption::StructuredReply) => {
                self.structured = true;
                replies.acknowledge()
            }
            Ok(ClientOption::ListContexts(query)) => {
                self.contexts(query, query.lists_allocation().then_some(0), replies).await
            }
            Ok(ClientOption::SetContexts(query)) => {
                self.allocation_of = None;
                let selected = query.selects_allocation();
                let answer = self.contexts(query, selected.then_some(CONTEXT), replies).await;
                if self.structured && selected {
                    self.allocation_of = Some(query.export.to_owned());
                }
                answer
            }
            Err(bad) if header.is_unanswerable() => {
                return Err(ProtocolViolation::BadName(bad.message).into());
            }
            Err(bad) => replies.refuse(bad.error, bad.message),
        };
        send(self.stream, &answer).await?;
        Ok(None)
    }

    async fn export_name(&self, name: &str) -> Result<NegotiatedExport<E::Volume>, DisconnectReason> {
        let found = self.find(name).await;
        let refused = |error: OpenError| DisconnectReason::Refused {
            name: name.to_owned(),
            reason: error.message().to_owned(),
        };
        let negotiated = self.negotiated(name, found.map_err(refused)?);
        let facts = self.facts(&negotiated.volume);
        send(self.stream, &export_name_reply(&facts, self.flags.no_zeroes)).await?;
        Ok(negotiated)
    }

    async fn go(
        &self,
        request: InfoRequest<'_>,
        mut replies: OptionReplies,
    ) -> Result<Option<NegotiatedExport<E::Volume>>, DisconnectReason> {
        match self.describe(request, &mut replies).await {
            Ok(found) => {
                send(self.stream, &replies.acknowledge()).await?;
                Ok(Some(self.negotiated(request.export, found)))
            }
            Err(error) => {
                send(self.stream, &refuse_open(replies, &error)).await?;
                Ok(None)
            }
        }
    }

    /// Opens an export and sends the requested information.
    async fn describe(
        &self,
        request: InfoRequest<'_>,
        replies: &mut OptionReplies,
    ) -> Result<FoundExport<E::Volume>, OpenError> {
        let found = self.find(request.export).await?;
        replies.facts(&self.facts(&found.export.volume));
        if request.name {
            replies.name(&found.name);
        }
        if request.description && !found.export.description.is_empty() {
            replies.description(&found.export.description);
        }
        Ok(found)
    }

    /// Replies with the allocation context, with the identifier `listed` if it is given.
    async fn contexts(
        &self,
        query: ContextQuery<'_>,
        listed: Option<u32>,
        mut replies: OptionReplies,
    ) -> Vec<u8> {
        if !self.structured {
            return replies.refuse(OptionError::Invalid, "negotiate structured replies first");
        }
        if let Err(error) = self.find(query.export).await {
            return refuse_open(replies, &error);
        }
        if let Some(id) = listed {
            replies.allocation_context(id);
        }
        replies.acknowledge()
    }

    /// Opens an export; the only one if the name is empty.
    async fn find(&self, name: &str) -> Result<FoundExport<E::Volume>, OpenError> {
        let mut name = name.to_owned();
        if name.is_empty() {
            let Ok([only]) = <[_; 1]>::try_from(self.exports.list().await) else {
                let message = "there is no default export: specify a name";
                return Err(OpenError::new(OpenErrorKind::NotFound, message));
            };
            name = only.name;
        }
        let export = self.exports.open(&name).await?;
        Ok(FoundExport { name, export })
    }

    fn facts(&self, volume: &E::Volume) -> ExportFacts {
        ExportFacts {
            size: volume.size(),
            sector: volume.sector(),
            preferred: PREFERRED.max(volume.sector()),
            payload_max: PAYLOAD_MAX,
            read_only: volume.read_only(),
            structured: self.structured,
        }
    }

    fn negotiated(&self, requested: &str, found: FoundExport<E::Volume>) -> NegotiatedExport<E::Volume> {
        NegotiatedExport {
            volume: found.export.volume,
            name: found.name,
            structured: self.structured,
            allocation: self.allocation_of.as_deref() == Some(requested),
        }
    }
}

fn refuse_open(replies: OptionReplies, error: &OpenError) -> Vec<u8> {
    let code = match error.kind() {
        OpenErrorKind::NotFound => OptionError::Unknown,
        OpenErrorKind::Denied => OptionError::Policy,
        OpenErrorKind::Unavailable => OptionError::Shutdown,
    };
    replies.refuse(code, error.message())
}
