//! Server-side encryption: keys of the service (SSE-S3), named keys of the service (SSE-KMS), and
//! keys of the client (SSE-C).
//!
//! Always true: keys of clients are neither stored nor logged; an object is read with the key that
//! it was encrypted with.

use s3s::crypto::{Checksum, Md5};
use s3s::dto::ServerSideEncryption;
use s3s::{S3Result, s3_error};

use crate::attributes::Attributes;
use crate::sealed::RootKey;
use crate::settings::DefaultEncryption;

/// The algorithm of an encrypted object, as an attribute: `AES256`, `aws:kms` or `customer`.
pub(crate) const SSE: &str = "sse";
/// The named key, as an attribute.
const KEY_ID: &str = "sse-key-id";
/// The MD5 of the client's key in base64, as an attribute.
const CUSTOMER_MD5: &str = "sse-customer-md5";

const AES256: &str = "AES256";
const KMS: &str = "aws:kms";
const CUSTOMER: &str = "customer";

/// The headers of a client's key.
#[derive(Clone, Default)]
pub(crate) struct CustomerKey {
    pub(crate) algorithm: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) md5: Option<String>,
}

/// The headers of a request that choose an encryption.
#[derive(Default)]
pub(crate) struct EncryptionRequest {
    pub(crate) customer: CustomerKey,
    pub(crate) algorithm: Option<ServerSideEncryption>,
    pub(crate) key_id: Option<String>,
}

/// The encryption of an object in answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncryptionInfo {
    pub(crate) algorithm: Option<ServerSideEncryption>,
    pub(crate) key_id: Option<String>,
    pub(crate) customer_algorithm: Option<String>,
    pub(crate) customer_md5: Option<String>,
}

/// An encryption to use.
#[derive(Clone)]
pub(crate) struct Encryption {
    pub(crate) root: RootKey,
    attributes: Vec<(&'static str, String)>,
}

impl Encryption {
    /// Adds the description of the encryption to the attributes of an object.
    pub(crate) fn describe(&self, all: &mut Attributes) {
        all.extend(self.attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
}

/// Removes the description of an encryption.
pub(crate) fn remove_description(all: &mut Attributes) {
    for name in [SSE, KEY_ID, CUSTOMER_MD5] {
        all.remove(name);
    }
}

impl CustomerKey {
    /// True if the request has one of the headers.
    pub(crate) fn is_some(&self) -> bool {
        self.algorithm.is_some() || self.key.is_some() || self.md5.is_some()
    }

    /// Returns the key and its MD5.
    ///
    /// # Errors
    /// `InvalidArgument` for missing or malformed headers.
    fn parse(&self) -> S3Result<(RootKey, String)> {
        let (Some(algorithm), Some(key), Some(md5)) = (&self.algorithm, &self.key, &self.md5) else {
            return Err(s3_error!(
                InvalidArgument,
                "a key of the client needs the headers for its algorithm, the key and its MD5"
            ));
        };
        if algorithm != AES256 {
            return Err(s3_error!(
                InvalidEncryptionAlgorithmError,
                "the algorithm of the key must be AES256"
            ));
        }
        let bytes = base64_simd::STANDARD.decode_to_vec(key);
        let bytes: Option<[u8; 32]> = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        let Some(bytes) = bytes else {
            return Err(s3_error!(InvalidArgument, "the key of the client must have 256 bits, in base64"));
        };
        let found = base64_simd::STANDARD.encode_to_string(Md5::checksum(&bytes));
        if found != *md5 {
            return Err(s3_error!(InvalidArgument, "the MD5 of the client's key does not match the key"));
        }
        Ok((RootKey { key: bytes, context: CUSTOMER.to_owned() }, found))
    }
}

/// The keys of the service.
#[derive(Clone)]
pub(crate) struct ServiceKeys {
    /// The key that encrypts data keys; `None` if the service has none.
    pub(crate) root: Option<[u8; 32]>,
}

impl ServiceKeys {
    fn root(&self, context: String) -> S3Result<RootKey> {
        let key = self.root.ok_or_else(|| s3_error!(NotImplemented, "the service has no encryption key"))?;
        Ok(RootKey { key, context })
    }

    /// Returns the encryption that a request chooses, or else that of its bucket.
    ///
    /// # Errors
    /// `InvalidArgument` for headers that contradict each other.
    pub(crate) fn choose(
        &self,
        request: EncryptionRequest,
        default: Option<&DefaultEncryption>,
    ) -> S3Result<Option<Encryption>> {
        let EncryptionRequest { customer, algorithm, key_id } = request;
        if customer.is_some() {
            if algorithm.is_some() || key_id.is_some() {
                return Err(s3_error!(
                    InvalidArgument,
                    "a request has either a key of the client or one of the service"
                ));
            }
            let (root, md5) = customer.parse()?;
            let attributes = vec![(SSE, CUSTOMER.to_owned()), (CUSTOMER_MD5, md5)];
            return Ok(Some(Encryption { root, attributes }));
        }
        let (algorithm, key_id) = match (algorithm, key_id, default) {
            (Some(algorithm), key_id, _) => (algorithm.as_str().to_owned(), key_id),
            (None, Some(_), _) => {
                return Err(s3_error!(
                    InvalidArgument,
                    "a key id needs x-amz-server-side-encryption: aws:kms"
                ));
            }
            (None, None, Some(default)) => (default.algorithm.clone(), default.key_id.clone()),
            (None, None, None) => return Ok(None),
        };
        match (algorithm.as_str(), key_id) {
            (AES256, None) => {
                let root = self.root(AES256.to_owned())?;
                Ok(Some(Encryption { root, attributes: vec![(SSE, AES256.to_owned())] }))
            }
            (KMS, Some(key_id)) => {
                let root = self.root(format!("{KMS}:{key_id}"))?;
                Ok(Some(Encryption { root, attributes: vec![(SSE, KMS.to_owned()), (KEY_ID, key_id)] }))
            }
            (KMS, None) => Err(s3_error!(InvalidArgument, "aws:kms needs the id of a key")),
            (AES256, Some(_)) => Err(s3_error!(InvalidArgument, "AES256 has no key id")),
            _ => Err(s3_error!(
                InvalidArgument,
                "the encryption '{algorithm}' is unknown: use AES256 or aws:kms"
            )),
        }
    }

    /// Returns the key for reading an object; `None` for an object that is not encrypted.
    ///
    /// # Errors
    /// `InvalidRequest` for a missing or unwanted key of the client; `InvalidArgument` for another
    /// one.
    pub(crate) fn open(&self, all: &Attributes, customer: &CustomerKey) -> S3Result<Option<Encryption>> {
        let kind = all.get(SSE).map(String::as_str);
        if kind == Some(CUSTOMER) {
            if !customer.is_some() {
                return Err(s3_error!(
                    InvalidRequest,
                    "the object needs the key that the client encrypted it with"
                ));
            }
            let (root, md5) = customer.parse()?;
            if all.get(CUSTOMER_MD5) != Some(&md5) {
                return Err(s3_error!(InvalidArgument, "the object was encrypted with another key"));
            }
            let attributes = vec![(SSE, CUSTOMER.to_owned()), (CUSTOMER_MD5, md5)];
            return Ok(Some(Encryption { root, attributes }));
        }
        if customer.is_some() {
            return Err(s3_error!(InvalidRequest, "the object is not encrypted with a key of the client"));
        }
        let request = EncryptionRequest {
            algorithm: kind.map(|kind| ServerSideEncryption::from(kind.to_owned())),
            key_id: all.get(KEY_ID).cloned(),
            ..EncryptionRequest::default()
        };
        self.choose(request, None)
    }
}

/// The encryption of an object for answers.
pub(crate) fn describe(all: &Attributes) -> EncryptionInfo {
    match all.get(SSE).map(String::as_str) {
        Some(CUSTOMER) => EncryptionInfo {
            customer_algorithm: Some(AES256.to_owned()),
            customer_md5: all.get(CUSTOMER_MD5).cloned(),
            ..EncryptionInfo::default()
        },
        Some(kind) => EncryptionInfo {
            algorithm: Some(ServerSideEncryption::from(kind.to_owned())),
            key_id: all.get(KEY_ID).cloned(),
            ..EncryptionInfo::default()
        },
        None => EncryptionInfo::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customer(byte: u8) -> CustomerKey {
        let key = [byte; 32];
        CustomerKey {
            algorithm: Some(AES256.into()),
            key: Some(base64_simd::STANDARD.encode_to_string(key)),
            md5: Some(base64_simd::STANDARD.encode_to_string(Md5::checksum(&key))),
        }
    }

    fn request(algorithm: Option<&str>, key_id: Option<&str>) -> EncryptionRequest {
        EncryptionRequest {
            algorithm: algorithm.map(|name| ServerSideEncryption::from(name.to_owned())),
            key_id: key_id.map(str::to_owned),
            ..EncryptionRequest::default()
        }
    }

    #[test]
    fn an_object_needs_the_key_that_encrypted_it() {
        let keys = ServiceKeys { root: Some([9; 32]) };
        let sent = EncryptionRequest { customer: customer(1), ..EncryptionRequest::default() };
        let mut all = Attributes::new();
        keys.choose(sent, None).unwrap().unwrap().describe(&mut all);
        let code =
            |key: CustomerKey| keys.open(&all, &key).err().map(|error| error.code().as_str().to_owned());
        assert_eq!(code(customer(1)), None);
        assert_eq!(code(customer(2)).unwrap(), "InvalidArgument");
        assert_eq!(code(CustomerKey::default()).unwrap(), "InvalidRequest");
        assert_eq!(code(CustomerKey { md5: customer(2).md5, ..customer(1) }).unwrap(), "InvalidArgument");
        assert!(keys.open(&Attributes::new(), &customer(1)).is_err(), "the object is not encrypted");
        assert!(!all.values().any(|value| Some(value) == customer(1).key.as_ref()), "the key is stored");
    }

    #[test]
    fn named_keys_are_apart() {
        let keys = ServiceKeys { root: Some([9; 32]) };
        let context = |sent| keys.choose(sent, None).unwrap().unwrap().root.context;
        assert_ne!(context(request(Some(KMS), Some("a"))), context(request(Some(KMS), Some("b"))));
        assert_ne!(context(request(Some(AES256), None)), context(request(Some(KMS), Some("b"))));
        for (algorithm, key_id) in
            [(None, Some("a")), (Some(AES256), Some("a")), (Some(KMS), None), (Some("x"), None)]
        {
            assert!(keys.choose(request(algorithm, key_id), None).is_err(), "{algorithm:?} {key_id:?}");
        }
        let default = DefaultEncryption { algorithm: AES256.into(), key_id: None };
        assert!(keys.choose(request(None, None), Some(&default)).unwrap().is_some());
        assert!(keys.choose(request(None, None), None).unwrap().is_none());
    }
}
