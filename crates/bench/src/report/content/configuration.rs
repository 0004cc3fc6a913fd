//! The configuration of the run, and the commands to reproduce it.

use super::strings;
use crate::human::rate;
use crate::report::{Block, Report, Table};

pub(super) fn configuration(report: &Report) -> Vec<Block> {
    let plan = &report.plan;
    let mut rows = vec![
        vec!["suite".into(), format!("{} ({})", plan.suite.name, plan.suite.source)],
        vec!["machine".into(), plan.environment.machine.clone()],
        vec!["programs".into(), format!("{}, gabion {}", plan.environment.fio, plan.environment.gabion)],
        vec!["repeats".into(), plan.repeats.to_string()],
        vec![
            "each job".into(),
            format!("{} s, after {} s of ramp-up", plan.scaled.run_s, plan.scaled.ramp_s),
        ],
    ];
    if !plan.drives.is_empty() {
        let lab = plan.lab.as_ref();
        let what = lab.map_or(String::new(), |lab| format!(", each {} of a {}", lab.fraction, lab.model));
        rows.push(vec!["drives".into(), format!("{}{what}", plan.drives.len())]);
    }
    if let Some(known) = &report.analysis.limits {
        let limits = known.limits;
        #[allow(clippy::cast_precision_loss)]
        let text = format!(
            "reads {} and {}, writes {} and {} ({})",
            rate(limits.read_iops as f64, false),
            rate(limits.read_bps as f64, true),
            rate(limits.write_iops as f64, false),
            rate(limits.write_bps as f64, true),
            known.from
        );
        rows.push(vec!["limits of each drive".into(), text]);
    }
    if !plan.scaled.differences.is_empty() {
        rows.push(vec!["differences from the suite".into(), plan.scaled.differences.join("; ")]);
    }
    let mut blocks = vec![Block::Table(Table { columns: strings(["", ""]), rows, figures: false })];
    if !report.systems.is_empty() {
        let row = |system: &crate::run::SystemRecord| {
            let (about, guarantees) = (&system.about, &system.about.guarantees);
            let texts = [
                &system.target,
                &about.what,
                &guarantees.flush,
                &guarantees.checksums,
                &guarantees.protection,
            ];
            texts.map(Clone::clone).to_vec()
        };
        let columns = strings(["target", "description", "durability", "integrity", "redundancy"]);
        let rows = report.systems.iter().map(row).collect();
        blocks.push(Block::Table(Table { columns, rows, figures: false }));
    }
    blocks
}

pub(super) fn reproduction(report: &Report) -> Vec<Block> {
    let plan = &report.plan;
    let mut lines = Vec::new();
    if let Some(lab) = &plan.lab {
        lines.push(format!(
            "gabion lab up {} --drives {} --size {}M --model {} --fraction {}",
            lab.name,
            lab.drives.len(),
            lab.drive_bytes >> 20,
            lab.model,
            lab.fraction
        ));
    }
    lines.push(format!("gabion {}", plan.command.get(1..).unwrap_or_default().join(" ")));
    lines.push("gabion bench report RUN        # the name of the run is printed when it starts".into());
    vec![Block::Code(lines.join("\n"))]
}
