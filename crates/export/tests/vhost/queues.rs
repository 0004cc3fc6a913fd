//! Queues: several on several reactors, order of answers, sleep and waking, stopping and going on.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use export::VolumeErrorKind;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use super::back_end::{BackEnd, Options};
use super::front_end::*;
use super::requests::pattern;
use super::testing::GUEST;

/// Long enough for anything that is on its way to arrive; what is awaited with it is that nothing does.
const A_WHILE: Duration = Duration::from_millis(20);

#[test]
fn queues_on_several_reactors_serve_one_volume() {
    let back_end = BackEnd::start(&Options { reactors: 3, queues: 5, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 5, ..Manner::default() });
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
            let answer = front.run_on(reader, &Io::read(round * 640 + 8, 4096));
            assert_eq!(answer.data, data, "what one queue was answered another one sees");
        }
    }
}

#[test]
fn a_request_that_waits_holds_no_other_up() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 2, ..Manner::default() });
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
fn a_volume_that_fails_fails_its_request_alone() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
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
fn a_queue_that_sleeps_is_woken_and_one_that_polls_need_not_be() {
    for without in [LOG_ALL, LOG_ALL | EVENT_INDEX] {
        let manner = Manner { without, ..Manner::default() };
        let sleepy = BackEnd::start(&Options::default());
        let mut front = FrontEnd::new(&sleepy.path(), &manner);
        for _ in 0..100 {
            front.read(0, 512);
        }
        // It may look again before it sleeps, and see a request then; mostly it sleeps.
        assert!(front.queues[0].kicks > 0, "nobody was awake to see the first one");
        let awake = BackEnd::start(&Options { poll: Duration::from_secs(600), ..Options::default() });
        let mut front = FrontEnd::new(&awake.path(), &manner);
        front.read(0, 512);
        let kicks = front.queues[0].kicks;
        for _ in 0..100 {
            front.read(0, 512);
        }
        assert_eq!(front.queues[0].kicks, kicks, "it asked for none while it polls");
    }
}

#[test]
fn interrupts_come_when_they_are_wanted() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
    let queue = &mut front.queues[0];
    assert!(queue.is_interrupted(A_WHILE), "one may have been lost before");
    // Wanted with the third answer from now on.
    queue.driver.want_interrupt(2);
    for _ in 0..2 {
        queue.submit(&Io::read(0, 512));
        queue.kick();
    }
    back_end.wait_for_volume(|volume| volume.counters().reads == 2);
    assert!(!queue.is_interrupted(A_WHILE));
    queue.submit(&Io::read(0, 512));
    queue.kick();
    assert!(queue.is_interrupted(Duration::from_secs(60)));
    assert_eq!([queue.wait().status, queue.wait().status, queue.wait().status], [OK; 3]);
}

#[test]
fn a_queue_that_is_not_enabled_waits() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
    front.frontend.set_vring_enable(0, false).unwrap();
    let queue = &mut front.queues[0];
    assert!(queue.is_interrupted(A_WHILE), "the one of the start");
    queue.submit(&Io::read(0, 512));
    queue.kick.write(1).unwrap();
    assert!(!queue.is_interrupted(A_WHILE));
    assert_eq!(queue.look(), None);
    front.frontend.set_vring_enable(0, true).unwrap();
    assert_eq!(front.queues[0].wait().status, OK);
}

#[test]
fn a_queue_stops_when_all_is_answered_and_goes_on_where_it_was() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 2, ..Manner::default() });
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
    assert_eq!(front.queues[1].look(), None);
    back_end.volume(|volume| volume.faults().release_writes());
    assert_eq!(stopping.join().unwrap(), (4, 4), "stopped when the last one was answered");
    assert_eq!(front.queues[1].look().unwrap().status, OK);
    // Nothing is taken while it is stopped.
    front.queues[1].submit(&Io::read(0, 512));
    front.queues[1].kick.write(1).unwrap();
    let reads = |back_end: &BackEnd| back_end.volume(|volume| volume.counters().reads);
    assert_eq!((front.run_on(0, &Io::read(0, 512)).status, reads(&back_end)), (OK, 4));
    assert_eq!(front.queues[1].look(), None);
    front.start_queue(1, 4);
    assert_eq!(front.queues[1].wait().data, [4; 512]);
    assert_eq!(front.run_on(0, &Io::read(0, 512)).data, [4; 512], "the other one went on meanwhile");
}

#[test]
fn notifications_and_interrupts_may_move_while_a_queue_runs() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
    front.write(0, &[1; 512]);
    let old_kick = std::mem::replace(&mut front.queues[0].kick, event());
    let old_call = std::mem::replace(&mut front.queues[0].call, event());
    front.frontend.set_vring_kick(0, &front.queues[0].kick).unwrap();
    front.frontend.set_vring_call(0, &front.queues[0].call).unwrap();
    assert!(front.queues[0].is_interrupted(A_WHILE), "one may have gone to the old place");
    is_raised(&old_call, A_WHILE);
    for _ in 0..10 {
        front.read(0, 512);
    }
    assert!(!is_raised(&old_call, Duration::ZERO));
    drop(old_kick);
    // Stopped and started, it still knows them.
    let base = front.frontend.get_vring_base(0).unwrap() as u16;
    let place = front.place(0);
    front.frontend.set_vring_base(0, base).unwrap();
    front.frontend.set_vring_addr(0, &place).unwrap();
    front.frontend.set_vring_kick(0, &front.queues[0].kick).unwrap();
    assert_eq!(front.read(0, 512), [1; 512]);
}

#[test]
fn a_front_end_before_the_protocols_features_is_served_too() {
    let back_end = BackEnd::start(&Options::default());
    let manner = Manner { without: LOG_ALL | PROTOCOL, ..Manner::default() };
    let mut front = FrontEnd::new(&back_end.path(), &manner);
    front.write(5, &[9; 512]);
    assert_eq!(front.read(5, 512), [9; 512]);
}

#[test]
fn a_device_that_was_reset_starts_anew() {
    let back_end = BackEnd::start(&Options::default());
    let manner = Manner { inflight: true, ..Manner::default() };
    let mut front = FrontEnd::new(&back_end.path(), &manner);
    front.write(0, &[6; 512]);
    front.frontend.reset_device().unwrap();
    front.set_up_inflight(&manner);
    front.restart_queue(0);
    assert_eq!(front.read(0, 512), [6; 512]);
}
