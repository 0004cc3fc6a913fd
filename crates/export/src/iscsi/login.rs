//! The login: security negotiation, then operational negotiation.
//!
//! Always true: no command is executed before the login is complete; a login is complete only if
//! its initiator is allowed and, where the target asks for it, authenticated.

use std::rc::Rc;
use std::sync::Arc;

use reactor::{Buffer, Stream};

use super::chap::{ChapAccount, ChapStep, take_step};
use super::disconnect::SessionCloseReason;
use super::limits::{COMMANDS, SEGMENT_MAX};
use super::parameters::SessionParameters;
use super::pdu_reader::IscsiReader;
use super::shared::{IscsiShared, UnsolicitedPermit};
use super::target::IscsiTarget;
use super::wire::{
    InitiatorHeader, InitiatorOpcode, LoginReply, LoginStatus, Sequence, TEXT_MAX, TextPairs, TextWriter,
};
use crate::VolumeSource;
use crate::transport::LocalAddress;

/// Stages of a login.
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// The flag that asks for, or grants, the next stage.
const TRANSITION: u8 = 0x80;
/// The most bytes of a name.
const NAME_MAX: usize = 223;
/// The most messages of a login.
const MESSAGES_MAX: u32 = 32;

/// A negotiated login whose last response has not been sent.
pub(super) struct NegotiatedLogin<S> {
    pub(super) initiator: String,
    pub(super) session: [u8; 6],
    pub(super) connection: u16,
    /// The target; `None` for discovery.
    pub(super) target: Option<Arc<IscsiTarget<S>>>,
    pub(super) account: Option<ChapAccount>,
    pub(super) parameters: SessionParameters,
    pub(super) permit: Option<UnsolicitedPermit>,
    /// The number of the first command.
    pub(super) command_number: u32,
    reply: LoginReply,
    text: Vec<u8>,
}

impl<S> NegotiatedLogin<S> {
    /// The number of the first status after the login.
    pub(super) fn status_number(&self) -> u32 {
        self.reply.sequence.status.wrapping_add(1)
    }

    /// Sends the last response: the session has this handle, or is refused.
    pub(super) async fn conclude(
        &self,
        stream: &Stream,
        result: Result<u16, LoginStatus>,
    ) -> Result<(), SessionCloseReason> {
        let reply = match result {
            Ok(handle) => LoginReply { handle, ..self.reply },
            Err(status) => LoginReply { status, flags: 0, ..self.reply },
        };
        send(stream, &reply.encode(if result.is_ok() { &self.text } else { &[] })).await
    }
}

/// A refusal of a login.
type Refusal = (LoginStatus, &'static str);

/// The state of a login in progress.
struct LoginState<'a, S: VolumeSource> {
    shared: &'a Rc<IscsiShared<S>>,
    address: LocalAddress,
    stage: Option<u8>,
    initiator: Option<String>,
    target: Option<Arc<IscsiTarget<S>>>,
    accounts: Vec<ChapAccount>,
    /// The login needs authentication.
    needs_account: bool,
    account: Option<ChapAccount>,
    chap: ChapStep,
    parameters: SessionParameters,
    permit: Option<UnsolicitedPermit>,
    /// The target has declared its own values.
    is_declared: bool,
}

/// Negotiates a login on a connection that arrived at `address`.
pub(super) async fn log_in<S: VolumeSource>(
    stream: &Stream,
    reader: &mut IscsiReader,
    shared: &Rc<IscsiShared<S>>,
    address: LocalAddress,
) -> Result<NegotiatedLogin<S>, SessionCloseReason> {
    let mut state = LoginState::new(shared, address);
    let (mut text, mut messages) = (Vec::new(), 0);
    let mut status_number = 1;
    loop {
        let (header, frame) = reader.next().await?;
        messages += 1;
        if header.opcode() != InitiatorOpcode::Login || messages > MESSAGES_MAX {
            return Err(SessionCloseReason::Violation("a message before the end of the login"));
        }
        if text.len() + frame.data > TEXT_MAX {
            return Err(SessionCloseReason::Violation("too much text"));
        }
        text.extend(reader.bytes(frame).await?);
        let mut reply = reply_of(&header, status_number);
        status_number += 1;
        if header.continues() {
            send(stream, &reply.encode(&[])).await?;
            continue;
        }
        let pairs = TextPairs::decode(&std::mem::take(&mut text));
        let mut answer = TextWriter::default();
        let step = match pairs {
            Some(pairs) => state.take_request(&header, &pairs, &mut answer),
            None => Err((LoginStatus::INITIATOR_ERROR, "the text is invalid")),
        };
        let next = match step {
            Ok(next) => next,
            Err((status, reason)) => {
                reply.status = status;
                reply.flags = 0;
                send(stream, &reply.encode(&[])).await?;
                return Err(SessionCloseReason::Refused(status, reason));
            }
        };
        let (stage, wanted, _) = header.stages();
        reply.flags = stage << 2 | if next { TRANSITION | wanted } else { 0 };
        let text = answer.finish();
        if next && wanted == FULL_FEATURE {
            return Ok(state.finish(&header, reply, text));
        }
        send(stream, &reply.encode(&text)).await?;
    }
}

fn reply_of(header: &InitiatorHeader, status: u32) -> LoginReply {
    let expected = header.command_number();
    LoginReply {
        flags: header.stages().0 << 2,
        session: header.session(),
        handle: header.session_handle(),
        tag: header.tag(),
        sequence: Sequence { status, expected, max: expected.wrapping_add(COMMANDS - 1) },
        status: LoginStatus::SUCCESS,
    }
}

impl<'a, S: VolumeSource> LoginState<'a, S> {
    fn new(shared: &'a Rc<IscsiShared<S>>, address: LocalAddress) -> Self {
        Self {
            shared,
            address,
            stage: None,
            initiator: None,
            target: None,
            accounts: Vec::new(),
            needs_account: false,
            account: None,
            chap: ChapStep::Begin,
            parameters: SessionParameters::default(),
            permit: shared.permit_unsolicited(),
            is_declared: false,
        }
    }

    /// Takes a complete request. Returns true if the next stage begins.
    fn take_request(
        &mut self,
        header: &InitiatorHeader,
        request: &TextPairs,
        answer: &mut TextWriter,
    ) -> Result<bool, Refusal> {
        let (stage, next, wants_next) = header.stages();
        if self.stage.is_none() {
            self.begin(header, request, answer)?;
            self.stage = Some(stage);
        }
        let is_valid = stage <= OPERATIONAL && self.stage == Some(stage);
        if !is_valid || wants_next && (next <= stage || next == 2) {
            return Err((LoginStatus::INVALID_REQUEST, "the stage is invalid"));
        }
        match stage {
            SECURITY => self.authenticate(request, answer)?,
            _ if self.needs_account && self.account.is_none() => {
                return Err((LoginStatus::AUTHENTICATION, "the initiator is not authenticated"));
            }
            _ => self.declare(answer),
        }
        self.negotiate(request, answer);
        let is_authenticated = self.account.is_some() || !self.needs_account && !self.is_challenged();
        let advances = wants_next && is_authenticated;
        if advances {
            self.stage = Some(next);
        }
        Ok(advances)
    }

    fn is_challenged(&self) -> bool {
        !matches!(self.chap, ChapStep::Begin)
    }

    /// Takes the names of the first request.
    fn begin(
        &mut self,
        header: &InitiatorHeader,
        request: &TextPairs,
        answer: &mut TextWriter,
    ) -> Result<(), Refusal> {
        // The version of the protocol is 0.
        if header.byte(3) > 0 {
            return Err((LoginStatus::VERSION, "the version is not supported"));
        }
        let name = request.get("InitiatorName").filter(|name| is_initiator(name));
        let name = name.ok_or((LoginStatus::MISSING_PARAMETER, "the initiator has no name"))?;
        self.initiator = Some(name.to_owned());
        match request.get("SessionType").unwrap_or("Normal") {
            "Discovery" => return Ok(()),
            "Normal" => {}
            _ => return Err((LoginStatus::SESSION_TYPE, "the type of the session is unknown")),
        }
        let target = request.get("TargetName");
        let target = target.ok_or((LoginStatus::MISSING_PARAMETER, "the request names no target"))?;
        let found =
            self.shared.targets.find(target).filter(|target| target.has_listener(self.address.listener));
        let target = found.ok_or((LoginStatus::NOT_FOUND, "there is no such target"))?;
        let units = target.units_of_name(name, self.address.listener);
        if units.is_empty() {
            return Err((LoginStatus::FORBIDDEN, "the initiator is not allowed"));
        }
        if header.session_handle() != 0 {
            let is_known = |session: &Arc<super::nexus::Nexus>| session.handle == header.session_handle();
            return Err(match target.sessions().iter().any(is_known) {
                true => (LoginStatus::TOO_MANY_CONNECTIONS, "a session has one connection"),
                false => (LoginStatus::NO_SESSION, "there is no such session"),
            });
        }
        self.needs_account = units.iter().all(|unit| unit.account.is_some());
        self.accounts = units.iter().filter_map(|unit| unit.account.clone()).collect();
        self.target = Some(target);
        answer.add("TargetPortalGroupTag", "1");
        Ok(())
    }

    fn authenticate(&mut self, request: &TextPairs, answer: &mut TextWriter) -> Result<(), Refusal> {
        let refused = (LoginStatus::AUTHENTICATION, "the initiator is not authenticated");
        if let Some(list) = request.get("AuthMethod").filter(|_| !self.is_challenged()) {
            let is_possible = |method: &&str| match *method {
                "CHAP" => !self.accounts.is_empty(),
                "None" => !self.needs_account,
                _ => false,
            };
            let method = list.split(',').find(is_possible).ok_or(refused)?;
            answer.add("AuthMethod", method);
            if method == "CHAP" {
                self.chap = ChapStep::Chosen;
            }
        }
        if self.account.is_none() {
            let step = take_step(&mut self.chap, request, answer, &self.accounts);
            self.account = step.map_err(|status| (status, refused.1))?;
        }
        Ok(())
    }

    /// Declares the target's own values, once.
    fn declare(&mut self, answer: &mut TextWriter) {
        if !std::mem::replace(&mut self.is_declared, true) {
            answer.add("MaxRecvDataSegmentLength", &SEGMENT_MAX.to_string());
        }
    }

    fn negotiate(&mut self, request: &TextPairs, answer: &mut TextWriter) {
        for (key, value) in request.iter() {
            let is_known = self.parameters.negotiate(key, value, self.permit.is_some(), answer)
                || matches!(
                    key,
                    "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "AuthMethod"
                )
                || key.starts_with("CHAP_");
            if !is_known {
                answer.add(key, "NotUnderstood");
            }
        }
    }

    fn finish(mut self, header: &InitiatorHeader, reply: LoginReply, text: Vec<u8>) -> NegotiatedLogin<S> {
        self.parameters.finish();
        NegotiatedLogin {
            initiator: self.initiator.unwrap_or_default(),
            session: header.session(),
            connection: header.connection(),
            target: self.target,
            account: self.account,
            permit: self.permit.filter(|_| !self.parameters.initial_r2t),
            parameters: self.parameters,
            command_number: header.command_number(),
            reply,
            text,
        }
    }
}

/// True if a text has the form of an iSCSI name.
pub(super) fn is_initiator(name: &str) -> bool {
    let is_typed = ["iqn.", "eui.", "naa."].iter().any(|prefix| name.starts_with(prefix));
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:_".contains(&byte);
    // Initiators also use upper case, although names are folded.
    is_typed && name.len() <= NAME_MAX && name.bytes().all(|byte| is_plain(byte.to_ascii_lowercase()))
}

/// Sends a message at once, before or after the time of the send queue.
pub(super) async fn send(stream: &Stream, bytes: &[u8]) -> Result<(), SessionCloseReason> {
    stream.write_all(&[Buffer::copy_of(bytes).span()]).await?;
    Ok(())
}
