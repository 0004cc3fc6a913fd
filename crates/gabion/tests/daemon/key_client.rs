//! An S3 client with an access key, for objects of the bucket `photos`.

use s3_client::{Address, Checksum, Credentials, ListRequest, S3Client, S3Error};
use serde_json::Value;

use super::nbd::pattern;

/// Bytes of an object.
pub(crate) const OBJECT: usize = 100_000;

/// The body of each object.
pub(crate) fn body() -> Vec<u8> {
    pattern(1, OBJECT)
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

pub(crate) struct KeyClient {
    pub(crate) client: S3Client,
    pub(crate) access_key: String,
    pub(crate) secret: String,
}

impl KeyClient {
    /// Returns a client with a key, as `gabion key create --json` prints it.
    pub(crate) fn new(endpoint: &str, key: &Value) -> Self {
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        let (access_key, secret) = (text("access_key"), text("secret"));
        let credentials = Credentials::new(access_key.clone(), secret.clone());
        let client = S3Client::new(Address::parse(endpoint).unwrap(), "us-east-1", credentials);
        Self { client, access_key, secret }
    }

    /// Puts an object with [`body`]. This function and the next ones return the code of the error;
    /// `""` for success.
    pub(crate) fn put(&self, key: &str) -> String {
        let body = body();
        let checksum = Checksum::of(&body);
        code(block_on(self.client.put_object("photos", key, body.into(), &checksum)))
    }

    pub(crate) fn head(&self, key: &str) -> String {
        match block_on(self.client.head_object("photos", key)) {
            // The answer to HEAD has no body with a code.
            Err(S3Error::Refused { status: 403, .. }) => "AccessDenied".to_owned(),
            result => code(result),
        }
    }

    pub(crate) fn list(&self) -> String {
        code(block_on(self.client.list("photos", &ListRequest { limit: 10, ..ListRequest::default() })))
    }

    pub(crate) fn delete(&self, key: &str) -> String {
        code(block_on(self.client.delete_object("photos", key)))
    }

    pub(crate) fn create_bucket(&self, bucket: &str) -> String {
        code(block_on(self.client.create_bucket(bucket)))
    }

    /// Returns the body of an object.
    pub(crate) fn get(&self, key: &str) -> Result<Vec<u8>, S3Error> {
        block_on(async {
            let mut body = self.client.get_object("photos", key, None, None).await?;
            let mut bytes = Vec::new();
            while let Some(part) = body.next().await? {
                bytes.extend_from_slice(&part);
            }
            Ok(bytes)
        })
    }
}

/// Returns the code of an error; `""` for success.
pub(crate) fn code<T>(result: Result<T, S3Error>) -> String {
    match result {
        Ok(_) => String::new(),
        Err(error) => error.code().map_or_else(|| error.to_string(), str::to_owned),
    }
}
