//! Moving a guest to another host while it runs: what changed in its memory is logged, and its queues go on elsewhere.

use std::os::fd::AsRawFd;

use vhost::vhost_user::message::VhostUserVringAddrFlags;
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VringConfigData};

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::testing::{GUEST, Guest};

const PAGE: u64 = 4096;

/// The log, as a front end has it: a bit for each page from the guest's address 0 on.
struct Log(Guest);

impl Log {
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
        let place = self.place(index);
        let flags = if logged { VhostUserVringAddrFlags::VHOST_VRING_F_LOG.bits() } else { 0 };
        let log_addr = logged.then(|| self.queues[index].driver.used());
        self.frontend.set_vring_addr(index, &VringConfigData { flags, log_addr, ..place }).unwrap();
    }
}

#[test]
fn what_changes_is_logged_from_when_it_is_asked_for() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 2, ..Manner::default() });
    let log = Log::new();
    back_end.volume(|volume| volume.faults().hold_reads());
    let slow = front.queues[1].submit(&Io::read(0, 8192));
    front.queues[1].kick();
    back_end.wait_for_volume(|volume| volume.faults().held_reads() == 1);

    front.frontend.set_log_base(0, Some(log.region())).unwrap();
    let features = front.features | LOG_ALL;
    front.frontend.set_features(features).unwrap();
    (0..2).for_each(|index| front.log_used_ring(index, true));
    assert_eq!(log.marked(), 0);
    let answer = front.run_on(0, &Io::write(0, &[1; 4096]));
    let queue = &front.queues[0];
    assert!(log.is_marked(queue.status_of(answer.slot)) && log.is_marked(queue.driver.used()));
    assert!(!log.is_marked(queue.data_of(answer.slot)), "a write changes nothing of the guest");
    // A request that began before the log did.
    back_end.volume(|volume| volume.faults().release_reads());
    assert_eq!(front.queues[1].wait().slot, slow);
    let data = front.queues[1].data_of(slow);
    assert!(log.is_marked(data) && log.is_marked(data + PAGE) && !log.is_marked(data + 2 * PAGE));

    // The migration was given up: nothing is logged any more.
    (0..2).for_each(|index| front.log_used_ring(index, false));
    front.frontend.set_features(front.features).unwrap();
    let before = log.marked();
    front.run_on(0, &Io::read(0, 64 << 10));
    assert_eq!(log.marked(), before);
}

#[test]
fn a_guest_goes_on_at_another_back_end() {
    let (here, there) = (BackEnd::start(&Options::default()), BackEnd::start(&Options::default()));
    let manner = Manner::default();
    let mut front = FrontEnd::new(&here.path(), &manner);
    for _ in 0..10 {
        front.read(0, 512);
    }
    let base = front.frontend.get_vring_base(0).unwrap();
    assert_eq!(base, 10);
    let mut front = front.reconnect(&there.path(), &manner);
    front.write(0, &[8; 512]);
    assert_eq!(front.read(0, 512), [8; 512]);
    assert_eq!(front.frontend.get_vring_base(0).unwrap(), 12);
}
