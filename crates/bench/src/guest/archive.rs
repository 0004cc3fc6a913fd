//! An initramfs archive: cpio in the format "newc" (the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Invariant: a directory precedes its contents, and each name occurs once.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Component, Path};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// An archive writer; see the module documentation.
pub(super) struct Archive<W> {
    to: W,
    names: BTreeSet<String>,
    next: u32,
    at: usize,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, names: BTreeSet::new(), next: 1, at: 0 }
    }

    /// Adds a directory and its missing parents.
    pub(super) fn folder(&mut self, path: &Path) -> io::Result<()> {
        let mut name = String::new();
        for part in path.components() {
            let Component::Normal(part) = part else { continue };
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(&part.to_string_lossy());
            self.entry(&name, FOLDER, &[])?;
        }
        Ok(())
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.folder(path.parent().unwrap_or(Path::new("")))?;
        self.entry(&name(path), FILE, data)
    }

    /// Writes the trailer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        if !self.names.insert(name.into()) {
            return Ok(());
        }
        let length =
            u32::try_from(data.len()).map_err(|_| io::Error::other(format!("{name} is too long")))?;
        let inode = self.next;
        self.next += 1;
        // Inode, mode, owner, group, links, time, length, four device numbers, length of the name,
        // no checksum.
        let name_length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let fields = [inode, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        let mut header = "070701".to_owned();
        fields.iter().for_each(|field| header.push_str(&format!("{field:08X}")));
        self.write(header.as_bytes())?;
        self.write(name.as_bytes())?;
        self.write(&[0])?;
        self.fill()?;
        self.write(data)?;
        self.fill()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len();
        self.to.write_all(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        let rest = self.at.next_multiple_of(4) - self.at;
        self.write([0; 4].get(..rest).unwrap_or_default())
    }
}

fn name(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses names, modes and contents according to the format.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        let mut take = |bytes: &mut &[u8], count: usize| {
            let (head, rest) = bytes.split_at(count);
            *bytes = rest;
            at += count;
            (head.to_vec(), at)
        };
        loop {
            let header = String::from_utf8(take(&mut bytes, 110).0).unwrap();
            assert!(header.starts_with("070701"));
            let field =
                |index: usize| u32::from_str_radix(&header[6 + index * 8..14 + index * 8], 16).unwrap();
            let (name, end) = take(&mut bytes, field(11) as usize);
            take(&mut bytes, end.next_multiple_of(4) - end);
            let (data, end) = take(&mut bytes, field(6) as usize);
            let rest = end.next_multiple_of(4) - end;
            let rest = rest.min(bytes.len());
            take(&mut bytes, rest);
            let name = String::from_utf8(name).unwrap();
            let name = name.strip_suffix('\0').unwrap().to_owned();
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, field(1), data));
        }
    }

    #[test]
    fn directories_precede_their_contents_once() {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/usr/lib/a.so"), b"12345").unwrap();
        archive.file(Path::new("/usr/lib/b"), b"").unwrap();
        archive.file(Path::new("/usr/lib/a.so"), b"other").unwrap();
        archive.folder(Path::new("/usr/bin")).unwrap();
        let entries = read(&archive.finish().unwrap());
        let shown: Vec<(&str, u32, &[u8])> =
            entries.iter().map(|(name, mode, data)| (name.as_str(), *mode, data.as_slice())).collect();
        let wanted: [(&str, u32, &[u8]); 5] = [
            ("usr", FOLDER, b""),
            ("usr/lib", FOLDER, b""),
            ("usr/lib/a.so", FILE, b"12345"),
            ("usr/lib/b", FILE, b""),
            ("usr/bin", FOLDER, b""),
        ];
        assert_eq!(shown, wanted);
    }
}
