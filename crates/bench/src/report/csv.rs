//! The figures of a run as CSV (RFC 4180): one line per measurement and direction.

use super::Report;

const COLUMNS: &str = "target,job,repeat,instances,block_bytes,depth,threads,degraded,direction,iops,bytes_per_s,mean_us,\
p50_us,p99_us,p99_95_us,p99_999_us,cpu_busy,cpus,disturbed,state,missing";

/// Returns all lines, starting with the header.
pub(super) fn lines(report: &Report) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for one in &report.results {
        let job = &one.case.job;
        let head = format!(
            "{},{},{},{},{},{},{},{}",
            field(&one.target),
            field(&one.case.name),
            one.repeat,
            one.case.instances,
            job.block_bytes,
            job.depth,
            job.threads,
            job.degraded
        );
        let seen = &one.observation;
        let state = one.state.as_deref().unwrap_or_default();
        let disturbed = seen.disturbed.join("; ");
        let tail = format!("{:.3},{},{},{}", seen.cpu_busy, seen.cpus, field(&disturbed), field(state));
        let Some(all) = &one.all else {
            let why = one.missing.as_ref().map_or("", |why| match why {
                crate::run::Missing::Failed(why) | crate::run::Missing::LeftOut(why) => why.as_str(),
            });
            text.push_str(&format!("{head},,,,,,,,,{tail},{}\r\n", field(why)));
            continue;
        };
        for (direction, name) in [(&all.read, "read"), (&all.write, "write")] {
            let Some(side) = direction.as_ref().map(crate::Direction::figures) else { continue };
            let figures = [
                side.iops,
                side.bytes_per_s,
                side.mean_us,
                side.p50_us,
                side.p99_us,
                side.p9995_us,
                side.p99999_us,
            ];
            let figures = figures.map(|figure| format!("{figure:.3}")).join(",");
            text.push_str(&format!("{head},{name},{figures},{tail},\r\n"));
        }
    }
    text
}

fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}
