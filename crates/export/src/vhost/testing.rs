//! A guest for tests: memory in a file, and the driver side of a split queue in it, without unsafe
//! code.
//!
//! Used by unit tests and by tests over real sockets. Knows nothing of the code under test.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::fs::MemfdFlags;

/// Address of the memory in the guest.
pub const GUEST: u64 = 0x4000_0000;
/// Address of the memory in the front end.
pub const USER: u64 = 0x7f00_0000_0000;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Memory of a guest: one region.
#[derive(Clone)]
pub struct Guest {
    pub file: Rc<File>,
    pub len: u64,
}

impl Guest {
    pub fn new(len: u64) -> Self {
        let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(len).unwrap();
        Self { file: Rc::new(file), len }
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, address - GUEST).unwrap();
        bytes
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert!(address >= GUEST && address - GUEST + bytes.len() as u64 <= self.len);
        self.file.write_all_at(bytes, address - GUEST).unwrap();
    }

    pub fn read_16(&self, address: u64) -> u16 {
        u16::from_le_bytes(self.read(address, 2).try_into().unwrap())
    }

    pub fn write_16(&self, address: u64, value: u16) {
        self.write(address, &value.to_le_bytes());
    }
}

/// A descriptor as a driver writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// The driver side of a queue: descriptor table, available ring and used ring, one after the other.
pub struct Driver {
    pub guest: Guest,
    pub base: u64,
    pub size: u16,
    /// Number of available requests.
    pub added: u16,
    /// Number of used entries that were read.
    pub seen: u16,
}

impl Driver {
    /// Returns the bytes of a queue.
    pub fn bytes(size: u16) -> u64 {
        u64::from(size) * 26 + 64
    }

    pub fn new(guest: &Guest, base: u64, size: u16) -> Self {
        Self { guest: guest.clone(), base, size, added: 0, seen: 0 }
    }

    pub fn table(&self) -> u64 {
        self.base
    }

    pub fn available(&self) -> u64 {
        self.base + u64::from(self.size) * 16
    }

    pub fn used(&self) -> u64 {
        (self.available() + u64::from(self.size) * 2 + 6).next_multiple_of(4)
    }

    pub fn set(&self, index: u16, descriptor: Descriptor) {
        self.guest.write(self.table() + u64::from(index) * 16, &descriptor.bytes());
    }

    /// Writes a chain into the descriptors from `head` on. Each part is an address, a length, and
    /// whether the device writes there.
    pub fn chain(&self, head: u16, parts: &[(u64, u32, bool)]) {
        for (position, (address, len, writable)) in parts.iter().enumerate() {
            let index = head + position as u16;
            let more = position + 1 < parts.len();
            let flags = if more { NEXT } else { 0 } | if *writable { WRITE } else { 0 };
            self.set(index, Descriptor { address: *address, len: *len, flags, next: index + 1 });
        }
    }

    /// Makes a chain available without a notification.
    pub fn add(&mut self, head: u16) {
        let at = self.available() + 4 + u64::from(self.added % self.size) * 2;
        self.guest.write_16(at, head);
        self.added = self.added.wrapping_add(1);
        self.guest.write_16(self.available() + 2, self.added);
    }

    /// Returns the requests completed since the last call, as heads and lengths.
    pub fn ended(&mut self) -> Vec<(u16, u32)> {
        std::iter::from_fn(|| self.take_ended()).collect()
    }

    /// Returns the next completed request, if there is one.
    pub fn take_ended(&mut self) -> Option<(u16, u32)> {
        if self.seen == self.guest.read_16(self.used() + 2) {
            return None;
        }
        let entry = self.guest.read(self.used() + 4 + u64::from(self.seen % self.size) * 8, 8);
        let head = u32::from_le_bytes(entry[..4].try_into().unwrap());
        let len = u32::from_le_bytes(entry[4..].try_into().unwrap());
        self.seen = self.seen.wrapping_add(1);
        Some((head as u16, len))
    }

    /// Requests an interrupt when the used index passes `index`.
    pub fn want_interrupt(&self, index: u16) {
        self.guest.write_16(self.available() + 4 + u64::from(self.size) * 2, index);
    }

    /// Returns the available index for which the device requests a notification.
    pub fn wanted_kick(&self) -> u16 {
        self.guest.read_16(self.used() + 4 + u64::from(self.size) * 8)
    }
}

/// Returns a request's header.
pub fn header(kind: u32, sector: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[8..].copy_from_slice(&sector.to_le_bytes());
    bytes
}
