//! Targets as they are named on the command line.

use anyhow::{Result, bail};
use bench::peers::{PEERS, Peer};
use bench::run::TargetSpec;
use bench::system::{ExternalSystem, System};

use super::gabion::Gabion;
use crate::failure::Usage;

/// The name and what it stands for: `NAME=TARGET`, or the target alone.
pub(super) fn spec(text: &str) -> Result<TargetSpec> {
    let plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let (name, spec) = match text.split_once('=') {
        Some((name, spec)) if plain(name) => (name.to_owned(), spec.to_owned()),
        _ => (usual_name(text), text.to_owned()),
    };
    if name == bench::run::RAW {
        return Err(
            Usage(format!("'{name}' is what the drives themselves are called: choose another name")).into()
        );
    }
    Ok(TargetSpec { name, spec })
}

/// What a target is called that was given no name.
fn usual_name(text: &str) -> String {
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

/// All targets that a text names, and why those are missing that are not there: `peers` is everything that can be measured here
/// beside Gabion.
///
/// # Errors
/// When one that is named itself is not there, or it makes no sense.
pub(super) fn specs(text: &str) -> Result<(Vec<TargetSpec>, Vec<String>)> {
    if let Some(options) = all_peers(text) {
        return peers(options);
    }
    let one = spec(text)?;
    let (kind, options) = one.spec.split_once(':').unwrap_or((&one.spec, ""));
    if let Some(what) = Peer::find(kind).and_then(|peer| peer.missing_requirement(options)) {
        bail!("{}: {what}", one.name);
    }
    Ok((vec![one], Vec::new()))
}

/// Has all targets that are Gabion measured in machines.
///
/// # Errors
/// When none is.
pub(super) fn in_machines(targets: &mut [TargetSpec]) -> Result<()> {
    let ours = |one: &&mut TargetSpec| one.spec.split(':').next() == Some("gabion");
    let mut found = false;
    for one in targets.iter_mut().filter(ours) {
        one.spec.push_str(if one.spec.contains(':') { ",by=vm" } else { ":by=vm" });
        found = true;
    }
    if found { Ok(()) } else { Err(Usage("--vms is for the target 'gabion': name it".into()).into()) }
}

/// The options of all peers, if that is what a text names.
fn all_peers(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("peers")?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix(':') }
}

fn peers(options: &str) -> Result<(Vec<TargetSpec>, Vec<String>)> {
    let options = || options.split(',').filter(|option| !option.is_empty());
    let key = |option: &str| option.split_once('=').map_or(option, |(key, _)| key).to_owned();
    if let Some(option) = options().find(|option| !PEERS.iter().any(|peer| peer.has(&key(option)))) {
        return Err(
            Usage(format!("'{option}' is an option of no peer: see 'gabion bench run --help'")).into()
        );
    }
    let (mut specs, mut missing) = (Vec::new(), Vec::new());
    for peer in PEERS {
        // An option that only some of them have is for those.
        let its: Vec<&str> = options().filter(|option| peer.has(&key(option))).collect();
        let its = its.join(",");
        match peer.missing_requirement(&its) {
            Some(what) => missing.push(format!("{}: {what}", peer.name)),
            None => {
                let spec = if its.is_empty() { peer.name.into() } else { format!("{}:{its}", peer.name) };
                specs.push(TargetSpec { name: peer.name.into(), spec });
            }
        }
    }
    Ok((specs, missing))
}

/// The system behind a target. `overwrite` says that the drives' contents may be destroyed.
///
/// # Errors
/// When it is nothing that can be measured.
pub(super) fn open(target: &TargetSpec, overwrite: bool) -> Result<Box<dyn System>> {
    let spec = target.spec.as_str();
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    match kind {
        "gabion" => Ok(Box::new(Gabion::parse(&target.name, rest, overwrite)?)),
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
    fn targets_have_names() {
        for (text, name, what) in [
            ("gabion", "gabion", "gabion"),
            ("gabion:fill=80", "gabion", "gabion:fill=80"),
            ("full=gabion:fill=80", "full", "gabion:fill=80"),
            ("/dev/vg/x", "x", "/dev/vg/x"),
            ("nbd+unix:///pool/vol?socket=/run/x.sock", "vol", "nbd+unix:///pool/vol?socket=/run/x.sock"),
            ("old=/dev/a,/dev/b", "old", "/dev/a,/dev/b"),
            ("vhost:/run/p/vm02.sock,vhost:/run/p/x", "vm02.sock", "vhost:/run/p/vm02.sock,vhost:/run/p/x"),
        ] {
            let spec = spec(text).unwrap();
            assert_eq!((spec.name.as_str(), spec.spec.as_str()), (name, what), "{text}");
        }
        assert!(spec("drives=/dev/x").is_err());
    }

    #[test]
    fn machines_are_for_what_is_ours() {
        let all = |texts: &[&str]| texts.iter().map(|text| spec(text).unwrap()).collect::<Vec<_>>();
        let mut targets = all(&["gabion", "btrfs", "old=gabion:fill=80"]);
        in_machines(&mut targets).unwrap();
        let specs: Vec<&str> = targets.iter().map(|one| one.spec.as_str()).collect();
        assert_eq!(specs, ["gabion:by=vm", "btrfs", "gabion:fill=80,by=vm"]);
        assert!(in_machines(&mut all(&["btrfs"])).unwrap_err().to_string().contains("--vms"));
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, says) in [
            ("floppy", "expected an absolute path"),
            ("gabion:speed=9", "'speed=9'"),
            ("gabion:fill=0", "fill"),
            ("gabion:by=pigeon", "by=pigeon"),
            ("gabion:cpus=2", "by=vm"),
            ("gabion:by=vm,kernel=/nonexistent", "gabion: "),
            ("btrfs:speed=9", "fill (used share"),
            ("nbdkit:fill=9", "known options: none"),
            ("vhost:x.sock", "vhost:/SOCKET"),
            ("vhost:/x.sock,/dev/x", "two targets"),
        ] {
            let error = format!("{:#}", open(&spec(text).unwrap(), false).map(|_| ()).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn peers_are_those_that_are_there_each_with_its_options() {
        let (specs, missing) = peers("by=vhost,fill=20").unwrap();
        assert_eq!(specs.len() + missing.len(), PEERS.len());
        for spec in specs {
            let wanted = match spec.name.as_str() {
                "qemu-storage-daemon" => "qemu-storage-daemon:by=vhost",
                "nbdkit" => "nbdkit",
                name => &format!("{name}:fill=20"),
            };
            assert_eq!(spec.spec, wanted);
            open(&spec, true).unwrap();
        }
        assert!(missing.iter().all(|line| line.contains("(Debian: ")), "{missing:?}");
        assert!(peers("speed=9").unwrap_err().to_string().contains("no peer"));
        assert_eq!(
            (all_peers("peers"), all_peers("peers:x=1"), all_peers("peersx")),
            (Some(""), Some("x=1"), None)
        );
    }
}
