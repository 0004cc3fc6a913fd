//! The parameters of a session, and their negotiation (RFC 7143, section 13).
//!
//! Pure: an offer and the target's own limits determine the result and the answer.

use super::limits::{BURST_MAX, FIRST_BURST_MAX, LENGTH_MIN, SEGMENT_MAX};
use super::wire::{IscsiDigests, TextWriter};

/// The parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionParameters {
    pub(super) digests: IscsiDigests,
    /// Data beyond that of the command is sent on request only.
    pub(super) initial_r2t: bool,
    /// Commands may carry data.
    pub(super) immediate_data: bool,
    /// The most bytes of data of one message that the initiator receives.
    pub(super) segment_max: u32,
    /// The most bytes of data of one sequence.
    pub(super) burst_max: u32,
    /// The most bytes of data of a command that are sent without a request.
    pub(super) first_burst_max: u32,
}

impl Default for SessionParameters {
    /// The values before any negotiation.
    fn default() -> Self {
        Self {
            digests: IscsiDigests::default(),
            initial_r2t: true,
            immediate_data: true,
            segment_max: 8192,
            burst_max: 262_144,
            first_burst_max: 65_536,
        }
    }
}

/// A key whose value the target does not accept.
const REJECT: &str = "Reject";

impl SessionParameters {
    /// Takes an offer and adds the answer. `unsolicited`: the target can receive data that it has
    /// not requested. Returns false for a key that is not negotiated here.
    pub(super) fn negotiate(
        &mut self,
        key: &str,
        value: &str,
        unsolicited: bool,
        answer: &mut TextWriter,
    ) -> bool {
        match key {
            "HeaderDigest" => answer.add(key, digest(value, &mut self.digests.header)),
            "DataDigest" => answer.add(key, digest(value, &mut self.digests.data)),
            "InitialR2T" => answer.add(key, either(value, !unsolicited, &mut self.initial_r2t)),
            "ImmediateData" => answer.add(key, both(value, &mut self.immediate_data)),
            // Declared, not negotiated.
            "MaxRecvDataSegmentLength" => match number(value, LENGTH_MIN, (1 << 24) - 1) {
                Some(length) => self.segment_max = length.min(SEGMENT_MAX),
                None => answer.add(key, REJECT),
            },
            "MaxBurstLength" => answer.add(key, &smaller(value, BURST_MAX, &mut self.burst_max)),
            "FirstBurstLength" => {
                answer.add(key, &smaller(value, FIRST_BURST_MAX, &mut self.first_burst_max));
            }
            "MaxConnections" | "MaxOutstandingR2T" => answer.add(key, fixed(value, 1..=65_535, "1")),
            "ErrorRecoveryLevel" => answer.add(key, fixed(value, 0..=2, "0")),
            "DefaultTime2Wait" => match number(value, 0, 3600) {
                Some(seconds) => answer.add(key, &seconds.max(2).to_string()),
                None => answer.add(key, REJECT),
            },
            "DefaultTime2Retain" => answer.add(key, fixed(value, 0..=3600, "0")),
            "DataPDUInOrder" | "DataSequenceInOrder" => {
                answer.add(key, if is_boolean(value) { "Yes" } else { REJECT });
            }
            "IFMarker" | "OFMarker" => answer.add(key, if is_boolean(value) { "No" } else { REJECT }),
            _ => return false,
        }
        true
    }

    /// Makes the values consistent after the negotiation.
    pub(super) fn finish(&mut self) {
        self.first_burst_max = self.first_burst_max.min(self.burst_max).min(FIRST_BURST_MAX);
    }
}

fn is_boolean(value: &str) -> bool {
    matches!(value, "Yes" | "No")
}

/// The first supported digest of a list.
fn digest(value: &str, result: &mut bool) -> &'static str {
    match value.split(',').find(|name| matches!(*name, "None" | "CRC32C")) {
        Some("CRC32C") => {
            *result = true;
            "CRC32C"
        }
        Some(_) => {
            *result = false;
            "None"
        }
        None => REJECT,
    }
}

fn either(value: &str, own: bool, result: &mut bool) -> &'static str {
    if !is_boolean(value) {
        return REJECT;
    }
    *result = own || value == "Yes";
    if *result { "Yes" } else { "No" }
}

fn both(value: &str, result: &mut bool) -> &'static str {
    if !is_boolean(value) {
        return REJECT;
    }
    *result = value == "Yes";
    if *result { "Yes" } else { "No" }
}

/// A decimal or hexadecimal number within a range.
fn number(value: &str, min: u32, max: u32) -> Option<u32> {
    let parsed = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => value.parse(),
    };
    parsed.ok().filter(|number| (min..=max).contains(number))
}

fn smaller(value: &str, own: u32, result: &mut u32) -> String {
    let Some(offered) = number(value, LENGTH_MIN, (1 << 24) - 1) else { return REJECT.to_owned() };
    *result = offered.min(own);
    result.to_string()
}

fn fixed(value: &str, range: std::ops::RangeInclusive<u32>, own: &'static str) -> &'static str {
    if number(value, *range.start(), *range.end()).is_some() { own } else { REJECT }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::TextPairs;
    use super::*;

    fn negotiate(key: &str, value: &str, unsolicited: bool) -> (SessionParameters, Option<String>) {
        let (mut parameters, mut answer) = (SessionParameters::default(), TextWriter::default());
        assert!(parameters.negotiate(key, value, unsolicited, &mut answer));
        parameters.finish();
        let answer = TextPairs::decode(&answer.finish()).unwrap();
        (parameters, answer.get(key).map(str::to_owned))
    }

    #[test]
    fn keys_have_the_results_of_the_specification() {
        for (key, value, expected) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("HeaderDigest", "None,CRC32C", "None"),
            ("DataDigest", "X-hash,CRC32C", "CRC32C"),
            ("DataDigest", "X-hash", "Reject"),
            ("InitialR2T", "No", "No"),
            ("InitialR2T", "Yes", "Yes"),
            ("InitialR2T", "Perhaps", "Reject"),
            ("ImmediateData", "No", "No"),
            ("MaxBurstLength", "16776192", "1048576"),
            ("MaxBurstLength", "0x1000", "4096"),
            ("MaxBurstLength", "511", "Reject"),
            ("FirstBurstLength", "262144", "65536"),
            ("MaxConnections", "8", "1"),
            ("MaxOutstandingR2T", "16", "1"),
            ("MaxOutstandingR2T", "0", "Reject"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("ErrorRecoveryLevel", "3", "Reject"),
            ("DefaultTime2Wait", "0", "2"),
            ("DefaultTime2Wait", "20", "20"),
            ("DefaultTime2Retain", "20", "0"),
            ("DataPDUInOrder", "No", "Yes"),
            ("OFMarker", "Yes", "No"),
            ("MaxRecvDataSegmentLength", "none", "Reject"),
        ] {
            assert_eq!(negotiate(key, value, true).1.as_deref(), Some(expected), "{key}={value}");
        }
        assert_eq!(negotiate("InitialR2T", "No", false).1.as_deref(), Some("Yes"));
        let (parameters, answer) = negotiate("MaxRecvDataSegmentLength", "4096", true);
        assert_eq!((parameters.segment_max, answer), (4096, None));
        let mut answer = TextWriter::default();
        assert!(!SessionParameters::default().negotiate("X-unknown", "1", true, &mut answer));
    }

    proptest! {
        #[test]
        fn any_offer_leaves_usable_parameters(
            offers in prop::collection::vec((
                prop::sample::select(vec![
                    "HeaderDigest", "DataDigest", "InitialR2T", "ImmediateData", "MaxRecvDataSegmentLength",
                    "MaxBurstLength", "FirstBurstLength", "MaxConnections", "ErrorRecoveryLevel",
                ]),
                "[0-9]{0,9}|Yes|No|[ -~]{0,12}",
            ), 0..20),
        ) {
            let mut parameters = SessionParameters::default();
            for (key, value) in offers {
                parameters.negotiate(key, &value, true, &mut TextWriter::default());
            }
            parameters.finish();
            prop_assert!((LENGTH_MIN..=SEGMENT_MAX).contains(&parameters.segment_max));
            prop_assert!((LENGTH_MIN..=BURST_MAX).contains(&parameters.burst_max));
            prop_assert!((LENGTH_MIN..=parameters.burst_max).contains(&parameters.first_burst_max));
        }
    }
}
