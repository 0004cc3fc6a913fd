//! The users, groups and policies of S3.
//!
//! Always true: a name in a user or group names an existing group or policy; the file is readable
//! by the owner only, and is replaced as a whole. It contains no secrets. Must not know: access
//! keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use s3::{DEFAULT_USER, IdentityPolicy, UserRights};
use serde::{Deserialize, Serialize};

use super::table_file::{damaged_file, read_tables};
use crate::error::{Error, ErrorKind, Result};
use crate::private_file;
use crate::request::shown;
use crate::unix_time::unix_time;
use api::types::{
    ChangeS3Group, ChangeS3Policy, ChangeS3User, CreateS3Group, CreateS3Policy, CreateS3User, S3Group,
    S3Policy, S3User,
};

const FILE: &str = "s3-users.json";
const VERSION: u32 = 1;
/// The longest name in bytes.
const NAME_MAX: usize = 64;
/// The largest numbers of users, of groups, and of policies.
const USERS_MAX: usize = 10_000;
const GROUPS_MAX: usize = 1000;
const POLICIES_MAX: usize = 1000;
/// The largest number of policies or groups of one user or group.
const ATTACHED_MAX: usize = 20;

/// The built-in policies with their actions.
const BUILT_IN: [(&str, &str); 3] = [
    ("readonly", r#"["s3:Get*","s3:List*"]"#),
    ("readwrite", r#""s3:*""#),
    (
        "writeonly",
        r#"["s3:PutObject","s3:AbortMultipartUpload","s3:ListMultipartUploadParts","s3:ListBucketMultipartUploads"]"#,
    ),
];

fn built_in(name: &str) -> Option<String> {
    let (_, actions) = BUILT_IN.into_iter().find(|(built_in, _)| *built_in == name)?;
    let statement = format!(r#"{{"Effect":"Allow","Action":{actions},"Resource":"arn:aws:s3:::*"}}"#);
    Some(format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#))
}

/// The contents of the file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserTables {
    version: u32,
    users: BTreeMap<String, UserRecord>,
    groups: BTreeMap<String, GroupRecord>,
    policies: BTreeMap<String, PolicyRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserRecord {
    created: u64,
    policies: BTreeSet<String>,
    groups: BTreeSet<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupRecord {
    created: u64,
    policies: BTreeSet<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRecord {
    created: u64,
    document: String,
}

/// The tables with parsed policies, also the built-in ones.
struct LoadedTables {
    tables: UserTables,
    parsed: BTreeMap<String, Arc<IdentityPolicy>>,
}

impl LoadedTables {
    fn new(tables: UserTables) -> Result<Self, String> {
        let stored = tables.policies.iter().map(|(name, record)| (name.clone(), record.document.clone()));
        let built_in = BUILT_IN.iter().filter_map(|(name, _)| Some(((*name).to_owned(), built_in(name)?)));
        let parse = |(name, document): (String, String)| match IdentityPolicy::parse(&document) {
            Ok(policy) => Ok((name, Arc::new(policy))),
            Err(reason) => Err(format!("policy '{name}': {reason}")),
        };
        let parsed = stored.chain(built_in).map(parse).collect::<Result<_, _>>()?;
        Ok(Self { tables, parsed })
    }
}

/// The users, groups and policies.
pub(crate) struct UserFile {
    path: PathBuf,
    loaded: RwLock<Arc<LoadedTables>>,
    /// Held while the file changes.
    changing: Mutex<()>,
}

impl UserFile {
    /// Reads the users of a state directory.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let tables = read_tables(&path, VERSION, "users")?;
        let tables = tables.unwrap_or_else(|| UserTables { version: VERSION, ..UserTables::default() });
        let loaded = LoadedTables::new(tables).map_err(|reason| damaged_file(&path, &reason, "users"))?;
        Ok(Self { path, loaded: RwLock::new(Arc::new(loaded)), changing: Mutex::default() })
    }

    fn loaded(&self) -> Arc<LoadedTables> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the tables, in the file first.
    fn change(&self, work: impl FnOnce(&mut UserTables) -> Result<()>) -> Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables = self.loaded().tables.clone();
        work(&mut tables)?;
        let bytes = serde_json::to_vec(&tables)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot encode the users: {error}")))?;
        let loaded = LoadedTables::new(tables).map_err(|reason| Error::new(ErrorKind::Invalid, reason))?;
        private_file::replace(&self.path, &bytes)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        Ok(())
    }

    /// True if there is a user of this name.
    pub(crate) fn contains(&self, user: &str) -> bool {
        self.loaded().tables.users.contains_key(user)
    }

    /// Returns the rights of a user; `None` for a name without a user.
    pub(crate) fn rights(&self, user: &str) -> Option<UserRights> {
        let loaded = self.loaded();
        let record = loaded.tables.users.get(user)?;
        let groups = record.groups.iter().filter_map(|group| loaded.tables.groups.get(group));
        let names = record.policies.iter().chain(groups.flat_map(|group| &group.policies));
        let policies = names.filter_map(|name| loaded.parsed.get(name).cloned()).collect();
        Some(UserRights { policies, limit: None })
    }

    /// True if there is a policy of this name, also a built-in one.
    pub(crate) fn has_policy(&self, name: &str) -> bool {
        self.loaded().parsed.contains_key(name)
    }

    /// Returns the policies of these names.
    ///
    /// # Errors
    /// The name of one that does not exist.
    pub(crate) fn parsed_policies<'n>(
        &self,
        names: &'n BTreeSet<String>,
    ) -> Result<Vec<Arc<IdentityPolicy>>, &'n String> {
        let loaded = self.loaded();
        names.iter().map(|name| loaded.parsed.get(name).cloned().ok_or(name)).collect()
    }

    /// Returns the users; `keys` returns the access keys of one.
    pub(crate) fn users(&self, keys: impl Fn(&str) -> Vec<String>) -> Vec<S3User> {
        let describe = |(name, record): (&String, &UserRecord)| S3User {
            name: name.clone(),
            created: Some(record.created),
            policies: record.policies.iter().cloned().collect(),
            groups: record.groups.iter().cloned().collect(),
            keys: keys(name),
        };
        self.loaded().tables.users.iter().map(describe).collect()
    }

    /// Creates a user.
    ///
    /// # Errors
    /// `Invalid`, `Exists`; `NotFound` for a missing policy or group.
    pub(crate) fn create_user(&self, request: CreateS3User) -> Result<()> {
        let CreateS3User { name, policies, groups } = request;
        check_name("user", &name)?;
        if name == DEFAULT_USER || name == "anonymous" {
            let message = format!("the name '{name}' is reserved");
            return Err(Error::new(ErrorKind::Invalid, message).hint("choose another name"));
        }
        self.change(|tables| {
            check_new("user", &name, &tables.users, USERS_MAX)?;
            let policies = tables.named_policies(policies)?;
            let groups = tables.named_groups(groups)?;
            tables.users.insert(name, UserRecord { created: unix_time(), policies, groups });
            Ok(())
        })
    }

    /// Changes a user.
    ///
    /// # Errors
    /// `Invalid`; `NotFound` for a missing user, policy or group.
    pub(crate) fn change_user(&self, name: &str, request: ChangeS3User) -> Result<()> {
        self.change(|tables| {
            let policies = request.policies.map(|names| tables.named_policies(names)).transpose()?;
            let groups = request.groups.map(|names| tables.named_groups(names)).transpose()?;
            let record = tables.users.get_mut(name).ok_or_else(|| missing("user", name))?;
            record.policies = policies.unwrap_or_else(|| std::mem::take(&mut record.policies));
            record.groups = groups.unwrap_or_else(|| std::mem::take(&mut record.groups));
            Ok(())
        })
    }

    /// Deletes a user whose access keys are deleted.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn delete_user(&self, name: &str) -> Result<()> {
        self.change(|tables| tables.users.remove(name).map(drop).ok_or_else(|| missing("user", name)))
    }

    /// Returns the groups.
    pub(crate) fn groups(&self) -> Vec<S3Group> {
        let loaded = self.loaded();
        let users = &loaded.tables.users;
        let describe = |(name, record): (&String, &GroupRecord)| S3Group {
            name: name.clone(),
            created: record.created,
            policies: record.policies.iter().cloned().collect(),
            users: names_of(users, |user| user.groups.contains(name)),
        };
        loaded.tables.groups.iter().map(describe).collect()
    }

    /// Creates a group.
    ///
    /// # Errors
    /// `Invalid`, `Exists`; `NotFound` for a missing policy.
    pub(crate) fn create_group(&self, request: CreateS3Group) -> Result<()> {
        let CreateS3Group { name, policies } = request;
        check_name("group", &name)?;
        self.change(|tables| {
            check_new("group", &name, &tables.groups, GROUPS_MAX)?;
            let policies = tables.named_policies(policies)?;
            tables.groups.insert(name, GroupRecord { created: unix_time(), policies });
            Ok(())
        })
    }

    /// Changes the policies of a group.
    ///
    /// # Errors
    /// `NotFound` for a missing group or policy.
    pub(crate) fn change_group(&self, name: &str, request: ChangeS3Group) -> Result<()> {
        self.change(|tables| {
            let policies = tables.named_policies(request.policies)?;
            let record = tables.groups.get_mut(name).ok_or_else(|| missing("group", name))?;
            record.policies = policies;
            Ok(())
        })
    }

    /// Deletes a group without users.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub(crate) fn delete_group(&self, name: &str) -> Result<()> {
        self.change(|tables| {
            let users = names_of(&tables.users, |user| user.groups.contains(name));
            if let Some(user) = users.first() {
                let message = format!("group '{}' has {} users, such as '{user}'", shown(name), users.len());
                return Err(Error::new(ErrorKind::Busy, message)
                    .hint(format!("'gabion user set {user} --group ...' changes the groups of a user")));
            }
            tables.groups.remove(name).map(drop).ok_or_else(|| missing("group", name))
        })
    }

    /// Returns the policies, also the built-in ones; `roles` returns the roles of one.
    pub(crate) fn policies(&self, roles: impl Fn(&str) -> Vec<String>) -> Vec<S3Policy> {
        let loaded = self.loaded();
        let tables = &loaded.tables;
        let built_in =
            BUILT_IN.iter().filter_map(|(name, _)| Some(((*name).to_owned(), None, built_in(name)?)));
        let own = tables.policies.iter();
        let own = own.map(|(name, policy)| (name.clone(), Some(policy.created), policy.document.clone()));
        let describe = |(name, created, document): (String, Option<u64>, String)| S3Policy {
            created,
            document: serde_json::from_str(&document).unwrap_or_default(),
            users: names_of(&tables.users, |user| user.policies.contains(&name)),
            groups: names_of(&tables.groups, |group| group.policies.contains(&name)),
            roles: roles(&name),
            name,
        };
        built_in.chain(own).map(describe).collect()
    }

    /// Creates a policy.
    ///
    /// # Errors
    /// `Invalid` for a malformed document, `Exists`.
    pub(crate) fn create_policy(&self, request: CreateS3Policy) -> Result<()> {
        let CreateS3Policy { name, document } = request;
        check_name("policy", &name)?;
        let document = check_document(&document)?;
        self.change(|tables| {
            if built_in(&name).is_some() {
                return Err(exists("policy", &name));
            }
            check_new("policy", &name, &tables.policies, POLICIES_MAX)?;
            tables.policies.insert(name, PolicyRecord { created: unix_time(), document });
            Ok(())
        })
    }

    /// Replaces the document of a policy.
    ///
    /// # Errors
    /// `Invalid` for a malformed document or a built-in policy, `NotFound`.
    pub(crate) fn change_policy(&self, name: &str, request: &ChangeS3Policy) -> Result<()> {
        refuse_built_in(name)?;
        let document = check_document(&request.document)?;
        self.change(|tables| {
            let record = tables.policies.get_mut(name).ok_or_else(|| missing("policy", name))?;
            record.document = document;
            Ok(())
        })
    }

    /// Deletes a policy that no user or group has.
    ///
    /// # Errors
    /// `NotFound`, `Busy`, `Invalid` for a built-in policy.
    pub(crate) fn delete_policy(&self, name: &str) -> Result<()> {
        refuse_built_in(name)?;
        self.change(|tables| {
            let users = names_of(&tables.users, |user| user.policies.contains(name));
            let groups = names_of(&tables.groups, |group| group.policies.contains(name));
            let holder = users.first().map(|user| ("user", user));
            if let Some((kind, holder)) = holder.or_else(|| groups.first().map(|group| ("group", group))) {
                let message = format!("policy '{}' is attached to {kind} '{holder}'", shown(name));
                return Err(Error::new(ErrorKind::Busy, message)
                    .hint(format!("'gabion {kind} set {holder} --policy ...' changes its policies")));
            }
            tables.policies.remove(name).map(drop).ok_or_else(|| missing("policy", name))
        })
    }
}

impl UserTables {
    fn named_policies(&self, names: Vec<String>) -> Result<BTreeSet<String>> {
        attached("policy", names, |name| self.policies.contains_key(name) || built_in(name).is_some())
    }

    fn named_groups(&self, names: Vec<String>) -> Result<BTreeSet<String>> {
        attached("group", names, |name| self.groups.contains_key(name))
    }
}

fn attached(kind: &str, names: Vec<String>, has: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
    if let Some(name) = names.iter().find(|name| !has(name)) {
        return Err(missing(kind, name));
    }
    let names: BTreeSet<String> = names.into_iter().collect();
    if names.len() > ATTACHED_MAX {
        let kinds = plural(kind);
        let message = format!("{} {kinds} are given, and at most {ATTACHED_MAX} are possible", names.len());
        return Err(Error::new(ErrorKind::Invalid, message).hint("combine several policies in one"));
    }
    Ok(names)
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "user" => "users",
        "group" => "groups",
        _ => "policies",
    }
}

fn names_of<T>(table: &BTreeMap<String, T>, is_shown: impl Fn(&T) -> bool) -> Vec<String> {
    table.iter().filter(|(_, record)| is_shown(record)).map(|(name, _)| name.clone()).collect()
}

/// Checks the name of a user, group or policy.
pub(crate) fn check_name(kind: &str, name: &str) -> Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_valid) {
        return Ok(());
    }
    let message = format!("'{}' is not the name of a {kind}", shown(name));
    Err(Error::new(ErrorKind::Invalid, message)
        .hint(format!("use 1 to {NAME_MAX} letters, digits, hyphens, underscores and dots")))
}

fn check_new<T>(kind: &str, name: &str, table: &BTreeMap<String, T>, most: usize) -> Result<()> {
    if table.contains_key(name) {
        return Err(exists(kind, name));
    }
    if table.len() >= most {
        let message = format!("there are {most} {} already, which is the maximum", plural(kind));
        return Err(Error::new(ErrorKind::Invalid, message)
            .hint(format!("delete one that is not used with 'gabion {kind} delete NAME'")));
    }
    Ok(())
}

/// Returns a document as a text if it is well-formed.
fn check_document(document: &serde_json::Value) -> Result<String> {
    let document = document.to_string();
    match IdentityPolicy::parse(&document) {
        Ok(_) => Ok(document),
        Err(reason) => Err(Error::new(ErrorKind::Invalid, format!("the policy is malformed: {reason}"))
            .hint("'gabion policy show readonly' shows an example")),
    }
}

fn refuse_built_in(name: &str) -> Result<()> {
    if built_in(name).is_none() {
        return Ok(());
    }
    let message = format!("the policy '{name}' is built in and cannot be changed");
    Err(Error::new(ErrorKind::Invalid, message).hint("create a policy of another name"))
}

fn exists(kind: &str, name: &str) -> Error {
    let message = format!("there is a {kind} '{}' already", shown(name));
    Error::new(ErrorKind::Exists, message).hint(format!("'gabion {kind} show {name}' shows it"))
}

/// The error of a missing user, group or policy.
pub(crate) fn missing(kind: &str, name: &str) -> Error {
    let message = format!("there is no {kind} '{}'", shown(name));
    Error::new(ErrorKind::NotFound, message).hint(format!("'gabion {kind} list' lists them"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn kind(result: Result<()>) -> ErrorKind {
        result.unwrap_err().kind()
    }

    fn user(name: &str, policies: &[&str], groups: &[&str]) -> CreateS3User {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CreateS3User { name: name.to_owned(), policies: owned(policies), groups: owned(groups) }
    }

    fn policy(name: &str) -> CreateS3Policy {
        let document = serde_json::from_str(&built_in("readwrite").unwrap()).unwrap();
        CreateS3Policy { name: name.to_owned(), document }
    }

    #[test]
    fn users_have_their_policies_and_those_of_their_groups_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let users = UserFile::open(directory.path()).unwrap();
        users.create_policy(policy("all")).unwrap();
        let group = CreateS3Group { name: "ops".to_owned(), policies: vec!["all".to_owned()] };
        users.create_group(group).unwrap();
        users.create_user(user("anna", &["readonly"], &["ops"])).unwrap();
        let again = UserFile::open(directory.path()).unwrap();
        assert_eq!(again.rights("anna").unwrap().policies.len(), 2);
        assert!(again.rights("ben").is_none() && !again.contains("ben"));
        assert_eq!(again.groups()[0].users, ["anna"]);
        let mode = directory.path().join(FILE).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let nothing = ChangeS3User { policies: Some(Vec::new()), groups: Some(Vec::new()) };
        again.change_user("anna", nothing).unwrap();
        assert_eq!(again.rights("anna").unwrap().policies.len(), 0);
    }

    #[test]
    fn names_refer_to_existing_groups_and_policies() {
        let directory = tempfile::tempdir().unwrap();
        let users = UserFile::open(directory.path()).unwrap();
        assert_eq!(kind(users.create_user(user("anna", &["none"], &[]))), ErrorKind::NotFound);
        assert_eq!(kind(users.create_user(user("anna", &[], &["none"]))), ErrorKind::NotFound);
        assert_eq!(kind(users.create_user(user("a/b", &[], &[]))), ErrorKind::Invalid);
        assert_eq!(kind(users.create_user(user(DEFAULT_USER, &[], &[]))), ErrorKind::Invalid);
        users.create_policy(policy("all")).unwrap();
        assert_eq!(kind(users.create_policy(policy("all"))), ErrorKind::Exists);
        assert_eq!(kind(users.create_policy(policy("readonly"))), ErrorKind::Exists);
        assert_eq!(kind(users.delete_policy("readonly")), ErrorKind::Invalid);
        users.create_group(CreateS3Group { name: "ops".to_owned(), policies: Vec::new() }).unwrap();
        users.create_user(user("anna", &["all"], &["ops"])).unwrap();
        assert_eq!(kind(users.delete_policy("all")), ErrorKind::Busy);
        assert_eq!(kind(users.delete_group("ops")), ErrorKind::Busy);
        users.delete_user("anna").unwrap();
        users.delete_policy("all").unwrap();
        users.delete_group("ops").unwrap();
        assert_eq!(kind(users.delete_user("anna")), ErrorKind::NotFound);
        let document = serde_json::json!({"Statement": []});
        let malformed = CreateS3Policy { name: "empty".to_owned(), document };
        assert_eq!(kind(users.create_policy(malformed)), ErrorKind::Invalid);
    }
}
