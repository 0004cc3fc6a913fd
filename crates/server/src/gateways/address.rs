//! The addresses of gateways in the service map of a cluster. Pure functions.

use serde_json::Value;

/// Returns the URLs at which gateways serve HTTP, from the answer to `service dump`.
///
/// A gateway describes each of its listeners by a text such as `beast endpoint=10.0.0.1:7480` or
/// `beast port=80 ssl_port=443`.
pub(super) fn addresses(services: &Value) -> Vec<String> {
    let daemons = services.pointer("/services/rgw/daemons").and_then(Value::as_object);
    let mut found = Vec::new();
    for daemon in daemons.into_iter().flat_map(|daemons| daemons.values()) {
        // The address of the process, with the port and number of its connection.
        let own = daemon.get("addr").and_then(Value::as_str).unwrap_or_default();
        let host = own.rsplit_once(':').map_or(own, |(host, _)| host);
        let metadata = daemon.get("metadata").and_then(Value::as_object);
        let is_config = |(key, _): &(&String, &Value)| key.starts_with("frontend_config#");
        let configs = metadata.into_iter().flatten().filter(is_config);
        for word in configs.filter_map(|(_, config)| config.as_str()).flat_map(str::split_whitespace) {
            match word.split_once('=') {
                Some(("endpoint", endpoint)) => found.push(format!("http://{endpoint}")),
                Some(("port", port)) if !host.is_empty() => found.push(format!("http://{host}:{port}")),
                _ => {}
            }
        }
    }
    found
}
