//! DH-HMAC-CHAP: the authentication of hosts, and of the subsystem to them.
//!
//! Owns secrets and the steps of an exchange. Always true: a challenge is used once; no secret
//! leaves this module. Must not know connections.
//!
//! Source: NVM Express Base Specification 2.0, 8.13.5. The group for a Diffie-Hellman exchange is
//! NULL: secrets are long random numbers, which an exchange would protect no further.

mod exchange;
#[cfg(test)]
mod exchange_tests;
mod secret;

pub(super) use exchange::AuthenticationExchange;
pub(super) use secret::DhChapKeys;
pub use secret::DhChapSecrets;
