//! The secrets that hosts need for a namespace.

use super::authentication::DhChapSecrets;
use super::tls::NvmeTlsKey;

/// The secrets that hosts need for a namespace, in addition to their names. The same for all
/// namespaces of a host in a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSecrets {
    /// The secrets by which hosts authenticate themselves on each queue; none for no
    /// authentication.
    pub(super) dhchap: Option<DhChapSecrets>,
    /// The key of TLS connections; none for connections without TLS.
    pub(super) tls_key: Option<NvmeTlsKey>,
}

impl HostSecrets {
    /// The reason why hosts with these secrets cannot use a namespace with other ones, which is
    /// being added to their subsystem.
    pub(super) fn difference(&self, added: &Self) -> &'static str {
        match (&self.tls_key, &added.tls_key) {
            (own, added) if own == added => "a new export of the subsystem has other secrets",
            (None, _) => "a new export of the subsystem requires TLS",
            (_, None) => "a new export of the subsystem does not use TLS",
            _ => "a new export of the subsystem has another TLS key",
        }
    }
}
