//! Linux md: RAID 5 or 6 over each pool's drives, in this kernel or, where it has none, in that of a virtual machine.
//!
//! Always true: the same scripts make, break and take away the arrays in both places; an array is stopped only if it is on the list
//! that was written before it was made, and has no other members.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::bounds::Layout;
use crate::guest::{self, Accelerator, Guest};
use crate::load::Target;
use crate::program::{command, is_installed, run};
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, interleave};

use super::{Failure, Given, Groups, interrupted, number, spot, whole};

/// How much of the arrays is used, in percent: as much as the others' volumes take.
const FILL: u64 = 50;
/// The drive of each pool that is failed.
const VICTIM: usize = 1;
/// KiB of a drive before the next one's turn: that of the reference document.
const CHUNK: u64 = 64;
/// Pages for each drive in which stripes are put together; md's own default is 256.
const STRIPES: u32 = 4096;
/// How often a first synchronisation is looked at.
const LOOK: Duration = Duration::from_millis(200);
const FIRST_NUMBER: u32 = 100;
/// What a machine needs besides: checksums of md's superblocks, and RAID.
const MODULES: [&str; 2] = ["crc32c_generic", "raid456"];
const PROGRAMS: [&str; 2] = ["mdadm", "fio"];

pub(super) struct Md {
    given: Given,
    fill: u64,
    chunk: u64,
    pools: Option<u32>,
    guest: Option<bool>,
    kernel: PathBuf,
    layout: Option<Layout>,
    up: Option<Up>,
    last: Option<Accelerator>,
}

struct Up {
    place: Where,
    arrays: Vec<Array>,
    list: PathBuf,
    spots: Vec<TargetExtent>,
}

/// Where the arrays are.
enum Where {
    Here,
    Machine(Guest),
}

struct Array {
    /// As `/dev/md100`.
    device: String,
    members: Vec<String>,
}

/// True if this kernel has it, now or after loading a module.
fn is_here() -> bool {
    let root = rustix::process::geteuid().is_root();
    let loaded = Path::new("/sys/module/raid456").exists();
    root && (loaded || run(command("modprobe").args(["--dry-run", "raid456"])).is_ok())
}

/// What is missing for it.
pub(super) fn lacks(options: &[(String, String)]) -> Option<String> {
    if !is_installed("mdadm") {
        return Some("mdadm is not installed".into());
    }
    let of = |key: &str| options.iter().rfind(|(option, _)| option == key).map(|(_, value)| value.as_str());
    let here = || (!is_here()).then(|| "this kernel has no md, or this is not root".to_owned());
    let machine = || guest::lacks(Path::new(of("kernel").unwrap_or(guest::KERNEL)), &PROGRAMS);
    match of("guest") {
        Some("never") => here(),
        Some("always") => machine(),
        _ => here().and_then(|_| machine()),
    }
}

impl Where {
    fn sh(&self, script: &str, stop: &AtomicBool) -> Result<String, Failure> {
        match self {
            Self::Here => {
                interrupted(stop)?;
                // Tools of administrators are not in everybody's path.
                let script = format!("PATH=$PATH:/usr/sbin:/sbin\n{script}");
                Ok(run(command("sh").args(["-c", &script]))?)
            }
            Self::Machine(guest) => Ok(guest.sh(script, stop)?),
        }
    }

    fn target(&self, device: &str) -> Target {
        match self {
            Self::Here => Target::File(device.into()),
            Self::Machine(guest) => {
                Target::Machine { agent: guest.agent().socket().into(), device: device.into() }
            }
        }
    }
}

impl Md {
    pub(super) fn new(given: Given) -> Result<Self, String> {
        let (mut fill, mut chunk, mut pools) = (FILL, CHUNK, None);
        let (mut guest, mut kernel) = (None, PathBuf::from(guest::KERNEL));
        given.each(|key, value| {
            match (key, value) {
                ("fill", _) => fill = number(value, 100)?,
                ("chunk", _) => chunk = number(value, 65_536).filter(|chunk| chunk.is_power_of_two())?,
                ("pools", _) => pools = Some(u32::try_from(number(value, 64)?).ok()?),
                ("guest", "auto") => guest = None,
                ("guest", "always") => guest = Some(true),
                ("guest", "never") => guest = Some(false),
                ("kernel", path) if path.starts_with('/') => kernel = path.into(),
                _ => return None,
            }
            Some(())
        })?;
        Ok(Self { given, fill, chunk, pools, guest, kernel, layout: None, up: None, last: None })
    }

    fn make(&mut self, wish: &Requirements<'_>) -> Result<Up, Failure> {
        self.given.take(wish.drives)?;
        let pools = self.pools.unwrap_or(wish.pools).max(1);
        let groups = Groups::new(wish, pools)?;
        self.layout = Some(groups.layout);
        let in_machine = self.guest.unwrap_or_else(|| !is_here());
        let place = if in_machine { Where::Machine(self.machine(wish)?) } else { Where::Here };
        let names: Vec<String> = match &place {
            Where::Here => wish.drives.iter().map(|drive| drive.display().to_string()).collect(),
            Where::Machine(guest) => guest.drives(wish.drives.len(), wish.stop)?,
        };
        let list = wish.folder.join(format!("{}.arrays", self.given.name));
        let mut up = Up { place, arrays: Vec::new(), list, spots: Vec::new() };
        let mut spots = Vec::new();
        let made = names.chunks(groups.width()).take(groups.drives.len()).try_for_each(|members| {
            let bytes = self.array(&mut up, members, groups.layout.parity, wish.stop)?;
            let used = whole(bytes / 100 * self.fill);
            let device = up.arrays.last().map_or("", |array| array.device.as_str());
            spots.push(vec![spot(up.place.target(device), used)]);
            Ok(())
        });
        up.spots = interleave(spots);
        match made {
            Ok(()) => Ok(up),
            Err(error) => {
                let error: Failure = error;
                take_away(up).map_err(|left| Failure::from(format!("{error}; and {left}")))?;
                Err(error)
            }
        }
    }

    fn machine(&mut self, wish: &Requirements<'_>) -> Result<Guest, Failure> {
        let guest = Guest::start(&guest::Plan {
            name: &self.given.name,
            folder: wish.folder,
            kernel: &self.kernel,
            modules: &MODULES,
            programs: &PROGRAMS,
            drives: wish.drives,
            stop: wish.stop,
        })?;
        self.last = Some(guest.accelerator());
        Ok(guest)
    }

    /// Makes an array and waits until its parity is right; gives its bytes.
    fn array(&self, up: &mut Up, members: &[String], parity: u32, stop: &AtomicBool) -> Result<u64, Failure> {
        let numbers = FIRST_NUMBER..FIRST_NUMBER + 400;
        let script = "for d in /sys/block/md*; do echo ${d##*/}; done";
        let taken = up.place.sh(script, stop)?;
        let free = |number: &u32| !taken.lines().any(|name| name == format!("md{number}"));
        let number = { numbers }.find(free).ok_or("no number is free for an array")?;
        let name = format!("md{number}");
        up.arrays.push(Array { device: format!("/dev/{name}"), members: members.to_vec() });
        write_list(up)?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        up.place.sh(
            &format!(
                "mdadm --create /dev/{name} --run --quiet --level={} --raid-devices={} --chunk={} --metadata=1.2 \
                 --bitmap=none --homehost=any --name=gabion-bench-{number} {} || exit 1\n\
                 echo {cpus} >/sys/block/{name}/md/group_thread_count\n\
                 echo {STRIPES} >/sys/block/{name}/md/stripe_cache_size",
                4 + parity,
                members.len(),
                self.chunk,
                members.join(" ")
            ),
            stop,
        )?;
        let state = format!("cat /sys/block/{name}/md/sync_action");
        while up.place.sh(&state, stop)?.trim() != "idle" {
            interrupted(stop)?;
            std::thread::sleep(LOOK);
        }
        let sectors: u64 = up.place.sh(&format!("cat /sys/block/{name}/size"), stop)?.trim().parse()?;
        Ok(sectors * 512)
    }
}

/// Writes down which arrays there are, and of what.
fn write_list(up: &Up) -> std::io::Result<()> {
    // What is in a machine goes with it.
    if matches!(up.place, Where::Machine(_)) {
        return Ok(());
    }
    let line = |array: &Array| format!("{} {}\n", array.device, array.members.join(" "));
    std::fs::write(&up.list, up.arrays.iter().map(line).collect::<String>())
}

/// Stops an array and takes its marks off the drives.
pub(super) fn undo(device: &str, members: &[String]) -> String {
    let members = members.join(" ");
    format!(
        "if [ -e /sys/block/{name}/md ]; then\n\
         for slave in $(ls /sys/block/{name}/slaves); do\n\
         case ' {members} ' in *\" /dev/$slave \"*) ;; *) echo {device} is not ours: it has $slave >&2; exit 1 ;; esac\n\
         done\n\
         mdadm --stop --quiet {device} || exit 1\n\
         fi\n\
         mdadm --zero-superblock --quiet {members} || true",
        name = device.trim_start_matches("/dev/")
    )
}

fn take_away(up: Up) -> Result<(), Failure> {
    // Whoever wants the run to end wants this, too.
    let go = AtomicBool::new(false);
    let mut result = Ok(());
    for array in &up.arrays {
        let undone = up.place.sh(&undo(&array.device, &array.members), &go);
        result = result.and(undone.map(drop));
    }
    match up.place {
        Where::Here if result.is_ok() => std::fs::remove_file(&up.list).or_else(missing_is_fine)?,
        Where::Here => {}
        Where::Machine(guest) => guest.stop()?,
    }
    result
}

fn missing_is_fine(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl System for Md {
    fn about(&self) -> SystemInfo {
        let shape = self.layout.map_or(String::new(), |layout| {
            format!(
                "{} RAID {} over {} drives, chunks of {} KiB, {STRIPES} stripes of cache, a thread for each processor, {} % \
                 of each used",
                layout.pools,
                4 + layout.parity,
                layout.drives,
                self.chunk,
                self.fill
            )
        });
        let (place, remark) = match self.last {
            None => ("", None),
            Some(Accelerator::Kvm) => {
                (", in a virtual machine (KVM), fio within", Some("in a machine".to_owned()))
            }
            Some(Accelerator::Tcg) => (
                ", in a virtual machine whose processors are emulated (TCG), fio within",
                Some("emulated, not comparable".to_owned()),
            ),
        };
        SystemInfo {
            name: self.given.name.clone(),
            what: format!("Linux md: {shape}{place}"),
            promises: Guarantees {
                flush: "what was flushed is on the drives, and their caches are flushed".into(),
                checksums: "none".into(),
                protection:
                    "as many drives as there is parity; a crash can leave parity that does not fit (write hole)"
                        .into(),
            },
            takes_drives: true,
            degrades: true,
            layout: self.layout,
            remark,
        }
    }

    fn set_up(&mut self, wish: &Requirements<'_>) -> Result<(), SystemError> {
        self.up = Some(self.make(wish).map_err(|error| self.given.error("setting it up", error))?);
        Ok(())
    }

    fn spots(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.spots.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        let machine = |up: &Up| match &up.place {
            Where::Here => None,
            Where::Machine(guest) => Some(guest.process()),
        };
        self.up.iter().filter_map(machine).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let Some(up) = &self.up else {
            return Err(self.given.error("losing a drive", "it is not set up"));
        };
        for array in &up.arrays {
            let Some(victim) = array.members.get(VICTIM) else { continue };
            let fail = format!("mdadm --manage --quiet {} --fail {victim}", array.device);
            up.place
                .sh(&fail, &AtomicBool::new(false))
                .map_err(|error| self.given.error("losing a drive", error))?;
        }
        Ok(format!("drive {VICTIM} of each of {} arrays failed", up.arrays.len()))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let list = folder.join(format!("{}.arrays", self.given.name));
        let Ok(text) = std::fs::read_to_string(&list) else { return Ok(()) };
        let clean = || {
            for line in text.lines() {
                let mut words = line.split_whitespace().map(str::to_owned);
                let Some(device) = words.next() else { continue };
                Where::Here.sh(&undo(&device, &words.collect::<Vec<_>>()), &AtomicBool::new(false))?;
            }
            Ok(std::fs::remove_file(&list)?)
        };
        clean().map_err(|error: Failure| self.given.error("cleaning up after the run", error))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(up) = self.up.take() else { return Ok(()) };
        take_away(up).map_err(|error| self.given.error("taking it down", error))
    }
}

impl Drop for Md {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
