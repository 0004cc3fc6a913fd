//! Fuzz targets: machine definitions, command-line texts, templates, and QMP responses.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ::fuzz::within;
use fatfs::{FileSystem, FsOptions};

use crate::machine::{Forward, Mac, Machine, Pages, Pin, VcpuTopology, check_name};
use crate::placement::Placement;
use crate::qemu::{RuntimePaths, command};
use crate::qmp::Qmp;
use crate::seed::Seed;
use crate::template::fill;
use crate::{Accelerator, CpuList, domain};

::fuzz::target!(
    /// An accepted definition round-trips, and can be rendered for QEMU and libvirt.
    machine,
    |bytes| {
        // A list of CPUs describes up to 8192 of them in a few bytes.
        let parsed = within(64 * bytes.len() + (256 << 10), || serde_json::from_slice::<Machine>(bytes));
        let Ok(machine) = parsed else { return };
        let kept = serde_json::to_vec(&machine).unwrap();
        assert_eq!(serde_json::from_slice::<Machine>(&kept).unwrap(), machine);
        if machine.check().is_ok() {
            check_renderings(&machine);
        }
    }
);

fn check_renderings(machine: &Machine) {
    let path = |name: &str| PathBuf::from(format!("/run/vm/{name},x"));
    let paths = RuntimePaths {
        disks: machine.disks.iter().map(|_| path("disk")).collect(),
        qmp: path("qmp"),
        console: path("console"),
        console_log: path("log"),
        seed: Some(path("seed")),
    };
    let command_line = command(machine, &paths, Accelerator::Kvm, Some(1));
    assert!(
        command_line.arguments.iter().all(|argument| !argument.as_encoded_bytes().contains(&0)),
        "NUL in an argument"
    );
    let xml = domain(machine, &paths.disks, Some(Path::new("/seed")), true, &Placement::default());
    let legal =
        |c: char| matches!(c, '\t' | '\n' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..);
    assert!(xml.chars().all(legal), "a character that is invalid in XML");
    // Texts are escaped: every `<` belongs to a tag of the renderer, and each tag is closed.
    let (open, close) = (xml.matches('<').count(), xml.matches('>').count());
    assert_eq!(open, close);
}

::fuzz::target!(
    /// A text that parses is displayed as a text that parses to the same value.
    machine_text,
    |bytes| {
        let [kind, text @ ..] = bytes else { return };
        let Ok(text) = str::from_utf8(text) else { return };
        match kind % 8 {
            0 => check_round_trip::<CpuList>(text),
            1 => check_round_trip::<Pin>(text),
            2 => check_round_trip::<VcpuTopology>(text),
            3 => check_round_trip::<Forward>(text),
            4 => check_round_trip::<Mac>(text),
            5 => drop(text.parse::<Pages>()),
            6 => drop(check_name(text)),
            _ => check_fill(text),
        }
    }
);

fn check_round_trip<T: std::str::FromStr + ToString + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse().ok(), Some(value));
    }
}

/// Fills a template. The values come first, one per line, followed by the template.
fn check_fill(text: &str) {
    let mut values = BTreeMap::new();
    let mut template = text;
    while let Some((line, rest)) = template.split_once('\n')
        && let Some((name, value)) = line.split_once('=')
    {
        values.insert(name.to_owned(), value.to_owned());
        template = rest;
    }
    let filled = fill(template, &values);
    if !template.contains("${") {
        assert_eq!(filled.ok().as_deref(), Some(template));
        return;
    }
    // With each placeholder as its own value, the result is the template itself.
    let names = template.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.to_owned()));
    let same = names.map(|name| (name.clone(), format!("${{{name}}}"))).collect();
    assert_eq!(fill(template, &same).ok().as_deref(), Some(template));
}

::fuzz::target!(
    /// The texts for cloud-init can be read from the seed disk that is built from them.
    seed,
    |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.splitn(3, '\0').map(str::to_owned);
        let seed = Seed {
            user_data: parts.next().unwrap_or_default(),
            meta_data: parts.next().unwrap_or_default(),
            network_config: parts.next(),
        };
        let image = seed.image().unwrap();
        let system = FileSystem::new(std::io::Cursor::new(image), FsOptions::new()).unwrap();
        let read = |name: &str| {
            let mut text = String::new();
            system.root_dir().open_file(name).ok()?.read_to_string(&mut text).unwrap();
            Some(text)
        };
        assert_eq!(read("user-data"), Some(seed.user_data));
        assert_eq!(read("meta-data"), Some(seed.meta_data));
        assert_eq!(read("network-config"), seed.network_config);
    }
);

::fuzz::target!(
    /// For arbitrary responses, a QMP conversation ends, and no line uses more memory than allowed.
    qmp,
    |bytes| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let sent = theirs.write(bytes).unwrap_or(0);
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = within(64 * sent + (64 << 10), || {
            let mut qmp = Qmp::handshake(ours, Path::new("qmp.sock"))?;
            qmp.execute("query-status")
        });
    }
);
