//! Queues: distribution over reactors, order of completions, notifications and interrupts, stop and
//! restart.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use export::VolumeErrorKind;
use test_support::pattern;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::testing::GUEST;

/// A time in which any pending event arrives; used to assert that none does.
const SETTLE_TIME: Duration = Duration::from_millis(20);

#[test]
fn queues_on_several_reactors_serve_one_volume() {
    let back_end = BackEnd::start(&Options { reactors: 3, queues: 5, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 5, ..DeviceSetup::default() });
    for round in 0..20u64 {
        for queue in 0..5u64 {
            let data = pattern(round * 5 + queue, 4096);
            let queue = &mut front.queues[queue as usize];
            for slot in 0..8 {
                queue.submit(&Io::write(round * 640 + slot * 8, &data));
            }
            queue.kick();
            for _ in 0..8 {
                assert_eq!(queue.wait().status, OK);
            }
            let reader = (round as usize + 1) % 5;
            let used = front.run_on(reader, &Io::read(round * 640 + 8, 4096));
            assert_eq!(used.data, data, "another queue reads completed writes");
        }
    }
}

#[test]
fn a_slow_request_delays_no_other() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    back_end.volume(|volume| volume.faults().hold_reads());
    let held: Vec<u16> = (0..2)
        .map(|index| {
            let queue = &mut front.queues[index];
            let slot = queue.submit(&Io::read(0, 512));
            queue.kick();
            slot
        })
        .collect();
    back_end.wait_for_volume(|volume| volume.faults().held_reads() == 2);
    for index in 0..2 {
        assert_eq!(front.run_on(index, &Io::write(8, &[3; 512])).status, OK);
    }
    back_end.volume(|volume| volume.faults().release_reads());
    for (queue, held) in front.queues.iter_mut().zip(held) {
        assert_eq!(queue.wait().slot, held);
    }
}

#[test]
fn an_error_of_the_volume_fails_only_its_request() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    for kind in [VolumeErrorKind::Io, VolumeErrorKind::NoSpace, VolumeErrorKind::Closed] {
        back_end.volume(move |volume| volume.faults().fail_next_write(kind));
        assert_eq!(front.run_on(0, &Io::write(0, &[1; 512])).status, IO_ERROR);
        assert_eq!(front.run_on(0, &Io::write(0, &[1; 512])).status, OK);
    }
    back_end.volume(|volume| volume.faults().fail_next_flush(VolumeErrorKind::Io));
    assert_eq!(front.run_on(0, &Io::flush()).status, IO_ERROR);
    assert_eq!(front.run_on(0, &Io::flush()).status, OK);
}

#[test]
fn a_sleeping_queue_requests_notifications_and_a_polling_one_does_not() {
    for masked in [LOG_ALL, LOG_ALL | EVENT_INDEX] {
        let setup = DeviceSetup { masked, ..DeviceSetup::default() };
        let sleeping = BackEnd::start(&Options::default());
        let mut front = FrontEnd::new(&sleeping.path(), &setup);
        for _ in 0..100 {
            front.read(0, 512);
        }
        // The queue checks again before it sleeps and may find a request then, but rarely does.
        assert!(front.queues[0].kicks > 0, "the queue has requested no notification");
        let polling = BackEnd::start(&Options { poll: Duration::from_secs(600), ..Options::default() });
        let mut front = FrontEnd::new(&polling.path(), &setup);
        front.read(0, 512);
        let kicks = front.queues[0].kicks;
        for _ in 0..100 {
            front.read(0, 512);
        }
        assert_eq!(front.queues[0].kicks, kicks, "the polling queue has requested a notification");
    }
}

#[test]
fn interrupts_are_sent_when_they_are_requested() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    let queue = &mut front.queues[0];
    assert!(queue.is_interrupted(SETTLE_TIME), "no interrupt although one may have been lost");
    // Request an interrupt after the third completion.
    queue.driver.want_interrupt(2);
    for _ in 0..2 {
        queue.submit(&Io::read(0, 512));
        queue.kick();
    }
    back_end.wait_for_volume(|volume| volume.counters().reads == 2);
    assert!(!queue.is_interrupted(SETTLE_TIME));
    queue.submit(&Io::read(0, 512));
    queue.kick();
    assert!(queue.is_interrupted(Duration::from_secs(60)));
    assert_eq!([queue.wait().status, queue.wait().status, queue.wait().status], [OK; 3]);
}

#[test]
fn a_queue_that_is_not_enabled_waits() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    front.frontend.set_vring_enable(0, false).unwrap();
    let queue = &mut front.queues[0];
    assert!(queue.is_interrupted(SETTLE_TIME), "no interrupt after the start");
    queue.submit(&Io::read(0, 512));
    queue.kick.write(1).unwrap();
    assert!(!queue.is_interrupted(SETTLE_TIME));
    assert_eq!(queue.poll_used(), None);
    front.frontend.set_vring_enable(0, true).unwrap();
    assert_eq!(front.queues[0].wait().status, OK);
}

#[test]
fn a_queue_stops_when_all_requests_are_completed_and_restarts_at_its_base() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    for _ in 0..3 {
        front.run_on(1, &Io::read(0, 512));
    }
    back_end.volume(|volume| volume.faults().hold_writes());
    let queue = &mut front.queues[1];
    queue.submit(&Io::write(0, &[4; 512]));
    queue.kick();
    back_end.wait_for_volume(|volume| volume.faults().held_writes() == 1);
    let (frontend, memory) = (front.frontend.clone(), front.guest.file.try_clone().unwrap());
    let used = front.queues[1].driver.used() + 2 - GUEST;
    let stopping = std::thread::spawn(move || {
        let base = frontend.get_vring_base(1).unwrap();
        let mut answered = [0; 2];
        memory.read_exact_at(&mut answered, used).unwrap();
        (base, u16::from_le_bytes(answered))
    });
    assert_eq!(front.queues[1].poll_used(), None);
    back_end.volume(|volume| volume.faults().release_writes());
    assert_eq!(stopping.join().unwrap(), (4, 4), "stopped when the last request was completed");
    assert_eq!(front.queues[1].poll_used().unwrap().status, OK);
    // A stopped queue starts no requests.
    front.queues[1].submit(&Io::read(0, 512));
    front.queues[1].kick.write(1).unwrap();
    let reads = |back_end: &BackEnd| back_end.volume(|volume| volume.counters().reads);
    assert_eq!((front.run_on(0, &Io::read(0, 512)).status, reads(&back_end)), (OK, 4));
    assert_eq!(front.queues[1].poll_used(), None);
    front.start_queue(1, 4);
    assert_eq!(front.queues[1].wait().data, [4; 512]);
    assert_eq!(front.run_on(0, &Io::read(0, 512)).data, [4; 512], "the other queue was not stopped");
}

#[test]
fn event_descriptors_of_a_running_queue_may_be_replaced() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    front.write(0, &[1; 512]);
    let old_kick = std::mem::replace(&mut front.queues[0].kick, event());
    let old_call = std::mem::replace(&mut front.queues[0].call, event());
    front.frontend.set_vring_kick(0, &front.queues[0].kick).unwrap();
    front.frontend.set_vring_call(0, &front.queues[0].call).unwrap();
    assert!(
        front.queues[0].is_interrupted(SETTLE_TIME),
        "no interrupt although one may have been sent to the old descriptor"
    );
    is_raised(&old_call, SETTLE_TIME);
    for _ in 0..10 {
        front.read(0, 512);
    }
    assert!(!is_raised(&old_call, Duration::ZERO));
    drop(old_kick);
    // The queue keeps them across a stop and a start.
    let base = front.frontend.get_vring_base(0).unwrap() as u16;
    let config = front.vring_config(0);
    front.frontend.set_vring_base(0, base).unwrap();
    front.frontend.set_vring_addr(0, &config).unwrap();
    front.frontend.set_vring_kick(0, &front.queues[0].kick).unwrap();
    assert_eq!(front.read(0, 512), [1; 512]);
}

#[test]
fn a_front_end_without_protocol_features_is_served() {
    let back_end = BackEnd::start(&Options::default());
    let setup = DeviceSetup { masked: LOG_ALL | PROTOCOL, ..DeviceSetup::default() };
    let mut front = FrontEnd::new(&back_end.path(), &setup);
    front.write(5, &[9; 512]);
    assert_eq!(front.read(5, 512), [9; 512]);
}

#[test]
fn a_reset_device_can_be_configured_again() {
    let back_end = BackEnd::start(&Options::default());
    let setup = DeviceSetup { inflight: true, ..DeviceSetup::default() };
    let mut front = FrontEnd::new(&back_end.path(), &setup);
    front.write(0, &[6; 512]);
    front.frontend.reset_device().unwrap();
    front.set_up_inflight(&setup);
    front.restart_queue(0);
    assert_eq!(front.read(0, 512), [6; 512]);
}
