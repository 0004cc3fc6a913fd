//! Fuzz targets: definitions of machines, what people write of them, templates, and QEMU's answers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ::fuzz::within;
use fatfs::{FileSystem, FsOptions};

use crate::machine::{Forward, Mac, Machine, Pages, Pin, Shape, check_name};
use crate::placement::Placement;
use crate::qemu::{Places, command};
use crate::qmp::Qmp;
use crate::seed::Seed;
use crate::template::fill;
use crate::{Accelerator, CpuList, domain};

::fuzz::target!(
    /// A definition that is read and accepted is kept as it is, and can be told to QEMU and to
    /// libvirt.
    machine,
    |bytes| {
        // A list of processors names up to 8192 of them in a few bytes.
        let parsed = within(64 * bytes.len() + (256 << 10), || serde_json::from_slice::<Machine>(bytes));
        let Ok(machine) = parsed else { return };
        let kept = serde_json::to_vec(&machine).unwrap();
        assert_eq!(serde_json::from_slice::<Machine>(&kept).unwrap(), machine);
        if machine.check().is_ok() {
            check_told(&machine);
        }
    }
);

fn check_told(machine: &Machine) {
    let path = |name: &str| PathBuf::from(format!("/run/vm/{name},x"));
    let places = Places {
        disks: machine.disks.iter().map(|_| path("disk")).collect(),
        qmp: path("qmp"),
        console: path("console"),
        console_log: path("log"),
        seed: Some(path("seed")),
    };
    let told = command(machine, &places, Accelerator::Kvm, Some(1));
    assert!(told.arguments.iter().all(|word| !word.as_encoded_bytes().contains(&0)), "NUL in an argument");
    let xml = domain(machine, &places.disks, Some(Path::new("/seed")), true, &Placement::default());
    let legal =
        |c: char| matches!(c, '\t' | '\n' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..);
    assert!(xml.chars().all(legal), "a character that XML does not have");
    // Every text is escaped: tags are those that are written here, and each is closed.
    let (open, close) = (xml.matches('<').count(), xml.matches('>').count());
    assert_eq!(open, close);
}

::fuzz::target!(
    /// Texts that are understood are shown as texts that mean the same.
    machine_text,
    |bytes| {
        let [kind, text @ ..] = bytes else { return };
        let Ok(text) = str::from_utf8(text) else { return };
        match kind % 8 {
            0 => again::<CpuList>(text),
            1 => again::<Pin>(text),
            2 => again::<Shape>(text),
            3 => again::<Forward>(text),
            4 => again::<Mac>(text),
            5 => drop(text.parse::<Pages>()),
            6 => drop(check_name(text)),
            _ => check_fill(text),
        }
    }
);

fn again<T: std::str::FromStr + ToString + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse().ok(), Some(value));
    }
}

/// Fills a template in that stands behind values, a line for each.
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
    // Filled in with themselves, all places are what they were.
    let names = template.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.to_owned()));
    let same = names.map(|name| (name.clone(), format!("${{{name}}}"))).collect();
    assert_eq!(fill(template, &same).ok().as_deref(), Some(template));
}

::fuzz::target!(
    /// Texts for cloud-init are found again on the disk that is made of them.
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
    /// Whoever answers in QEMU's place: a conversation ends, and no line takes more memory than it
    /// may.
    qmp,
    |bytes| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let sent = theirs.write(bytes).unwrap_or(0);
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = within(64 * sent + (64 << 10), || {
            let mut qmp = Qmp::greet(ours, Path::new("qmp.sock"))?;
            qmp.execute("query-status")
        });
    }
);
