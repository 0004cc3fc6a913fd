//! A daemon that dies with requests under way, and the one that comes after it.

use export::MemoryVolume;
use vhost::VhostBackend;

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::requests::pattern;

/// Holds writes, and waits until as many are held.
fn hold_writes(back_end: &BackEnd) {
    back_end.volume(|volume| volume.faults().hold_writes());
}

#[test]
fn no_request_is_lost_or_done_twice_in_the_wrong_order() {
    let options = Options { reactors: 2, queues: 2, ..Options::default() };
    let manner = Manner { queues: 2, inflight: true, size: 32, ..Manner::default() };
    let mut directory = None;
    let mut front: Option<FrontEnd> = None;
    let mut left: Vec<[u16; 2]> = Vec::new();
    // What is answered is on the volume; each daemon's volume is in memory and begins empty.
    for life in 0..4u64 {
        let back_end = match directory.take() {
            None => BackEnd::start(&options),
            Some(directory) => BackEnd::within(directory, &options),
        };
        hold_writes(&back_end);
        let mut now = match front.take() {
            None => FrontEnd::new(&back_end.path(), &manner),
            Some(front) => front.reconnect(&back_end.path(), &manner),
        };
        if life > 0 {
            // What the last one left is begun by itself, without a notification, and not answered again.
            back_end.wait_for_volume(|volume| volume.faults().held_writes() == 4);
            back_end.volume(|volume| volume.faults().release_writes());
            for (queue, left) in now.queues.iter_mut().zip(left.drain(..)) {
                let slots = [queue.wait().slot, queue.wait().slot];
                assert_eq!(slots, left, "in the order in which they were made");
                assert_eq!(queue.look(), None);
            }
            let read = |volume: &MemoryVolume| volume.counters();
            assert_eq!(back_end.volume(read).writes, 4, "each once");
            for (index, queue) in [0u64, 1].into_iter().zip(0..) {
                let data = now.run_on(queue, &Io::read(index * 8, 4096)).data;
                assert_eq!(data, pattern(life - 1 + index * 16 + 1, 4096), "the later of two to one place");
            }
            hold_writes(&back_end);
        }
        for (index, queue) in (0u64..).zip(&mut now.queues) {
            // A read that is answered in between must not be confused with them.
            let first = queue.submit(&Io::write(index * 8, &pattern(life + index * 16, 4096)));
            let second = queue.submit(&Io::write(index * 8, &pattern(life + index * 16 + 1, 4096)));
            let read = queue.submit(&Io::read(1 << 12, 512));
            queue.kick();
            assert_eq!(queue.wait().slot, read);
            left.push([first, second]);
        }
        back_end.wait_for_volume(|volume| volume.faults().held_writes() == 4);
        directory = Some(back_end.die());
        front = Some(now);
    }
}

#[test]
fn requests_made_while_nobody_served_are_done() {
    let options = Options::default();
    let manner = Manner { inflight: true, ..Manner::default() };
    let back_end = BackEnd::start(&options);
    let mut front = FrontEnd::new(&back_end.path(), &manner);
    hold_writes(&back_end);
    front.queues[0].submit(&Io::write(0, &[1; 512]));
    front.queues[0].kick();
    back_end.wait_for_volume(|volume| volume.faults().held_writes() == 1);
    let directory = back_end.die();
    front.queues[0].submit(&Io::write(1, &[2; 512]));
    front.queues[0].kick();
    let back_end = BackEnd::within(directory, &options);
    let mut front = front.reconnect(&back_end.path(), &manner);
    assert_eq!([front.queues[0].wait().status, front.queues[0].wait().status], [OK; 2]);
    assert_eq!(front.read(0, 1024), [[1; 512], [2; 512]].concat());
}

#[test]
fn a_daemon_that_ended_in_order_left_nothing() {
    let options = Options::default();
    let manner = Manner { inflight: true, ..Manner::default() };
    let back_end = BackEnd::start(&options);
    let mut front = FrontEnd::new(&back_end.path(), &manner);
    for sector in 0..100 {
        front.write(sector, &[1; 512]);
    }
    back_end.shut_down().recv().unwrap();
    let back_end = BackEnd::within(back_end.die(), &options);
    let mut front = front.reconnect(&back_end.path(), &manner);
    front.write(0, &[2; 512]);
    assert_eq!(back_end.volume(|volume| volume.counters()).writes, 1);
    assert_eq!(front.frontend.get_vring_base(0).unwrap(), 101);
}
