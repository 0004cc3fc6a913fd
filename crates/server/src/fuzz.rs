//! Fuzz targets for request bodies, the daemon's state file, and texts in requests.

use std::fmt::Debug;

use ::fuzz::within;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{request, state};
use api::Size;
use api::types::*;

::fuzz::target!(
    /// A valid body, parsed and serialized, parses to the same value.
    api_body,
    |bytes| {
        let [kind, json @ ..] = bytes else { return };
        let targets: [fn(&[u8]); 18] = [
            round_trip::<CreatePool>,
            round_trip::<OpenPool>,
            round_trip::<ClosePool>,
            round_trip::<AddDrive>,
            round_trip::<ReturnDrive>,
            round_trip::<IdentifyDrives>,
            round_trip::<ChangeRebuild>,
            round_trip::<ChangeScrub>,
            round_trip::<CreateVolume>,
            round_trip::<ResizeVolume>,
            round_trip::<QosLimits>,
            round_trip::<CreateSnapshot>,
            round_trip::<CloneSnapshot>,
            round_trip::<RollbackVolume>,
            round_trip::<CreateExport>,
            round_trip::<DeleteExportQuery>,
            // Responses, which the client reads from any process that listens on the socket.
            round_trip::<Vec<Volume>>,
            round_trip::<Vec<Export>>,
        ];
        targets[usize::from(*kind) % targets.len()](json);
    }
);

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(json: &[u8]) {
    let most = 128 * json.len() + (16 << 10);
    let Ok(value) = within(most, || serde_json::from_slice::<T>(json)) else { return };
    let written = serde_json::to_vec(&value).unwrap();
    assert_eq!(serde_json::from_slice::<T>(&written).unwrap(), value);
}

::fuzz::target!(
    /// A valid state file, parsed and serialized, parses to the same state.
    daemon_state,
    |bytes| {
        let parse = |bytes: &[u8]| state::parse("state.json".as_ref(), bytes);
        let most = 256 * bytes.len() + (64 << 10);
        let Ok(persistent) = within(most, || parse(bytes)) else { return };
        let written = serde_json::to_vec_pretty(&persistent).unwrap();
        assert_eq!(parse(&written).unwrap(), persistent);
    }
);

::fuzz::target!(
    /// A size is shown with a bounded rounding error; a text of a request is shown printable and
    /// short.
    api_text,
    |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Ok(size) = text.parse::<Size>() {
            let shown: Size = size.to_string().parse().unwrap();
            // Two decimals below 100 of a unit, one decimal above; sizes are whole bytes.
            assert!(shown <= size || shown.bytes() - size.bytes() < 4096, "{text}");
            assert!(size.bytes() - shown.bytes().min(size.bytes()) <= size.bytes() / 100 + 4096);
        }
        let shown = request::shown(text);
        assert!(!shown.contains(char::is_control) && shown.chars().count() <= 255 * 10);
        if let Ok(path) = request::path(text) {
            assert!(path.is_absolute() && path.as_os_str().as_encoded_bytes() == bytes);
        }
        let _ = api::columns_of_level(text, bytes.len());
    }
);
