//! The verification of a token of an identity provider: a pure function of the token, the keys and
//! the rules of the provider, and of the time.
//!
//! Always true: the algorithm is one of public keys and suits the key; the token names no key
//! itself.

use std::collections::BTreeSet;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// The largest number of keys of the same name that are tried.
const TRIED_MAX: usize = 8;
/// The tolerated difference between the clocks of provider and daemon, in seconds.
const CLOCK_SKEW_S: u64 = 30;

/// The claims of a verified token.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    pub(super) claims: Map<String, Value>,
    /// The claim `sub`.
    pub(super) subject: String,
    /// The audience of the provider that the token names.
    pub(super) audience: String,
}

/// The reason why a token is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    /// No known key has this name: the provider may have a new one.
    UnknownKey(String),
    /// The signature is not that of the key: the provider may have replaced it.
    WrongSignature,
    /// The token has expired.
    Expired,
    /// The token is malformed, has a wrong issuer or audience, or is not valid yet.
    Invalid(String),
}

fn invalid(reason: impl Into<String>) -> TokenError {
    TokenError::Invalid(reason.into())
}

/// Verifies a token.
///
/// # Errors
/// `UnknownKey`, `WrongSignature`, `Expired`, `Invalid`.
pub(super) fn verify(
    token: &str,
    keys: &JwkSet,
    issuer: &str,
    audiences: &BTreeSet<String>,
) -> Result<VerifiedToken, TokenError> {
    let header = decode_header(token)
        .map_err(|_| invalid("the token is not a signed JWT with an algorithm of public keys"))?;
    let algorithm = header.alg;
    if matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
        return Err(invalid(format!("the algorithm {algorithm:?} of the token is not one of public keys")));
    }
    if header.crit.is_some() {
        return Err(invalid("the token has critical header fields, which are not supported"));
    }
    let keys = find_keys(keys, algorithm, header.kid.as_deref())?;
    let mut rules = Validation::new(algorithm);
    rules.leeway = CLOCK_SKEW_S;
    rules.validate_nbf = true;
    rules.set_issuer(&[issuer]);
    rules.set_audience(&audiences.iter().collect::<Vec<_>>());
    rules.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    let claims = decode_with(token, &keys, &rules)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
    // The library also accepts a list of issuers.
    if text("iss").as_deref() != Some(issuer) {
        return Err(invalid("the issuer of the token is not that of the provider"));
    }
    let subject = text("sub").unwrap_or_default();
    let named = |audience: &&String| match claims.get("aud") {
        Some(Value::Array(values)) => values.iter().any(|value| value.as_str() == Some(audience)),
        other => other.and_then(Value::as_str) == Some(audience),
    };
    let audience = audiences.iter().find(named).cloned().unwrap_or_default();
    Ok(VerifiedToken { claims, subject, audience })
}

/// Verifies a token with the first of several keys that has signed it. Returns its claims.
fn decode_with(token: &str, keys: &[&Jwk], rules: &Validation) -> Result<Map<String, Value>, TokenError> {
    let mut failure = invalid("the key of the provider is malformed");
    for key in keys.iter().filter_map(|key| DecodingKey::from_jwk(key).ok()) {
        match decode(token, &key, rules).map_err(|error| convert(error.kind())) {
            Ok(decoded) => return Ok(decoded.claims),
            Err(TokenError::WrongSignature) => failure = TokenError::WrongSignature,
            Err(error) => return Err(error),
        }
    }
    Err(failure)
}

fn convert(kind: &ErrorKind) -> TokenError {
    match kind {
        ErrorKind::ExpiredSignature => TokenError::Expired,
        ErrorKind::InvalidSignature => TokenError::WrongSignature,
        ErrorKind::InvalidIssuer => invalid("the issuer of the token is not that of the provider"),
        ErrorKind::InvalidAudience => invalid("the token is not for an audience of the provider"),
        ErrorKind::ImmatureSignature => invalid("the token is not valid yet"),
        ErrorKind::MissingRequiredClaim(claim) => invalid(format!("the token has no claim '{claim}'")),
        ErrorKind::InvalidClaimFormat(claim) => invalid(format!("the claim '{claim}' is malformed")),
        _ => invalid("the token is malformed"),
    }
}

/// Returns the keys of a token: those with its name, or the only one for its algorithm.
fn find_keys<'k>(
    keys: &'k JwkSet,
    algorithm: Algorithm,
    name: Option<&str>,
) -> Result<Vec<&'k Jwk>, TokenError> {
    let mut suitable = keys.keys.iter().filter(|key| suits(key, algorithm));
    let Some(name) = name else {
        return match (suitable.next(), suitable.next()) {
            (Some(key), None) => Ok(vec![key]),
            (None, _) => Err(TokenError::UnknownKey(String::new())),
            (Some(_), Some(_)) => Err(invalid("the token names no key, and the provider has several")),
        };
    };
    let shown = || name.chars().take(64).flat_map(char::escape_debug).collect();
    let has_name = |key: &&Jwk| key.common.key_id.as_deref() == Some(name);
    let named: Vec<&Jwk> = suitable.filter(has_name).take(TRIED_MAX).collect();
    if named.is_empty() { Err(TokenError::UnknownKey(shown())) } else { Ok(named) }
}

/// True if signatures by an algorithm may be verified with a key.
fn suits(key: &Jwk, algorithm: Algorithm) -> bool {
    let has_kind = match &key.algorithm {
        AlgorithmParameters::RSA(_) => matches!(
            algorithm,
            Algorithm::RS256
                | Algorithm::RS384
                | Algorithm::RS512
                | Algorithm::PS256
                | Algorithm::PS384
                | Algorithm::PS512
        ),
        AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
            EllipticCurve::P256 => algorithm == Algorithm::ES256,
            EllipticCurve::P384 => algorithm == Algorithm::ES384,
            _ => false,
        },
        AlgorithmParameters::OctetKeyPair(parameters) => {
            parameters.curve == EllipticCurve::Ed25519 && algorithm == Algorithm::EdDSA
        }
        _ => false,
    };
    let common = &key.common;
    has_kind
        && common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|list| list.contains(&KeyOperations::Verify))
        && common.key_algorithm.is_none_or(|named| named == algorithm.into())
}
