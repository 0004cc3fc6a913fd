//! Linux md: RAID 5 or 6 on each pool's drives, in this kernel or, if it lacks md, in
//! a virtual machine.
//!
//! Invariants: the same scripts create, degrade and remove the arrays in both places; an array is
//! stopped only if it is in the list that was written before its creation and has no other members.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::bounds::Layout;
use crate::guest::{self, Accelerator, Guest};
use crate::load::Target;
use crate::program::{command, is_installed, run};
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, interleave};

use super::{Failure, Groups, PeerOptions, interrupted, number, round_to_mib, target_extent};

/// Share of the arrays that is used, in percent, as for the other systems.
const FILL: u64 = 50;
/// Index of the drive that fails in each pool.
const VICTIM: usize = 1;
/// Chunk size in KiB, as in the reference document.
const CHUNK: u64 = 64;
/// Stripe cache in pages per drive; md's own default is 256.
const STRIPES: u32 = 4096;
/// Interval at which the initial resync is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const FIRST_NUMBER: u32 = 100;
/// Kernel modules for md: checksums of its superblocks, and RAID.
const MODULES: [&str; 2] = ["crc32c_generic", "raid456"];
const PROGRAMS: [&str; 2] = ["mdadm", "fio"];

pub(super) struct Md {
    options: PeerOptions,
    fill: u64,
    chunk: u64,
    pools: Option<u32>,
    guest: Option<bool>,
    kernel: PathBuf,
    layout: Option<Layout>,
    up: Option<RunningMd>,
    last: Option<Accelerator>,
}

struct RunningMd {
    place: ArrayHost,
    arrays: Vec<Array>,
    list: PathBuf,
    extents: Vec<TargetExtent>,
}

/// The location of the arrays.
enum ArrayHost {
    Here,
    Machine(Guest),
}

struct Array {
    /// Device name, such as `/dev/md100`.
    device: String,
    members: Vec<String>,
}

/// True if this kernel supports md, possibly after loading a module.
fn is_supported() -> bool {
    let root = rustix::process::geteuid().is_root();
    let loaded = Path::new("/sys/module/raid456").exists();
    root && (loaded || run(command("modprobe").args(["--dry-run", "raid456"])).is_ok())
}

/// Returns the missing requirement, if any.
pub(super) fn missing_requirement(options: &[(String, String)]) -> Option<String> {
    if !is_installed("mdadm") {
        return Some("mdadm is not installed".into());
    }
    let of = |key: &str| options.iter().rfind(|(option, _)| option == key).map(|(_, value)| value.as_str());
    let here = || (!is_supported()).then(|| "this kernel has no md, or the user is not root".to_owned());
    let machine = || guest::missing_requirement(Path::new(of("kernel").unwrap_or(guest::KERNEL)), &PROGRAMS);
    match of("guest") {
        Some("never") => here(),
        Some("always") => machine(),
        _ => here().and_then(|_| machine()),
    }
}

impl ArrayHost {
    fn sh(&self, script: &str, stop: &AtomicBool) -> Result<String, Failure> {
        match self {
            Self::Here => {
                interrupted(stop)?;
                // Administration tools may not be in the PATH.
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
    pub(super) fn new(options: PeerOptions) -> Result<Self, String> {
        let (mut fill, mut chunk, mut pools) = (FILL, CHUNK, None);
        let (mut guest, mut kernel) = (None, PathBuf::from(guest::KERNEL));
        options.each(|key, value| {
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
        Ok(Self { options, fill, chunk, pools, guest, kernel, layout: None, up: None, last: None })
    }

    fn make(&mut self, requirements: &Requirements<'_>) -> Result<RunningMd, Failure> {
        self.options.take(requirements.drives)?;
        let pools = self.pools.unwrap_or(requirements.pools).max(1);
        let groups = Groups::new(requirements, pools)?;
        self.layout = Some(groups.layout);
        let in_machine = self.guest.unwrap_or_else(|| !is_supported());
        let place =
            if in_machine { ArrayHost::Machine(self.machine(requirements)?) } else { ArrayHost::Here };
        let names: Vec<String> = match &place {
            ArrayHost::Here => requirements.drives.iter().map(|drive| drive.display().to_string()).collect(),
            ArrayHost::Machine(guest) => guest.drives(requirements.drives.len(), requirements.stop)?,
        };
        let list = requirements.folder.join(format!("{}.arrays", self.options.name));
        let mut up = RunningMd { place, arrays: Vec::new(), list, extents: Vec::new() };
        let mut extents = Vec::new();
        let made = names.chunks(groups.width()).take(groups.drives.len()).try_for_each(|members| {
            let bytes = self.array(&mut up, members, groups.layout.parity, requirements.stop)?;
            let used = round_to_mib(bytes / 100 * self.fill);
            let device = up.arrays.last().map_or("", |array| array.device.as_str());
            extents.push(vec![target_extent(up.place.target(device), used)]);
            Ok(())
        });
        up.extents = interleave(extents);
        match made {
            Ok(()) => Ok(up),
            Err(error) => {
                let error: Failure = error;
                remove(up).map_err(|left| Failure::from(format!("{error}; and {left}")))?;
                Err(error)
            }
        }
    }

    fn machine(&mut self, requirements: &Requirements<'_>) -> Result<Guest, Failure> {
        let guest = Guest::start(&guest::GuestPlan {
            name: &self.options.name,
            folder: requirements.folder,
            kernel: &self.kernel,
            modules: &MODULES,
            programs: &PROGRAMS,
            drives: requirements.drives,
            stop: requirements.stop,
        })?;
        self.last = Some(guest.accelerator());
        Ok(guest)
    }

    /// Creates an array and waits for its initial resync. Returns its size in bytes.
    fn array(
        &self,
        up: &mut RunningMd,
        members: &[String],
        parity: u32,
        stop: &AtomicBool,
    ) -> Result<u64, Failure> {
        let numbers = FIRST_NUMBER..FIRST_NUMBER + 400;
        let script = "for d in /sys/block/md*; do echo ${d##*/}; done";
        let taken = up.place.sh(script, stop)?;
        let free = |number: &u32| !taken.lines().any(|name| name == format!("md{number}"));
        let number = { numbers }.find(free).ok_or("no array number is free")?;
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
            std::thread::sleep(POLL_INTERVAL);
        }
        let sectors: u64 = up.place.sh(&format!("cat /sys/block/{name}/size"), stop)?.trim().parse()?;
        Ok(sectors * 512)
    }
}

/// Records the arrays and their members.
fn write_list(up: &RunningMd) -> std::io::Result<()> {
    // Arrays in a virtual machine disappear with it.
    if matches!(up.place, ArrayHost::Machine(_)) {
        return Ok(());
    }
    let line = |array: &Array| format!("{} {}\n", array.device, array.members.join(" "));
    std::fs::write(&up.list, up.arrays.iter().map(line).collect::<String>())
}

/// Returns a script that stops an array and erases its superblocks.
pub(super) fn undo(device: &str, members: &[String]) -> String {
    let members = members.join(" ");
    format!(
        "if [ -e /sys/block/{name}/md ]; then\n\
         for slave in $(ls /sys/block/{name}/slaves); do\n\
         case ' {members} ' in *\" /dev/$slave \"*) ;; *) echo {device} does not belong to this run: it contains $slave >&2; exit 1 ;; esac\n\
         done\n\
         mdadm --stop --quiet {device} || exit 1\n\
         fi\n\
         mdadm --zero-superblock --quiet {members} || true",
        name = device.trim_start_matches("/dev/")
    )
}

fn remove(up: RunningMd) -> Result<(), Failure> {
    // An interrupt also requests the removal.
    let go = AtomicBool::new(false);
    let mut result = Ok(());
    for array in &up.arrays {
        let undone = up.place.sh(&undo(&array.device, &array.members), &go);
        result = result.and(undone.map(drop));
    }
    match up.place {
        ArrayHost::Here if result.is_ok() => std::fs::remove_file(&up.list).or_else(missing_is_fine)?,
        ArrayHost::Here => {}
        ArrayHost::Machine(guest) => guest.stop()?,
    }
    result
}

fn missing_is_fine(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl System for Md {
    fn info(&self) -> SystemInfo {
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
                (", in a virtual machine (KVM), fio in the guest", Some("in a VM".to_owned()))
            }
            Some(Accelerator::Tcg) => (
                ", in a virtual machine with emulated processors (TCG), fio in the guest",
                Some("emulated, not comparable".to_owned()),
            ),
        };
        SystemInfo {
            name: self.options.name.clone(),
            what: format!("Linux md: {shape}{place}"),
            guarantees: Guarantees {
                flush: "flushed data is on the drives, and their caches are flushed".into(),
                checksums: "none".into(),
                protection: "one drive per parity column; a crash can leave inconsistent parity (write hole)"
                    .into(),
            },
            takes_drives: true,
            own_contents: false,
            degrades: true,
            layout: self.layout,
            remark,
            network: None,
            is_remote: false,
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        self.up = Some(self.make(requirements).map_err(|error| self.options.error("set up", error))?);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        let machine = |up: &RunningMd| match &up.place {
            ArrayHost::Here => None,
            ArrayHost::Machine(guest) => Some(guest.process()),
        };
        self.up.iter().filter_map(machine).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let Some(up) = &self.up else {
            return Err(self.options.error("fail a drive", "the system is not set up"));
        };
        for array in &up.arrays {
            let Some(victim) = array.members.get(VICTIM) else { continue };
            let fail = format!("mdadm --manage --quiet {} --fail {victim}", array.device);
            up.place
                .sh(&fail, &AtomicBool::new(false))
                .map_err(|error| self.options.error("fail a drive", error))?;
        }
        Ok(format!("drive {VICTIM} of each of {} arrays failed", up.arrays.len()))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let list = folder.join(format!("{}.arrays", self.options.name));
        let Ok(text) = std::fs::read_to_string(&list) else { return Ok(()) };
        let clean = || {
            for line in text.lines() {
                let mut words = line.split_whitespace().map(str::to_owned);
                let Some(device) = words.next() else { continue };
                ArrayHost::Here.sh(&undo(&device, &words.collect::<Vec<_>>()), &AtomicBool::new(false))?;
            }
            Ok(std::fs::remove_file(&list)?)
        };
        clean().map_err(|error: Failure| self.options.error("clean up after the run", error))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(up) = self.up.take() else { return Ok(()) };
        remove(up).map_err(|error| self.options.error("tear down", error))
    }
}

impl Drop for Md {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
