//! The form of encrypted bodies: AES-256-GCM in frames, with a data key of their own.
//!
//! | bytes | contents |
//! |---|---|
//! | 0 to 12 | nonce of the data key |
//! | 12 to 60 | data key, encrypted by the root key, and its tag |
//! | 60 to 64 | zeros |
//! | from 64 | frames: up to 64 KiB of the body, encrypted, and 16 bytes of tag |
//!
//! The nonce of a frame is its number. Always true: a data key encrypts one body; every byte that
//! is returned was authenticated. An object of several parts is a sequence of such bodies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use bytes::Bytes;
use object::{BodyReader, ObjectError, ObjectErrorKind};

const HEADER: usize = 64;
const FRAME: usize = 64 << 10;
const TAG: usize = 16;
const SEALED_FRAME: usize = FRAME + TAG;

/// The key that encrypts data keys, and the context that its use is bound to.
#[derive(Clone)]
pub(crate) struct RootKey {
    pub(crate) key: [u8; 32],
    pub(crate) context: String,
}

/// The stored length of a body.
pub(crate) fn sealed_length(length: u64) -> u64 {
    HEADER as u64 + length + length.div_ceil(FRAME as u64) * TAG as u64
}

fn failed(message: &str) -> ObjectError {
    ObjectError::new(ObjectErrorKind::Io, message)
}

fn cipher(key: &[u8]) -> Result<Aes256Gcm, ObjectError> {
    Aes256Gcm::new_from_slice(key).map_err(|_| failed("an encryption key has not 32 bytes"))
}

fn frame_nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    for (into, from) in nonce.iter_mut().zip(number.to_le_bytes()) {
        *into = from;
    }
    nonce
}

/// Encrypts a body while it arrives.
pub(crate) struct Sealer {
    cipher: Aes256Gcm,
    frames: u64,
    plain: Vec<u8>,
    /// Encrypted bytes that were not taken yet.
    pub(crate) sealed: Vec<u8>,
}

impl Sealer {
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn new(root: &RootKey) -> Result<Self, ObjectError> {
        let (mut data_key, mut nonce) = ([0; 32], [0; 12]);
        getrandom::fill(&mut data_key).map_err(|_| failed("no random numbers"))?;
        getrandom::fill(&mut nonce).map_err(|_| failed("no random numbers"))?;
        let payload = Payload { msg: &data_key, aad: root.context.as_bytes() };
        let wrapped = cipher(&root.key)?.encrypt(Nonce::from_slice(&nonce), payload);
        let mut sealed = nonce.to_vec();
        sealed.extend_from_slice(&wrapped.map_err(|_| failed("cannot encrypt a data key"))?);
        sealed.resize(HEADER, 0);
        Ok(Self { cipher: cipher(&data_key)?, frames: 0, plain: Vec::new(), sealed })
    }

    /// Appends bytes of the body.
    ///
    /// # Errors
    /// When the cipher fails.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), ObjectError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(FRAME - self.plain.len()));
            self.plain.extend_from_slice(now);
            bytes = later;
            if self.plain.len() == FRAME {
                self.seal_frame()?;
            }
        }
        Ok(())
    }

    /// Encrypts the last bytes of the body.
    ///
    /// # Errors
    /// When the cipher fails.
    pub(crate) fn finish(&mut self) -> Result<(), ObjectError> {
        if self.plain.is_empty() { Ok(()) } else { self.seal_frame() }
    }

    fn seal_frame(&mut self) -> Result<(), ObjectError> {
        let nonce = frame_nonce(self.frames);
        let sealed = self.cipher.encrypt(Nonce::from_slice(&nonce), self.plain.as_slice());
        self.sealed.extend_from_slice(&sealed.map_err(|_| failed("cannot encrypt a body"))?);
        self.frames += 1;
        self.plain.clear();
        Ok(())
    }
}

/// Reads an encrypted body.
pub(crate) struct SealedReader {
    inner: Arc<dyn BodyReader>,
    root: RootKey,
    /// The lengths of the parts.
    parts: Vec<u64>,
    ciphers: Mutex<HashMap<u64, Aes256Gcm>>,
}

impl SealedReader {
    /// Returns a reader of a body of the given parts. The key must be the one of the body.
    pub(crate) fn new(inner: Arc<dyn BodyReader>, root: RootKey, parts: Vec<u64>) -> Self {
        Self { inner, root, parts, ciphers: Mutex::default() }
    }

    fn cipher_at(&self, start: u64) -> Result<Aes256Gcm, ObjectError> {
        let known = self.ciphers.lock().unwrap_or_else(PoisonError::into_inner).get(&start).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let header = self.inner.read(start, HEADER)?;
        let damaged = || failed("an encrypted body has a damaged header, or was encrypted by another key");
        let (nonce, rest) = header.split_at_checked(12).ok_or_else(damaged)?;
        let payload = Payload { msg: rest.get(..48).ok_or_else(damaged)?, aad: self.root.context.as_bytes() };
        let data_key = cipher(&self.root.key)?.decrypt(Nonce::from_slice(nonce), payload);
        let found = cipher(&data_key.map_err(|_| damaged())?)?;
        self.ciphers.lock().unwrap_or_else(PoisonError::into_inner).insert(start, found.clone());
        Ok(found)
    }

    /// Reads `from..to` of the part of `length` bytes that begins at `start` of the stored body.
    fn read_part(
        &self,
        (start, length): (u64, u64),
        (from, to): (u64, u64),
        into: &mut Vec<u8>,
    ) -> Result<(), ObjectError> {
        let cipher = self.cipher_at(start)?;
        let before = into.len() as u64;
        let (first, end) = (from / FRAME as u64, to.div_ceil(FRAME as u64));
        // The last frame of the part may be short, and another part may follow it.
        let begin = HEADER as u64 + first * SEALED_FRAME as u64;
        let limit = (HEADER as u64 + end * SEALED_FRAME as u64).min(sealed_length(length));
        let count = usize::try_from(limit - begin).map_err(|_| failed("a read is too large"))?;
        let sealed = self.inner.read(start + begin, count)?;
        for (number, frame) in (first..end).zip(sealed.chunks(SEALED_FRAME)) {
            let plain = cipher.decrypt(Nonce::from_slice(&frame_nonce(number)), frame);
            let plain = plain.map_err(|_| failed("an encrypted body is damaged"))?;
            let begin = number * FRAME as u64;
            let within =
                |at: u64| usize::try_from(at.saturating_sub(begin)).unwrap_or(usize::MAX).min(plain.len());
            into.extend_from_slice(plain.get(within(from)..within(to)).unwrap_or_default());
        }
        if into.len() as u64 - before != to - from {
            return Err(failed("an encrypted body is too short"));
        }
        Ok(())
    }
}

impl BodyReader for SealedReader {
    fn read(&self, offset: u64, length: usize) -> Result<Bytes, ObjectError> {
        let wanted = offset..offset.saturating_add(length as u64);
        let (mut begin, mut start) = (0, 0);
        let mut bytes = Vec::new();
        for part in &self.parts {
            let (from, to) = (wanted.start.max(begin), wanted.end.min(begin + part));
            if from < to {
                self.read_part((start, *part), (from - begin, to - begin), &mut bytes)?;
            }
            begin += part;
            // The next part of an upload ends within a block of the device, but not of the body.
            start += sealed_length(*part);
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct StoredBytes(Vec<u8>);

    impl BodyReader for StoredBytes {
        fn read(&self, offset: u64, length: usize) -> Result<Bytes, ObjectError> {
            let start = usize::try_from(offset).unwrap().min(self.0.len());
            Ok(self.0[start..(start + length).min(self.0.len())].to_vec().into())
        }
    }

    fn root(key: u8) -> RootKey {
        RootKey { key: [key; 32], context: "test".into() }
    }

    fn seal(body: &[u8]) -> Vec<u8> {
        let mut sealer = Sealer::new(&root(1)).unwrap();
        body.chunks(1000).for_each(|piece| sealer.push(piece).unwrap());
        sealer.finish().unwrap();
        assert_eq!(sealer.sealed.len() as u64, sealed_length(body.len() as u64));
        sealer.sealed
    }

    fn body(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn ranges_of_all_parts_are_read() {
        let parts = [body(100_000), body(0), body(65_536), body(1)];
        let stored: Vec<u8> = parts.iter().flat_map(|part| seal(part)).collect();
        let lengths = parts.iter().map(|part| part.len() as u64).collect();
        let reader = SealedReader::new(Arc::new(StoredBytes(stored)), root(1), lengths);
        let whole = parts.concat();
        for (from, length) in [(0, 200_000), (0, 1), (65_535, 2), (99_999, 2), (165_535, 5), (165_537, 9)] {
            let end = (from + length).min(whole.len());
            assert_eq!(
                reader.read(from as u64, length).unwrap(),
                whole[from.min(end)..end],
                "{from}+{length}"
            );
        }
    }

    #[test]
    fn damage_and_other_keys_are_found() {
        let stored = seal(&body(70_000));
        for at in [0, 20, 64, 65_700, stored.len() - 1] {
            let mut damaged = stored.clone();
            damaged[at] ^= 1;
            let reader = SealedReader::new(Arc::new(StoredBytes(damaged)), root(1), vec![70_000]);
            assert!(reader.read(0, 70_000).is_err(), "byte {at}");
        }
        let reader = SealedReader::new(Arc::new(StoredBytes(stored.clone())), root(2), vec![70_000]);
        assert!(reader.read(0, 1).is_err());
        // A frame in the place of another one.
        let mut swapped = seal(&body(200_000));
        let (first, second) = (HEADER, HEADER + SEALED_FRAME);
        let frame = swapped[second..second + SEALED_FRAME].to_vec();
        swapped[first..first + SEALED_FRAME].copy_from_slice(&frame);
        let reader = SealedReader::new(Arc::new(StoredBytes(swapped)), root(1), vec![200_000]);
        assert!(reader.read(0, 1).is_err());
    }
}
