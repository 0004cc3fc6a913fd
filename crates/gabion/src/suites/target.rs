//! Parsing of targets on the command line.

use anyhow::{Result, bail};
use bench::Workload;
use bench::peers::{PEERS, Peer};
use bench::run::TargetSpec;
use bench::system::{ExternalSystem, System};

use super::cluster::{ClusterTarget, RadosSystem};
use super::gabion::Gabion;
use super::kubernetes::KubernetesTarget;
use crate::failure::Usage;

/// Parses `NAME=TARGET` or `TARGET`.
pub(super) fn spec(text: &str) -> Result<TargetSpec> {
    let plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let (name, spec) = match text.split_once('=') {
        Some((name, spec)) if plain(name) => (name.to_owned(), spec.to_owned()),
        _ => (default_name(text), text.to_owned()),
    };
    if name == bench::run::RAW {
        return Err(
            Usage(format!("the name '{name}' is reserved for the raw drives: choose another name")).into()
        );
    }
    Ok(TargetSpec { name, spec })
}

/// Returns the default name of a target.
fn default_name(text: &str) -> String {
    let word = text.split([':', ',', '?']).next().unwrap_or(text);
    let last = match word {
        "nbd" | "nbds" | "nbd+unix" | "nbds+unix" => {
            text.split('?').next().and_then(|text| text.rsplit('/').next())
        }
        "vhost" => text.split(',').next().and_then(|text| text.rsplit('/').next()),
        word => word.rsplit('/').next(),
    };
    last.filter(|name| !name.is_empty()).unwrap_or("target").to_owned()
}

/// Parses a target argument into targets, and the reasons of unavailable ones. `peers` stands for
/// all peers for this kind of requests that are available on this host.
///
/// # Errors
/// If a target is invalid, or a single one is unavailable.
pub(super) fn specs(text: &str, workload: Workload) -> Result<(Vec<TargetSpec>, Vec<String>)> {
    if let Some(options) = all_peers(text) {
        return peers(options, workload);
    }
    let one = spec(text)?;
    let (kind, options) = one.spec.split_once(':').unwrap_or((&one.spec, ""));
    if let Some(requirement) = Peer::find(kind).and_then(|peer| peer.missing_requirement(options)) {
        bail!("{}: {requirement}", one.name);
    }
    Ok((vec![one], Vec::new()))
}

/// Sets `by=vm` for all targets of type `gabion`.
///
/// # Errors
/// If there is no such target.
pub(super) fn use_machines(targets: &mut [TargetSpec]) -> Result<()> {
    let ours = |one: &&mut TargetSpec| one.spec.split(':').next() == Some("gabion");
    let mut changed = false;
    for one in targets.iter_mut().filter(ours) {
        one.spec.push_str(if one.spec.contains(':') { ",by=vm" } else { ":by=vm" });
        changed = true;
    }
    if changed { Ok(()) } else { Err(Usage("--vms requires a target of type 'gabion'".into()).into()) }
}

/// Returns the options of a `peers` argument.
fn all_peers(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("peers")?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix(':') }
}

fn peers(options: &str, workload: Workload) -> Result<(Vec<TargetSpec>, Vec<String>)> {
    let suited = || PEERS.into_iter().filter(|peer| peer.workload == workload);
    let options = || options.split(',').filter(|option| !option.is_empty());
    let key = |option: &str| option.split_once('=').map_or(option, |(key, _)| key).to_owned();
    if let Some(option) = options().find(|option| !suited().any(|peer| peer.has(&key(option)))) {
        return Err(Usage(format!("no peer has the option '{option}': see 'gabion bench run --help'")).into());
    }
    let (mut specs, mut missing) = (Vec::new(), Vec::new());
    for peer in suited() {
        // An option applies only to the peers that have it.
        let own_options: Vec<&str> = options().filter(|option| peer.has(&key(option))).collect();
        let own_options = own_options.join(",");
        match peer.missing_requirement(&own_options) {
            Some(requirement) => missing.push(format!("{}: {requirement}", peer.name)),
            None => {
                let spec = if own_options.is_empty() {
                    peer.name.into()
                } else {
                    format!("{}:{own_options}", peer.name)
                };
                specs.push(TargetSpec { name: peer.name.into(), spec });
            }
        }
    }
    Ok((specs, missing))
}

/// Returns the system of a target. `overwrite` permits the destruction of data on the drives.
///
/// # Errors
/// If the target is invalid.
pub(super) fn open(target: &TargetSpec, overwrite: bool) -> Result<Box<dyn System>> {
    let spec = target.spec.as_str();
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    match kind {
        "gabion" => Ok(Box::new(Gabion::parse(&target.name, rest, overwrite)?)),
        "cluster" => Ok(Box::new(ClusterTarget::parse(&target.name, rest)?)),
        "rados" => Ok(Box::new(RadosSystem::parse(&target.name, rest)?)),
        "kubernetes" => Ok(Box::new(KubernetesTarget::parse(&target.name, rest)?)),
        _ => match Peer::find(kind) {
            Some(peer) => Ok(peer.open(&target.name, rest, overwrite)?),
            None => Ok(Box::new(ExternalSystem::parse(&target.name, spec)?)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_targets_are_parsed() {
        for (text, name, expected) in [
            ("gabion", "gabion", "gabion"),
            ("gabion:fill=80", "gabion", "gabion:fill=80"),
            ("kubernetes:class=fast", "kubernetes", "kubernetes:class=fast"),
            ("full=gabion:fill=80", "full", "gabion:fill=80"),
            ("/dev/vg/x", "x", "/dev/vg/x"),
            ("nbd+unix:///pool/vol?socket=/run/x.sock", "vol", "nbd+unix:///pool/vol?socket=/run/x.sock"),
            ("old=/dev/a,/dev/b", "old", "/dev/a,/dev/b"),
            ("vhost:/run/p/vm02.sock,vhost:/run/p/x", "vm02.sock", "vhost:/run/p/vm02.sock,vhost:/run/p/x"),
        ] {
            let spec = spec(text).unwrap();
            assert_eq!((spec.name.as_str(), spec.spec.as_str()), (name, expected), "{text}");
        }
        assert!(spec("drives=/dev/x").is_err());
    }

    #[test]
    fn vms_apply_to_gabion_targets_only() {
        let all = |texts: &[&str]| texts.iter().map(|text| spec(text).unwrap()).collect::<Vec<_>>();
        let mut targets = all(&["gabion", "btrfs", "old=gabion:fill=80"]);
        use_machines(&mut targets).unwrap();
        let specs: Vec<&str> = targets.iter().map(|one| one.spec.as_str()).collect();
        assert_eq!(specs, ["gabion:by=vm", "btrfs", "gabion:fill=80,by=vm"]);
        assert!(use_machines(&mut all(&["btrfs"])).unwrap_err().to_string().contains("--vms"));
    }

    #[test]
    fn invalid_targets_are_refused() {
        for (text, expected) in [
            ("floppy", "expected an absolute path"),
            ("gabion:speed=9", "'speed=9'"),
            ("gabion:fill=0", "fill"),
            ("gabion:by=pigeon", "by=pigeon"),
            ("gabion:cpus=2", "by=vm"),
            ("cluster", "name of a cluster"),
            ("cluster:by=nbd", "name of a cluster"),
            ("cluster:prod,by=pigeon", "'by=pigeon'"),
            ("cluster:prod,on=mars", "'on=mars'"),
            ("cluster:prod,pool=", "'pool='"),
            ("cluster:prod,size=much", "size=much"),
            ("cluster:prod,network=fast", "Gbit/s"),
            ("rados", "name of a cluster"),
            ("rados:prod,by=nbd", "'by=nbd' of the target 'rados'"),
            ("rados:prod,dir=/nonexistent", "no cluster 'prod'"),
            ("cluster:prod,dir=/nonexistent", "no cluster 'prod'"),
            ("kubernetes", "storage class"),
            ("kubernetes:class=", "'class='"),
            ("kubernetes:class=fast,mode=tape", "'mode=tape'"),
            ("kubernetes:class=fast,kubectl=x", "'kubectl=x'"),
            ("kubernetes:class=fast,size=much", "size=much"),
            ("gabion:by=vm,kernel=/nonexistent", "gabion: "),
            ("btrfs:speed=9", "fill (used share"),
            ("nbdkit:fill=9", "known options: none"),
            ("minio:speed=9", "parity (drives"),
            ("s3:ftp://x", "http://HOST:PORT"),
            ("vhost:x.sock", "vhost:/SOCKET"),
            ("vhost:/x.sock,/dev/x", "two targets"),
        ] {
            let error = format!("{:#}", open(&spec(text).unwrap(), false).map(|_| ()).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn peers_expands_to_available_targets_with_their_options() {
        let (specs, missing) = peers("by=vhost,fill=20", Workload::Blocks).unwrap();
        assert_eq!(specs.len() + missing.len(), 4);
        for spec in specs {
            let expected = match spec.name.as_str() {
                "qemu-storage-daemon" => "qemu-storage-daemon:by=vhost",
                "nbdkit" => "nbdkit",
                name => &format!("{name}:fill=20"),
            };
            assert_eq!(spec.spec, expected);
            open(&spec, true).unwrap();
        }
        assert!(missing.iter().all(|line| line.contains("(Debian: ")), "{missing:?}");
        let (specs, missing) = peers("parity=4", Workload::Objects).unwrap();
        let names = specs.iter().map(|spec| spec.name.clone()).chain(missing);
        assert!(names.zip(["minio", "versitygw"]).all(|(found, name)| found.starts_with(name)));
        assert!(peers("fill=20", Workload::Objects).is_err());
        assert!(peers("speed=9", Workload::Blocks).unwrap_err().to_string().contains("no peer"));
        assert_eq!(
            (all_peers("peers"), all_peers("peers:x=1"), all_peers("peersx")),
            (Some(""), Some("x=1"), None)
        );
    }
}
