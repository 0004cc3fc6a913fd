//! The handshake: from a new connection to an export in use.
//!
//! Owns what has been agreed on so far. Always true: each option is answered before the next is looked at; data of an
//! option is never longer than the limit. Must not know what the bytes look like.

use reactor::{Buffer, Stream};

use super::end::{End, Violation};
use super::execute::CONTEXT;
use super::intake::Intake;
use super::limits::{OPTION_MAX, OPTIONS_MAX, PAYLOAD_MAX, PREFERRED};
use super::session::Agreement;
use super::wire::{
    ClientFlags, ClientOption, ContextQuery, ExportFacts, InfoRequest, OptionError, OptionHeader,
    OptionReplies, export_name_reply, greeting,
};
use crate::{Exports, OpenError, OpenErrorKind, OpenExport, Volume};

/// Brings a handshake to its end: an export in use, or the end of the connection.
pub(super) async fn negotiate<E: Exports>(
    stream: &Stream,
    intake: &mut Intake,
    exports: &E,
) -> Result<Agreement<E::Volume>, End> {
    send(stream, &greeting()).await?;
    let flags = ClientFlags::decode(intake.header().await?).map_err(Violation::UnknownFlags)?;
    let mut handshake = Handshake { stream, exports, flags, structured: false, allocation_of: None };
    for _ in 0..OPTIONS_MAX {
        let header = OptionHeader::decode(&intake.header().await?)?;
        if header.length > OPTION_MAX {
            return Err(Violation::OptionLength(header.length).into());
        }
        let data = intake.bytes(header.length as usize).await?;
        if let Some(agreement) = handshake.consider(header, &data).await? {
            return Ok(agreement);
        }
    }
    Err(Violation::TooManyOptions.into())
}

async fn send(stream: &Stream, bytes: &[u8]) -> Result<(), End> {
    stream.write_all(&[Buffer::copy_of(bytes).span()]).await?;
    Ok(())
}

struct Handshake<'a, E> {
    stream: &'a Stream,
    exports: &'a E,
    flags: ClientFlags,
    structured: bool,
    /// The export that the allocation context was selected for, as the client called it.
    allocation_of: Option<String>,
}

/// An export that a client may use.
struct Found<V> {
    /// Its own name, where the client may have given none.
    name: String,
    export: OpenExport<V>,
}

impl<E: Exports> Handshake<'_, E> {
    /// Answers one option. Gives the agreement if it was the last.
    async fn consider(
        &mut self,
        header: OptionHeader,
        data: &[u8],
    ) -> Result<Option<Agreement<E::Volume>>, End> {
        let mut replies = OptionReplies::to(header.code);
        let answer = match ClientOption::decode(header.code, data) {
            Ok(ClientOption::ExportName(name)) => return self.export_name(name).await.map(Some),
            Ok(ClientOption::Go(request)) => return self.go(request, replies).await,
            Ok(ClientOption::Abort) => {
                // The client may not wait for it.
                let _ = send(self.stream, &replies.acknowledge()).await;
                return Err(End::Disconnected);
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
            Ok(ClientOption::StartTls) => replies.refuse(OptionError::Unsupported, "TLS is not offered"),
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
            Err(bad) if header.is_unanswerable() => return Err(Violation::BadName(bad.message).into()),
            Err(bad) => replies.refuse(bad.error, bad.message),
        };
        send(self.stream, &answer).await?;
        Ok(None)
    }

    async fn export_name(&self, name: &str) -> Result<Agreement<E::Volume>, End> {
        let found = self.find(name).await;
        let refused =
            |error: OpenError| End::Refused { name: name.to_owned(), reason: error.message().to_owned() };
        let agreement = self.agreement(name, found.map_err(refused)?);
        let facts = self.facts(&agreement.volume);
        send(self.stream, &export_name_reply(&facts, self.flags.no_zeroes)).await?;
        Ok(agreement)
    }

    async fn go(
        &self,
        request: InfoRequest<'_>,
        mut replies: OptionReplies,
    ) -> Result<Option<Agreement<E::Volume>>, End> {
        match self.describe(request, &mut replies).await {
            Ok(found) => {
                send(self.stream, &replies.acknowledge()).await?;
                Ok(Some(self.agreement(request.export, found)))
            }
            Err(error) => {
                send(self.stream, &refuse_open(replies, &error)).await?;
                Ok(None)
            }
        }
    }

    /// Opens an export and tells what was asked for.
    async fn describe(
        &self,
        request: InfoRequest<'_>,
        replies: &mut OptionReplies,
    ) -> Result<Found<E::Volume>, OpenError> {
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

    /// Answers with the allocation context, under the number `listed` if that is given.
    async fn contexts(
        &self,
        query: ContextQuery<'_>,
        listed: Option<u32>,
        mut replies: OptionReplies,
    ) -> Vec<u8> {
        if !self.structured {
            return replies.refuse(OptionError::Invalid, "structured replies come first");
        }
        if let Err(error) = self.find(query.export).await {
            return refuse_open(replies, &error);
        }
        if let Some(id) = listed {
            replies.allocation_context(id);
        }
        replies.acknowledge()
    }

    /// Opens an export; the only one, if no name is given.
    async fn find(&self, name: &str) -> Result<Found<E::Volume>, OpenError> {
        let mut name = name.to_owned();
        if name.is_empty() {
            let Ok([only]) = <[_; 1]>::try_from(self.exports.list().await) else {
                let message = "there is no default export: name one";
                return Err(OpenError::new(OpenErrorKind::NotFound, message));
            };
            name = only.name;
        }
        let export = self.exports.open(&name).await?;
        Ok(Found { name, export })
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

    fn agreement(&self, requested: &str, found: Found<E::Volume>) -> Agreement<E::Volume> {
        Agreement {
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
