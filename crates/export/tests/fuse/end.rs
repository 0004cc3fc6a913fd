//! The end of files: unused, in use, with requests in flight, and unmounted by others.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;

use loop_device::{LoopDevice, LoopOptions};

use super::served::{SIZE, Served, TIMEOUT, is_mounted, until};

#[test]
fn an_open_file_is_not_removed_without_force() {
    let Some(served) = Served::start(512, false) else { return };
    let place = served.place();
    assert!(is_mounted(&place));
    let (one, other) = (served.open(), served.open());
    assert_eq!(served.server.close().unwrap_err().0, 2);
    drop(other);
    assert_eq!(served.server.close().unwrap_err().0, 1);
    // The file is unchanged.
    one.write_all_at(&[1; 512], 0).unwrap();
    drop(one);
    served.server.close().unwrap();
    assert!(std::fs::File::open(&place).is_err());
    served.server.reopen();
    drop(served.open());
    served.server.close().unwrap();
    served.server.end();
    assert!(!is_mounted(&place) && !place.exists());
    assert_eq!(served.opens(), 0);
}

#[test]
fn a_file_that_is_removed_by_force_fails_for_its_users() {
    let Some(served) = Served::start(512, false) else { return };
    let file = served.open();
    served.server.end();
    assert!(!is_mounted(&served.place()) && !served.place().exists());
    assert!(file.write_at(&[1; 512], 0).is_err());
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    assert_eq!(served.opens(), 0);
    drop(file);
    served.server.end();
}

#[test]
fn requests_in_flight_are_completed_at_the_end() {
    let Some(served) = Served::start(512, false) else { return };
    served.volume(|volume| volume.faults().hold_writes());
    let file = served.open();
    let writer = std::thread::spawn(move || file.write_at(&[1; 512], 0));
    until("the write is under way", || served.volume(|volume| volume.faults().held_writes()) == 1);
    let (server, (sender, ended)) = (served.server.clone(), channel());
    let end = std::thread::spawn(move || {
        server.end();
        sender.send(()).unwrap();
    });
    // The writer gets an error at once; the end waits for the volume.
    assert!(writer.join().unwrap().is_err());
    assert!(ended.try_recv().is_err());
    served.volume(|volume| volume.faults().release_writes());
    ended.recv_timeout(TIMEOUT).unwrap();
    end.join().unwrap();
    assert_eq!(served.volume(|volume| volume.counters().writes), 1);
}

#[test]
fn a_file_may_be_unmounted_by_others() {
    let Some(served) = Served::start(512, false) else { return };
    let status = Command::new("umount").arg(served.place()).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::metadata(served.place()).unwrap().len(), 0);
    served.server.close().unwrap();
    served.server.end();
    assert!(!served.place().exists());
}

/// A file whose loop devices are detached on drop.
struct FileWithLoops(PathBuf);

impl Drop for FileWithLoops {
    fn drop(&mut self) {
        for device in LoopDevice::all_of(&self.0).unwrap_or_default() {
            let _ = device.detach();
        }
    }
}

#[test]
fn a_loop_device_of_a_file_that_has_ended_is_dead() {
    let Some(served) = Served::start(512, false) else { return };
    if !test_support::has_loop() {
        return;
    }
    let file = FileWithLoops(served.place());
    let attached = LoopDevice::attach(&file.0, LoopOptions { sector: 512, read_only: false }).unwrap();
    assert!(attached.reads_from(&file.0) && !attached.is_dead());
    served.server.end();
    until("the device is dead", || attached.is_dead());
    assert!(!attached.reads_from(&file.0));
    attached.detach().unwrap();
}

#[test]
fn a_loop_device_works_on_it() {
    let Some(served) = Served::start(512, false) else { return };
    if !test_support::has_loop() || !test_support::has_programs(&["losetup", "blkdiscard"]) {
        return;
    }
    let file = FileWithLoops(served.place());
    let attached = LoopDevice::attach(&file.0, LoopOptions { sector: 512, read_only: false }).unwrap();
    let device = attached.path().to_owned();
    let device = device.to_str().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    };
    let disk = std::fs::OpenOptions::new().read(true).write(true).open(device).unwrap();
    disk.write_all_at(&[5; 8192], 4096).unwrap();
    let flushes = served.volume(|volume| volume.counters().flushes);
    disk.sync_all().unwrap();
    assert!(
        served.volume(|volume| volume.counters().flushes) > flushes,
        "a flush of the device is one of the volume"
    );
    assert_eq!(served.server.close().unwrap_err().0, 1);
    run("blkdiscard", &["--offset", "4096", "--length", "4096", device]);
    assert!(served.volume(|volume| volume.counters().zeroes) > 0, "discarded ranges are freed");
    served.volume(|volume| volume.resize(2 * SIZE));
    served.server.resized();
    run("losetup", &["--set-capacity", device]);
    assert_eq!(
        rustix::fs::seek(&disk, rustix::fs::SeekFrom::End(0)).unwrap(),
        2 * SIZE,
        "it grows with its file"
    );
    drop(disk);
    attached.detach().unwrap();
    let file = served.open();
    let mut found = [0; 12288];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..8192] == [0; 8192] && found[8192..] == [5; 4096]);
    drop(file);
    served.server.close().unwrap();
    served.server.end();
}
