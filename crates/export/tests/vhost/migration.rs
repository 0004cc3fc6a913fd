//! Live migration of a guest: the log of dirty pages, and queues that continue at another back end.

use std::os::fd::AsRawFd;

use vhost::vhost_user::message::VhostUserVringAddrFlags;
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VringConfigData};

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::testing::{GUEST, Guest};

const PAGE: u64 = 4096;

/// A front end's dirty log: one bit for each page, from guest address 0 on.
struct PageLog(Guest);

impl PageLog {
    fn new() -> Self {
        Self(Guest::new((GUEST + MEMORY) / PAGE / 8))
    }

    fn region(&self) -> VhostUserDirtyLogRegion {
        VhostUserDirtyLogRegion {
            mmap_size: self.0.len,
            mmap_offset: 0,
            mmap_handle: self.0.file.as_raw_fd(),
        }
    }

    fn is_marked(&self, address: u64) -> bool {
        let page = address / PAGE;
        self.0.read(GUEST + page / 8, 1)[0] & (1 << (page % 8)) != 0
    }

    fn marked(&self) -> u32 {
        self.0.read(GUEST, self.0.len as usize).iter().map(|byte| byte.count_ones()).sum()
    }
}

impl FrontEnd {
    fn log_used_ring(&self, index: usize, logged: bool) {
        let config = self.vring_config(index);
        let flags = if logged { VhostUserVringAddrFlags::VHOST_VRING_F_LOG.bits() } else { 0 };
        let log_addr = logged.then(|| self.queues[index].driver.used());
        self.frontend.set_vring_addr(index, &VringConfigData { flags, log_addr, ..config }).unwrap();
    }
}

#[test]
fn dirty_pages_are_logged_while_the_log_is_enabled() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    let log = PageLog::new();
    back_end.volume(|volume| volume.faults().hold_reads());
    let slow = front.queues[1].submit(&Io::read(0, 8192));
    front.queues[1].kick();
    back_end.wait_for_volume(|volume| volume.faults().held_reads() == 1);

    front.frontend.set_log_base(0, Some(log.region())).unwrap();
    let features = front.features | LOG_ALL;
    front.frontend.set_features(features).unwrap();
    (0..2).for_each(|index| front.log_used_ring(index, true));
    assert_eq!(log.marked(), 0);
    let used = front.run_on(0, &Io::write(0, &[1; 4096]));
    let queue = &front.queues[0];
    assert!(log.is_marked(queue.status_of(used.slot)) && log.is_marked(queue.driver.used()));
    assert!(!log.is_marked(queue.data_of(used.slot)), "a write does not change the guest's data");
    // A request that started before the log.
    back_end.volume(|volume| volume.faults().release_reads());
    assert_eq!(front.queues[1].wait().slot, slow);
    let data = front.queues[1].data_of(slow);
    assert!(log.is_marked(data) && log.is_marked(data + PAGE) && !log.is_marked(data + 2 * PAGE));

    // The migration is cancelled: logging stops.
    (0..2).for_each(|index| front.log_used_ring(index, false));
    front.frontend.set_features(front.features).unwrap();
    let before = log.marked();
    front.run_on(0, &Io::read(0, 64 << 10));
    assert_eq!(log.marked(), before);
}

#[test]
fn a_guest_continues_at_another_back_end() {
    let (source, target) = (BackEnd::start(&Options::default()), BackEnd::start(&Options::default()));
    let setup = DeviceSetup::default();
    let mut front = FrontEnd::new(&source.path(), &setup);
    for _ in 0..10 {
        front.read(0, 512);
    }
    let base = front.frontend.get_vring_base(0).unwrap();
    assert_eq!(base, 10);
    let mut front = front.reconnect(&target.path(), &setup);
    front.write(0, &[8; 512]);
    assert_eq!(front.read(0, 512), [8; 512]);
    assert_eq!(front.frontend.get_vring_base(0).unwrap(), 12);
}
