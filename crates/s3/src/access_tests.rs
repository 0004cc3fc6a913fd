//! Tests of the check of access in buckets with damaged settings.

use std::collections::BTreeMap;
use std::time::Duration;

use object::{Change, MemoryStore, ObjectStore, Versioning};

use super::*;
use crate::encryption::ServiceKeys;
use crate::gateway::KeyStore;
use crate::md5_service::Md5Service;
use crate::piece_buffers::PieceBuffers;

struct NoKeys;

impl KeyStore for NoKeys {
    fn secret(&self, _: &str) -> Option<String> {
        None
    }

    fn user(&self, _: &str) -> Option<String> {
        None
    }

    fn has_user(&self, _: &str) -> bool {
        false
    }
}

/// Requests to a bucket of `anna` with one setting.
struct Bucket {
    gateway: Gateway,
    runtime: tokio::runtime::Runtime,
}

impl Bucket {
    fn new(setting: &str, value: &str) -> Self {
        let store: Arc<dyn ObjectStore> = Arc::new(MemoryStore::default());
        let settings = [("owner", "anna"), (setting, value)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let create = Change::CreateBucket {
            name: "bucket".into(),
            versioning: Versioning::Off,
            settings: BTreeMap::from(settings),
            now_ms: 0,
        };
        store.commit(create).wait().unwrap();
        let gateway = Gateway {
            store,
            keys: Arc::new(NoKeys),
            roles: None,
            targets: None,
            service_keys: ServiceKeys { root: None },
            region: "us-east-1".into(),
            settings: Arc::default(),
            md5: Arc::new(Md5Service::start()),
            pieces: PieceBuffers::default(),
            lifecycle_day: Duration::from_secs(1),
            has_tls: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { gateway, runtime }
    }

    /// Sends a request of a user. Returns the message of a refusal.
    fn request(&self, user: Option<&str>, action: &str, key: Option<&str>) -> Result<(), String> {
        let caller = Caller { user: user.map(str::to_owned), ..Caller::default() };
        let object = key.map(|key| (key, None));
        let right = (action == "s3:GetObject").then_some(AclRight::Read);
        let checked = self.runtime.block_on(async {
            let bucket = self.gateway.settings("bucket").await?;
            self.gateway.authorize(&caller, &bucket, AccessRequest { action, right, object }).await
        });
        checked.map_err(|error| {
            assert_eq!(error.code().as_str(), "AccessDenied");
            error.message().unwrap_or_default().to_owned()
        })
    }
}

const POLICY_TEXT: &str = r#"{"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/*"},
    {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::bucket/secret/*"}]}"#;

#[test]
fn a_policy_that_cannot_be_read_denies_all_but_its_repair() {
    let callers = [None, Some("ben"), Some("anna"), Some(DEFAULT_USER)];
    let intact = Bucket::new(POLICY, POLICY_TEXT);
    for user in callers {
        assert_eq!(intact.request(user, "s3:GetObject", Some("open/1")), Ok(()), "{user:?}");
        assert!(intact.request(user, "s3:GetObject", Some("secret/1")).is_err(), "{user:?}");
    }
    let unknown = POLICY_TEXT.replace("\"Deny\"", "\"DenyUnlessSigned\"");
    let torn = POLICY_TEXT.get(..POLICY_TEXT.len() - 3).unwrap();
    for text in [unknown.as_str(), torn, ""] {
        let damaged = Bucket::new(POLICY, text);
        for user in callers {
            for key in ["open/1", "secret/1"] {
                let refused = damaged.request(user, "s3:GetObject", Some(key)).unwrap_err();
                assert!(refused.contains("'policy'") && refused.contains("replace"), "{user:?}: {refused}");
            }
            assert!(damaged.request(user, "s3:ListBucket", None).is_err(), "{user:?}");
            let is_owner = user == Some("anna") || user == Some(DEFAULT_USER);
            for repair in ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"] {
                assert_eq!(damaged.request(user, repair, None).is_ok(), is_owner, "{user:?} {repair}");
            }
        }
        let delete = Change::SetBucket { bucket: "bucket".into(), name: POLICY.into(), value: None };
        damaged.gateway.store.commit(delete).wait().unwrap();
        assert_eq!(damaged.request(Some("anna"), "s3:GetObject", Some("secret/1")), Ok(()));
    }
}

#[test]
fn damaged_settings_of_access_close_the_bucket() {
    for (setting, repair) in [
        (ACL, "s3:PutBucketAcl"),
        (PUBLIC_ACCESS, "s3:PutBucketPublicAccessBlock"),
        (ENCRYPTION, "s3:PutEncryptionConfiguration"),
        (LOCK, "s3:PutBucketObjectLockConfiguration"),
        (OWNERSHIP, "s3:PutBucketOwnershipControls"),
    ] {
        let damaged = Bucket::new(setting, "{\"damaged");
        let refused = damaged.request(Some("anna"), "s3:PutObject", Some("key")).unwrap_err();
        assert!(refused.contains(&format!("'{setting}'")), "{refused}");
        assert_eq!(damaged.request(Some("anna"), repair, None), Ok(()), "{setting}");
        assert!(damaged.request(Some("ben"), repair, None).is_err(), "{setting}");
        assert!(damaged.request(Some("anna"), "s3:PutBucketPolicy", None).is_err(), "{setting}");
    }
    // Without these settings, nobody has more rights.
    for setting in ["cors", "lifecycle", "notification"] {
        let damaged = Bucket::new(setting, "{\"damaged");
        assert_eq!(damaged.request(Some("anna"), "s3:PutObject", Some("key")), Ok(()), "{setting}");
    }
}
