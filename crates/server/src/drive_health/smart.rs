//! SMART data of a drive, read with smartmontools' `smartctl`.
//!
//! Invariant: if `smartctl` is missing, does not end in time or reports nothing, the drive has no
//! report. A drive in standby is not woken.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use api::types::SmartReport;
use serde_json::Value;

/// The program, searched for in `PATH` and in [`SYSTEM_PATH`].
const PROGRAM: &str = "smartctl";
/// Directories of system programs, which may be missing from the PATH of a service.
const SYSTEM_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// Limit of one call. A drive answers within some milliseconds, or within seconds while it is
/// recovering from errors.
const LIMIT: Duration = Duration::from_secs(30);

/// Names of ATA attributes whose normalized value is the remaining endurance in percent.
const ENDURANCE_LEFT: [&str; 5] = [
    "Media_Wearout_Indicator",
    "Wear_Leveling_Count",
    "SSD_Life_Left",
    "Percent_Lifetime_Remain",
    "Remaining_Lifetime_Perc",
];
/// Identifiers of the ATA attributes that count errors of the medium, the most exact one first:
/// reported uncorrectable errors, and sectors that could not be read in a scan of the drive.
const UNCORRECTABLE: [u64; 2] = [187, 198];

/// The program `smartctl`.
pub(crate) struct Smartctl {
    pub(super) program: OsString,
    pub(super) limit: Duration,
}

impl Default for Smartctl {
    fn default() -> Self {
        Self { program: PROGRAM.into(), limit: LIMIT }
    }
}

impl Smartctl {
    #[cfg(test)]
    pub(super) fn new(program: impl Into<OsString>, limit: Duration) -> Self {
        Self { program: program.into(), limit }
    }

    /// Reads the report of a drive.
    pub(crate) async fn read(&self, drive: &Path) -> Option<SmartReport> {
        let path = match std::env::var("PATH") {
            Ok(path) => format!("{path}:{SYSTEM_PATH}"),
            Err(_) => SYSTEM_PATH.into(),
        };
        let mut command = tokio::process::Command::new(&self.program);
        command.args(["--json", "--info", "--health", "--attributes", "--nocheck=standby"]).arg(drive);
        command.env("PATH", path).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        match tokio::time::timeout(self.limit, command.output()).await {
            Ok(Ok(output)) => report(&output.stdout, crate::unix_time::unix_time()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot run smartctl: drives have no SMART data");
                None
            }
            Err(_) => {
                let (drive, limit) = (drive.display(), self.limit);
                tracing::warn!(%drive, "smartctl did not end within {limit:?} and was killed");
                None
            }
        }
    }
}

/// Returns the report in the output of `smartctl`. Its exit status also tells of old errors, so the
/// output alone counts.
pub(super) fn report(output: &[u8], time: u64) -> Option<SmartReport> {
    let output: Value = serde_json::from_slice(output).ok()?;
    let number = |pointer: &str| output.pointer(pointer).and_then(Value::as_u64);
    let text = |pointer: &str| output.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let nvme = |field: &str| number(&format!("/nvme_smart_health_information_log/{field}"));
    let report = SmartReport {
        time,
        passed: output.pointer("/smart_status/passed").and_then(Value::as_bool),
        wear_percent: nvme("percentage_used")
            .or_else(|| number("/endurance_used/current_percent"))
            .or_else(|| number("/scsi_percentage_used_endurance_indicator"))
            .or_else(|| ata_wear(&output)),
        temperature: output.pointer("/temperature/current").and_then(Value::as_i64),
        media_errors: nvme("media_errors").or_else(|| ata_errors(&output)).or_else(|| scsi_errors(&output)),
        power_on_hours: number("/power_on_time/hours"),
        model: text("/model_name").or_else(|| text("/scsi_model_name")),
        serial: text("/serial_number"),
    };
    let has_data = report.passed.is_some()
        || report.wear_percent.is_some()
        || report.temperature.is_some()
        || report.media_errors.is_some()
        || report.power_on_hours.is_some();
    has_data.then_some(report)
}

fn ata_attributes(output: &Value) -> impl Iterator<Item = &Value> {
    output.pointer("/ata_smart_attributes/table").and_then(Value::as_array).into_iter().flatten()
}

fn ata_wear(output: &Value) -> Option<u64> {
    let is_wear = |attribute: &&Value| {
        attribute.get("name").and_then(Value::as_str).is_some_and(|name| ENDURANCE_LEFT.contains(&name))
    };
    let left = ata_attributes(output).find(is_wear)?.get("value")?.as_u64()?;
    // Drives with a normalized value above 100 count from another start.
    (left <= 100).then(|| 100 - left)
}

fn ata_errors(output: &Value) -> Option<u64> {
    let raw = |id: u64| {
        let has_id = |attribute: &&Value| attribute.get("id").and_then(Value::as_u64) == Some(id);
        ata_attributes(output).find(has_id)?.pointer("/raw/value")?.as_u64()
    };
    UNCORRECTABLE.into_iter().find_map(raw)
}

fn scsi_errors(output: &Value) -> Option<u64> {
    let log = output.get("scsi_error_counter_log")?.as_object()?;
    Some(log.values().filter_map(|counters| counters.get("total_uncorrected_errors")?.as_u64()).sum())
}
