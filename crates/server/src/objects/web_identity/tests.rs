//! Tests of tokens with real keys: those that are accepted, and those that must not be.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use base64_simd::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA512, RsaKeyPair, RsaPublicKeyComponents,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::*;

const ISSUER: &str = "https://login.example.org/main";

/// A key of the issuer.
enum SigningKey {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode_to_string(bytes)
}

impl SigningKey {
    fn p256() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    fn p384() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P384_SHA384_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P384(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    fn ed25519() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    /// A key of 2048 bits, by the program openssl.
    fn rsa() -> Self {
        let mut openssl = Command::new("openssl");
        openssl.args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        let made = openssl.stderr(Stdio::null()).output().unwrap();
        let pem = made.stdout;
        let key = PrivateKeyDer::from_pem_slice(&pem).unwrap();
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(key.secret_der()).unwrap()))
    }

    /// The public key with this name.
    fn jwk(&self, name: &str) -> Value {
        let point = |pair: &EcdsaKeyPair, curve: &str, size: usize| {
            let bytes = pair.public_key().as_ref();
            json!({"kty": "EC", "crv": curve, "kid": name, "use": "sig",
                "x": encode(&bytes[1..=size]), "y": encode(&bytes[1 + size..])})
        };
        match self {
            Self::P256(pair) => point(pair, "P-256", 32),
            Self::P384(pair) => point(pair, "P-384", 48),
            Self::Ed25519(pair) => json!({"kty": "OKP", "crv": "Ed25519", "kid": name,
                "x": encode(pair.public_key().as_ref())}),
            Self::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": name, "e": encode(&public.e), "n": encode(&public.n)})
            }
        }
    }

    /// Signs by the algorithm that the header names.
    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match self {
            Self::P256(pair) | Self::P384(pair) => {
                pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec()
            }
            Self::Ed25519(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let padding: &dyn ring::signature::RsaEncoding =
                    if header["alg"] == "PS512" { &RSA_PSS_SHA512 } else { &RSA_PKCS1_SHA256 };
                pair.sign(padding, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{message}.{}", encode(signature))
    }
}

fn claims() -> Value {
    let now = unix_time();
    json!({"iss": ISSUER, "aud": "gabion", "sub": "anna", "exp": now + 600, "nbf": now - 1,
        "groups": ["ops", "dev"], "admin": true})
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn key_set(keys: &[Value]) -> JwkSet {
    serde_json::from_value(json!({"keys": keys})).unwrap()
}

fn verify(token: &str, keys: &JwkSet) -> Result<VerifiedToken, TokenError> {
    crypto::install();
    token::verify(token, keys, ISSUER, &["gabion".to_owned(), "console".to_owned()].into())
}

#[track_caller]
fn refused(token: &str, keys: &JwkSet, reason: &str) {
    match verify(token, keys) {
        Err(TokenError::WrongSignature) => assert!("signature".contains(reason), "instead of '{reason}'"),
        Err(TokenError::Invalid(found)) => assert!(found.contains(reason), "'{found}' has no '{reason}'"),
        other => panic!("{other:?} instead of '{reason}'"),
    }
}

#[test]
fn tokens_of_all_kinds_of_keys_are_verified() {
    if !test_support::has_program("openssl") {
        return;
    }
    let rsa = SigningKey::rsa();
    let keys =
        [("ES256", SigningKey::p256()), ("ES384", SigningKey::p384()), ("EdDSA", SigningKey::ed25519())];
    let mut set: Vec<Value> = keys.iter().map(|(algorithm, key)| key.jwk(algorithm)).collect();
    set.push(rsa.jwk("rsa"));
    // An issuer may publish other kinds of keys too.
    set.push(json!({"kty": "RSA", "kid": "enc", "use": "enc", "n": "AQAB", "e": "AQAB"}));
    set.push(json!({"kty": "new", "kid": "ES256"}));
    let set = key_set(&set);
    for (algorithm, key) in &keys {
        let token = key.token(&json!({"alg": algorithm, "kid": algorithm, "typ": "JWT"}), &claims());
        let verified = verify(&token, &set).unwrap();
        assert_eq!((verified.subject.as_str(), verified.audience.as_str()), ("anna", "gabion"));
    }
    for algorithm in ["RS256", "PS512"] {
        let token = rsa.token(&json!({"alg": algorithm, "kid": "rsa"}), &claims());
        assert!(verify(&token, &set).is_ok(), "{algorithm}");
        // Without a name, the only key for the algorithm is used.
        let token = rsa.token(&json!({"alg": algorithm}), &with(json!({"aud": ["other", "console"]})));
        assert_eq!(verify(&token, &set).unwrap().audience, "console");
    }
    // The signature is that of another algorithm or key of the set.
    refused(&rsa.token(&json!({"alg": "RS512", "kid": "rsa"}), &claims()), &set, "signature");
    let other = SigningKey::p256().token(&json!({"alg": "ES256", "kid": "ES256"}), &claims());
    refused(&other, &set, "signature");
    // Another key of the same name has signed it.
    let (old, new) = (SigningKey::p256(), SigningKey::p256());
    let both = key_set(&[old.jwk("k"), new.jwk("k")]);
    for key in [old, new] {
        assert!(verify(&key.token(&json!({"alg": "ES256", "kid": "k"}), &claims()), &both).is_ok());
    }
    let crossed = rsa.token(&json!({"alg": "RS256", "kid": "ES256"}), &claims());
    assert_eq!(verify(&crossed, &set).unwrap_err(), TokenError::UnknownKey("ES256".to_owned()));
}

#[test]
fn tokens_without_a_signature_of_the_issuer_are_refused() {
    let key = SigningKey::p256();
    let jwk = key.jwk("k");
    let set = key_set(std::slice::from_ref(&jwk));
    let header = json!({"alg": "ES256", "kid": "k"});
    let token = key.token(&header, &claims());
    assert!(verify(&token, &set).is_ok());
    // No algorithm.
    for name in ["none", "None", "NONE", ""] {
        let message =
            format!("{}.{}", encode(json!({"alg": name}).to_string()), encode(claims().to_string()));
        refused(&format!("{message}."), &set, "algorithm");
        refused(&message, &set, "algorithm");
    }
    // The public key as the secret of a symmetric algorithm.
    let SigningKey::P256(pair) = &key else { panic!() };
    for secret in
        [pair.public_key().as_ref(), jwk.to_string().as_bytes(), jwk["x"].as_str().unwrap().as_bytes()]
    {
        let message = format!(
            "{}.{}",
            encode(json!({"alg": "HS256", "kid": "k"}).to_string()),
            encode(claims().to_string())
        );
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
        refused(&format!("{message}.{}", encode(tag)), &set, "HS256");
    }
    // A symmetric key in the set is not used either.
    let oct = key_set(&[json!({"kty": "oct", "kid": "k", "k": encode("secret")})]);
    let message = format!(
        "{}.{}",
        encode(json!({"alg": "HS256", "kid": "k"}).to_string()),
        encode(claims().to_string())
    );
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"secret"), message.as_bytes());
    refused(&format!("{message}.{}", encode(tag)), &oct, "HS256");
    // A key in the token itself.
    let own = SigningKey::p256();
    let header_with_key = json!({"alg": "ES256", "kid": "k", "jwk": own.jwk("k")});
    refused(&own.token(&header_with_key, &claims()), &set, "signature");
    refused(
        &key.token(&json!({"alg": "ES256", "kid": "k", "crit": ["b64"], "b64": false}), &claims()),
        &set,
        "critical",
    );
    // Changed claims.
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (head, _) = message.split_once('.').unwrap();
    let changed = encode(with(json!({"sub": "root"})).to_string());
    refused(&format!("{head}.{changed}.{signature}"), &set, "signature");
    let other = key.token(&header, &with(json!({"sub": "root"})));
    refused(&format!("{message}.{}", other.rsplit_once('.').unwrap().1), &set, "signature");
    refused(&format!("{message}.{}", &signature[..signature.len() - 4]), &set, "");
    for text in ["", ".", "..", "a.b.c", "a.b.c.d", "\u{fc}.b.c"] {
        assert!(matches!(verify(text, &set), Err(TokenError::Invalid(_))), "{text}");
    }
}

#[test]
fn tokens_of_other_issuers_audiences_and_times_are_refused() {
    let key = SigningKey::p256();
    let set = key_set(&[key.jwk("k")]);
    let header = json!({"alg": "ES256", "kid": "k"});
    let sign = |changes: Value| key.token(&header, &with(changes));
    let now = unix_time();
    for (changes, reason) in [
        (json!({"iss": "https://login.example.org/other"}), "issuer"),
        (json!({"iss": format!("{ISSUER}/")}), "issuer"),
        (json!({"iss": [ISSUER]}), "issuer"),
        (json!({"iss": null}), "'iss'"),
        (json!({"aud": "another"}), "audience"),
        (json!({"aud": ["a", "b"]}), "audience"),
        (json!({"aud": []}), "audience"),
        (json!({"aud": null}), "'aud'"),
        (json!({"nbf": now + 600}), "not valid yet"),
        (json!({"nbf": "soon"}), "'nbf'"),
        (json!({"exp": null}), "'exp'"),
        (json!({"exp": "never"}), "'exp'"),
        (json!({"sub": null}), "'sub'"),
    ] {
        refused(&sign(changes), &set, reason);
    }
    for exp in [now - 600, 1] {
        assert_eq!(verify(&sign(json!({"exp": exp})), &set).unwrap_err(), TokenError::Expired);
    }
    // The clocks may differ a little.
    assert!(verify(&sign(json!({"exp": now - 10, "nbf": now + 10})), &set).is_ok());
    let unknown = key.token(&json!({"alg": "ES256", "kid": "new"}), &claims());
    assert_eq!(verify(&unknown, &set).unwrap_err(), TokenError::UnknownKey("new".to_owned()));
    let two = key_set(&[key.jwk("a"), SigningKey::p256().jwk("b")]);
    refused(&key.token(&json!({"alg": "ES256"}), &claims()), &two, "names no key");
}

fn verified(claims: Value) -> VerifiedToken {
    let Value::Object(claims) = claims else { panic!() };
    VerifiedToken { claims, subject: String::new(), audience: String::new() }
}

#[test]
fn all_claims_of_a_role_must_match() {
    let token = verified(claims());
    let permits = |claims: &[(&str, &str)]| {
        let claims = claims.iter().map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned()));
        let record = RoleRecord {
            id: String::new(),
            created: 0,
            provider: "corp".to_owned(),
            policies: BTreeSet::new(),
            claims: claims.collect(),
            session_max_s: 60,
        };
        check_claims("ci", &record, &token).map_err(|error| error.message)
    };
    for claims in [&[][..], &[("groups", "ops")], &[("groups", "d?v"), ("sub", "an*")], &[("admin", "true")]]
    {
        assert_eq!(permits(claims), Ok(()), "{claims:?}");
    }
    for claims in [&[("groups", "op")][..], &[("groups", "ops"), ("sub", "ben")], &[("none", "*")]] {
        let message = permits(claims).unwrap_err();
        assert!(message.contains("'ci'") && message.contains(claims.last().unwrap().0), "{message}");
    }
}

#[test]
fn names_of_users_are_unique_and_have_no_wildcards() {
    let record = |claim: &str| ProviderRecord {
        id: String::new(),
        generation: 0,
        created: 0,
        issuer: ISSUER.to_owned(),
        audiences: BTreeSet::new(),
        user_claim: claim.to_owned(),
        key_file: None,
        authorities: None,
    };
    let name = |sub: Value| user_name("corp", &record("sub"), &verified(with(json!({"sub": sub}))));
    assert_eq!(name(json!("anna")).unwrap(), "corp:anna");
    assert_eq!(name(json!("repo:a/b:ref*?%")).unwrap(), "corp:repo%3Aa%2Fb%3Aref%2A%3F%25");
    for wrong in [json!(""), json!(7), json!(null), json!("x".repeat(256))] {
        assert_eq!(name(wrong).unwrap_err().kind, RoleErrorKind::InvalidToken);
    }
    let by_mail = user_name("corp", &record("email"), &verified(with(json!({"email": "anna@example.org"}))));
    assert_eq!(by_mail.unwrap(), "corp:anna@example.org");
}

/// Changes made between the verification of a token and the issue of credentials are in effect.
#[test]
fn roles_and_providers_that_changed_meanwhile_are_checked_again() {
    use api::types::{ChangeS3Role, CreateS3Provider, CreateS3Role};
    let directory = tempfile::tempdir().unwrap();
    let web_identity = WebIdentity::open(directory.path()).unwrap();
    let roles = &web_identity.roles;
    let provider = CreateS3Provider {
        name: "corp".to_owned(),
        issuer: ISSUER.to_owned(),
        audiences: vec!["gabion".to_owned()],
        ..CreateS3Provider::default()
    };
    roles.create_provider(provider).unwrap();
    let role = CreateS3Role {
        name: "ci".to_owned(),
        provider: "corp".to_owned(),
        claims: [("groups".to_owned(), "ops".to_owned())].into(),
        ..CreateS3Role::default()
    };
    roles.create_role(role).unwrap();
    let issue = |verifier: &ProviderRecord| {
        let (role, session_name, token) = ("ci".to_owned(), "test".to_owned(), String::new());
        let request = RoleRequest { role, session_name, token, duration_s: Some(900), policy: None };
        web_identity.issue(request, verifier, verified(claims())).map_err(|error| error.kind)
    };
    let verifier = roles.tables().providers["corp"].clone();
    assert!(issue(&verifier).is_ok());
    let claims = Some([("groups".to_owned(), "admins".to_owned())].into());
    roles.change_role("ci", ChangeS3Role { claims, ..ChangeS3Role::default() }).unwrap();
    assert_eq!(issue(&verifier).unwrap_err(), RoleErrorKind::Denied);
    let any = ChangeS3Role { any_claims: true, session_max: Some(60), ..ChangeS3Role::default() };
    roles.change_role("ci", any).unwrap();
    assert_eq!(issue(&verifier).unwrap_err(), RoleErrorKind::Invalid, "15 min are too long");
    roles.change_role("ci", ChangeS3Role { session_max: Some(900), ..ChangeS3Role::default() }).unwrap();
    assert!(issue(&verifier).is_ok());
    let audiences = Some(vec!["another".to_owned()]);
    let change = ChangeS3Provider { audiences, ..ChangeS3Provider::default() };
    web_identity.change_provider("corp", change).unwrap();
    assert_eq!(issue(&verifier).unwrap_err(), RoleErrorKind::Unreachable);
    assert!(issue(&roles.tables().providers["corp"]).is_ok());
    roles.delete_role("ci").unwrap();
    assert_eq!(issue(&verifier).unwrap_err(), RoleErrorKind::Denied);
}

#[test]
fn roles_without_claims_must_be_asked_for() {
    use api::types::{ChangeS3Role, CreateS3Role};
    let directory = tempfile::tempdir().unwrap();
    let roles = RoleFile::open(directory.path()).unwrap();
    let one = || BTreeMap::from([("sub".to_owned(), "anna".to_owned())]);
    for (claims, any_claims, is_valid) in [
        (one(), false, true),
        (BTreeMap::new(), true, true),
        (one(), true, false),
        (BTreeMap::new(), false, false),
    ] {
        // Valid claims are refused for the missing provider or role only.
        let expected =
            if is_valid { crate::error::ErrorKind::NotFound } else { crate::error::ErrorKind::Invalid };
        let claimed = Some(claims.clone());
        let change = ChangeS3Role { claims: claimed, any_claims, ..ChangeS3Role::default() };
        assert_eq!(roles.change_role("ci", change).unwrap_err().kind(), expected);
        let (name, provider) = ("ci".to_owned(), "corp".to_owned());
        let create = CreateS3Role { name, provider, claims, any_claims, ..CreateS3Role::default() };
        assert_eq!(roles.create_role(create).unwrap_err().kind(), expected);
    }
}
