//! Translates a job of a suite into a fio job file.

use std::path::Path;

use crate::load::{Length, Load, Slice, Target};
use crate::suite::Engine;

/// Percentiles that fio prints. The results use percentiles of merged counts instead.
const PERCENTILES: &str = "50:99:99.95:99.999";

impl Load<'_> {
    /// Returns the text of the job file.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("[global]\n{}", self.global());
        for (index, slice) in self.slices.iter().enumerate() {
            text.push_str(&format!("\n[{index}]\nnew_group=1\n{}", self.section(slice)));
        }
        text
    }

    fn global(&self) -> String {
        let job = self.job;
        let direction = match (job.random, job.read_percent) {
            (true, 100) => "randread",
            (true, 0) => "randwrite",
            (true, _) => "randrw",
            (false, 100) => "read",
            (false, 0) => "write",
            (false, _) => "rw",
        };
        let mut lines = vec![
            "thread=1".to_owned(),
            "group_reporting=1".into(),
            // Of whole operations: a submission that blocks, as to a FUSE file, counts.
            "lat_percentiles=1\nclat_percentiles=0".into(),
            format!("percentile_list={PERCENTILES}"),
            format!("rw={direction}"),
        ];
        if job.is_mixed() {
            lines.push(format!("rwmixread={}", job.read_percent));
        }
        lines.push(format!("bs={}\niodepth={}\nnumjobs={}", job.block_bytes, job.depth, job.threads));
        if job.random {
            lines.push("norandommap=1".into());
        }
        if job.lfsr {
            lines.push("random_generator=lfsr".into());
        }
        if job.refill {
            lines.push("refill_buffers=1".into());
        }
        if let Length::Seconds { ramp, run } = self.length {
            lines.push(format!("time_based=1\nramp_time={ramp}\nruntime={run}"));
            if let Some(latency) = job.latency {
                lines.push(format!(
                    "latency_target={}us\nlatency_window={}us\nlatency_percentile={}",
                    micros(latency.target_ms / 1e3),
                    micros(latency.window_s),
                    latency.percentile
                ));
            }
        }
        if let Some(log) = self.log {
            lines.push(format!("write_iops_log={log}\nper_job_logs=0\nlog_avg_msec=1000"));
        }
        lines.join("\n") + "\n"
    }

    /// Returns the options for accessing an existing file or device. If it has disappeared, fio
    /// must not fill a new file in its place: that would be one in `/dev`, or below a mount point.
    fn existing(&self, path: &Path) -> Vec<String> {
        let mut lines = self.file(path);
        lines.push("allow_file_create=0".into());
        lines
    }

    /// Returns the options for accessing a file or device. fio creates the file if it is missing.
    fn file(&self, path: &Path) -> Vec<String> {
        let job = self.job;
        let engine = match job.engine {
            Engine::IoUring => "io_uring",
            Engine::Libaio => "libaio",
        };
        // In fio, an unescaped colon separates file names.
        let name = path.display().to_string().replace(':', "\\:");
        let mut lines = vec![format!("ioengine={engine}"), format!("filename={name}"), "direct=1".into()];
        if job.engine == Engine::IoUring {
            let options = [
                ("hipri=1", job.polled && can_poll(path)),
                ("fixedbufs=1", job.fixed_buffers),
                ("registerfiles=1", job.registered_files),
            ];
            lines.extend(options.iter().filter(|option| option.1).map(|option| option.0.to_owned()));
        }
        lines
    }

    fn section(&self, slice: &Slice) -> String {
        let job = self.job;
        let mut lines = match &slice.target {
            Target::Nbd(uri) => vec!["ioengine=nbd".to_owned(), format!("uri={uri}")],
            Target::Machine { device, .. } => self.existing(Path::new(device)),
            Target::Pod { file, .. } => self.file(Path::new(file)),
            // fio has no engines for vhost-user, S3 and RADOS; it reports the error.
            Target::File(path) | Target::Vhost(path) => self.existing(path),
            Target::S3(endpoint) => self.existing(Path::new(&endpoint.url)),
            Target::Rados(rados) => self.existing(Path::new(&rados.pool)),
        };
        lines.push(format!("offset={}\nsize={}", slice.offset, slice.bytes));
        if let Some((step, rest)) = slice.thread_offsets(job) {
            lines.push(format!("offset_increment={step}"));
            if let Some(size) = lines.iter_mut().find(|line| line.starts_with("offset=")) {
                *size = format!("offset={}\nsize={rest}", slice.offset);
            }
        }
        lines.join("\n") + "\n"
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round().max(1.0) as u64
}

/// True if the device supports polled completions; polling any other device fails.
fn can_poll(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let file = Path::new("/sys/block").join(name).join("queue/io_poll");
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}
