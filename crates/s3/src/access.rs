//! The right of a request to its operation: owners, policies, lists of access, and the block of
//! public access.
//!
//! Always true: an operation that this file does not name is allowed to the bucket's owner only; in
//! a bucket with a setting of access that cannot be read, no request is allowed but the owner's to
//! replace it.

use std::net::SocketAddr;
use std::sync::Arc;

use object::{ChangeOrigin, ChangeSource, ObjectRef};
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::PostObjectInput;
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};

use crate::acl::{AccessList, AclRight};
use crate::attributes;
use crate::gateway::Gateway;
use crate::identity::UserRights;
use crate::policy::{Decision, PolicyRequest};
use crate::request_check::parse_query;
use crate::roles::{RoleSession, SessionError};
use crate::settings::{
    ACL, BucketSettings, DEFAULT_USER, ENCRYPTION, LOCK, OWNERSHIP, POLICY, PUBLIC_ACCESS,
};

/// The sender of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// The user; `None` for an anonymous request.
    pub(crate) user: Option<String>,
    /// The role of the session, for temporary credentials.
    role: Option<String>,
    /// The rights of the user, if it has policies.
    rights: Option<UserRights>,
    /// The address of the client.
    address: Option<SocketAddr>,
    /// True for a request over HTTPS.
    is_secure: bool,
    referer: Option<String>,
    agent: Option<String>,
    /// Headers and parameters of the query that policies know.
    values: Vec<(String, String)>,
}

impl Caller {
    /// The user that owns objects and buckets of this request.
    pub(crate) fn owner(&self) -> &str {
        self.user.as_deref().unwrap_or("anonymous")
    }

    /// The sender of a change, for its events.
    pub(crate) fn source(&self, origin: ChangeOrigin) -> ChangeSource {
        let address = self.address.map(|address| address.ip().to_canonical().to_string());
        let principal = self.owner().to_owned();
        ChangeSource { origin, principal, address: address.unwrap_or_default() }
    }

    fn kind(&self) -> &'static str {
        match (&self.user, &self.role) {
            (None, _) => "Anonymous",
            (Some(_), None) => "User",
            (Some(_), Some(_)) => "AssumedRole",
        }
    }

    fn is_admin(&self) -> bool {
        self.user.as_deref() == Some(DEFAULT_USER)
    }

    /// Decides by the policies of the user.
    fn decide(&self, request: &PolicyRequest<'_>) -> Decision {
        self.rights.as_ref().map_or(Decision::Silent, |rights| rights.decide(request))
    }

    /// True if the caller may see a bucket of this owner in the list of buckets.
    pub(crate) fn sees(&self, bucket: &str, owner: &str) -> bool {
        let values = |key: &str| condition_values(self, &[], key);
        let user = self.user.as_deref();
        let (role, action) = (self.role.as_deref(), "s3:ListBucket");
        let request = PolicyRequest { user, role, action, resource: bucket, values: &values };
        match self.decide(&request) {
            Decision::Allow => true,
            Decision::Deny => false,
            Decision::Silent => owner == self.owner(),
        }
    }

    /// Checks the right to an operation that uses no existing bucket.
    fn check_service(&self, operation: &str, bucket: &str) -> S3Result<()> {
        if self.rights.is_none() {
            return Ok(());
        }
        let action = match operation {
            "CreateBucket" => "s3:CreateBucket",
            "ListBuckets" => "s3:ListAllMyBuckets",
            _ => "s3:-",
        };
        let values = |key: &str| condition_values(self, &[], key);
        let (user, role) = (self.user.as_deref(), self.role.as_deref());
        match self.decide(&PolicyRequest { user, role, action, resource: bucket, values: &values }) {
            Decision::Allow => Ok(()),
            _ => Err(s3_error!(AccessDenied, "no policy of user '{}' allows {action}", self.owner())),
        }
    }

    /// Actions that the headers of a put need besides that of the operation.
    fn header_actions(&self, operation: &str) -> Vec<&'static str> {
        if !matches!(operation, "PutObject" | "CreateMultipartUpload" | "CopyObject") {
            return Vec::new();
        }
        let has = |prefix: &str| self.values.iter().any(|(name, _)| name.starts_with(prefix));
        let headers = [
            ("x-amz-acl", "s3:PutObjectAcl"),
            ("x-amz-grant-", "s3:PutObjectAcl"),
            ("x-amz-tagging", "s3:PutObjectTagging"),
            ("x-amz-object-lock-mode", "s3:PutObjectRetention"),
            ("x-amz-object-lock-legal-hold", "s3:PutObjectLegalHold"),
        ];
        headers.into_iter().filter(|(prefix, _)| has(prefix)).map(|(_, action)| action).collect()
    }
}

/// The caller and the bucket of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestScope {
    pub(crate) caller: Caller,
    pub(crate) bucket: Option<Arc<BucketSettings>>,
}

impl RequestScope {
    /// The bucket of the request.
    ///
    /// # Errors
    /// `InternalError` for an operation without a bucket.
    pub(crate) fn bucket(&self) -> S3Result<&Arc<BucketSettings>> {
        self.bucket.as_ref().ok_or_else(|| s3_error!(InternalError, "the request names no bucket"))
    }
}

/// Returns the scope that the check of access has stored.
pub(crate) fn scope(extensions: &hyper::http::Extensions) -> RequestScope {
    extensions.get().cloned().unwrap_or_default()
}

/// The action of a policy for an operation, and the right of a list of access that permits it.
fn action_of(operation: &str, has_version: bool) -> (&'static str, Option<AclRight>) {
    use AclRight::{Read, ReadAcl, Write, WriteAcl};
    match operation {
        "ListObjects" | "ListObjectsV2" | "HeadBucket" => ("s3:ListBucket", Some(Read)),
        "ListObjectVersions" => ("s3:ListBucketVersions", Some(Read)),
        "ListMultipartUploads" => ("s3:ListBucketMultipartUploads", Some(Read)),
        "GetBucketAcl" => ("s3:GetBucketAcl", Some(ReadAcl)),
        "PutBucketAcl" => ("s3:PutBucketAcl", Some(WriteAcl)),
        "GetObject" | "HeadObject" | "SelectObjectContent" if has_version => {
            ("s3:GetObjectVersion", Some(Read))
        }
        "GetObject" | "HeadObject" | "SelectObjectContent" => ("s3:GetObject", Some(Read)),
        "GetObjectAttributes" if has_version => ("s3:GetObjectVersionAttributes", Some(Read)),
        "GetObjectAttributes" => ("s3:GetObjectAttributes", Some(Read)),
        "GetObjectAcl" if has_version => ("s3:GetObjectVersionAcl", Some(ReadAcl)),
        "GetObjectAcl" => ("s3:GetObjectAcl", Some(ReadAcl)),
        "PutObjectAcl" if has_version => ("s3:PutObjectVersionAcl", Some(WriteAcl)),
        "PutObjectAcl" => ("s3:PutObjectAcl", Some(WriteAcl)),
        "PutObject"
        | "PostObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "CompleteMultipartUpload"
        | "CopyObject"
        | "UploadPartCopy" => ("s3:PutObject", Some(Write)),
        "AbortMultipartUpload" => ("s3:AbortMultipartUpload", Some(Write)),
        "ListParts" => ("s3:ListMultipartUploadParts", None),
        "DeleteObject" if has_version => ("s3:DeleteObjectVersion", Some(Write)),
        "DeleteObject" => ("s3:DeleteObject", Some(Write)),
        "GetObjectTagging" if has_version => ("s3:GetObjectVersionTagging", None),
        "GetObjectTagging" => ("s3:GetObjectTagging", None),
        "PutObjectTagging" if has_version => ("s3:PutObjectVersionTagging", None),
        "PutObjectTagging" => ("s3:PutObjectTagging", None),
        "DeleteObjectTagging" if has_version => ("s3:DeleteObjectVersionTagging", None),
        "DeleteObjectTagging" => ("s3:DeleteObjectTagging", None),
        "GetObjectRetention" => ("s3:GetObjectRetention", None),
        "PutObjectRetention" => ("s3:PutObjectRetention", None),
        "GetObjectLegalHold" => ("s3:GetObjectLegalHold", None),
        "PutObjectLegalHold" => ("s3:PutObjectLegalHold", None),
        "DeleteBucket" => ("s3:DeleteBucket", None),
        "GetBucketLocation" => ("s3:GetBucketLocation", None),
        "GetBucketVersioning" => ("s3:GetBucketVersioning", None),
        "PutBucketVersioning" => ("s3:PutBucketVersioning", None),
        "GetBucketPolicy" => ("s3:GetBucketPolicy", None),
        "PutBucketPolicy" => ("s3:PutBucketPolicy", None),
        "DeleteBucketPolicy" => ("s3:DeleteBucketPolicy", None),
        "GetBucketPolicyStatus" => ("s3:GetBucketPolicyStatus", None),
        "GetPublicAccessBlock" => ("s3:GetBucketPublicAccessBlock", None),
        "PutPublicAccessBlock" | "DeletePublicAccessBlock" => ("s3:PutBucketPublicAccessBlock", None),
        "GetBucketCors" => ("s3:GetBucketCORS", None),
        "PutBucketCors" | "DeleteBucketCors" => ("s3:PutBucketCORS", None),
        "GetBucketTagging" => ("s3:GetBucketTagging", None),
        "PutBucketTagging" | "DeleteBucketTagging" => ("s3:PutBucketTagging", None),
        "GetBucketEncryption" => ("s3:GetEncryptionConfiguration", None),
        "PutBucketEncryption" | "DeleteBucketEncryption" => ("s3:PutEncryptionConfiguration", None),
        "GetBucketLifecycleConfiguration" => ("s3:GetLifecycleConfiguration", None),
        "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => ("s3:PutLifecycleConfiguration", None),
        "GetObjectLockConfiguration" => ("s3:GetBucketObjectLockConfiguration", None),
        "PutObjectLockConfiguration" => ("s3:PutBucketObjectLockConfiguration", None),
        "GetBucketNotificationConfiguration" => ("s3:GetBucketNotification", None),
        "PutBucketNotificationConfiguration" => ("s3:PutBucketNotification", None),
        "GetBucketOwnershipControls" => ("s3:GetBucketOwnershipControls", None),
        "PutBucketOwnershipControls" | "DeleteBucketOwnershipControls" => {
            ("s3:PutBucketOwnershipControls", None)
        }
        "GetBucketRequestPayment" => ("s3:GetBucketRequestPayment", None),
        // All other operations are not implemented, whatever a policy allows.
        _ => ("s3:-", None),
    }
}

/// Operations on objects whose list of access is that of the bucket.
fn uses_bucket_list(action: &str) -> bool {
    matches!(
        action,
        "s3:PutObject" | "s3:AbortMultipartUpload" | "s3:DeleteObject" | "s3:DeleteObjectVersion"
    )
}

/// An operation to be allowed.
pub(crate) struct AccessRequest<'a> {
    pub(crate) action: &'a str,
    pub(crate) right: Option<AclRight>,
    /// The key and the version; `None` for an operation on the bucket.
    pub(crate) object: Option<(&'a str, Option<&'a str>)>,
}

/// The actions that replace, delete or show a setting of access as it is stored. Empty for settings
/// without which a bucket gives no more rights: CORS, lifecycle, notifications.
fn repairs_of(setting: &str) -> &'static [&'static str] {
    match setting {
        POLICY => &["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"],
        ACL => &["s3:PutBucketAcl"],
        PUBLIC_ACCESS => &["s3:PutBucketPublicAccessBlock"],
        ENCRYPTION => &["s3:PutEncryptionConfiguration"],
        LOCK => &["s3:PutBucketObjectLockConfiguration"],
        OWNERSHIP => &["s3:PutBucketOwnershipControls"],
        _ => &[],
    }
}

/// Refuses an action in a bucket with settings of access that cannot be read: a policy may deny it,
/// a block of public access or a default encryption may apply to it.
///
/// # Errors
/// `AccessDenied`, unless the owner replaces such a setting.
fn check_readable(bucket: &BucketSettings, is_owner: bool, action: &str) -> S3Result<()> {
    let repairs = |setting: &&&str| repairs_of(setting).contains(&action);
    let mut closing = bucket.unreadable.iter().filter(|setting| !repairs_of(setting).is_empty());
    let Some(setting) = closing.clone().next() else { return Ok(()) };
    if is_owner && closing.any(|setting| repairs(&setting)) {
        return Ok(());
    }
    let name = &bucket.info.name;
    Err(s3_error!(
        AccessDenied,
        "the stored setting '{setting}' of bucket '{name}' cannot be read, so that all requests are denied: \
         the owner of the bucket or the administrator must replace the setting or delete it"
    ))
}

/// The header and parameter of the query with the token of temporary credentials.
const SESSION_TOKEN: &str = "x-amz-security-token";

impl Gateway {
    /// Returns a caller with the user and rights of its access key, whose signature is verified.
    ///
    /// # Errors
    /// `InvalidToken`, `ExpiredToken`; `InvalidAccessKeyId` for a key that was deleted meanwhile.
    fn identify(&self, caller: Caller, access_key: &str) -> S3Result<Caller> {
        let is_token = |(name, _): &&(String, String)| name.eq_ignore_ascii_case(SESSION_TOKEN);
        let mut tokens = caller.values.iter().filter(is_token).map(|(_, value)| value.as_str());
        let token = tokens.next();
        if tokens.next().is_some() {
            return Err(s3_error!(InvalidToken, "the request has more than one {SESSION_TOKEN}"));
        }
        if let Some(user) = self.keys.user(access_key) {
            if token.is_some() {
                let message = "the access key is not a temporary one, and has no session token";
                return Err(s3_error!(InvalidToken, "{message}"));
            }
            let rights = self.keys.rights(&user);
            return Ok(Caller { user: Some(user), rights, ..caller });
        }
        let Some(roles) = self.roles.as_deref() else {
            return Err(s3_error!(InvalidAccessKeyId, "the access key does not exist"));
        };
        let Some(token) = token else {
            return Err(s3_error!(
                InvalidToken,
                "the request has a temporary access key without its session token: send the token in the \
                 header or parameter {SESSION_TOKEN}, or use a permanent key for forms"
            ));
        };
        match roles.session(access_key, token) {
            Ok(RoleSession { user, role, rights }) => {
                Ok(Caller { user: Some(user), role: Some(role), rights: Some(rights), ..caller })
            }
            Err(SessionError::Expired) => {
                Err(s3_error!(ExpiredToken, "the session has expired: assume the role again"))
            }
            Err(SessionError::Invalid(reason)) => Err(s3_error!(InvalidToken, "{reason}")),
        }
    }

    /// Checks the right of a caller to an operation on a bucket or object.
    ///
    /// # Errors
    /// `AccessDenied`; `NoSuchKey` for a missing object, if the caller may list the bucket.
    pub(crate) async fn authorize(
        &self,
        caller: &Caller,
        bucket: &BucketSettings,
        request: AccessRequest<'_>,
    ) -> S3Result<()> {
        let name = &bucket.info.name;
        // The policies of a user, not its buckets, give it rights.
        let is_owner =
            caller.rights.is_none() && caller.user.as_deref() == Some(bucket.owner()) || caller.is_admin();
        check_readable(bucket, is_owner, request.action)?;
        if bucket.policy.is_none() && is_owner {
            return Ok(());
        }
        // Tags and lists are attributes of the object that the operation reads or replaces.
        let needs_object = !is_owner || bucket.policy.is_some();
        let info = match request.object {
            Some((key, version)) if needs_object => {
                let version = version.map(str::to_owned);
                let object = ObjectRef { bucket: name.clone(), key: key.to_owned(), version };
                self.read(move |store| Ok(store.object(&object).ok())).await?
            }
            _ => None,
        };
        let resource = match request.object {
            Some((key, _)) => format!("{name}/{key}"),
            None => name.clone(),
        };
        let tags = info.as_ref().map(|info| crate::tags::tags_of(&info.attributes)).unwrap_or_default();
        let values = |key: &str| condition_values(caller, &tags, key);
        let (user, role, action) = (caller.user.as_deref(), caller.role.as_deref(), request.action);
        let policy_request = PolicyRequest { user, role, action, resource: &resource, values: &values };
        let of_user = caller.decide(&policy_request);
        if of_user == Decision::Deny {
            return Err(s3_error!(AccessDenied, "a policy of user '{}' denies {action}", caller.owner()));
        }
        let decision =
            bucket.policy.as_ref().map_or(Decision::Silent, |policy| policy.decide(&policy_request));
        // The owner can always repair a policy.
        let repairs = matches!(action, "s3:GetBucketPolicy" | "s3:PutBucketPolicy" | "s3:DeleteBucketPolicy");
        if decision == Decision::Deny && !(is_owner && repairs) {
            return Err(s3_error!(AccessDenied, "the policy of the bucket denies {action}"));
        }
        let is_public = bucket.policy.as_ref().is_some_and(|policy| policy.is_public());
        let is_restricted = bucket.public_access.restrict && is_public;
        if is_owner || of_user == Decision::Allow || (decision == Decision::Allow && !is_restricted) {
            return Ok(());
        }
        let with_groups = !bucket.public_access.ignore_acls;
        let allows = |list: &AccessList, right| {
            // Ownership gives a user with policies no rights.
            let user = user.filter(|user| caller.rights.is_none() || list.owner != **user);
            !bucket.is_owner_enforced && list.allows(user, right, with_groups)
        };
        let is_allowed = match (request.right, request.object) {
            (None, _) => false,
            (Some(right), None) => allows(&bucket.acl, right),
            (Some(right), Some(_)) if uses_bucket_list(action) => allows(&bucket.acl, right),
            (Some(right), Some(_)) => match &info {
                Some(info) => allows(&attributes::access_list(&info.attributes, bucket.owner()), right),
                // A missing object is no secret from those who may list the bucket.
                None => allows(&bucket.acl, AclRight::Read),
            },
        };
        if is_allowed {
            return Ok(());
        }
        Err(s3_error!(AccessDenied, "the request has no right to {action}"))
    }

    /// Checks the right of a caller to read the source of a copy.
    ///
    /// # Errors
    /// `AccessDenied`, `NoSuchBucket`, `NoSuchKey`.
    pub(crate) async fn authorize_source(&self, caller: &Caller, source: &ObjectRef) -> S3Result<()> {
        let bucket = self.settings(&source.bucket).await?;
        let version = source.version.as_deref();
        let action = if version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
        let object = Some((source.key.as_str(), version));
        let request = AccessRequest { action, right: Some(AclRight::Read), object };
        self.authorize(caller, &bucket, request).await
    }

    /// True if the caller may delete versions in spite of a governance retention.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn may_bypass(
        &self,
        scope: &RequestScope,
        key: &str,
        wanted: Option<bool>,
    ) -> S3Result<bool> {
        if wanted != Some(true) {
            return Ok(false);
        }
        let object = Some((key, None));
        let request = AccessRequest { action: "s3:BypassGovernanceRetention", right: None, object };
        Ok(self.authorize(&scope.caller, scope.bucket()?, request).await.is_ok())
    }
}

/// The values of a condition key for a request.
fn condition_values(caller: &Caller, tags: &[(String, String)], key: &str) -> Option<Vec<String>> {
    if let Some(tag) = key.strip_prefix("s3:existingobjecttag/") {
        return tags.iter().find(|(name, _)| name == tag).map(|(_, value)| vec![value.clone()]);
    }
    let header = |name: &str| {
        let found = caller.values.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone())
    };
    let sent_tags = || header("x-amz-tagging").map(|tags| crate::tags::parse(&tags));
    if let Some(tag) = key.strip_prefix("s3:requestobjecttag/") {
        return sent_tags()?.into_iter().find(|(name, _)| name == tag).map(|(_, value)| vec![value]);
    }
    let now_ms = crate::gateway::now_ms();
    let one = match key {
        "s3:requestobjecttagkeys" => {
            return sent_tags().map(|tags| tags.into_iter().map(|(name, _)| name).collect());
        }
        "aws:sourceip" => caller.address.map(|address| address.ip().to_canonical().to_string()),
        "aws:referer" => caller.referer.clone(),
        "aws:useragent" => caller.agent.clone(),
        "aws:securetransport" => Some(caller.is_secure.to_string()),
        "aws:username" | "aws:userid" => caller.user.clone(),
        "aws:principalarn" => match &caller.role {
            Some(role) => Some(format!("arn:aws:iam:::role/{role}")),
            None => caller.user.as_ref().map(|user| format!("arn:aws:iam:::user/{user}")),
        },
        "aws:principaltype" => Some(caller.kind().to_owned()),
        "aws:currenttime" | "aws:epochtime" => Some((now_ms / 1000).to_string()),
        "s3:signatureversion" => caller.user.as_ref().map(|_| "AWS4-HMAC-SHA256".to_owned()),
        "s3:versionid" => header("versionId"),
        other => header(other.strip_prefix("s3:")?),
    };
    one.map(|value| vec![value])
}

/// The client of a connection, for the check of access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

#[async_trait::async_trait]
impl S3Access for Gateway {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name().to_owned();
        let access_key = context.credentials().map(|credentials| credentials.access_key.clone());
        let caller = read_caller(context, self.has_tls);
        let caller = match access_key {
            Some(access_key) => self.identify(caller, &access_key)?,
            None => caller,
        };
        let path = match context.s3_path() {
            S3Path::Root => None,
            S3Path::Bucket { bucket } => Some((bucket.to_string(), None)),
            S3Path::Object { bucket, key } => Some((bucket.to_string(), Some(key.to_string()))),
        };
        let named = path.as_ref().map(|(bucket, _)| bucket.clone()).unwrap_or_default();
        let Some((bucket, key)) = path.filter(|_| operation != "CreateBucket") else {
            if caller.user.is_none() {
                return Err(s3_error!(AccessDenied, "{operation} needs a signature"));
            }
            caller.check_service(&operation, &named)?;
            context.extensions_mut().insert(RequestScope { caller, bucket: None });
            return Ok(());
        };
        let bucket = self.settings(&bucket).await?;
        let version =
            caller.values.iter().find(|(name, _)| name == "versionId").map(|(_, value)| value.clone());
        let (action, right) = action_of(&operation, version.is_some());
        // The rights of a DeleteObjects are checked for each of its keys.
        if operation != "DeleteObjects" {
            let form_key = (operation == "PostObject").then_some("");
            let key = key.as_deref().or(form_key).map(|key| (key, version.as_deref()));
            self.authorize(&caller, &bucket, AccessRequest { action, right, object: key }).await?;
            if caller.rights.is_some() {
                for action in caller.header_actions(&operation) {
                    let request = AccessRequest { action, right: None, object: key };
                    self.authorize(&caller, &bucket, request).await?;
                }
            }
        }
        context.extensions_mut().insert(RequestScope { caller, bucket: Some(bucket) });
        Ok(())
    }

    async fn post_object(&self, request: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        self.check_form(request).await
    }
}

fn read_caller(context: &mut S3AccessContext<'_>, is_secure: bool) -> Caller {
    let mut values = parse_query(context.uri().query().unwrap_or_default());
    for (name, value) in context.headers() {
        if name.as_str().starts_with("x-amz-")
            && let Ok(value) = value.to_str()
        {
            values.push((name.as_str().to_owned(), value.to_owned()));
        }
    }
    let header = |name: &str| Some(context.headers().get(name)?.to_str().ok()?.to_owned());
    let (referer, agent) = (header("referer"), header("user-agent"));
    let address = context.extensions_mut().get::<PeerAddress>().map(|peer| peer.0);
    Caller { address, is_secure, referer, agent, values, ..Caller::default() }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
