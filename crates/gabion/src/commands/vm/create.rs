//! Creation of a machine: definition, volumes, exports. A failure rolls all of it back.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use api::types::{CreateVolume, Export, ImportImage, Protocol};
use api::{Error, ErrorKind, Size, VolumeName};
use uuid::Uuid;
use vm::{Boot, CloudInit, Disk, Mac, Machine, Memory, Seed};

use super::super::calls::ExportOptions;
use super::VmContext;
use crate::cli::{CreateVmArgs, DiskSpec};
use crate::failure::Usage;
use crate::output;

/// A requested disk of a machine.
struct DiskRequest {
    name: VolumeName,
    /// Size of a new volume in bytes; `None` for an existing one.
    size: Option<u64>,
    image: Option<PathBuf>,
    read_only: bool,
}

/// Created volumes and exports, in order of creation, for a rollback.
#[derive(Default)]
struct CreatedResources {
    volumes: Vec<VolumeName>,
    exports: Vec<Export>,
}

impl VmContext<'_> {
    /// Creates a machine.
    ///
    /// # Errors
    /// The error of a step; all created resources are deleted then.
    pub(super) async fn create(&self, arguments: CreateVmArgs) -> Result<()> {
        let (start, libvirt) = (arguments.start, arguments.libvirt);
        let requests = requested_disks(&arguments)?;
        let mut machine = machine(arguments)?;
        machine.check()?;
        // Reports missing template values now instead of at the first start.
        Seed::for_machine(&machine, &self.store.templates())?;
        machine.disks = self.plan(&requests).await?;
        let lock = self.store.create(&machine)?;
        let mut created = CreatedResources::default();
        if let Err(error) = self.create_resources(&machine, &requests, &mut created).await {
            self.roll_back(created).await;
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
        self.ctx.done(&self.status(machine)?, output::machine_created)
    }

    /// Returns the disks of the machine, and checks which volumes exist.
    async fn plan(&self, requests: &[DiskRequest]) -> Result<Vec<Disk>> {
        let mut disks = Vec::new();
        for DiskRequest { name, size, image, read_only } in requests {
            let is_new = size.is_some() || image.is_some();
            let existing = self.ctx.client.find_volume(name).await?;
            let refusal = match (&existing, is_new) {
                (Some(_), true) => Error::new(ErrorKind::Exists, format!("volume {name} already exists"))
                    .hint("omit the size and the image to use the existing volume"),
                (None, false) => Error::new(ErrorKind::NotFound, format!("volume {name} does not exist"))
                    .hint(
                        "give a size to create it: --disk POOL/VOLUME:SIZE, or --boot with --size or --image",
                    ),
                _ => {
                    disks.push(Disk {
                        volume: name.to_string(),
                        made: existing.is_none(),
                        read_only: *read_only,
                    });
                    continue;
                }
            };
            return Err(refusal.into());
        }
        Ok(disks)
    }

    async fn create_resources(
        &self,
        machine: &Machine,
        requests: &[DiskRequest],
        created: &mut CreatedResources,
    ) -> Result<()> {
        for disk in requests {
            if let Some(image) = &disk.image {
                let request = ImportImage {
                    name: disk.name.volume.clone(),
                    file: super::super::absolute_one(image)?,
                    format: None,
                    size: disk.size,
                    sector: None,
                    shards: self.shards_for(machine, &disk.name.pool).await?,
                };
                self.ctx.import_image(&disk.name.pool, &request).await?;
                created.volumes.push(disk.name.clone());
            } else if let Some(size) = disk.size {
                let shards = self.shards_for(machine, &disk.name.pool).await?;
                let requests = CreateVolume { shards, ..CreateVolume::new(&disk.name.volume, size) };
                self.ctx.client.create_volume(&disk.name.pool, &requests).await?;
                created.volumes.push(disk.name.clone());
            }
        }
        let exports = self.ctx.client.list_exports().await?;
        for disk in requests {
            let existing = |pool: &str, volume: &str| pool == disk.name.pool && volume == disk.name.volume;
            let of_disk = exports.iter().filter(|export| existing(&export.pool, &export.volume));
            // Another program deletes its export when it wants.
            let is_usable = |export: &Export| {
                export.protocol == Protocol::VhostUser
                    && export.read_only == disk.read_only
                    && export.owner.is_none()
            };
            match of_disk.min_by_key(|export| (export.protocol != Protocol::VhostUser, export.connections)) {
                Some(export) if is_usable(export) => {}
                Some(export) => {
                    let access = if export.read_only { "read-only " } else { "" };
                    let owner =
                        export.owner.as_ref().map_or_else(String::new, |owner| format!(" for {owner}"));
                    let message = format!(
                        "volume {} is already exported {access}over {}{owner}",
                        disk.name, export.protocol
                    );
                    return Err(Error::new(ErrorKind::Busy, message)
                        .hint(format!("'gabion export delete {} --id {}' deletes it", disk.name, export.id))
                        .into());
                }
                None => {
                    let reactors = machine.reactors.clone();
                    let options =
                        ExportOptions { protocol: Protocol::VhostUser, read_only: disk.read_only, reactors };
                    created.exports.push(self.ctx.export(&disk.name, options).await?);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of shards of a new disk: one per vCPU, each of which has a queue. With
    /// fewer queues than shards, requests would be forwarded between cores.
    async fn shards_for(&self, machine: &Machine, pool: &str) -> Result<Option<u16>> {
        if !machine.reactors.is_empty() {
            // The reactors of the queues are given, independent of the shards.
            return Ok(None);
        }
        let pool = self.ctx.client.get_pool(pool).await?;
        let fewer = pool.shards.filter(|shards| *shards > u64::from(machine.cpus.count()));
        Ok(fewer.and_then(|_| u16::try_from(machine.cpus.count()).ok()))
    }

    /// Deletes created resources in reverse order. An error is printed and does not stop the
    /// rollback.
    async fn roll_back(&self, created: CreatedResources) {
        for export in created.exports.iter().rev() {
            // The export may already have been deleted.
            let _ = self.ctx.delete_export(export).await;
        }
        for name in created.volumes.iter().rev() {
            if let Err(error) = self.ctx.delete_volume(name).await {
                eprintln!("gabion: new volume {name} could not be deleted: {error}");
            }
        }
    }
}

/// Returns the requested disks, the boot disk first.
fn requested_disks(arguments: &CreateVmArgs) -> Result<Vec<DiskRequest>> {
    let image = arguments.image.clone();
    let requested_size = arguments.size.map(Size::bytes);
    let boot = arguments.boot.iter().cloned();
    // Volume sizes are multiples of 4 KiB.
    let size = requested_size.map(|size| size.next_multiple_of(4096));
    let mut requests: Vec<DiskRequest> =
        boot.map(|name| DiskRequest { name, size, image: None, read_only: false }).collect();
    if let Some(first) = requests.first_mut() {
        first.image = image;
    }
    let more = arguments.disk.iter().cloned().map(|disk| {
        let DiskSpec { volume, size, read_only } = disk;
        DiskRequest { name: volume, size: size.map(Size::bytes), image: None, read_only }
    });
    requests.extend(more);
    Ok(requests)
}

/// Returns the requested machine. The other fields of its disks are set later.
fn machine(arguments: CreateVmArgs) -> Result<Machine> {
    let uuid = Uuid::new_v4().to_string();
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

/// Returns the last three bytes of a UUID.
fn tail(uuid: &str) -> Result<[u8; 3]> {
    let digits = uuid.get(uuid.len().saturating_sub(6)..).context("the UUID is too short")?;
    let number = u32::from_str_radix(digits, 16).context("the UUID has no hexadecimal digits")?;
    let [_, a, b, c] = [24, 16, 8, 0].map(|shift| u8::try_from(number >> shift & 0xFF).unwrap_or(0));
    Ok([a, b, c])
}
