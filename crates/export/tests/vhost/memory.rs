//! A guest's memory that comes in regions, grows and shrinks while the device runs.

use std::os::fd::AsRawFd;

use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::testing::{Descriptor, GUEST, Guest, NEXT, USER, WRITE};

/// Where a second region begins, right behind the first.
const MORE: u64 = GUEST + MEMORY;
const MORE_BYTES: u64 = 1 << 20;

fn more(guest: &Guest) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: MORE,
        memory_size: MORE_BYTES,
        userspace_addr: USER + (1 << 40),
        mmap_offset: 0,
        mmap_handle: guest.file.as_raw_fd(),
    }
}

impl FrontEnd {
    /// Reads 8192 bytes from the disk to a place in the guest's memory.
    fn read_to(&mut self, address: u64) -> Answer {
        let queue = &mut self.queues[0];
        let slot = queue.submit(&Io::read(0, 8192));
        // Its head was made available, but the device is not told: the data goes elsewhere.
        let data = Descriptor { address, len: 8192, flags: NEXT | WRITE, next: slot * 4 + 2 };
        queue.driver.set(slot * 4 + 1, data);
        queue.kick();
        queue.wait()
    }
}

#[test]
fn memory_comes_and_goes_while_the_device_runs() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 2, ..Manner::default() });
    front.write(0, &[[1; 4096], [2; 4096]].concat());
    assert!(front.frontend.get_max_mem_slots().unwrap() >= 32);
    assert_eq!(front.read_to(MORE).status, IO_ERROR, "not there yet");
    let plugged = Guest::new(MORE_BYTES);
    front.frontend.add_mem_region(&more(&plugged)).unwrap();
    assert_eq!(front.read_to(MORE).status, OK);
    assert_eq!(plugged.read(GUEST, 8192), [[1; 4096], [2; 4096]].concat());
    // Across the border of two regions.
    assert_eq!(front.read_to(MORE - 4096).status, OK);
    assert_eq!(front.guest.read(GUEST + MEMORY - 4096, 4096), [1; 4096]);
    assert_eq!(plugged.read(GUEST, 4096), [2; 4096]);
    front.frontend.remove_mem_region(&more(&plugged)).unwrap();
    assert_eq!(front.read_to(MORE).status, IO_ERROR, "no longer there");
    assert_eq!(front.run_on(1, &Io::read(0, 512)).status, OK);
    // All of it anew, as after a change of the guest's memory map.
    front.frontend.set_mem_table(&[front.region(), more(&plugged)]).unwrap();
    assert_eq!(front.read_to(MORE + 4096).status, OK);
    assert_eq!(plugged.read(GUEST + 4096, 4096), [1; 4096]);
}

#[test]
fn a_request_finishes_in_memory_that_was_taken_away() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
    let plugged = Guest::new(MORE_BYTES);
    front.frontend.add_mem_region(&more(&plugged)).unwrap();
    front.write(0, &[3; 8192]);
    back_end.volume(|volume| volume.faults().hold_reads());
    let queue = &mut front.queues[0];
    let slot = queue.submit(&Io::read(0, 8192));
    queue
        .driver
        .set(slot * 4 + 1, Descriptor { address: MORE, len: 8192, flags: NEXT | WRITE, next: slot * 4 + 2 });
    queue.kick();
    back_end.wait_for_volume(|volume| volume.faults().held_reads() == 1);
    front.frontend.remove_mem_region(&more(&plugged)).unwrap();
    back_end.volume(|volume| volume.faults().release_reads());
    assert_eq!(front.queues[0].wait().status, OK);
    assert_eq!(plugged.read(GUEST, 8192), [3; 8192], "the file is still mapped while the request needs it");
}
