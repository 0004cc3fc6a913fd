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
