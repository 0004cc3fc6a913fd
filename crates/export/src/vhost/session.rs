//! A front end's connection: what it has set up, and what its messages do to that.
//!
//! Owns the device's state between messages. Always true: when it ends, however that happens, its queues are stopped and
//! everything that they began has been handed back. Runs on a thread of its own, because messages come over a socket that
//! blocks, and stopping a queue waits for drives; data never passes through here.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};

use super::config::{self, CONFIG_MAX, Shape, feature};
use super::dirty::DirtyLog;
use super::disk::Disk;
use super::execute::Manner;
use super::inflight::{InflightRegion, new_region, region_bytes};
use super::limits::{QUEUES_MAX, REGIONS_MAX};
use super::memory::{GuestMemory, RegionLayout};
use super::queue::Start;
use super::request::ID_BYTES;
use super::ring::{Addresses, is_size};
use super::vring::Vring;

/// Bytes that are read and written best.
const PREFERRED: u32 = 4096;

/// See the module.
pub(super) struct Session<D: Disk> {
    disk: Arc<D>,
    front_end: Arc<UnixStream>,
    name: Arc<str>,
    /// What the front end has agreed to.
    features: u64,
    /// Messages are answered when they ask for it.
    pub(super) acknowledges: bool,
    memory: GuestMemory,
    vrings: Vec<Vring<D::Volume>>,
    inflight: Option<InflightRegion>,
    log: Option<Arc<DirtyLog>>,
}

/// Something that a front end may not do.
fn refuse(message: impl ToString) -> Error {
    Error::ReqHandlerError(std::io::Error::other(message.to_string()))
}

impl<D: Disk> Session<D> {
    pub(super) fn new(disk: Arc<D>, front_end: Arc<UnixStream>) -> Self {
        let queues = disk.queues().clamp(1, QUEUES_MAX);
        Self {
            name: disk.name().into(),
            disk,
            front_end,
            features: 0,
            acknowledges: false,
            memory: GuestMemory::empty(),
            vrings: (0..queues).map(|_| Vring::default()).collect(),
            inflight: None,
            log: None,
        }
    }

    fn shape(&self) -> Shape {
        Shape {
            size: self.disk.size(),
            sector: self.disk.sector(),
            preferred: PREFERRED,
            read_only: self.disk.read_only(),
            queues: u16::try_from(self.vrings.len()).unwrap_or(1),
        }
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    fn vring(&mut self, index: impl TryInto<usize>) -> Result<&mut Vring<D::Volume>> {
        let index = index.try_into().unwrap_or(usize::MAX);
        self.vrings.get_mut(index).ok_or_else(|| refuse("there is no such queue"))
    }

    fn stopped_vring(&mut self, index: u32) -> Result<&mut Vring<D::Volume>> {
        let vring = self.vring(index)?;
        if vring.running.is_some() {
            return Err(refuse("the queue is running"));
        }
        Ok(vring)
    }

    fn stop_all(&mut self) {
        self.vrings.iter_mut().for_each(Vring::stop);
    }

    /// The log, if changes are to be marked in it.
    fn active_log(&self) -> Option<Arc<DirtyLog>> {
        self.log.clone().filter(|_| self.has(feature::LOG_ALL))
    }

    /// Tells the queues that are running where changes are marked now.
    fn spread_log(&self) {
        for vring in &self.vrings {
            let (log, addresses) = (self.active_log(), vring.addresses.unwrap_or_default());
            vring.with(move |running| running.queue.set_log(log, addresses));
        }
    }

    /// Goes on with another table of memory.
    fn set_memory(&mut self, memory: GuestMemory) -> Result<()> {
        self.memory = memory;
        for vring in &self.vrings {
            let memory = self.memory.clone();
            if let Some(Err(error)) = vring.with(move |running| running.queue.set_memory(&memory)) {
                return Err(refuse(error));
            }
        }
        Ok(())
    }

    fn start_vring(&mut self, index: usize, kick: Option<OwnedFd>) -> Result<()> {
        let (log, memory, region) = (self.active_log(), self.memory.clone(), self.inflight.clone());
        let manner = Manner { write_through: !self.has(feature::FLUSH), id: self.id() };
        let (event_index, name) = (self.has(feature::EVENT_INDEX), self.name.clone());
        // Without the protocol's features there is no message that enables a queue.
        let always_enabled = !self.has(feature::PROTOCOL);
        let reactors = self.disk.reactors();
        let remote = reactors.get(index % reactors.len().max(1)).cloned();
        let remote = remote.ok_or_else(|| refuse("nothing serves queues"))?;
        let (disk, front_end) = (self.disk.clone(), Some(self.front_end.clone()));
        let vring = self.vring(index)?;
        let addresses = vring.addresses.ok_or_else(|| refuse("a queue without addresses"))?;
        let inflight = match region {
            Some(region) => Some(
                region
                    .queue(index, vring.size)
                    .ok_or_else(|| refuse("the inflight region has no room for the queue"))?,
            ),
            None => None,
        };
        let start = Start {
            index,
            addresses,
            size: vring.size,
            next: vring.base,
            event_index,
            enabled: vring.enabled || always_enabled,
            memory,
            inflight,
            log,
            call: vring.call.clone(),
            err: vring.err.clone(),
            manner,
            front_end,
            name,
        };
        vring.start(&disk, &remote, start, kick).map_err(refuse)
    }

    fn id(&self) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(self.disk.serial().bytes()).for_each(|(place, byte)| *place = byte);
        id
    }
}

impl<D: Disk> Drop for Session<D> {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// A descriptor that reactors write to and read from: these must never block.
fn unblock(file: Option<File>) -> Result<Option<OwnedFd>> {
    let Some(file) = file else { return Ok(None) };
    rustix::io::ioctl_fionbio(&file, true).map_err(refuse)?;
    Ok(Some(file.into()))
}

impl<D: Disk> VhostUserBackendReqHandlerMut for Session<D> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.vrings.iter_mut().for_each(|vring| *vring = Vring::default());
        self.inflight = None;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(config::features(&self.shape()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !config::features(&self.shape()) != 0 {
            return Err(refuse(format!("features {features:#x}, of which some were not offered")));
        }
        let running = self.vrings.iter().any(|vring| vring.running.is_some());
        if running && (features ^ self.features) & !feature::LOG_ALL != 0 {
            return Err(refuse("other features while queues are running"));
        }
        self.features = features;
        self.spread_log();
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let mut memory = GuestMemory::empty();
        for (region, file) in regions.iter().zip(&files) {
            let layout = RegionLayout {
                guest: region.guest_phys_addr,
                user: region.user_addr,
                len: region.memory_size,
                offset: region.mmap_offset,
            };
            memory = memory.with(layout, file.as_fd()).map_err(refuse)?;
        }
        self.set_memory(memory)?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        let layout = RegionLayout {
            guest: region.guest_phys_addr,
            user: region.user_addr,
            len: region.memory_size,
            offset: region.mmap_offset,
        };
        let memory = self.memory.with(layout, file.as_fd()).map_err(refuse)?;
        self.set_memory(memory)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        let memory = self.memory.without(guest, user, len).map_err(refuse)?;
        self.set_memory(memory)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let vring = self.stopped_vring(index)?;
        match u16::try_from(num) {
            Ok(size) if is_size(size) => vring.size = size,
            _ => return Err(refuse(format!("a queue of {num} entries"))),
        }
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let log = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG).then_some(log);
        let new = Addresses { descriptors, available, used, log };
        let vring = self.vring(index)?;
        let moves = vring.addresses.is_none_or(|old| Addresses { log, ..old } != new);
        if vring.running.is_some() && moves {
            return Err(refuse("the queue is running"));
        }
        vring.addresses = Some(new);
        self.spread_log();
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| refuse(format!("entry {base} of a queue")))?;
        self.stopped_vring(index)?.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let vring = self.vring(index)?;
        vring.stop();
        Ok(VhostUserVringState::new(index, vring.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let kick = unblock(file)?;
        let vring = self.vring(index)?;
        if vring.running.is_none() {
            return self.start_vring(index.into(), kick);
        }
        vring.with(|running| running.kick.replace(kick));
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = unblock(file)?.map(Arc::new);
        let vring = self.vring(index)?;
        vring.call.clone_from(&call);
        vring.with(|running| running.queue.set_call(call));
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let err = unblock(file)?.map(Arc::new);
        let vring = self.vring(index)?;
        vring.err.clone_from(&err);
        vring.with(|running| running.queue.set_err(err));
        Ok(())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let vring = self.vring(index)?;
        vring.enabled = enable;
        vring.with(move |running| running.queue.set_enabled(enable));
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        use VhostUserProtocolFeatures as Protocol;
        Ok(Protocol::MQ
            | Protocol::LOG_SHMFD
            | Protocol::BACKEND_REQ
            | Protocol::CONFIG
            | Protocol::INFLIGHT_SHMFD
            | Protocol::RESET_DEVICE
            | Protocol::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.acknowledges = features & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.vrings.len() as u64)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        if range.end > CONFIG_MAX {
            return Err(refuse("more configuration space than there is"));
        }
        let mut space = config::config(&self.shape()).to_vec();
        // Front ends ask for as much as they know of; what we do not know of is zero.
        space.resize(CONFIG_MAX, 0);
        Ok(space.get(range).unwrap_or(&[]).to_vec())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // A guest can write there without having been offered anything that it could change: it has no effect.
        tracing::debug!(device = %self.name, "a guest wrote into its disk's configuration");
        Ok(())
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, queue_size) = (wanted.num_queues, wanted.queue_size);
        let bytes =
            region_bytes(queues, queue_size).ok_or_else(|| refuse("an inflight region of that shape"))?;
        let file = File::from(new_region(bytes).map_err(refuse)?);
        Ok((VhostUserInflight::new(bytes, 0, queues, queue_size), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let (offset, queues, size) = (inflight.mmap_offset, inflight.num_queues, inflight.queue_size);
        self.inflight = Some(InflightRegion::new(file.as_fd(), offset, queues, size).map_err(refuse)?);
        Ok(())
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let log = DirtyLog::new(file.as_fd(), log.mmap_offset, log.mmap_size).map_err(refuse)?;
        self.log = Some(Arc::new(log));
        self.spread_log();
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(refuse("this is no display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(refuse("there are no shared objects"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(refuse("a disk has no state of its own"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(refuse("a disk has no state of its own"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(refuse("there is no shared memory of a disk"))
    }
}
