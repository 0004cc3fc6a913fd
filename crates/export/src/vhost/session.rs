//! A front end's connection: its setup of the device, and the handling of its messages.
//!
//! Owns the device's state between messages. Always true: when the session ends for any reason, its
//! queues are stopped and all their requests are completed. Runs on its own thread, because the
//! socket blocks and stopping a queue waits for drives. Data never passes through here.

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

use super::config::{self, CONFIG_MAX, DeviceConfig, feature};
use super::dirty::DirtyLog;
use super::disk::VhostDisk;
use super::execute::DeviceOptions;
use super::inflight::{InflightRegion, new_region, region_bytes};
use super::limits::{QUEUES_MAX, REGIONS_MAX};
use super::memory::{GuestMemory, RegionLayout};
use super::queue::QueueSetup;
use super::request::ID_BYTES;
use super::ring::{RingAddresses, is_size};
use super::vring::Vring;

/// Preferred I/O size in bytes.
const PREFERRED: u32 = 4096;

/// The device state of a connected front end.
pub(super) struct VhostSession<D: VhostDisk> {
    disk: Arc<D>,
    front_end: Arc<UnixStream>,
    name: Arc<str>,
    /// The negotiated features.
    features: u64,
    /// Messages are acknowledged if they request it.
    pub(super) acknowledges: bool,
    memory: GuestMemory,
    vrings: Vec<Vring<D::Volume>>,
    inflight: Option<InflightRegion>,
    log: Option<Arc<DirtyLog>>,
}

/// Creates the error for an invalid message.
fn refuse(message: impl ToString) -> Error {
    Error::ReqHandlerError(std::io::Error::other(message.to_string()))
}

impl<D: VhostDisk> VhostSession<D> {
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

    fn device_config(&self) -> DeviceConfig {
        DeviceConfig {
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
        self.vrings.get_mut(index).ok_or_else(|| refuse("the device has no such queue"))
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

    /// Returns the dirty log, if changes must be marked in it.
    fn active_log(&self) -> Option<Arc<DirtyLog>> {
        self.log.clone().filter(|_| self.has(feature::LOG_ALL))
    }

    /// Updates the dirty log of the running queues.
    fn update_logs(&self) {
        for vring in &self.vrings {
            let (log, addresses) = (self.active_log(), vring.addresses.unwrap_or_default());
            vring.with(move |running| running.queue.set_log(log, addresses));
        }
    }

    /// Continues with another table of memory.
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
        let options = DeviceOptions { write_through: !self.has(feature::FLUSH), id: self.id() };
        let (event_index, name) = (self.has(feature::EVENT_INDEX), self.name.clone());
        // Without protocol features there is no message that enables a queue.
        let always_enabled = !self.has(feature::PROTOCOL);
        let reactors = self.disk.reactors();
        let remote = reactors.get(index % reactors.len().max(1)).cloned();
        let remote = remote.ok_or_else(|| refuse("no reactor serves queues"))?;
        let (disk, front_end) = (self.disk.clone(), Some(self.front_end.clone()));
        let vring = self.vring(index)?;
        let addresses = vring.addresses.ok_or_else(|| refuse("the queue has no addresses"))?;
        let inflight = match region {
            Some(region) => Some(
                region
                    .queue(index, vring.size)
                    .ok_or_else(|| refuse("the inflight region has no room for the queue"))?,
            ),
            None => None,
        };
        let start = QueueSetup {
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
            options,
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

impl<D: VhostDisk> Drop for VhostSession<D> {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// Makes a descriptor non-blocking, since reactors read and write it.
fn unblock(file: Option<File>) -> Result<Option<OwnedFd>> {
    let Some(file) = file else { return Ok(None) };
    rustix::io::ioctl_fionbio(&file, true).map_err(refuse)?;
    Ok(Some(file.into()))
}

impl<D: VhostDisk> VhostUserBackendReqHandlerMut for VhostSession<D> {
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
        Ok(config::features(&self.device_config()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !config::features(&self.device_config()) != 0 {
            return Err(refuse(format!("features {features:#x} include some that were not offered")));
        }
        let running = self.vrings.iter().any(|vring| vring.running.is_some());
        if running && (features ^ self.features) & !feature::LOG_ALL != 0 {
            return Err(refuse("features cannot change while queues are running"));
        }
        self.features = features;
        self.update_logs();
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
            _ => return Err(refuse(format!("invalid queue size: {num} entries"))),
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
        let new = RingAddresses { descriptors, available, used, log };
        let vring = self.vring(index)?;
        let moves = vring.addresses.is_none_or(|old| RingAddresses { log, ..old } != new);
        if vring.running.is_some() && moves {
            return Err(refuse("the queue is running"));
        }
        vring.addresses = Some(new);
        self.update_logs();
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| refuse(format!("invalid available index {base}")))?;
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
            return Err(refuse("the range exceeds the configuration space"));
        }
        let mut space = config::config(&self.device_config()).to_vec();
        // Front ends may ask for fields that the device does not have. They are zero.
        space.resize(CONFIG_MAX, 0);
        Ok(space.get(range).unwrap_or(&[]).to_vec())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // The device offers no writable fields, so a write has no effect.
        tracing::debug!(device = %self.name, "ignored a guest's write to the configuration space");
        Ok(())
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, queue_size) = (wanted.num_queues, wanted.queue_size);
        let bytes = region_bytes(queues, queue_size)
            .ok_or_else(|| refuse("invalid number of queues or entries for an inflight region"))?;
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
        self.update_logs();
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(refuse("the device is not a display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(refuse("the device has no shared objects"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(refuse("the device has no state to transfer"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(refuse("the device has no state to transfer"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(refuse("the device has no shared memory"))
    }
}
