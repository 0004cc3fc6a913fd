//! Formatting of labs and drive models.

use api::Size;
use bench::lab::{DriveLimits, DriveModel, Lab};

use super::table::table;

fn rates(limits: &DriveLimits) -> [String; 4] {
    #[allow(clippy::cast_precision_loss, reason = "rounded for display")]
    let bytes = |value: u64| format!("{:.1} MB/s", value as f64 / 1e6);
    [
        limits.read_iops.to_string(),
        limits.write_iops.to_string(),
        bytes(limits.read_bps),
        bytes(limits.write_bps),
    ]
}

/// Formats labs.
pub(crate) fn labs(labs: &[Lab]) -> String {
    labs.iter().map(lab).collect::<Vec<_>>().join("\n")
}

fn lab(lab: &Lab) -> String {
    let [read_iops, write_iops, read, write] = rates(&lab.limits);
    let state = if lab.complete {
        ""
    } else {
        ", incomplete: its creation was interrupted; remove it with 'gabion lab down'"
    };
    let location = if lab.in_memory { "in memory".into() } else { format!("in {}", lab.directory.display()) };
    let devices: Vec<String> = lab.devices().iter().map(|path| path.display().to_string()).collect();
    format!(
        "lab '{}': {} drives of {}, each at {} of a {}, {location}{state}\n\
         \x20 each drive  {read_iops} reads/s, {write_iops} writes/s, {read} read, {write} written\n\
         \x20 limits      {}\n\
         \x20 drives      {}\n",
        lab.name,
        lab.drives.len(),
        Size(lab.drive_bytes),
        lab.fraction,
        lab.model,
        lab.throttle.explain(),
        devices.join(" ")
    )
}

/// Formats the drive models and the sources of their limits.
pub(crate) fn lab_models(models: &[DriveModel]) -> String {
    let row = |model: &DriveModel| {
        let [read_iops, write_iops, read, write] = rates(&model.limits);
        vec![model.name.clone(), read_iops, write_iops, read, write, model.title.clone()]
    };
    let sources: String =
        models.iter().map(|model| format!("  {}: {}\n", model.name, model.source)).collect();
    let columns = ["model", ">reads/s", ">writes/s", ">read", ">written", "title"];
    format!("{}\nSources of the limits:\n{sources}", table(&columns, models.iter().map(row)))
}
