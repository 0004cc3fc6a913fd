//! Integers and texts at fixed places of a message, in the byte order of the protocol.

/// Reads `N` bytes at `at`.
///
/// # Panics
/// If the message is shorter: callers pass messages of a fixed length.
pub(in crate::nvme) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(array) => *array,
        None => panic!("bytes {at} to {} of a message of {}", at + N, bytes.len()),
    }
}

pub(in crate::nvme) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    let [byte] = array_at(bytes, at);
    byte
}

pub(in crate::nvme) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(in crate::nvme) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(in crate::nvme) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// A text that NUL ends, or that fills its field. `None` if it is not UTF-8.
pub(in crate::nvme) fn text_at(bytes: &[u8], at: usize, length: usize) -> Option<&str> {
    let field = bytes.get(at..at + length)?;
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(length);
    std::str::from_utf8(field.get(..end)?).ok()
}

/// A message under construction: zeros, and fields at fixed places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct FieldWriter<B = Vec<u8>>(B);

impl FieldWriter {
    /// Starts a message of `length` zero bytes.
    pub(in crate::nvme) fn new(length: usize) -> Self {
        Self(vec![0; length])
    }

    pub(in crate::nvme) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl<const N: usize> FieldWriter<[u8; N]> {
    /// Starts a message of `N` zero bytes, without an allocation.
    pub(in crate::nvme) fn fixed() -> Self {
        Self([0; N])
    }

    pub(in crate::nvme) fn bytes(&self) -> &[u8; N] {
        &self.0
    }
}

impl<B: AsMut<[u8]>> FieldWriter<B> {
    /// Sets the bytes at `at`.
    ///
    /// # Panics
    /// If they do not fit.
    pub(in crate::nvme) fn put(&mut self, at: usize, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        match self.0.as_mut().get_mut(at..at + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => panic!("{} bytes at {at} exceed the message", bytes.len()),
        }
        self
    }

    pub(in crate::nvme) fn u8(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, [value])
    }

    pub(in crate::nvme) fn u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.put(at, value.to_le_bytes())
    }

    pub(in crate::nvme) fn u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.put(at, value.to_le_bytes())
    }

    pub(in crate::nvme) fn u64(&mut self, at: usize, value: u64) -> &mut Self {
        self.put(at, value.to_le_bytes())
    }

    /// Sets a field of `length` bytes to a text, cut to the field, and fills the rest with `fill`.
    pub(in crate::nvme) fn text(&mut self, at: usize, length: usize, text: &str, fill: u8) -> &mut Self {
        let mut field = text.as_bytes().to_vec();
        field.resize(length, fill);
        self.put(at, field)
    }
}
