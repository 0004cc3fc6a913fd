//! IPv4 networks: parsing, and which addresses they contain.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A network such as `10.0.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    base: Ipv4Addr,
    prefix: u8,
}

impl Network {
    /// Returns the network of an address, or nothing for a prefix above 32.
    pub fn of(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        (prefix <= 32).then(|| Self { base: Ipv4Addr::from_bits(address.to_bits() & mask(prefix)), prefix })
    }

    /// Returns true if the address belongs to the network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.base.to_bits()
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not an IPv4 network such as 10.0.0.0/24");
        let (base, prefix) = text.trim().split_once('/').ok_or_else(invalid)?;
        let (base, prefix) = (base.parse().map_err(|_| invalid())?, prefix.parse().map_err(|_| invalid())?);
        let network = Self::of(base, prefix).ok_or_else(invalid)?;
        if network.base == base {
            Ok(network)
        } else {
            Err(format!("'{text}' has host bits; the network is {network}"))
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses_only() {
        let network: Network = "192.168.124.0/24".parse().unwrap();
        assert!(network.contains("192.168.124.31".parse().unwrap()));
        assert!(!network.contains("192.168.100.31".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("10.1.2.3".parse().unwrap()));
        assert_eq!(network.to_string(), "192.168.124.0/24");
        for invalid in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/24", "10.0.0.1/24", "x/24"] {
            assert!(invalid.parse::<Network>().is_err(), "{invalid}");
        }
    }
}
