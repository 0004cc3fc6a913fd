//! The keys of identity providers, from their discovery documents or from files, kept in memory.
//!
//! Always true: one task at a time fetches the keys of a provider, which a client that disconnects
//! does not end; a provider is asked again at most every [`RETRY`] whatever tokens clients send;
//! keys that were fetched with old settings are not used with new ones; responses are bounded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::JwkSet;
use serde_json::Value;

use super::tables::{ProviderRecord, discovery_url};
use crate::blocking::{blocking, complete};
use crate::outbound::{FetchError, ServiceUrl, client_config, get, read_file};
use crate::request::shown;
use crate::unix_time::unix_time;

/// The age at which keys of a provider are fetched again.
const REFRESH: Duration = Duration::from_secs(3600);
/// The age at which keys are not used any more if the provider does not answer.
const KEEP: Duration = Duration::from_secs(24 * 3600);
/// The time between two attempts, and the age at which a file is read again.
const RETRY: Duration = Duration::from_secs(5);
/// The largest document of a provider in bytes, and the largest number of keys.
const DOCUMENT_MAX: usize = 1 << 20;
const KEYS_MAX: usize = 200;

/// The keys of all providers, by the identity and the generation of the provider.
#[derive(Default)]
pub(super) struct KeySets {
    sources: Mutex<BTreeMap<(String, u64), Arc<KeySource>>>,
}

#[derive(Default)]
struct KeySource {
    /// Held while the keys are fetched.
    fetching: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<KeyState>,
}

#[derive(Clone, Default)]
struct KeyState {
    keys: Option<Arc<JwkSet>>,
    /// The time at which the keys were fetched, by both clocks.
    fetched: Option<(Instant, u64)>,
    /// The time of the last attempt.
    tried: Option<Instant>,
    /// The reason why the last attempt failed, or gave no keys.
    problem: Option<String>,
}

/// The state of the keys of a provider, for people.
#[derive(Default)]
pub(super) struct KeyStatus {
    pub(super) keys: u64,
    pub(super) fetched: Option<u64>,
    pub(super) problem: Option<String>,
}

impl KeySource {
    fn lock(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the keys. If the provider is not available, the old keys remain.
    async fn fetch(&self, provider: &ProviderRecord) {
        let fetched = fetch(provider).await;
        let mut state = self.lock();
        let now = Instant::now();
        state.tried = Some(now);
        let issuer = &provider.issuer;
        match fetched {
            Ok(keys) => {
                let count = keys.keys.len();
                tracing::debug!(issuer, keys = count, "keys fetched");
                state.keys = Some(Arc::new(keys));
                state.fetched = Some((now, unix_time()));
                state.problem = (count == 0).then(|| "the provider publishes no usable key".to_owned());
            }
            Err(error) => {
                if matches!(error, FetchError::Refused(_)) {
                    state.keys = None;
                    state.fetched = None;
                }
                let reason = error.into_reason();
                tracing::warn!(issuer, ?reason, "the keys cannot be fetched");
                state.problem = Some(reason);
            }
        }
    }
}

impl KeySets {
    fn sources(&self) -> MutexGuard<'_, BTreeMap<(String, u64), Arc<KeySource>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source(&self, provider: &ProviderRecord) -> Arc<KeySource> {
        self.sources().entry((provider.id.clone(), provider.generation)).or_default().clone()
    }

    /// Forgets the keys of a provider: they are fetched again when they are needed.
    pub(super) fn forget(&self, id: &str) {
        self.sources().retain(|(other, _), _| other != id);
    }

    /// Returns the state of the keys of a provider.
    pub(super) fn status(&self, provider: &ProviderRecord) -> KeyStatus {
        let source = self.sources().get(&(provider.id.clone(), provider.generation)).cloned();
        let Some(source) = source else { return KeyStatus::default() };
        let state = source.lock().clone();
        KeyStatus {
            keys: state.keys.map_or(0, |keys| keys.keys.len() as u64),
            fetched: state.fetched.map(|(_, time)| time),
            problem: state.problem,
        }
    }

    /// Returns the keys of a provider, fetched within [`REFRESH`], or within [`KEEP`] if the
    /// provider is not available. The set is empty if the provider has revoked all keys.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(super) async fn current(&self, provider: &ProviderRecord) -> Result<Arc<JwkSet>, String> {
        let refresh = if provider.key_file.is_some() { RETRY } else { REFRESH };
        self.keys(provider, |state| is_younger(state.fetched.map(|(at, _)| at), refresh)).await
    }

    /// Returns the keys of a provider after those in which a key is missing. Returns the same keys
    /// if the provider was asked recently.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(super) async fn newer(
        &self,
        provider: &ProviderRecord,
        old: &Arc<JwkSet>,
    ) -> Result<Arc<JwkSet>, String> {
        let is_newer = |state: &KeyState| state.keys.as_ref().is_some_and(|keys| !Arc::ptr_eq(keys, old));
        self.keys(provider, is_newer).await
    }

    /// Returns the keys in memory if they suffice, else fetches them.
    async fn keys(
        &self,
        provider: &ProviderRecord,
        suffices: impl Fn(&KeyState) -> bool,
    ) -> Result<Arc<JwkSet>, String> {
        let source = self.source(provider);
        if let Some(keys) = usable(&source.lock(), &suffices) {
            return Ok(keys);
        }
        let fetching = source.fetching.clone().lock_owned().await;
        if let Some(keys) = usable(&source.lock(), &suffices) {
            return Ok(keys);
        }
        let is_due = !is_younger(source.lock().tried, RETRY);
        if is_due {
            // A client that disconnects must not end the attempt before its time is noted.
            let (source, provider) = (source.clone(), provider.clone());
            let attempt = async move {
                let _fetching = fetching;
                source.fetch(&provider).await;
                Ok(())
            };
            complete(attempt).await.map_err(|error| error.to_string())?;
        }
        let state = source.lock();
        let keep = if provider.key_file.is_some() { RETRY * 2 } else { KEEP };
        match &state.keys {
            Some(keys) if is_younger(state.fetched.map(|(at, _)| at), keep) => Ok(keys.clone()),
            _ => Err(state.problem.clone().unwrap_or_default()),
        }
    }
}

fn usable(state: &KeyState, suffices: &impl Fn(&KeyState) -> bool) -> Option<Arc<JwkSet>> {
    state.keys.clone().filter(|_| suffices(state))
}

fn is_younger(time: Option<Instant>, age: Duration) -> bool {
    time.is_some_and(|time| time.elapsed() < age)
}

/// Reads the keys of a provider.
async fn fetch(provider: &ProviderRecord) -> Result<JwkSet, FetchError> {
    if let Some(path) = provider.key_file.clone() {
        let read = blocking(move || {
            let document = read_file(Path::new(&path), DOCUMENT_MAX)?;
            parse(&document).map_err(|reason| format!("{path}: {reason}"))
        })
        .await;
        // A file that is being replaced may be incomplete: its keys remain for a moment.
        return read.unwrap_or_else(|error| Err(error.to_string())).map_err(FetchError::Unavailable);
    }
    let authorities = provider.authorities.clone();
    let tls = blocking(move || client_config(authorities.as_deref().map(Path::new))).await;
    let tls = tls.unwrap_or_else(|error| Err(error.to_string())).map_err(FetchError::Unavailable)?;
    let url = discovery_url(&provider.issuer).map_err(FetchError::Refused)?;
    let document = get(&url, &tls, DOCUMENT_MAX).await?;
    let keys_url = keys_url(&document, &url, &provider.issuer)
        .map_err(|reason| FetchError::Refused(format!("{url}: {reason}")))?;
    let document = get(&keys_url, &tls, DOCUMENT_MAX).await?;
    parse(&document).map_err(|reason| FetchError::Refused(format!("{keys_url}: {reason}")))
}

/// Returns the address of the keys in a discovery document.
fn keys_url(document: &[u8], url: &ServiceUrl, issuer: &str) -> Result<ServiceUrl, String> {
    let document: Value =
        serde_json::from_slice(document).map_err(|error| format!("it is not a JSON document: {error}"))?;
    let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("issuer") != issuer {
        return Err(format!("it names the issuer '{}' instead of '{issuer}'", shown(field("issuer"))));
    }
    let text = field("jwks_uri");
    let keys_url =
        ServiceUrl::parse(text).map_err(|reason| format!("the jwks_uri '{}': {reason}", shown(text)))?;
    if keys_url.is_plain() && !url.is_plain() {
        return Err(format!("the jwks_uri '{}' is plain HTTP, and the issuer is not", shown(text)));
    }
    Ok(keys_url)
}

/// Parses a set of keys. Leaves out malformed ones, so that the set may be empty.
fn parse(document: &[u8]) -> Result<JwkSet, String> {
    let document: Value = serde_json::from_slice(document)
        .map_err(|error| format!("the keys are not a JSON document: {error}"))?;
    let Some(Value::Array(keys)) = document.get("keys") else {
        return Err("the document of the keys has no list 'keys'".to_owned());
    };
    let parsed = keys.iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value(key.clone()).ok());
    Ok(JwkSet { keys: parsed.collect() })
}

#[cfg(test)]
#[path = "key_sets_tests.rs"]
mod tests;
