//! Signatures of tokens, verified by `ring`, which also does the cryptography of TLS.
//!
//! Always true: only signatures with public keys are verified; nothing is signed.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{self, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    // These functions derive public keys from private ones, which the daemon does not have.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes this the cryptography of `jsonwebtoken` in the process.
pub(super) fn install() {
    // An error means that an earlier call has installed it.
    let _ = PROVIDER.install_default();
}

/// Verifies signatures of one key by one algorithm.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> errors::Result<Box<dyn JwtVerifier>> {
    let family = algorithm.family();
    if family == AlgorithmFamily::Hmac || family != key.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let rsa = |parameters| verify_rsa(parameters, &self.key, message, signature);
        let plain = |algorithm| verify_plain(algorithm, &self.key, message, signature);
        match self.algorithm {
            Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => plain(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => plain(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => plain(&ED25519),
            _ => Err(signature::Error::new()),
        }
    }
}

fn verify_rsa(
    parameters: &'static RsaParameters,
    key: &DecodingKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), signature::Error> {
    let DecodingKeyKind::RsaModulusExponent { n, e } = key.kind() else {
        return Err(signature::Error::new());
    };
    // Some issuers write the modulus with a leading zero.
    let zeros = n.iter().take_while(|byte| **byte == 0).count();
    let n = n.get(zeros..).unwrap_or_default();
    let verified = RsaPublicKeyComponents { n, e }.verify(parameters, message, signature);
    verified.map_err(|_| signature::Error::new())
}

fn verify_plain(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &DecodingKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), signature::Error> {
    let DecodingKeyKind::SecretOrDer(bytes) = key.kind() else { return Err(signature::Error::new()) };
    let verified = UnparsedPublicKey::new(algorithm, bytes).verify(message, signature);
    verified.map_err(|_| signature::Error::new())
}
