//! A load in pods: fio in each one with the same job file; the results are merged.
//!
//! Invariants: all pods start at the same time, as far as the cluster passes the calls on; fio ends
//! with its call, also if the call is killed or its connection breaks.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::kubectl::{Input, Kubectl, KubectlError};
use crate::fio::{self, FioError};
use crate::load::{Load, LoadResult, Target};
use crate::remote_load::{PartNames, run_parts};

/// The line after the job file in the input of [`SCRIPT`].
const END_OF_JOB: &str = "; end of the job";

/// Runs the job file in its input, up to [`END_OF_JOB`], and prints the results. The rest of the
/// input has no end while the call lives: its end terminates fio, and so does the next call. The
/// watching process must not hold the output, whose end the call awaits.
pub(super) const SCRIPT: &str = r#"cd /tmp || exit 1
if fio=$(cat fio.pid 2>/dev/null); then
  for second in 1 2 3 4 5 6 7 8 9 10; do kill "$fio" 2>/dev/null || break; sleep 1; done
  kill -KILL "$fio" 2>/dev/null && sleep 1
  if kill -0 "$fio" 2>/dev/null; then echo "fio $fio of an earlier call does not end" >&2; exit 1; fi
fi
rm -f fio.pid load.json *_iops.log
while IFS= read -r line && [ "$line" != "; end of the job" ]; do printf '%s\n' "$line"; done > load.fio
[ "$line" = "; end of the job" ] || exit 1
exec 3<&0
fio --output-format=json+ --output=load.json load.fio >&2 3<&- &
fio=$!
echo "$fio" > fio.pid
{ cat <&3; kill "$fio"; } >/dev/null 2>&1 &
watch=$!
wait "$fio"
status=$?
kill "$watch" 2>/dev/null
rm -f fio.pid
[ "$status" -ne 0 ] || cat load.json
exit "$status"
"#;

/// Returns the input of [`SCRIPT`].
pub(super) fn input_of(job_file: &str) -> String {
    format!("{}\n{END_OF_JOB}\n", job_file.trim_end())
}

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

/// Runs a load on the volume of a pod.
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
    let shell = |script: &str, input: Input<'_>| {
        let arguments = ["exec", "--stdin", pod, "--", "sh", "-c", script];
        kubectl.call(&arguments, input, stop).map_err(in_pod)
    };
    let text = load.text();
    keep(".fio", text.as_bytes())?;
    let json = shell(SCRIPT, Input::Open(&input_of(&text)))?;
    let ended = Instant::now();
    keep(".json", &json)?;
    let output = fio::parse(job, &String::from_utf8_lossy(&json))?;
    let mut seconds = Vec::new();
    if let Some(log) = load.log {
        let lines = shell(&format!("cat /tmp/{log}_iops.log"), Input::Text(""))?;
        keep("_iops.log", &lines)?;
        seconds = fio::seconds(&String::from_utf8_lossy(&lines), load.length);
    }
    Ok(LoadResult { output, seconds, ended: Some(ended), ..LoadResult::default() })
}
