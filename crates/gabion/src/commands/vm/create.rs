//! Making a machine: its name first, then volumes, then exports; and all of it taken back if something fails.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use api::types::{CreateVolume, Export, Protocol};
use api::{Error, ErrorKind, Size, VolumeName};
use vm::{Boot, CloudInit, Disk, Mac, Machine, Memory, Seed};

use super::super::calls::ExportOptions;
use super::Work;
use crate::cli::{CreateVmArgs, DiskSpec};
use crate::failure::Usage;
use crate::image::{Image, Interrupt};
use crate::output;

/// A disk that a machine is to have.
struct Wanted {
    name: VolumeName,
    /// Of a new volume.
    size: Option<u64>,
    image: Option<Image>,
    read_only: bool,
}

/// What has been made, in order, to be taken back.
#[derive(Default)]
struct Made {
    volumes: Vec<VolumeName>,
    exports: Vec<Export>,
}

impl Work<'_> {
    /// Makes a machine.
    ///
    /// # Errors
    /// Why it could not; nothing is left then.
    pub(super) async fn create(&self, arguments: CreateVmArgs) -> Result<()> {
        let (start, libvirt) = (arguments.start, arguments.libvirt);
        let wanted = wanted(&arguments)?;
        let mut machine = machine(arguments)?;
        machine.check()?;
        // A template that misses something is found out about now, not at the start.
        Seed::for_machine(&machine, &self.store.templates())?;
        machine.disks = self.plan(&wanted).await?;
        let lock = self.store.create(&machine)?;
        let mut made = Made::default();
        if let Err(error) = self.make(&machine, &wanted, &mut made).await {
            self.take_back(made).await;
            self.store.delete(&machine.name, lock)?;
            return Err(error);
        }
        drop(lock);
        let name = machine.name.clone();
        if libvirt {
            return super::print(&self.domain(&machine).await?);
        }
        if start {
            return self.start(&name, None).await;
        }
        self.setting.done(&self.shown(machine)?, output::machine_made)
    }

    /// The disks of the machine: which volumes are there, and which will be made.
    async fn plan(&self, wanted: &[Wanted]) -> Result<Vec<Disk>> {
        let mut disks = Vec::new();
        for Wanted { name, size, image: _, read_only } in wanted {
            let there = self.setting.client.find_volume(name).await?;
            let refusal = match (&there, size) {
                (Some(_), Some(_)) => {
                    Error::new(ErrorKind::Exists, format!("there is a volume {name} already"))
                        .hint("without a size and an image it is used as it is")
                }
                (None, None) => Error::new(ErrorKind::NotFound, format!("there is no volume {name}")).hint(
                    "say its size to have it made: --disk POOL/VOLUME:SIZE, or --boot with --size or --image",
                ),
                _ => {
                    disks.push(Disk {
                        volume: name.to_string(),
                        made: there.is_none(),
                        read_only: *read_only,
                    });
                    continue;
                }
            };
            return Err(refusal.into());
        }
        Ok(disks)
    }

    async fn make(&self, machine: &Machine, wanted: &[Wanted], made: &mut Made) -> Result<()> {
        for disk in wanted {
            if let Some(size) = disk.size {
                let shards = self.shards_for(machine, &disk.name.pool).await?;
                let wanted = CreateVolume { shards, ..CreateVolume::new(&disk.name.volume, size) };
                self.setting.client.create_volume(&disk.name.pool, &wanted).await?;
                made.volumes.push(disk.name.clone());
            }
            if let Some(image) = &disk.image {
                // A copy that is broken off is taken back like one that fails.
                let mut interrupt = Interrupt::new()?;
                self.setting.fill(image, &disk.name, &mut interrupt).await?;
            }
        }
        let exports = self.setting.client.list_exports().await?;
        for disk in wanted {
            let there = |pool: &str, volume: &str| pool == disk.name.pool && volume == disk.name.volume;
            let own = exports.iter().filter(|export| there(&export.pool, &export.volume));
            match own.min_by_key(|export| (export.protocol != Protocol::VhostUser, export.connections)) {
                Some(export)
                    if export.protocol == Protocol::VhostUser && export.read_only == disk.read_only => {}
                Some(export) => {
                    let how = if export.read_only { "read-only " } else { "" };
                    let message =
                        format!("volume {} is exported already, {how}by {}", disk.name, export.protocol);
                    return Err(Error::new(ErrorKind::Busy, message)
                        .hint(format!("'gabion export delete {} --id {}' removes it", disk.name, export.id))
                        .into());
                }
                None => {
                    let reactors = machine.reactors.clone();
                    let options =
                        ExportOptions { protocol: Protocol::VhostUser, read_only: disk.read_only, reactors };
                    made.exports.push(self.setting.export(&disk.name, options).await?);
                }
            }
        }
        Ok(())
    }

    /// How many shards a new disk lies on: as many as the machine has processors, each of which has a queue. With fewer queues than
    /// shards, requests would go from the core of a queue to that of a shard and back.
    async fn shards_for(&self, machine: &Machine, pool: &str) -> Result<Option<u16>> {
        if !machine.reactors.is_empty() {
            // Its queues are where they were asked for, wherever the shards may be.
            return Ok(None);
        }
        let pool = self.setting.client.get_pool(pool).await?;
        let fewer = pool.shards.filter(|shards| *shards > u64::from(machine.cpus.count()));
        Ok(fewer.and_then(|_| u16::try_from(machine.cpus.count()).ok()))
    }

    /// Takes back what was made. What cannot be is named, and is no reason to stop.
    async fn take_back(&self, made: Made) {
        for export in made.exports.iter().rev() {
            // The export may be gone already.
            let _ = self.setting.end_export(export).await;
        }
        for name in made.volumes.iter().rev() {
            if let Err(error) = self.setting.delete_volume(name).await {
                eprintln!("gabion: volume {name} was made and is left: {error}");
            }
        }
    }
}

/// The disks that are asked for, the one to start from first.
fn wanted(arguments: &CreateVmArgs) -> Result<Vec<Wanted>> {
    let image = arguments.image.as_deref().map(|path| Image::look(path, None)).transpose()?;
    let least = image.as_ref().map(|image| image.size);
    let given = arguments.size.map(Size::bytes);
    if let (Some(least), Some(given)) = (least, given)
        && given < least
    {
        let message =
            format!("the image holds a disk of {}, which does not fit {}", Size(least), Size(given));
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let boot = arguments.boot.iter().cloned();
    // Volumes have whole blocks.
    let size = given.or(least).map(|size| size.next_multiple_of(4096));
    let mut wanted: Vec<Wanted> =
        boot.map(|name| Wanted { name, size, image: None, read_only: false }).collect();
    if let Some(first) = wanted.first_mut() {
        first.image = image;
    }
    let more = arguments.disk.iter().cloned().map(|disk| {
        let DiskSpec { volume, size, read_only } = disk;
        Wanted { name: volume, size: size.map(Size::bytes), image: None, read_only }
    });
    wanted.extend(more);
    Ok(wanted)
}

/// The machine that is asked for. Of its disks only the names are right yet.
fn machine(arguments: CreateVmArgs) -> Result<Machine> {
    let uuid = uuid()?;
    let mac = match arguments.mac {
        Some(mac) => mac,
        None => Mac::with_qemu_prefix(tail(&uuid)?),
    };
    let boot = match arguments.kernel {
        Some(kernel) => Boot::Kernel {
            kernel: absolute(&kernel)?,
            initramfs: arguments.initramfs.as_deref().map(absolute).transpose()?,
            append: arguments.append,
        },
        None => Boot::Disk,
    };
    let volumes = arguments.boot.iter().chain(arguments.disk.iter().map(|disk| &disk.volume));
    let disks =
        volumes.map(|name| Disk { volume: name.to_string(), made: false, read_only: false }).collect();
    Ok(Machine {
        name: arguments.name,
        uuid,
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        cpus: arguments.cpus,
        pin: arguments.pin,
        memory: Memory { bytes: arguments.memory.bytes(), pages: arguments.hugepages.unwrap_or_default() },
        accelerator: arguments.accelerator,
        boot,
        disks,
        reactors: arguments.reactors,
        network: arguments.network.network(mac, arguments.forward).map_err(Usage)?,
        cloud_init: CloudInit {
            user_data: arguments.user_data,
            network_data: arguments.network_data,
            meta_data: arguments.meta_data,
            values: arguments.set.into_iter().map(|set| (set.name, set.value)).collect(),
        },
        qemu: arguments.qemu_arg,
    })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("'{}'", path.display()))
}

/// A new identity, of the kernel's.
fn uuid() -> Result<String> {
    let path = "/proc/sys/kernel/random/uuid";
    Ok(std::fs::read_to_string(path).with_context(|| format!("'{path}'"))?.trim().to_owned())
}

/// The last three bytes of an identity.
fn tail(uuid: &str) -> Result<[u8; 3]> {
    let digits = uuid.get(uuid.len().saturating_sub(6)..).context("an identity is too short")?;
    let number = u32::from_str_radix(digits, 16).context("an identity has no digits")?;
    let [_, a, b, c] = [24, 16, 8, 0].map(|shift| u8::try_from(number >> shift & 0xFF).unwrap_or(0));
    Ok([a, b, c])
}
