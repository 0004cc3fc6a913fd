//! Patterns of policies: texts with wildcards, networks, and lists of strings.

use std::net::IpAddr;

use serde_json::Value;

/// Returns a string or a list of strings.
pub(crate) fn strings(value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        other => Err(format!("'{other}' is not a string")),
    };
    match value {
        Value::Array(list) if list.is_empty() => Err("a list is empty".to_owned()),
        Value::Array(list) => list.iter().map(one).collect(),
        single => Ok(vec![one(single)?]),
    }
}

/// Compares a text with a pattern in which `*` stands for any text and `?` for any character.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut read) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at, read));
                at += 1;
            }
            Some(found) if *found == '?' || text.get(read) == Some(found) => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (at, read) = (star + 1, from + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|rest| *rest == '*')
}

/// True if an address is in a network of the form `10.0.0.0/8`.
pub(crate) fn is_in_network(network: &str, address: &str) -> bool {
    let (base, bits) = network.split_once('/').unwrap_or((network, ""));
    let (Ok(base), Ok(address)) = (base.parse::<IpAddr>(), address.parse::<IpAddr>()) else { return false };
    let (base, address, width) = match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            (u128::from(base.to_bits()), u128::from(address.to_bits()), 32)
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => (base.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let bits =
        if bits.is_empty() { Some(width) } else { bits.parse::<u32>().ok().filter(|bits| *bits <= width) };
    match bits {
        Some(0) => true,
        Some(bits) => (base ^ address) >> (width - bits) == 0,
        None => false,
    }
}
