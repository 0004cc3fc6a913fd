//! The identity providers and roles of S3.
//!
//! Always true: a role names an existing provider; the file is readable by the owner only, and is
//! replaced as a whole. It contains no secrets. Must not know: policies, tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::super::table_file::read_tables;
use super::super::users::{check_name, missing};
use crate::error::{Error, ErrorKind, Result};
use crate::outbound::{self, ServiceUrl};
use crate::private_file;
use crate::request::{path, random, shown};
use crate::unix_time::unix_time;
use api::types::{ChangeS3Provider, ChangeS3Role, CreateS3Provider, CreateS3Role};

const FILE: &str = "s3-roles.json";
const VERSION: u32 = 1;
/// The largest numbers of providers, of roles, and of audiences or claims of one.
const PROVIDERS_MAX: usize = 100;
const ROLES_MAX: usize = 1000;
const RULES_MAX: usize = 20;
/// The longest audience, claim and pattern in bytes.
const RULE_BYTES_MAX: usize = 256;
/// The longest time of a session in seconds, as in AWS, and that of a role that names none.
const SESSION_MAX_S: u64 = 12 * 3600;
const SESSION_DEFAULT_S: u64 = 3600;

/// The contents of the file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleTables {
    version: u32,
    pub(super) providers: BTreeMap<String, ProviderRecord>,
    pub(super) roles: BTreeMap<String, RoleRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderRecord {
    /// Random: a provider that is created again is another one.
    pub(super) id: String,
    /// The number of its changes.
    #[serde(default)]
    pub(super) generation: u64,
    pub(super) created: u64,
    pub(super) issuer: String,
    pub(super) audiences: BTreeSet<String>,
    /// The claim that is the name of the user.
    pub(super) user_claim: String,
    /// A file with the keys, in place of the discovery document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_file: Option<String>,
    /// A file with the certificates of the authorities that sign that of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) authorities: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoleRecord {
    /// Random: a role that is created again is another one.
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) provider: String,
    pub(super) policies: BTreeSet<String>,
    /// The patterns of claims that a token must have.
    pub(super) claims: BTreeMap<String, String>,
    pub(super) session_max_s: u64,
}

impl RoleTables {
    /// Returns a role and its provider.
    pub(super) fn role(&self, name: &str) -> Option<(&RoleRecord, &ProviderRecord)> {
        let role = self.roles.get(name)?;
        Some((role, self.providers.get(&role.provider)?))
    }

    /// Returns the names of the roles of a provider.
    pub(super) fn roles_of_provider(&self, provider: &str) -> Vec<String> {
        self.names(|role| role.provider == provider)
    }

    /// Returns the names of the roles with a policy.
    pub(crate) fn roles_of_policy(&self, policy: &str) -> Vec<String> {
        self.names(|role| role.policies.contains(policy))
    }

    fn names(&self, is_shown: impl Fn(&RoleRecord) -> bool) -> Vec<String> {
        self.roles.iter().filter(|(_, role)| is_shown(role)).map(|(name, _)| name.clone()).collect()
    }
}

/// The providers and roles.
pub(crate) struct RoleFile {
    path: PathBuf,
    tables: RwLock<Arc<RoleTables>>,
    /// Held while the file changes.
    changing: Mutex<()>,
}

impl RoleFile {
    /// Reads the file of a state directory.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let tables = read_tables(&path, VERSION, "roles")?;
        let tables = tables.unwrap_or_else(|| RoleTables { version: VERSION, ..RoleTables::default() });
        Ok(Self { path, tables: RwLock::new(Arc::new(tables)), changing: Mutex::default() })
    }

    /// Returns the providers and roles of this moment.
    pub(crate) fn tables(&self) -> Arc<RoleTables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the tables, in the file first.
    fn change<T>(&self, work: impl FnOnce(&mut RoleTables) -> Result<T>) -> Result<T> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables = (*self.tables()).clone();
        let result = work(&mut tables)?;
        let bytes = serde_json::to_vec(&tables)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot encode the roles: {error}")))?;
        private_file::replace(&self.path, &bytes)?;
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tables);
        Ok(result)
    }

    /// Creates a provider.
    ///
    /// # Errors
    /// `Invalid`, `Exists`.
    pub(crate) fn create_provider(&self, request: CreateS3Provider) -> Result<()> {
        let CreateS3Provider { name, issuer, audiences, user_claim, key_file, authorities } = request;
        check_name("provider", &name)?;
        if let Err(reason) = discovery_url(&issuer) {
            let message = format!("'{}' is not an issuer: {reason}", shown(&issuer));
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("use the claim 'iss' of its tokens, such as https://login.example.org/realms/main"));
        }
        let record = ProviderRecord {
            id: format!("{:016x}", random()?),
            generation: 0,
            created: unix_time(),
            issuer,
            audiences: check_audiences(audiences)?,
            user_claim: check_claim(user_claim.unwrap_or_else(|| "sub".to_owned()))?,
            key_file: check_file(key_file)?,
            authorities: check_authorities(authorities)?,
        };
        self.change(|tables| {
            check_new("provider", &name, &tables.providers, PROVIDERS_MAX)?;
            tables.providers.insert(name, record);
            Ok(())
        })
    }

    /// Changes a provider. Returns its identity.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`.
    pub(super) fn change_provider(&self, name: &str, request: ChangeS3Provider) -> Result<String> {
        let audiences = request.audiences.map(check_audiences).transpose()?;
        let user_claim = request.user_claim.map(check_claim).transpose()?;
        // An empty name removes a file.
        let file = |name: Option<String>| name.map(|name| (!name.is_empty()).then_some(name));
        let key_file = file(request.key_file).map(check_file).transpose()?;
        let authorities = file(request.authorities).map(check_authorities).transpose()?;
        self.change(|tables| {
            let record = tables.providers.get_mut(name).ok_or_else(|| missing("provider", name))?;
            record.generation += 1;
            record.audiences = audiences.unwrap_or_else(|| std::mem::take(&mut record.audiences));
            record.user_claim = user_claim.unwrap_or_else(|| std::mem::take(&mut record.user_claim));
            record.key_file = key_file.unwrap_or_else(|| record.key_file.take());
            record.authorities = authorities.unwrap_or_else(|| record.authorities.take());
            Ok(record.id.clone())
        })
    }

    /// Deletes a provider without roles. Returns its identity.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub(super) fn delete_provider(&self, name: &str) -> Result<String> {
        self.change(|tables| {
            if let Some(role) = tables.roles_of_provider(name).first() {
                let message = format!("provider '{}' is used by role '{role}'", shown(name));
                return Err(Error::new(ErrorKind::Busy, message)
                    .hint(format!("'gabion role delete {role}' deletes the role and ends its sessions")));
            }
            let removed = tables.providers.remove(name);
            removed.map(|record| record.id).ok_or_else(|| missing("provider", name))
        })
    }

    /// Creates a role whose policies exist.
    ///
    /// # Errors
    /// `Invalid`, `Exists`; `NotFound` for a missing provider.
    pub(crate) fn create_role(&self, request: CreateS3Role) -> Result<()> {
        let CreateS3Role { name, provider, policies, claims, any_claims, session_max } = request;
        check_name("role", &name)?;
        let record = RoleRecord {
            id: format!("{:016x}", random()?),
            created: unix_time(),
            provider,
            policies: check_policies(policies)?,
            claims: check_claims(claims, any_claims)?,
            session_max_s: check_session(session_max.unwrap_or(SESSION_DEFAULT_S))?,
        };
        self.change(|tables| {
            check_new("role", &name, &tables.roles, ROLES_MAX)?;
            if !tables.providers.contains_key(&record.provider) {
                return Err(missing("provider", &record.provider));
            }
            tables.roles.insert(name, record);
            Ok(())
        })
    }

    /// Changes a role whose policies exist. Its sessions are subject to the change.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`.
    pub(crate) fn change_role(&self, name: &str, request: ChangeS3Role) -> Result<()> {
        let policies = request.policies.map(check_policies).transpose()?;
        let claims = match (request.claims, request.any_claims) {
            (None, false) => None,
            (claims, any_claims) => Some(check_claims(claims.unwrap_or_default(), any_claims)?),
        };
        let session_max_s = request.session_max.map(check_session).transpose()?;
        self.change(|tables| {
            let record = tables.roles.get_mut(name).ok_or_else(|| missing("role", name))?;
            record.policies = policies.unwrap_or_else(|| std::mem::take(&mut record.policies));
            record.claims = claims.unwrap_or_else(|| std::mem::take(&mut record.claims));
            record.session_max_s = session_max_s.unwrap_or(record.session_max_s);
            Ok(())
        })
    }

    /// Deletes a role and ends its sessions.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn delete_role(&self, name: &str) -> Result<()> {
        self.change(|tables| tables.roles.remove(name).map(drop).ok_or_else(|| missing("role", name)))
    }
}

/// Returns the address of the discovery document of an issuer.
///
/// # Errors
/// The reason why the issuer has none.
pub(super) fn discovery_url(issuer: &str) -> Result<ServiceUrl, String> {
    ServiceUrl::parse(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))
}

fn check_new<T>(kind: &str, name: &str, table: &BTreeMap<String, T>, most: usize) -> Result<()> {
    if table.contains_key(name) {
        let message = format!("there is a {kind} '{}' already", shown(name));
        return Err(
            Error::new(ErrorKind::Exists, message).hint(format!("'gabion {kind} show {name}' shows it"))
        );
    }
    if table.len() >= most {
        let message = format!("there are {most} {kind}s already, which is the maximum");
        return Err(Error::new(ErrorKind::Invalid, message)
            .hint(format!("delete one that is not used with 'gabion {kind} delete NAME'")));
    }
    Ok(())
}

fn check_text(kind: &str, text: &str) -> Result<()> {
    if (1..=RULE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("'{}' is not {kind}", shown(text));
    Err(Error::new(ErrorKind::Invalid, message).hint(format!("use 1 to {RULE_BYTES_MAX} characters")))
}

fn check_count(kind: &str, count: usize) -> Result<()> {
    if count <= RULES_MAX {
        return Ok(());
    }
    let message = format!("{count} {kind} are given, and at most {RULES_MAX} are possible");
    Err(Error::new(ErrorKind::Invalid, message).hint("use several roles or providers"))
}

fn check_audiences(audiences: Vec<String>) -> Result<BTreeSet<String>> {
    if audiences.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "a provider needs an audience")
            .hint("give the client id of the application, the claim 'aud' of its tokens"));
    }
    check_count("audiences", audiences.len())?;
    audiences.iter().try_for_each(|audience| check_text("an audience", audience))?;
    Ok(audiences.into_iter().collect())
}

fn check_claim(claim: String) -> Result<String> {
    check_text("the name of a claim", &claim)?;
    Ok(claim)
}

/// Checks the claims of a role, which needs some unless `any_claims` accepts all tokens.
fn check_claims(claims: BTreeMap<String, String>, any_claims: bool) -> Result<BTreeMap<String, String>> {
    if claims.is_empty() != any_claims {
        let (message, hint) = match any_claims {
            true => {
                ("a role cannot demand claims and accept every token", "give either --claim or --any-claims")
            }
            false => (
                "a role without claims accepts every token of its provider for its audiences",
                "demand a claim with --claim CLAIM=PATTERN, or give --any-claims",
            ),
        };
        return Err(Error::new(ErrorKind::Invalid, message).hint(hint));
    }
    check_count("claims", claims.len())?;
    for (claim, pattern) in &claims {
        check_text("the name of a claim", claim)?;
        check_text("the pattern of a claim", pattern)?;
    }
    Ok(claims)
}

fn check_policies(policies: Vec<String>) -> Result<BTreeSet<String>> {
    check_count("policies", policies.len())?;
    Ok(policies.into_iter().collect())
}

fn check_session(seconds: u64) -> Result<u64> {
    if (1..=SESSION_MAX_S).contains(&seconds) {
        return Ok(seconds);
    }
    let message = format!("a session cannot be valid for {seconds} s");
    Err(Error::new(ErrorKind::Invalid, message).hint(format!("use 1 to {SESSION_MAX_S} seconds")))
}

fn check_file(file: Option<String>) -> Result<Option<String>> {
    file.as_deref().map(path).transpose()?;
    Ok(file)
}

/// Checks that a file contains certificates.
fn check_authorities(file: Option<String>) -> Result<Option<String>> {
    outbound::check_authorities(file.as_deref())?;
    Ok(file)
}
