//! Fuzz targets: bodies of requests, the daemon's own state, and texts of requests.

use std::fmt::Debug;

use ::fuzz::within;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{request, state};
use api::Size;
use api::types::*;

::fuzz::target!(
    /// A body that is understood is written as one that means the same.
    api_body,
    |bytes| {
        let [kind, json @ ..] = bytes else { return };
        let targets: [fn(&[u8]); 18] = [
            again::<CreatePool>,
            again::<OpenPool>,
            again::<ClosePool>,
            again::<AddDrive>,
            again::<ReturnDrive>,
            again::<IdentifyDrives>,
            again::<ChangeRebuild>,
            again::<ChangeScrub>,
            again::<CreateVolume>,
            again::<ResizeVolume>,
            again::<QosLimits>,
            again::<CreateSnapshot>,
            again::<CloneSnapshot>,
            again::<RollbackVolume>,
            again::<CreateExport>,
            again::<DeleteExportQuery>,
            // Responses, which the client reads from any process that listens on the socket.
            again::<Vec<Volume>>,
            again::<Vec<Export>>,
        ];
        targets[usize::from(*kind) % targets.len()](json);
    }
);

fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(json: &[u8]) {
    let most = 128 * json.len() + (16 << 10);
    let Ok(value) = within(most, || serde_json::from_slice::<T>(json)) else { return };
    let written = serde_json::to_vec(&value).unwrap();
    assert_eq!(serde_json::from_slice::<T>(&written).unwrap(), value);
}

::fuzz::target!(
    /// State that is read is written as state that is read the same.
    daemon_state,
    |bytes| {
        let parse = |bytes: &[u8]| state::parse("state.json".as_ref(), bytes);
        let most = 256 * bytes.len() + (64 << 10);
        let Ok(remembered) = within(most, || parse(bytes)) else { return };
        let written = serde_json::to_vec_pretty(&remembered).unwrap();
        assert_eq!(parse(&written).unwrap(), remembered);
    }
);

::fuzz::target!(
    /// Sizes are shown as no more than they are; what is printed of a request is plain and short.
    api_text,
    |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Ok(size) = text.parse::<Size>() {
            let shown: Size = size.to_string().parse().unwrap();
            // Two digits behind the point below 100 of a unit, one from there on; no size is a
            // fraction.
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
