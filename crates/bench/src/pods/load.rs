//! A load in pods: fio in each one with the same job file; the results are merged.
//!
//! Invariant: all pods start at the same time, as far as the cluster passes the calls on.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::kubectl::{Kubectl, KubectlError};
use crate::fio::{self, FioError};
use crate::load::{Load, LoadResult, Target};
use crate::remote_load::{PartNames, run_parts};

/// Runs a load on the volumes of pods. Its files are written to `folder` with the prefix `name`,
/// followed by the pod's number if there are several.
pub(crate) fn run_loads(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<LoadResult, FioError> {
    let host = |target: &Target| match target {
        Target::Pod { kubectl, pod, .. } => Some((kubectl.clone(), pod.clone())),
        _ => None,
    };
    run_parts(
        load,
        PartNames { prefix: name, host: "pod", hosts: "pods" },
        host,
        |load, (kubectl, pod), name| run_load(load, (kubectl, pod), folder, name, stop),
    )
}

/// Runs a load on the volume of a pod. The job file is the input of fio's shell, and the results
/// are its output.
fn run_load(
    load: &Load<'_>,
    (kubectl, pod): (&Kubectl, &str),
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<LoadResult, FioError> {
    let job = &load.job.name;
    let in_pod = |error: KubectlError| match error {
        KubectlError::Interrupted => FioError::Interrupted,
        KubectlError::Failed { message, .. } => {
            FioError::Failed { job: job.clone(), message: fio::first_error_lines(&message) }
        }
        error => FioError::Failed { job: job.clone(), message: error.to_string() },
    };
    let keep = |ending: &str, bytes: &[u8]| {
        let path = folder.join(format!("{name}{ending}"));
        std::fs::write(&path, bytes).map_err(|source| FioError::File { path, source })
    };
    let shell = |script: &str, input: &str| {
        let arguments = ["exec", "--stdin", pod, "--", "sh", "-c", script];
        kubectl.call(&arguments, input, stop).map_err(in_pod)
    };
    let text = load.text();
    keep(".fio", text.as_bytes())?;
    let script = "cd /tmp && rm -f *_iops.log && cat > load.fio && \
                  fio --output-format=json+ --output=load.json load.fio >&2 && cat load.json";
    let json = shell(script, &text)?;
    let ended = Instant::now();
    keep(".json", &json)?;
    let output = fio::parse(job, &String::from_utf8_lossy(&json))?;
    let mut seconds = Vec::new();
    if let Some(log) = load.log {
        let lines = shell(&format!("cat /tmp/{log}_iops.log"), "")?;
        keep("_iops.log", &lines)?;
        seconds = fio::seconds(&String::from_utf8_lossy(&lines), load.length);
    }
    Ok(LoadResult { output, seconds, ended: Some(ended), ..LoadResult::default() })
}
