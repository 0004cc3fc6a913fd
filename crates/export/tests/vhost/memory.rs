//! Guest memory in several regions, which are added and removed while the device runs.

use std::os::fd::AsRawFd;

use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::testing::{Descriptor, GUEST, Guest, NEXT, USER, WRITE};

/// Guest address of the second region, directly behind the first.
const SECOND: u64 = GUEST + MEMORY;
const SECOND_BYTES: u64 = 1 << 20;

fn second_region(guest: &Guest) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: SECOND,
        memory_size: SECOND_BYTES,
        userspace_addr: USER + (1 << 40),
        mmap_offset: 0,
        mmap_handle: guest.file.as_raw_fd(),
    }
}

impl FrontEnd {
    /// Reads 8192 bytes from the disk to an address in the guest's memory.
    fn read_to(&mut self, address: u64) -> UsedRequest {
        let queue = &mut self.queues[0];
        let slot = queue.submit(&Io::read(0, 8192));
        // Change the data's address before the device is notified of the request.
        let data = Descriptor { address, len: 8192, flags: NEXT | WRITE, next: slot * 4 + 2 };
        queue.driver.set(slot * 4 + 1, data);
        queue.kick();
        queue.wait()
    }
}

#[test]
fn regions_are_added_and_removed_while_the_device_runs() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    front.write(0, &[[1; 4096], [2; 4096]].concat());
    assert!(front.frontend.get_max_mem_slots().unwrap() >= 32);
    assert_eq!(front.read_to(SECOND).status, IO_ERROR, "the region is not added yet");
    let plugged = Guest::new(SECOND_BYTES);
    front.frontend.add_mem_region(&second_region(&plugged)).unwrap();
    assert_eq!(front.read_to(SECOND).status, OK);
    assert_eq!(plugged.read(GUEST, 8192), [[1; 4096], [2; 4096]].concat());
    // A buffer across the boundary of two regions.
    assert_eq!(front.read_to(SECOND - 4096).status, OK);
    assert_eq!(front.guest.read(GUEST + MEMORY - 4096, 4096), [1; 4096]);
    assert_eq!(plugged.read(GUEST, 4096), [2; 4096]);
    front.frontend.remove_mem_region(&second_region(&plugged)).unwrap();
    assert_eq!(front.read_to(SECOND).status, IO_ERROR, "the region is removed");
    assert_eq!(front.run_on(1, &Io::read(0, 512)).status, OK);
    // Set the whole table again, as after a change of the guest's memory map.
    front.frontend.set_mem_table(&[front.region(), second_region(&plugged)]).unwrap();
    assert_eq!(front.read_to(SECOND + 4096).status, OK);
    assert_eq!(plugged.read(GUEST + 4096, 4096), [1; 4096]);
}

#[test]
fn a_request_completes_in_memory_that_was_removed() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    let plugged = Guest::new(SECOND_BYTES);
    front.frontend.add_mem_region(&second_region(&plugged)).unwrap();
    front.write(0, &[3; 8192]);
    back_end.volume(|volume| volume.faults().hold_reads());
    let queue = &mut front.queues[0];
    let slot = queue.submit(&Io::read(0, 8192));
    queue.driver.set(
        slot * 4 + 1,
        Descriptor { address: SECOND, len: 8192, flags: NEXT | WRITE, next: slot * 4 + 2 },
    );
    queue.kick();
    back_end.wait_for_volume(|volume| volume.faults().held_reads() == 1);
    front.frontend.remove_mem_region(&second_region(&plugged)).unwrap();
    back_end.volume(|volume| volume.faults().release_reads());
    assert_eq!(front.queues[0].wait().status, OK);
    assert_eq!(plugged.read(GUEST, 8192), [3; 8192], "the file stays mapped until the request completes");
}

#[test]
fn a_truncated_memory_file_ends_only_its_connection() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    // Remaining bytes: all but the data, half of the first queue's structures, one page, none.
    for remaining in [MEMORY / 2, 1 << 19, 1 << 12, 0] {
        for request in [Io::read(0, 1 << 20), Io::write(8, &[9; 1 << 16])] {
            let setup = DeviceSetup { queues: 2, inflight: true, ..DeviceSetup::default() };
            let mut front = FrontEnd::new(&back_end.path(), &setup);
            front.write(0, &[7; 1 << 20]);
            let queue = &mut front.queues[1];
            queue.submit(&request);
            queue.driver.guest.file.set_len(remaining).unwrap();
            queue.kick.write(1).unwrap();
            assert!(front.is_disconnected(), "{remaining}: {request:?}");
            front.guest.file.set_len(MEMORY).unwrap();
            let queue = &front.queues[1];
            let answered = remaining > 0 && queue.driver.guest.read_16(queue.driver.used() + 2) != 0;
            assert!(!answered, "{remaining}: {request:?}");
        }
        // The next front end is served, and unacknowledged writes have changed no other sectors.
        let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
        assert_eq!(front.read(0, 4096), [7; 4096]);
        assert_eq!(front.read(136, 4096), [7; 4096]);
        drop(front);
    }
}
