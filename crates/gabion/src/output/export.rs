//! Formatting of exports.

use api::types::{Export, ExportState};

use super::table::table;

/// Formats the addresses of a new export: the commands by which hosts connect to a network disk.
pub(crate) fn created_export(export: &Export) -> String {
    let uses_tls = export.network.tls.is_some();
    let lines = export.uris.iter().map(|uri| connect_command(uri, uses_tls).unwrap_or_else(|| uri.clone()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The command by which a Linux host connects to a network disk; `None` for other addresses.
fn connect_command(uri: &str, uses_tls: bool) -> Option<String> {
    if let Some(rest) = uri.strip_prefix("iscsi://") {
        let (portal, target) = rest.split_once('/')?;
        let (target, _) = target.rsplit_once('/')?;
        let discover = format!("iscsiadm -m discovery -t sendtargets -p {portal}");
        return Some(format!("{discover} && iscsiadm -m node -T {target} -p {portal} --login"));
    }
    let (address, name) = uri.strip_prefix("nvme+tcp://")?.split_once('/')?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let tls = if uses_tls { " --tls" } else { "" };
    Some(format!("nvme connect -t tcp -a {host} -s {port} -n {name}{tls}"))
}

/// Formats exports as a table.
pub(crate) fn exports(exports: &[Export]) -> String {
    if exports.is_empty() {
        return "no exports; 'gabion export create POOL/VOLUME --nbd' creates one (also --vhost-user, --fuse, --ublk, --nvme-tcp, --iscsi)"
            .into();
    }
    let row = |export: &Export| {
        let state = match (export.state, &export.reason) {
            (ExportState::Active, _) => "active".to_owned(),
            (ExportState::Waiting, Some(reason)) => format!("waiting: {reason}"),
            (ExportState::Waiting, None) => "waiting".to_owned(),
        };
        vec![
            format!("{}/{}", export.pool, export.volume),
            export.id.clone(),
            access(export),
            export.connections.to_string(),
            state,
            export.uris.join(" "),
        ]
    };
    table(&["VOLUME", "ID", "ACCESS", ">CLIENTS", "STATE", "URI"], exports.iter().map(row))
}

fn access(export: &Export) -> String {
    let access = if export.read_only { "read-only" } else { "read-write" };
    let shared = if export.shared { ", shared" } else { "" };
    let owner = export.owner.as_ref().map_or_else(String::new, |owner| format!(", managed by {owner}"));
    format!("{access}{shared}{owner}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_disks_are_shown_as_commands() {
        for (uri, command) in [
            ("nvme+tcp://10.0.0.1:4420/nqn.x:y", Some("nvme connect -t tcp -a 10.0.0.1 -s 4420 -n nqn.x:y")),
            ("nvme+tcp://[fd00::1]:4420/nqn.x", Some("nvme connect -t tcp -a fd00::1 -s 4420 -n nqn.x")),
            (
                "iscsi://10.0.0.1:3260/iqn.2026-11.gabion:x/0",
                Some(
                    "iscsiadm -m discovery -t sendtargets -p 10.0.0.1:3260 && \
                     iscsiadm -m node -T iqn.2026-11.gabion:x -p 10.0.0.1:3260 --login",
                ),
            ),
            ("nbd://10.0.0.1:10809/fast/vm01", None),
        ] {
            assert_eq!(connect_command(uri, false).as_deref(), command);
        }
        let within_tls = connect_command("nvme+tcp://10.0.0.1:4420/nqn.x:y", true);
        let expected = "nvme connect -t tcp -a 10.0.0.1 -s 4420 -n nqn.x:y --tls";
        assert_eq!(within_tls.as_deref(), Some(expected));
    }
}
