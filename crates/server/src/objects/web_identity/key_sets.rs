//! The keys of identity providers, from their discovery documents or from files, kept in memory.
//!
//! Always true: one request at a time fetches the keys of a provider; a provider is asked again at
//! most every [`RETRY`] whatever tokens clients send; responses are bounded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::JwkSet;
use serde_json::Value;

use super::tables::{ProviderRecord, discovery_url};
use crate::blocking::blocking;
use crate::outbound::{ServiceUrl, client_config, get, read_file};
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

/// The keys of all providers, by the identity of the provider.
#[derive(Default)]
pub(super) struct KeySets {
    sources: Mutex<BTreeMap<String, Arc<KeySource>>>,
}

#[derive(Default)]
struct KeySource {
    /// Held while the keys are fetched.
    fetching: tokio::sync::Mutex<()>,
    state: Mutex<KeyState>,
}

#[derive(Clone, Default)]
struct KeyState {
    keys: Option<Arc<JwkSet>>,
    /// The time at which the keys were fetched, by both clocks.
    fetched: Option<(Instant, u64)>,
    /// The time of the last attempt.
    tried: Option<Instant>,
    /// The reason why the last attempt failed.
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
}

impl KeySets {
    fn source(&self, id: &str) -> Arc<KeySource> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.entry(id.to_owned()).or_default().clone()
    }

    /// Forgets the keys of a provider: they are fetched again when they are needed.
    pub(super) fn forget(&self, id: &str) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Returns the state of the keys of a provider.
    pub(super) fn status(&self, id: &str) -> KeyStatus {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = sources.get(id).map(|source| source.lock().clone()) else {
            return KeyStatus::default();
        };
        KeyStatus {
            keys: state.keys.map_or(0, |keys| keys.keys.len() as u64),
            fetched: state.fetched.map(|(_, time)| time),
            problem: state.problem,
        }
    }

    /// Returns the keys of a provider, fetched within [`REFRESH`], or within [`KEEP`] if the
    /// provider does not answer.
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
        let source = self.source(&provider.id);
        if let Some(keys) = usable(&source.lock(), &suffices) {
            return Ok(keys);
        }
        let _fetching = source.fetching.lock().await;
        if let Some(keys) = usable(&source.lock(), &suffices) {
            return Ok(keys);
        }
        if !is_younger(source.lock().tried, RETRY) {
            let fetched = fetch(provider).await;
            let mut state = source.lock();
            let now = Instant::now();
            state.tried = Some(now);
            match fetched {
                Ok(keys) => {
                    tracing::debug!(issuer = provider.issuer, keys = keys.keys.len(), "keys fetched");
                    state.keys = Some(Arc::new(keys));
                    state.fetched = Some((now, unix_time()));
                    state.problem = None;
                }
                Err(reason) => {
                    tracing::warn!(issuer = provider.issuer, reason, "the keys cannot be fetched");
                    state.problem = Some(reason);
                }
            }
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
async fn fetch(provider: &ProviderRecord) -> Result<JwkSet, String> {
    if let Some(path) = provider.key_file.clone() {
        let read = blocking(move || read_file(Path::new(&path), DOCUMENT_MAX)).await;
        return parse(&read.map_err(|error| error.to_string())??);
    }
    let authorities = provider.authorities.clone();
    let tls = blocking(move || client_config(authorities.as_deref().map(Path::new))).await;
    let tls = tls.map_err(|error| error.to_string())??;
    let url = discovery_url(&provider.issuer)?;
    let document = get(&url, &tls, DOCUMENT_MAX).await?;
    let document: Value = serde_json::from_slice(&document)
        .map_err(|error| format!("{url} is not a JSON document: {error}"))?;
    let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("issuer") != provider.issuer {
        let shown: String = field("issuer").chars().take(200).collect();
        return Err(format!("{url} names the issuer '{shown}' instead of '{}'", provider.issuer));
    }
    let keys_url = field("jwks_uri");
    let keys_url = ServiceUrl::parse(keys_url)
        .map_err(|reason| format!("the jwks_uri '{keys_url}' of {url}: {reason}"))?;
    parse(&get(&keys_url, &tls, DOCUMENT_MAX).await?).map_err(|reason| format!("{keys_url}: {reason}"))
}

/// Parses a set of keys. Leaves out those that are malformed.
fn parse(document: &[u8]) -> Result<JwkSet, String> {
    let document: Value = serde_json::from_slice(document)
        .map_err(|error| format!("the keys are not a JSON document: {error}"))?;
    let Some(Value::Array(keys)) = document.get("keys") else {
        return Err("the document of the keys has no list 'keys'".to_owned());
    };
    let parsed = keys.iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value(key.clone()).ok());
    let set = JwkSet { keys: parsed.collect() };
    if set.keys.is_empty() { Err("the document has no usable key".to_owned()) } else { Ok(set) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEYS: &str = r#"{"keys": [{"kty": "RSA", "kid": "a", "n": "AQAB", "e": "AQAB"}, 7]}"#;

    fn provider(key_file: Option<String>) -> ProviderRecord {
        ProviderRecord {
            id: "1".to_owned(),
            created: 0,
            // Nothing listens there.
            issuer: "http://127.0.0.1:1".to_owned(),
            audiences: BTreeSet::new(),
            user_claim: "sub".to_owned(),
            key_file,
            authorities: None,
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn aged(sets: &KeySets, hours: u64) {
        let at = Instant::now().checked_sub(Duration::from_secs(hours * 3600)).unwrap();
        let keys = Some(Arc::new(parse(KEYS.as_bytes()).unwrap()));
        let state = KeyState { keys, fetched: Some((at, 0)), tried: None, problem: None };
        *sets.source("1").lock() = state;
    }

    #[test]
    fn keys_of_a_provider_without_an_answer_are_used_for_a_day() {
        let sets = KeySets::default();
        for (hours, is_used, is_tried) in [(0, true, false), (2, true, true), (25, false, true)] {
            aged(&sets, hours);
            let keys = block_on(sets.current(&provider(None)));
            assert_eq!(keys.is_ok(), is_used, "after {hours} h");
            let problem = sets.status("1").problem;
            assert_eq!(problem.is_some(), is_tried, "after {hours} h: {problem:?}");
        }
        let error = block_on(sets.current(&provider(None))).unwrap_err();
        assert!(error.contains("http://127.0.0.1:1/.well-known/openid-configuration"), "{error}");
        sets.forget("1");
        assert_eq!((sets.status("1").keys, sets.status("1").problem), (0, None));
    }

    #[test]
    fn keys_of_a_file_are_read_and_errors_name_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let provider = provider(Some(path.to_str().unwrap().to_owned()));
        for (text, reason) in [("{}", "'keys'"), ("x", "JSON"), (r#"{"keys": []}"#, "no usable key")] {
            std::fs::write(&path, text).unwrap();
            let sets = KeySets::default();
            let error = block_on(sets.current(&provider)).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        std::fs::write(&path, KEYS).unwrap();
        let sets = KeySets::default();
        assert_eq!(block_on(sets.current(&provider)).unwrap().keys.len(), 1);
        std::fs::remove_file(&path).unwrap();
        let error = block_on(KeySets::default().current(&provider)).unwrap_err();
        assert!(error.contains("keys.json"), "{error}");
    }
}
