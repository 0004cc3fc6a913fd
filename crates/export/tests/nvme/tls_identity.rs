//! Identities and keys of TLS sessions, derived from the text of the specification: the target has
//! other code for them.

use ring::hmac;

/// The identity of a key, and the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsIdentity {
    pub(crate) text: String,
    pub(crate) key: Vec<u8>,
    pub(crate) subsystem: String,
}

fn sign(algorithm: hmac::Algorithm, key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, key), message).as_ref().to_vec()
}

/// HKDF-Extract with a salt of zeros, and HKDF-Expand-Label for one block.
fn derive(algorithm: hmac::Algorithm, input: &[u8], label: &str, context: &str) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let mut info = (input.len() as u16).to_be_bytes().to_vec();
    info.push(label.len() as u8);
    info.extend_from_slice(label.as_bytes());
    info.push(context.len() as u8);
    info.extend_from_slice(context.as_bytes());
    info.push(1);
    sign(algorithm, &sign(algorithm, &vec![0; input.len()], input), &info)
}

impl TlsIdentity {
    /// The identity of a configured key, which is combined with the name of the host: of this
    /// version of identities.
    pub(crate) fn new(version: u8, key: &[u8], host: &str, subsystem: &str) -> Self {
        let (number, algorithm) = match key.len() {
            32 => ("01", hmac::HMAC_SHA256),
            _ => ("02", hmac::HMAC_SHA384),
        };
        let retained = derive(algorithm, key, "HostNQN", host);
        let (text, context) = if version == 0 {
            let text = format!("NVMe0R{number} {host} {subsystem}");
            (text.clone(), text)
        } else {
            let seed = format!("{host} {subsystem} NVMe-over-Fabrics");
            let digest = sign(algorithm, &retained, seed.as_bytes());
            let digest = base64_simd::STANDARD.encode_to_string(digest);
            (format!("NVMe1R{number} {host} {subsystem} {digest}"), format!("{number} {digest}"))
        };
        let key = derive(algorithm, &retained, "nvme-tls-psk", &context);
        Self { text, key, subsystem: subsystem.to_owned() }
    }
}
