//! The webhooks of S3: receivers of events with their URLs and tokens.
//!
//! Always true: tokens are encrypted in the file, which is readable by the owner only and is
//! replaced as a whole. Tokens are never shown or logged. Must not know: events, delivery.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::super::keys::SealedSecret;
use super::super::table_file::{damaged_file, read_tables};
use super::super::users::{check_name, missing};
use crate::error::{Error, ErrorKind, Result};
use crate::outbound::{self, ServiceUrl};
use crate::private_file;
use crate::request::random;
use crate::unix_time::unix_time;
use api::types::{ChangeWebhook, CreateWebhook};

const FILE: &str = "s3-webhooks.json";
const VERSION: u32 = 1;
const WEBHOOKS_MAX: usize = 100;
/// The longest URL and token in bytes.
const URL_MAX: usize = 2048;
const TOKEN_MAX: usize = 4096;

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredWebhooks {
    version: u32,
    webhooks: BTreeMap<String, StoredWebhook>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredWebhook {
    /// Random: another one after each change.
    id: String,
    created: u64,
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<SealedSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorities: Option<String>,
    #[serde(default)]
    allow_http: bool,
    #[serde(default)]
    allow_link_local: bool,
}

/// A webhook.
pub(super) struct WebhookRecord {
    stored: StoredWebhook,
    pub(super) url: ServiceUrl,
    /// The decrypted token.
    pub(super) token: Option<String>,
}

impl WebhookRecord {
    pub(super) fn id(&self) -> &str {
        &self.stored.id
    }

    pub(super) fn created(&self) -> u64 {
        self.stored.created
    }

    pub(super) fn authorities(&self) -> Option<&str> {
        self.stored.authorities.as_deref()
    }

    pub(super) fn allows_http(&self) -> bool {
        self.stored.allow_http
    }

    pub(super) fn allows_link_local(&self) -> bool {
        self.stored.allow_link_local
    }
}

type Webhooks = BTreeMap<String, Arc<WebhookRecord>>;

/// The webhooks of a state directory.
pub(crate) struct WebhookFile {
    directory: PathBuf,
    webhooks: RwLock<Arc<Webhooks>>,
    /// Held while the file changes.
    changing: Mutex<()>,
}

impl WebhookFile {
    /// Reads the file of a state directory.
    ///
    /// # Errors
    /// When the file cannot be read or decrypted.
    pub(in crate::objects) fn open(directory: &Path) -> Result<Self> {
        let file = directory.join(FILE);
        let damaged = |reason: String| damaged_file(&file, &reason, "webhooks");
        let stored = read_tables(&file, VERSION, "webhooks")?;
        let stored = stored.unwrap_or(StoredWebhooks { version: VERSION, webhooks: BTreeMap::new() });
        let mut webhooks = Webhooks::new();
        for (name, stored) in stored.webhooks {
            let url = ServiceUrl::parse_with(&stored.url, stored.allow_http);
            let url = url.map_err(|reason| damaged(format!("the URL of webhook '{name}': {reason}")))?;
            let token = match &stored.token {
                Some(sealed) => {
                    let token = sealed.open(directory, &secret_name(&name))?;
                    let reason = || format!("s3-keys.key does not decrypt the token of webhook '{name}'");
                    Some(token.ok_or_else(|| damaged(reason()))?)
                }
                None => None,
            };
            webhooks.insert(name, Arc::new(WebhookRecord { stored, url, token }));
        }
        let webhooks = RwLock::new(Arc::new(webhooks));
        Ok(Self { directory: directory.to_owned(), webhooks, changing: Mutex::default() })
    }

    /// Returns the webhooks of this moment.
    pub(super) fn all(&self) -> Arc<Webhooks> {
        self.webhooks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a webhook.
    pub(super) fn get(&self, name: &str) -> Option<Arc<WebhookRecord>> {
        self.all().get(name).cloned()
    }

    /// Creates a webhook.
    ///
    /// # Errors
    /// `Invalid`, `Exists`; when a file cannot be written.
    pub(super) fn create(&self, request: CreateWebhook) -> Result<()> {
        let CreateWebhook { name, url: text, token, authorities, allow_http, allow_link_local } = request;
        check_name("webhook", &name)?;
        let url = check_url(&text, allow_http)?;
        check_token(token.as_deref())?;
        outbound::check_authorities(authorities.as_deref())?;
        let _changing = self.lock();
        let mut webhooks = (*self.all()).clone();
        if webhooks.contains_key(&name) {
            let message = format!("there is a webhook '{name}' already");
            return Err(Error::new(ErrorKind::Exists, message)
                .hint(format!("'gabion webhook show {name}' shows it; choose another name")));
        }
        if webhooks.len() >= WEBHOOKS_MAX {
            let message = format!("there are {WEBHOOKS_MAX} webhooks already, which is the maximum");
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("delete one that is not used with 'gabion webhook delete NAME'"));
        }
        let seal = |token: &String| SealedSecret::new(&self.directory, &secret_name(&name), token);
        let stored = StoredWebhook {
            id: format!("{:016x}", random()?),
            created: unix_time(),
            url: text,
            token: token.as_ref().map(seal).transpose()?,
            authorities,
            allow_http,
            allow_link_local,
        };
        webhooks.insert(name, Arc::new(WebhookRecord { stored, url, token }));
        self.replace(webhooks)
    }

    /// Changes a webhook.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`; when a file cannot be written.
    pub(super) fn change(&self, name: &str, request: ChangeWebhook) -> Result<()> {
        let ChangeWebhook { url, token, authorities } = request;
        // An empty text removes a token or a file.
        let given = |text: Option<String>| text.map(|text| (!text.is_empty()).then_some(text));
        let (token, authorities) = (given(token), given(authorities));
        check_token(token.as_ref().and_then(Option::as_deref))?;
        outbound::check_authorities(authorities.as_ref().and_then(Option::as_deref))?;
        let _changing = self.lock();
        let mut webhooks = (*self.all()).clone();
        let before = webhooks.get(name).cloned().ok_or_else(|| missing("webhook", name))?;
        let mut stored = StoredWebhook { id: format!("{:016x}", random()?), ..before.stored.clone() };
        stored.url = url.unwrap_or(stored.url);
        stored.authorities = authorities.unwrap_or(stored.authorities);
        let url = check_url(&stored.url, stored.allow_http)?;
        let token = match token {
            Some(token) => {
                let seal = |token: &String| SealedSecret::new(&self.directory, &secret_name(name), token);
                stored.token = token.as_ref().map(seal).transpose()?;
                token
            }
            None => before.token.clone(),
        };
        webhooks.insert(name.to_owned(), Arc::new(WebhookRecord { stored, url, token }));
        self.replace(webhooks)
    }

    /// Deletes a webhook.
    ///
    /// # Errors
    /// `NotFound`; when the file cannot be written.
    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let _changing = self.lock();
        let mut webhooks = (*self.all()).clone();
        webhooks.remove(name).ok_or_else(|| missing("webhook", name))?;
        self.replace(webhooks)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the webhooks, in the file first.
    fn replace(&self, webhooks: Webhooks) -> Result<()> {
        let stored = webhooks.iter().map(|(name, record)| (name.clone(), record.stored.clone()));
        let stored = StoredWebhooks { version: VERSION, webhooks: stored.collect() };
        let bytes = serde_json::to_vec(&stored).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot encode the webhooks: {error}"))
        })?;
        private_file::replace(&self.directory.join(FILE), &bytes)?;
        *self.webhooks.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(webhooks);
        Ok(())
    }
}

/// The name by which a token is encrypted. Names of access keys have no colon.
fn secret_name(webhook: &str) -> String {
    format!("webhook:{webhook}")
}

fn check_url(text: &str, allow_http: bool) -> Result<ServiceUrl> {
    let parsed = match text.len() {
        0..=URL_MAX => ServiceUrl::parse_with(text, allow_http),
        _ => Err(format!("it has more than {URL_MAX} bytes")),
    };
    parsed.map_err(|reason| {
        let hint = "use https://HOST/PATH, or http:// with --allow-http in a trusted network";
        Error::new(ErrorKind::Invalid, format!("the URL cannot be used: {reason}")).hint(hint)
    })
}

fn check_token(token: Option<&str>) -> Result<()> {
    let is_valid = |token: &str| {
        (1..=TOKEN_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if token.is_none_or(is_valid) {
        return Ok(());
    }
    let message = "the token is empty, too long, or has other characters than visible ones of ASCII";
    Err(Error::new(ErrorKind::Invalid, message)
        .hint(format!("use 1 to {TOKEN_MAX} characters, such as the output of 'openssl rand -hex 32'")))
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
