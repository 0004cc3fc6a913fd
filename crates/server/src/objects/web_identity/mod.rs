//! Web identity: roles for clients with tokens of identity providers (OpenID Connect), and the
//! temporary credentials of their sessions.
//!
//! Always true: no credentials are issued for a token whose signature, issuer, audience and time
//! were not verified; a session ends with its provider and its role.

mod crypto;
mod key_sets;
mod sessions;
mod tables;
mod token;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jsonwebtoken::jwk::JwkSet;
use s3::{IdentityPolicy, IssuedSession, RoleError, RoleErrorKind, RoleRequest, SessionError};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::unix_time::unix_time;
use api::types::{ChangeS3Provider, S3Provider, S3Role};
use key_sets::KeySets;
use sessions::{SessionClaims, SessionSigner};
pub(crate) use tables::RoleFile;
use tables::{ProviderRecord, RoleRecord};
use token::{TokenError, VerifiedToken};

/// The time for which credentials are valid unless the client chooses another one, in seconds.
const SESSION_S: u64 = 3600;
/// The longest claim that becomes the name of a user, in bytes, as in OpenID Connect.
const NAME_CLAIM_MAX: usize = 255;

/// The roles, their identity providers, and their sessions.
pub(crate) struct WebIdentity {
    pub(crate) roles: RoleFile,
    keys: KeySets,
    sessions: SessionSigner,
}

/// A session whose token was verified.
pub(super) struct OpenSession {
    pub(super) user: String,
    pub(super) role: String,
    /// The names of the policies of its role.
    pub(super) policies: BTreeSet<String>,
    /// The policy that limits them.
    pub(super) limit: Option<Arc<IdentityPolicy>>,
}

impl WebIdentity {
    /// Reads the roles and providers of a state directory.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        crypto::install();
        Ok(Self {
            roles: RoleFile::open(directory)?,
            keys: KeySets::default(),
            sessions: SessionSigner::open(directory)?,
        })
    }

    /// Returns the providers, with the state of their keys.
    pub(crate) fn providers(&self) -> Vec<S3Provider> {
        let tables = self.roles.tables();
        let describe = |(name, record): (&String, &ProviderRecord)| {
            let keys = self.keys.status(record);
            S3Provider {
                name: name.clone(),
                created: record.created,
                issuer: record.issuer.clone(),
                audiences: record.audiences.iter().cloned().collect(),
                user_claim: record.user_claim.clone(),
                key_file: record.key_file.clone(),
                authorities: record.authorities.clone(),
                roles: tables.roles_of_provider(name),
                keys: keys.keys,
                fetched: keys.fetched,
                problem: keys.problem,
            }
        };
        tables.providers.iter().map(describe).collect()
    }

    /// Returns the roles.
    pub(crate) fn roles(&self) -> Vec<S3Role> {
        let describe = |(name, record): (&String, &RoleRecord)| S3Role {
            name: name.clone(),
            created: record.created,
            provider: record.provider.clone(),
            policies: record.policies.iter().cloned().collect(),
            claims: record.claims.clone(),
            session_max: record.session_max_s,
        };
        self.roles.tables().roles.iter().map(describe).collect()
    }

    /// Changes a provider, whose keys are then fetched again.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`.
    pub(super) fn change_provider(&self, name: &str, request: ChangeS3Provider) -> Result<()> {
        let id = self.roles.change_provider(name, request)?;
        self.keys.forget(&id);
        Ok(())
    }

    /// Deletes a provider without roles.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub(crate) fn delete_provider(&self, name: &str) -> Result<()> {
        let id = self.roles.delete_provider(name)?;
        self.keys.forget(&id);
        Ok(())
    }

    /// Verifies a token with the keys of a provider, which are fetched again for an unknown key or
    /// a wrong signature.
    async fn verify(&self, provider: &ProviderRecord, token: &str) -> Result<VerifiedToken, RoleError> {
        // Nobody has authenticated the client: the reason is in the log and in the state of the
        // provider only.
        let unreachable = |reason: String| {
            tracing::debug!(issuer = provider.issuer, ?reason, "a token cannot be verified");
            RoleError::new(RoleErrorKind::Unreachable, "the identity provider cannot be reached")
        };
        let keys = self.keys.current(provider).await.map_err(unreachable)?;
        let verify = |keys: &JwkSet| token::verify(token, keys, &provider.issuer, &provider.audiences);
        let verified = match verify(&keys) {
            Err(TokenError::UnknownKey(_) | TokenError::WrongSignature) => {
                let newer = self.keys.newer(provider, &keys).await.map_err(unreachable)?;
                verify(&newer)
            }
            verified => verified,
        };
        verified.map_err(|error| match error {
            TokenError::Expired => RoleError::new(RoleErrorKind::ExpiredToken, "the token has expired"),
            TokenError::UnknownKey(key) => {
                let message =
                    format!("the identity provider has no key '{key}' for the algorithm of the token");
                RoleError::new(RoleErrorKind::InvalidToken, message)
            }
            TokenError::WrongSignature => {
                RoleError::new(RoleErrorKind::InvalidToken, "the signature of the token is wrong")
            }
            TokenError::Invalid(reason) => RoleError::new(RoleErrorKind::InvalidToken, reason),
        })
    }
}

impl WebIdentity {
    /// Verifies a token and returns temporary credentials.
    pub(super) async fn assume(&self, request: RoleRequest) -> Result<IssuedSession, RoleError> {
        let tables = self.roles.tables();
        let role = &request.role;
        let (_, provider) = tables.role(role).ok_or_else(RoleError::not_authorized)?;
        if let Some(Err(reason)) = request.policy.as_deref().map(IdentityPolicy::parse) {
            let message = format!("Policy is malformed: {reason}");
            return Err(RoleError::new(RoleErrorKind::Invalid, message));
        }
        let token = self.verify(provider, &request.token).await?;
        self.issue(request, provider, token)
    }

    /// Returns temporary credentials for a token that a provider has verified.
    fn issue(
        &self,
        request: RoleRequest,
        verifier: &ProviderRecord,
        token: VerifiedToken,
    ) -> Result<IssuedSession, RoleError> {
        // The role and its provider may have changed while keys were fetched.
        let tables = self.roles.tables();
        let role = &request.role;
        let (record, provider) = tables.role(role).ok_or_else(RoleError::not_authorized)?;
        if (&provider.id, provider.generation) != (&verifier.id, verifier.generation) {
            let message = "the identity provider was changed meanwhile: try again";
            return Err(RoleError::new(RoleErrorKind::Unreachable, message));
        }
        check_claims(role, record, &token)?;
        let duration_s = duration(role, record, request.duration_s)?;
        let user = user_name(&record.provider, provider, &token)?;
        let expires = unix_time() + duration_s;
        let claims = SessionClaims {
            access_key: String::new(),
            role: role.clone(),
            role_id: record.id.clone(),
            provider_id: provider.id.clone(),
            user: user.clone(),
            expires,
            policy: request.policy,
        };
        let internal = |error: Error| RoleError::new(RoleErrorKind::Internal, error.to_string());
        let issued = self.sessions.issue(claims).map_err(internal)?;
        tracing::info!(role, user, access_key = issued.access_key, duration_s, "role assumed");
        Ok(IssuedSession {
            access_key: issued.access_key,
            secret: issued.secret,
            token: issued.token,
            expires,
            subject: token.subject,
            audience: token.audience,
            issuer: provider.issuer.clone(),
        })
    }

    /// Returns the secret of an access key of temporary credentials.
    pub(super) fn secret(&self, access_key: &str) -> Option<String> {
        self.sessions.secret(access_key)
    }

    /// Verifies the session token of a request.
    ///
    /// # Errors
    /// `Expired`, `Invalid`.
    pub(super) fn open_session(&self, access_key: &str, token: &str) -> Result<OpenSession, SessionError> {
        let claims = self.sessions.open_token(access_key, token, unix_time())?;
        let tables = self.roles.tables();
        let ended = || {
            let message =
                format!("the session has ended: role '{}' or its provider was deleted", claims.role);
            SessionError::Invalid(message)
        };
        let (record, provider) = tables.role(&claims.role).ok_or_else(ended)?;
        if record.id != claims.role_id || provider.id != claims.provider_id {
            return Err(ended());
        }
        let limit = claims.policy.as_deref().map(IdentityPolicy::parse).transpose();
        let limit = limit.map_err(SessionError::Invalid)?.map(Arc::new);
        Ok(OpenSession { user: claims.user, policies: record.policies.clone(), limit, role: claims.role })
    }
}

/// Checks the claims that a role demands.
fn check_claims(role: &str, record: &RoleRecord, token: &VerifiedToken) -> Result<(), RoleError> {
    for (claim, pattern) in &record.claims {
        let has = |value: &Value| match value {
            Value::String(text) => s3::matches_pattern(pattern, text),
            Value::Bool(_) | Value::Number(_) => s3::matches_pattern(pattern, &value.to_string()),
            _ => false,
        };
        let is_met = match token.claims.get(claim) {
            Some(Value::Array(values)) => values.iter().any(has),
            Some(value) => has(value),
            None => false,
        };
        if !is_met {
            let message = format!("role '{role}' needs a token whose claim '{claim}' matches '{pattern}'");
            return Err(RoleError::new(RoleErrorKind::Denied, message));
        }
    }
    Ok(())
}

/// Returns the name of the user of a session: the provider and a claim, which is unique, and which
/// is neither the name of a user with access keys nor contains a slash or a wildcard.
fn user_name(provider: &str, record: &ProviderRecord, token: &VerifiedToken) -> Result<String, RoleError> {
    let claim = &record.user_claim;
    let value = token.claims.get(claim).and_then(Value::as_str).unwrap_or_default();
    if value.is_empty() || value.len() > NAME_CLAIM_MAX {
        let message =
            format!("the claim '{claim}' of the token, the name of the user, is missing or too long");
        return Err(RoleError::new(RoleErrorKind::InvalidToken, message));
    }
    let mut name = format!("{provider}:");
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'@' | b'+' | b'=' | b',' => {
                name.push(char::from(byte));
            }
            other => name.push_str(&format!("%{other:02X}")),
        }
    }
    Ok(name)
}

/// Returns the time for which the credentials of a request are valid.
fn duration(role: &str, record: &RoleRecord, wanted: Option<u64>) -> Result<u64, RoleError> {
    let most = record.session_max_s;
    match wanted {
        None => Ok(SESSION_S.min(most)),
        Some(seconds) if (1..=most).contains(&seconds) => Ok(seconds),
        Some(seconds) => {
            let message = format!("DurationSeconds is {seconds}; role '{role}' permits 1 to {most}");
            Err(RoleError::new(RoleErrorKind::Invalid, message))
        }
    }
}

#[cfg(test)]
mod tests;
