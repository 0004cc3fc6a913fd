//! Test helpers: a sample machine.

use crate::machine::{Boot, CloudInit, Disk, Mac, Machine, Memory, Network, Pages, Pin, VcpuTopology};

/// Returns a machine with two disks and a network.
pub(crate) fn machine() -> Machine {
    let disk = |volume: &str| Disk { volume: volume.into(), made: true, read_only: false };
    Machine {
        name: "web".into(),
        uuid: "9d1b6b7e-6f0e-4e5c-8f6f-0123456789ab".into(),
        created: 1_700_000_000,
        cpus: VcpuTopology::from_cores(4),
        pin: Pin::Auto,
        memory: Memory { bytes: 2 << 30, pages: Pages::Normal },
        accelerator: crate::Accelerator::Auto,
        boot: Boot::Disk,
        disks: vec![disk("fast/web"), Disk { read_only: true, ..disk("fast/data") }],
        reactors: Vec::new(),
        network: Network::User {
            mac: Mac::with_qemu_prefix([1, 2, 3]),
            forwards: vec!["2222:22".parse().unwrap()],
        },
        cloud_init: CloudInit::default(),
        qemu: Vec::new(),
    }
}
