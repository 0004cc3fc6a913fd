//! Connection and disconnection of front ends, and the shutdown of the server.

use std::io::Read;
use std::sync::atomic::Ordering;

use super::back_end::{BackEnd, Options, TIMEOUT};
use super::front_end::*;
use super::testing::Guest;

#[test]
fn the_next_front_end_waits_for_the_requests_of_the_one_before() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    back_end.volume(|volume| volume.faults().hold_writes());
    front.queues[0].submit(&Io::write(0, &[1; 512]));
    front.queues[0].kick();
    back_end.wait_for_volume(|volume| volume.faults().held_writes() == 1);
    drop(front);
    let path = back_end.path();
    let next = std::thread::spawn(move || {
        let mut front = FrontEnd::new(&path, &DeviceSetup::default());
        front.write(0, &[2; 512]);
        front.read(0, 512)
    });
    // The write of the first front end must not be applied after that of the second.
    back_end.volume(|volume| volume.faults().release_writes());
    assert_eq!(next.join().unwrap(), [2; 512]);
}

#[test]
fn one_front_end_at_a_time() {
    let back_end = BackEnd::start(&Options::default());
    let mut first = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    assert!(back_end.is_connected());
    let mut second = connect(&back_end.path());
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0, "refused after a timeout");
    assert_eq!(first.read(0, 512), [0; 512]);
    drop(first);
    FrontEnd::new(&back_end.path(), &DeviceSetup::default()).write(0, &[1; 512]);
}

#[test]
fn a_server_that_shuts_down_completes_requests_in_flight() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    back_end.volume(|volume| volume.faults().hold_writes());
    for queue in &mut front.queues {
        queue.submit(&Io::write(0, &[1; 512]));
        queue.kick();
    }
    back_end.wait_for_volume(|volume| volume.faults().held_writes() == 2);
    let done = back_end.shut_down();
    assert!(done.try_recv().is_err());
    back_end.volume(|volume| volume.faults().release_writes());
    done.recv_timeout(TIMEOUT).unwrap();
    for queue in &mut front.queues {
        assert_eq!(queue.wait().status, OK);
    }
    assert!(front.is_disconnected());
    assert!(
        std::os::unix::net::UnixStream::connect(back_end.path()).is_err(),
        "the socket still accepts connections"
    );
    assert!(!back_end.path().exists());
}

#[test]
fn a_volume_that_is_unavailable_may_be_opened_later() {
    let back_end = BackEnd::start(&Options::default());
    let setup = DeviceSetup::default();
    back_end.disk.refuse_open.store(true, Ordering::SeqCst);
    let mut front = FrontEnd::negotiated(connect(&back_end.path()), Guest::new(MEMORY), &setup);
    front.share_memory();
    assert!(front.try_start_queue(0, 0).is_err());
    assert!(front.is_disconnected(), "the front end must connect again");
    let mut front = FrontEnd::new(&back_end.path(), &setup);
    front.write(0, &[1; 512]);
}
