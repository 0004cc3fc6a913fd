//! Binding of TCP addresses.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::error::{Error, ErrorKind, Result};

/// Binds addresses for `purpose`. `flag` is the option that names other ones.
///
/// # Errors
/// When an address cannot be bound.
pub(crate) async fn bind_tcp(
    addresses: &[SocketAddr],
    purpose: &str,
    flag: &str,
) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let failed = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                std::io::ErrorKind::AddrInUse => ErrorKind::Busy,
                _ => ErrorKind::Io,
            };
            Error::new(kind, format!("cannot listen on {address} for {purpose}: {error}"))
                .hint(format!("choose another address with {flag}"))
        };
        listeners.push(TcpListener::bind(address).await.map_err(failed)?);
    }
    Ok(listeners)
}

/// Returns the addresses of listeners, with their ports.
pub(crate) fn bound_addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}
