//! The storage hosts of a cluster as places where programs of this machine run: this machine
//! itself, or network namespaces of it.
//!
//! Always true: a program in a namespace sees the same files and mounts as this process; only its
//! network is that of the host.

use std::ffi::OsStr;
use std::process::Command;

use crate::hosts::HostEntry;
use crate::stages::{load_hosts, load_model};
use crate::transport::{Transport, namespace_command};
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

/// A storage host on which programs of this machine run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// Name of the host.
    pub name: String,
    namespace: Option<String>,
}

impl HostPlace {
    /// Returns a command that runs a program in the network of the host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new(program) };
        namespace_command(namespace, program)
    }
}

/// Returns the storage hosts of a cluster, in the order of the hosts file.
///
/// # Errors
/// `Invalid` if a host is another machine or unknown; `NotFound` before `configure`; `Io`.
pub fn storage_places(workspace: &Workspace) -> Result<Vec<HostPlace>> {
    let model = load_model(workspace)?;
    let elsewhere = |name: &str| {
        let message = format!("host '{name}' of cluster '{}' is not on this machine", workspace.name());
        Error::new(ErrorKind::Invalid, message)
    };
    if model.adopted {
        return Err(elsewhere("*"));
    }
    let hosts = load_hosts(workspace)?;
    let place = |name: &str| {
        let entry = hosts.hosts.iter().find(|host| host.name == name).ok_or_else(|| elsewhere(name))?;
        let namespace = match entry.transport()? {
            Transport::Local => None,
            Transport::Namespace(namespace) => Some(namespace),
            Transport::Ssh(_) => return Err(elsewhere(name)),
        };
        Ok(HostPlace { name: name.to_owned(), namespace })
    };
    model.with_role("storage").map(|host| place(&host.name)).collect()
}

/// Returns the process ids of the daemons of a cluster on hosts that are on this machine. A host
/// whose files cannot be read has none.
pub fn local_processes(workspace: &Workspace) -> Vec<u32> {
    let Ok(hosts) = load_hosts(workspace) else { return Vec::new() };
    let is_local = |host: &&HostEntry| host.transport().is_ok_and(|transport| transport.is_local());
    let directories = hosts.hosts.iter().filter(is_local);
    let files = directories.filter_map(|host| {
        std::fs::read_dir(workspace.directory().join("hosts").join(&host.name).join("run")).ok()
    });
    let paths = files.flatten().flatten().map(|entry| entry.path());
    let pids = paths.filter(|path| path.extension().is_some_and(|extension| extension == "pid"));
    let pids = pids.filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok());
    // A file of a killed daemon can name a process of something else.
    let mark = workspace.directory().as_os_str().as_encoded_bytes().to_owned();
    let is_own = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(mark.len().max(1)).any(|part| part == mark)
    };
    pids.filter(is_own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::HostsFile;
    use crate::model::{ClusterModel, ModelHost};
    use crate::stages::{save_hosts, save_model};

    #[test]
    fn programs_run_on_hosts_of_this_machine_only() {
        let base = tempfile::Builder::new().prefix("gbc").tempdir_in("/tmp").unwrap();
        let workspace = Workspace::create(base.path(), "c").unwrap();
        let host = |name: &str, address: &str| HostEntry {
            name: name.into(),
            address: address.into(),
            drives: Some(Vec::new()),
        };
        let hosts = vec![host("a", "local:"), host("b", "local:gabion-b"), host("c", "root@c")];
        save_hosts(&workspace, &HostsFile { hosts }).unwrap();
        let model = |names: &[&str]| {
            let host = |name: &&str| ModelHost {
                name: name.to_string(),
                roles: ["storage".to_owned()].into(),
                ..ModelHost::default()
            };
            ClusterModel { hosts: names.iter().map(host).collect(), ..ClusterModel::default() }
        };
        save_model(&workspace, &model(&["a", "b"])).unwrap();
        let places = storage_places(&workspace).unwrap();
        assert_eq!(places.iter().map(|place| place.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(places[0].command("fio").get_program(), "fio");
        let inside = places[1].command("fio");
        let arguments: Vec<_> = inside.get_args().collect();
        assert_eq!(
            (inside.get_program(), &arguments[..]),
            (OsStr::new("nsenter"), &["--net=/run/netns/gabion-b", "--", "fio"].map(OsStr::new)[..])
        );
        save_model(&workspace, &model(&["a", "c"])).unwrap();
        let run = |host: &str| workspace.directory().join("hosts").join(host).join("run");
        for host in ["a", "c"] {
            std::fs::create_dir_all(run(host)).unwrap();
        }
        // The directory is in the arguments of a daemon, and not in those of this test.
        let mut command = Command::new("sh");
        command.args(["-c", "read -r line"]).arg(workspace.directory()).stdin(std::process::Stdio::piped());
        let mut daemon = command.spawn().unwrap();
        std::fs::write(run("a").join("osd.0.pid"), format!("{}\n", daemon.id())).unwrap();
        std::fs::write(run("a").join("osd.1.pid"), format!("{}\n", std::process::id())).unwrap();
        std::fs::write(run("c").join("osd.2.pid"), format!("{}\n", daemon.id())).unwrap();
        // The kernel sets the arguments of a new program after it has resumed the parent.
        while local_processes(&workspace).is_empty() && daemon.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(local_processes(&workspace), [daemon.id()]);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(local_processes(&workspace).is_empty());
        let error = storage_places(&workspace).unwrap_err();
        assert!(error.to_string().contains("host 'c' of cluster 'c' is not on this machine"), "{error}");
    }
}
