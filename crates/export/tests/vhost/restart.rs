//! Restart of the daemon after a crash with requests in flight.

use export::MemoryVolume;
use test_support::pattern;
use vhost::VhostBackend;

use super::back_end::{BackEnd, Options};
use super::front_end::*;

/// Delays all writes from now on.
fn hold_writes(back_end: &BackEnd) {
    back_end.volume(|volume| volume.faults().hold_writes());
}

#[test]
fn requests_in_flight_are_replayed_once_and_in_order() {
    let options = Options { reactors: 2, queues: 2, ..Options::default() };
    let setup = DeviceSetup { queues: 2, inflight: true, size: 32, ..DeviceSetup::default() };
    let mut directory = None;
    let mut front: Option<FrontEnd> = None;
    let mut in_flight: Vec<[u16; 2]> = Vec::new();
    // Each daemon has a new, empty volume in memory.
    for run in 0..4u64 {
        let back_end = match directory.take() {
            None => BackEnd::start(&options),
            Some(directory) => BackEnd::start_in(directory, &options),
        };
        hold_writes(&back_end);
        let mut now = match front.take() {
            None => FrontEnd::new(&back_end.path(), &setup),
            Some(front) => front.reconnect(&back_end.path(), &setup),
        };
        if run > 0 {
            // The requests in flight at the crash are started without a notification, and answered
            // once.
            back_end.wait_for_volume(|volume| volume.faults().held_writes() == 4);
            back_end.volume(|volume| volume.faults().release_writes());
            for (queue, submitted) in now.queues.iter_mut().zip(in_flight.drain(..)) {
                let slots = [queue.wait().slot, queue.wait().slot];
                assert_eq!(slots, submitted, "in the order of submission");
                assert_eq!(queue.poll_used(), None);
            }
            let read = |volume: &MemoryVolume| volume.counters();
            assert_eq!(back_end.volume(read).writes, 4, "each request once");
            for (index, queue) in [0u64, 1].into_iter().zip(0..) {
                let data = now.run_on(queue, &Io::read(index * 8, 4096)).data;
                assert_eq!(
                    data,
                    pattern(run - 1 + index * 16 + 1, 4096),
                    "the later of two writes to the same sectors"
                );
            }
            hold_writes(&back_end);
        }
        for (index, queue) in (0u64..).zip(&mut now.queues) {
            // A read that is answered meanwhile must not be replayed.
            let first = queue.submit(&Io::write(index * 8, &pattern(run + index * 16, 4096)));
            let second = queue.submit(&Io::write(index * 8, &pattern(run + index * 16 + 1, 4096)));
            let read = queue.submit(&Io::read(1 << 12, 512));
            queue.kick();
            assert_eq!(queue.wait().slot, read);
            in_flight.push([first, second]);
        }
        back_end.wait_for_volume(|volume| volume.faults().held_writes() == 4);
        directory = Some(back_end.kill());
        front = Some(now);
    }
}

#[test]
fn requests_submitted_without_a_back_end_are_served_after_the_restart() {
    let options = Options::default();
    let setup = DeviceSetup { inflight: true, ..DeviceSetup::default() };
    let back_end = BackEnd::start(&options);
    let mut front = FrontEnd::new(&back_end.path(), &setup);
    hold_writes(&back_end);
    front.queues[0].submit(&Io::write(0, &[1; 512]));
    front.queues[0].kick();
    back_end.wait_for_volume(|volume| volume.faults().held_writes() == 1);
    let directory = back_end.kill();
    front.queues[0].submit(&Io::write(1, &[2; 512]));
    front.queues[0].kick();
    let back_end = BackEnd::start_in(directory, &options);
    let mut front = front.reconnect(&back_end.path(), &setup);
    assert_eq!([front.queues[0].wait().status, front.queues[0].wait().status], [OK; 2]);
    assert_eq!(front.read(0, 1024), [[1; 512], [2; 512]].concat());
}

#[test]
fn an_orderly_shutdown_leaves_no_requests_in_flight() {
    let options = Options::default();
    let setup = DeviceSetup { inflight: true, ..DeviceSetup::default() };
    let back_end = BackEnd::start(&options);
    let mut front = FrontEnd::new(&back_end.path(), &setup);
    for sector in 0..100 {
        front.write(sector, &[1; 512]);
    }
    back_end.shut_down().recv().unwrap();
    let back_end = BackEnd::start_in(back_end.kill(), &options);
    let mut front = front.reconnect(&back_end.path(), &setup);
    front.write(0, &[2; 512]);
    assert_eq!(back_end.volume(|volume| volume.counters()).writes, 1);
    assert_eq!(front.frontend.get_vring_base(0).unwrap(), 101);
}
