//! The first message of a TLS client, as far as it concerns pre-shared keys.
//!
//! Always true: decoding uses memory in proportion to [`OFFERS`]. Source: RFC 8446, 4.1.2 and
//! 4.2.11.

/// The most keys that a host may offer.
const OFFERS: usize = 8;

/// The type of the message.
const CLIENT_HELLO: u8 = 1;
/// The extension that offers keys, which is the last one.
const PRE_SHARED_KEY: u16 = 41;
/// The extension that lists the ways in which keys are used.
const KEY_EXCHANGE_MODES: u16 = 45;
/// The use of a key with an ephemeral Diffie-Hellman exchange.
const PSK_DHE_KE: u8 = 1;

/// A client's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientHello<'a> {
    /// The message up to its binders, which prove that the client knows its keys.
    pub(super) partial: &'a [u8],
    /// The keys that the client offers; none if it asks for another kind of authentication.
    pub(super) offers: Vec<OfferedPsk<'a>>,
    /// The cipher suites that the client supports, of two bytes each.
    suites: &'a [u8],
    /// The ways in which the client uses keys. `None` without the extension for them.
    modes: Option<&'a [u8]>,
}

/// A key that a client offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfferedPsk<'a> {
    pub(super) identity: &'a [u8],
    pub(super) binder: &'a [u8],
}

/// Fields of a message, from its beginning.
#[derive(Clone, Copy)]
struct HelloFields<'a>(&'a [u8]);

impl<'a> HelloFields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A number of `width` bytes, the most significant byte first.
    fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.bytes(width)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A field after its length, a number of `width` bytes.
    fn field(&mut self, width: usize) -> Option<Self> {
        let length = self.number(width)?;
        self.bytes(length).map(Self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> ClientHello<'a> {
    /// Decodes a message, which must be complete. `None` if it is malformed.
    pub(super) fn decode(message: &'a [u8]) -> Option<Self> {
        let mut fields = HelloFields(message);
        let is_hello = fields.number(1)? == usize::from(CLIENT_HELLO);
        let mut hello = fields.field(3)?;
        if !is_hello || !fields.is_empty() {
            return None;
        }
        // Version and random; session id, cipher suites, compression methods.
        hello.bytes(2 + 32)?;
        hello.field(1)?;
        let suites = hello.field(2)?.0;
        hello.field(1)?;
        let mut extensions = hello.field(2)?;
        if !hello.is_empty() {
            return None;
        }
        let mut decoded = Self { partial: message, offers: Vec::new(), suites, modes: None };
        while !extensions.is_empty() {
            let kind = extensions.number(2)?;
            let mut extension = extensions.field(2)?;
            if kind == usize::from(KEY_EXCHANGE_MODES) {
                decoded.modes = Some(extension.field(1)?.0);
            }
            if kind == usize::from(PRE_SHARED_KEY) {
                return extensions.is_empty().then(|| decoded.with_offers(extension)).flatten();
            }
        }
        Some(decoded)
    }

    /// True if the client supports the cipher suite of this number.
    pub(super) fn has_suite(&self, number: [u8; 2]) -> bool {
        self.suites.chunks_exact(2).any(|suite| suite == number)
    }

    /// True if the client lists ways in which it uses keys.
    pub(super) fn has_modes(&self) -> bool {
        self.modes.is_some()
    }

    /// True if the client uses keys with an ephemeral Diffie-Hellman exchange.
    pub(super) fn has_exchange(&self) -> bool {
        self.modes.is_some_and(|modes| modes.contains(&PSK_DHE_KE))
    }

    fn with_offers(self, mut extension: HelloFields<'a>) -> Option<Self> {
        let message = self.partial;
        let mut identities = extension.field(2)?;
        // The binders end the message.
        let partial = message.get(..message.len() - extension.0.len())?;
        let mut binders = extension.field(2)?;
        let mut offers = Vec::new();
        while offers.len() < OFFERS && !identities.is_empty() {
            let identity = identities.field(2)?.0;
            // The age of a ticket, which external keys do not have.
            identities.number(4)?;
            offers.push(OfferedPsk { identity, binder: binders.field(1)?.0 });
        }
        extension.is_empty().then_some(Self { partial, offers, ..self })
    }
}
