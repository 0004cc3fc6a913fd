//! Big-endian integers at fixed places of a message.

/// Reads `N` bytes at `at`; zeros beyond the end.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(in crate::iscsi) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

pub(in crate::iscsi) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

pub(in crate::iscsi) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

/// A message under construction: zeros, and big-endian fields at fixed places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct WideWriter(Vec<u8>);

impl WideWriter {
    /// Starts a message of `length` zero bytes.
    pub(in crate::iscsi) fn new(length: usize) -> Self {
        Self(vec![0; length])
    }

    /// Sets the bytes at `at`. The message grows if they exceed it.
    pub(in crate::iscsi) fn put(&mut self, at: usize, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        if self.0.len() < at + bytes.len() {
            self.0.resize(at + bytes.len(), 0);
        }
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }

    pub(in crate::iscsi) fn u8(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, [value])
    }

    pub(in crate::iscsi) fn u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.put(at, value.to_be_bytes())
    }

    pub(in crate::iscsi) fn u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.put(at, value.to_be_bytes())
    }

    pub(in crate::iscsi) fn u64(&mut self, at: usize, value: u64) -> &mut Self {
        self.put(at, value.to_be_bytes())
    }

    /// Sets a field of `length` bytes to a text, cut to the field and filled up with spaces.
    pub(in crate::iscsi) fn text(&mut self, at: usize, length: usize, text: &str) -> &mut Self {
        let mut field = text.as_bytes().to_vec();
        field.resize(length, b' ');
        self.put(at, field)
    }

    /// Appends bytes.
    pub(in crate::iscsi) fn append(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(bytes.as_ref());
        self
    }

    /// The length so far.
    pub(in crate::iscsi) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::iscsi) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}
