//! Text of login and text messages: keys with values.

use super::bytes::WideWriter;

/// The most bytes of the text of one negotiation step.
pub(in crate::iscsi) const TEXT_MAX: usize = 16 << 10;

/// Received keys with values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::iscsi) struct TextPairs(Vec<(String, String)>);

impl TextPairs {
    /// Decodes text. `None` if a part has no `=`, an empty key, or is not UTF-8.
    pub(in crate::iscsi) fn decode(bytes: &[u8]) -> Option<Self> {
        let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        let pair = |part: &[u8]| {
            let (key, value) = std::str::from_utf8(part).ok()?.split_once('=')?;
            (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
        };
        parts.map(pair).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The value of a key.
    pub(in crate::iscsi) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// The keys with their values, in order.
    pub(in crate::iscsi) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Keys with values to send.
#[derive(Clone, Debug)]
pub(in crate::iscsi) struct TextWriter(WideWriter);

impl Default for TextWriter {
    fn default() -> Self {
        Self(WideWriter::new(0))
    }
}

impl TextWriter {
    /// Adds a key with its value.
    pub(in crate::iscsi) fn add(&mut self, key: &str, value: &str) {
        self.0.append(key).append("=").append(value).append([0]);
    }

    pub(in crate::iscsi) fn finish(mut self) -> Vec<u8> {
        self.0.finish()
    }
}
