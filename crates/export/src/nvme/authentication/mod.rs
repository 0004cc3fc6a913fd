//! DH-HMAC-CHAP: the authentication of hosts, and of the subsystem to them.
//!
//! Owns secrets and the steps of an exchange. Always true: a challenge is used once; no secret
//! leaves this module. Must not know connections.
//!
//! Source: NVM Express Base Specification 2.0, 8.13.5.

mod compute;
mod exchange;
#[cfg(test)]
mod exchange_tests;
mod group;
mod secret;

pub(super) use compute::compute;
pub(super) use exchange::AuthenticationExchange;
pub(super) use secret::DhChapKeys;
pub use secret::DhChapSecrets;
