//! Access control lists: canned lists, lists of headers and documents, and their evaluation.
//!
//! Always true: the owner of a bucket has full control of it and of its objects.

use s3s::dto::{self, Grant, Grantee, Owner, Permission, Type};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// The groups of S3.
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
/// The largest number of grants, as in S3.
const GRANTS_MAX: usize = 100;

/// The receiver of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AclGrantee {
    /// A user.
    User(String),
    /// Anyone, also without a signature.
    AllUsers,
    /// Anyone with an access key.
    AuthenticatedUsers,
}

/// The right of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AclRight {
    /// Lists a bucket; reads an object.
    Read,
    /// Writes objects of a bucket.
    Write,
    /// Reads the list.
    ReadAcl,
    /// Replaces the list.
    WriteAcl,
    /// All of these.
    Full,
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AclGrant {
    pub(crate) grantee: AclGrantee,
    pub(crate) right: AclRight,
}

/// A list with the owner of its bucket or object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessList {
    pub(crate) owner: String,
    pub(crate) grants: Vec<AclGrant>,
}

/// The grants in the headers of a request.
#[derive(Default)]
pub(crate) struct GrantHeaders {
    pub(crate) full: Option<String>,
    pub(crate) read: Option<String>,
    pub(crate) write: Option<String>,
    pub(crate) read_acl: Option<String>,
    pub(crate) write_acl: Option<String>,
}

impl GrantHeaders {
    fn each(&self) -> [(&Option<String>, AclRight); 5] {
        [
            (&self.full, AclRight::Full),
            (&self.read, AclRight::Read),
            (&self.write, AclRight::Write),
            (&self.read_acl, AclRight::ReadAcl),
            (&self.write_acl, AclRight::WriteAcl),
        ]
    }

    /// True if a header is there.
    pub(crate) fn is_some(&self) -> bool {
        self.each().iter().any(|(header, _)| header.is_some())
    }
}

impl AccessList {
    /// The list of a bucket or object that only its owner uses.
    pub(crate) fn private(owner: &str) -> Self {
        let grantee = AclGrantee::User(owner.to_owned());
        Self { owner: owner.to_owned(), grants: vec![AclGrant { grantee, right: AclRight::Full }] }
    }

    /// The list of a canned name.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown name.
    pub(crate) fn canned(name: &str, owner: &str, bucket_owner: &str) -> S3Result<Self> {
        let mut list = Self::private(owner);
        let mut add = |grantee, right| list.grants.push(AclGrant { grantee, right });
        match name {
            "private" => {}
            "public-read" => add(AclGrantee::AllUsers, AclRight::Read),
            "public-read-write" => {
                add(AclGrantee::AllUsers, AclRight::Read);
                add(AclGrantee::AllUsers, AclRight::Write);
            }
            "authenticated-read" => add(AclGrantee::AuthenticatedUsers, AclRight::Read),
            "bucket-owner-read" if owner != bucket_owner => {
                add(AclGrantee::User(bucket_owner.to_owned()), AclRight::Read);
            }
            "bucket-owner-full-control" if owner != bucket_owner => {
                add(AclGrantee::User(bucket_owner.to_owned()), AclRight::Full);
            }
            "bucket-owner-read" | "bucket-owner-full-control" => {}
            other => return Err(s3_error!(InvalidArgument, "the canned ACL '{other}' is unknown")),
        }
        Ok(list)
    }

    /// The list of the grants in headers.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed header or an unknown user.
    pub(crate) fn of_headers(
        headers: &GrantHeaders,
        owner: &str,
        has_user: &dyn Fn(&str) -> bool,
    ) -> S3Result<Self> {
        let mut grants = Vec::new();
        for (header, right) in headers.each() {
            for each in header.iter().flat_map(|header| header.split(',')) {
                let (kind, value) = each.trim().split_once('=').unwrap_or((each, ""));
                let value = value.trim_matches('"');
                let grantee = match kind {
                    "id" => user(value, has_user)?,
                    "uri" => group(value)?,
                    "emailAddress" => return Err(s3_error!(UnresolvableGrantByEmailAddress)),
                    other => return Err(s3_error!(InvalidArgument, "the grantee '{other}' is malformed")),
                };
                grants.push(AclGrant { grantee, right });
            }
        }
        Ok(Self { owner: owner.to_owned(), grants })
    }

    /// The list of a document.
    ///
    /// # Errors
    /// `MalformedACLError`, `InvalidArgument`, `AccessDenied` for another owner.
    pub(crate) fn of_document(
        document: dto::AccessControlPolicy,
        owner: &str,
        has_user: &dyn Fn(&str) -> bool,
    ) -> S3Result<Self> {
        let wanted = document.owner.and_then(|owner| owner.id);
        if wanted.is_none_or(|wanted| wanted != owner) {
            return Err(s3_error!(AccessDenied, "a list cannot change the owner"));
        }
        let given = document.grants.unwrap_or_default();
        if given.len() > GRANTS_MAX {
            return Err(s3_error!(MalformedACLError, "the list has more than {GRANTS_MAX} grants"));
        }
        let mut grants = Vec::new();
        for grant in given {
            let grantee =
                grant.grantee.ok_or_else(|| s3_error!(MalformedACLError, "a grant has no grantee"))?;
            let grantee = match (grantee.uri, grantee.id) {
                (Some(uri), _) => group(&uri)?,
                (None, Some(id)) => user(&id, has_user)?,
                (None, None) if grantee.email_address.is_some() => {
                    return Err(s3_error!(UnresolvableGrantByEmailAddress));
                }
                _ => return Err(s3_error!(MalformedACLError, "a grantee has no id")),
            };
            let right = match grant.permission.as_ref().map(Permission::as_str) {
                Some("READ") => AclRight::Read,
                Some("WRITE") => AclRight::Write,
                Some("READ_ACP") => AclRight::ReadAcl,
                Some("WRITE_ACP") => AclRight::WriteAcl,
                Some("FULL_CONTROL") => AclRight::Full,
                _ => return Err(s3_error!(MalformedACLError, "the permission of a grant is unknown")),
            };
            grants.push(AclGrant { grantee, right });
        }
        Ok(Self { owner: owner.to_owned(), grants })
    }

    /// True if the list gives a right to a user. Grants to groups count only if `with_groups` is
    /// set.
    pub(crate) fn allows(&self, user: Option<&str>, right: AclRight, with_groups: bool) -> bool {
        self.grants.iter().any(|grant| {
            let is_grantee = match &grant.grantee {
                AclGrantee::User(name) => user == Some(name.as_str()),
                AclGrantee::AllUsers => with_groups,
                AclGrantee::AuthenticatedUsers => with_groups && user.is_some(),
            };
            is_grantee && (grant.right == right || grant.right == AclRight::Full)
        })
    }

    /// True if the list gives a right to a group.
    pub(crate) fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| !matches!(grant.grantee, AclGrantee::User(_)))
    }

    /// The list for answers.
    pub(crate) fn to_wire(&self) -> (Owner, Vec<Grant>) {
        let grant = |grant: &AclGrant| {
            let permission = match grant.right {
                AclRight::Read => Permission::READ,
                AclRight::Write => Permission::WRITE,
                AclRight::ReadAcl => Permission::READ_ACP,
                AclRight::WriteAcl => Permission::WRITE_ACP,
                AclRight::Full => Permission::FULL_CONTROL,
            };
            let of_group = |uri: &str| Grantee {
                display_name: None,
                email_address: None,
                id: None,
                type_: Type::from_static(Type::GROUP),
                uri: Some(uri.to_owned()),
            };
            let grantee = match &grant.grantee {
                AclGrantee::User(name) => Grantee {
                    display_name: Some(name.clone()),
                    email_address: None,
                    id: Some(name.clone()),
                    type_: Type::from_static(Type::CANONICAL_USER),
                    uri: None,
                },
                AclGrantee::AllUsers => of_group(ALL_USERS),
                AclGrantee::AuthenticatedUsers => of_group(AUTHENTICATED_USERS),
            };
            Grant { grantee: Some(grantee), permission: Some(Permission::from_static(permission)) }
        };
        (owner(&self.owner), self.grants.iter().map(grant).collect())
    }
}

/// An owner for answers.
pub(crate) fn owner(name: &str) -> Owner {
    Owner { display_name: Some(name.to_owned()), id: Some(name.to_owned()) }
}

fn user(name: &str, has_user: &dyn Fn(&str) -> bool) -> S3Result<AclGrantee> {
    if has_user(name) {
        return Ok(AclGrantee::User(name.to_owned()));
    }
    let shown: String = name.chars().take(80).collect();
    Err(s3_error!(InvalidArgument, "there is no user '{shown}'"))
}

fn group(uri: &str) -> S3Result<AclGrantee> {
    match uri {
        ALL_USERS => Ok(AclGrantee::AllUsers),
        AUTHENTICATED_USERS => Ok(AclGrantee::AuthenticatedUsers),
        _ => Err(s3_error!(InvalidArgument, "the group of a grant is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canned_lists_give_their_rights() {
        let list = |name| AccessList::canned(name, "me", "owner").unwrap();
        assert!(!list("private").allows(None, AclRight::Read, true));
        assert!(list("private").allows(Some("me"), AclRight::WriteAcl, true));
        assert!(list("public-read").allows(None, AclRight::Read, true));
        assert!(!list("public-read").allows(None, AclRight::Read, false), "groups are ignored");
        assert!(!list("public-read").allows(None, AclRight::Write, true));
        assert!(list("public-read-write").allows(None, AclRight::Write, true));
        assert!(!list("authenticated-read").allows(None, AclRight::Read, true));
        assert!(list("authenticated-read").allows(Some("you"), AclRight::Read, true));
        assert!(list("bucket-owner-read").allows(Some("owner"), AclRight::Read, true));
        assert!(AccessList::canned("none", "me", "me").is_err());
    }

    #[test]
    fn headers_name_users_and_groups() {
        let headers = GrantHeaders {
            read: Some(format!("id=\"you\", uri=\"{ALL_USERS}\"")),
            full: Some("id=me".into()),
            ..GrantHeaders::default()
        };
        let list = AccessList::of_headers(&headers, "me", &|name| name != "nobody").unwrap();
        assert_eq!(list.grants.len(), 3);
        assert!(list.is_public() && list.allows(Some("you"), AclRight::Read, false));
        let unknown = GrantHeaders { read: Some("id=nobody".into()), ..GrantHeaders::default() };
        assert!(AccessList::of_headers(&unknown, "me", &|name| name != "nobody").is_err());
    }
}
