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

#[test]
fn a_front_end_that_takes_its_memory_away_loses_its_connection_and_nothing_else() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    // What is left of its memory: rings and all but the data, a part of the rings, nothing.
    for left in [MEMORY / 2, 1 << 19, 1 << 12, 0] {
        for request in [Io::read(0, 1 << 20), Io::write(8, &[9; 1 << 16])] {
            let manner = Manner { queues: 2, inflight: true, ..Manner::default() };
            let mut front = FrontEnd::new(&back_end.path(), &manner);
            front.write(0, &[7; 1 << 20]);
            let queue = &mut front.queues[1];
            queue.submit(&request);
            queue.driver.guest.file.set_len(left).unwrap();
            queue.kick.write(1).unwrap();
            assert!(front.is_cut_off(), "{left}: {request:?}");
            front.guest.file.set_len(MEMORY).unwrap();
            let queue = &front.queues[1];
            let answered = left > 0 && queue.driver.guest.read_16(queue.driver.used() + 2) != 0;
            assert!(!answered, "{left}: {request:?}");
        }
        // The next front end is served, and the volume has nothing of what was never acknowledged but where it was to go.
        let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
        assert_eq!(front.read(0, 4096), [7; 4096]);
        assert_eq!(front.read(136, 4096), [7; 4096]);
        drop(front);
    }
}
