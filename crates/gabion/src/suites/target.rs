//! Targets as they are named on the command line.

use anyhow::Result;
use bench::run::TargetSpec;
use bench::system::{Given, System};

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
        word => word.rsplit('/').next(),
    };
    last.filter(|name| !name.is_empty()).unwrap_or("target").to_owned()
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
        // Who answers as a machine's disk takes a load that speaks its protocol, which fio does not.
        "vhost-user" => Err(Usage(
            "vhost-user sockets are measured by 'gabion bench vhost' or from within a machine; suites run on devices, files \
             and NBD"
                .into(),
        )
        .into()),
        _ => Ok(Box::new(Given::parse(&target.name, spec)?)),
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
        ] {
            let spec = spec(text).unwrap();
            assert_eq!((spec.name.as_str(), spec.spec.as_str()), (name, what), "{text}");
        }
        assert!(spec("drives=/dev/x").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, says) in [
            ("floppy", "no absolute path"),
            ("gabion:speed=9", "'speed=9'"),
            ("gabion:fill=0", "fill"),
            ("vhost-user:/x", "gabion bench vhost"),
        ] {
            let error = format!("{:#}", open(&spec(text).unwrap(), false).map(|_| ()).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }
}
