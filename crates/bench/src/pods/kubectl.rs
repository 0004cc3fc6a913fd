//! Calls of the program `kubectl`.
//!
//! Always true: the program is in a process group of its own, so that Ctrl-C reaches only this
//! process, which interrupts calls and then cleans up.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::objects::{LABEL, PodPlan};

/// Time limit for the start of all pods: their volumes are made, and their image is pulled.
const START_TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for the removal of the objects of a kind.
const DELETE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit for a call to remove objects, which asks the cluster before it waits.
const DELETE_CALL_TIMEOUT: Duration = Duration::from_secs(360);
/// Pause between two polls of the pods.
const PODS_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The program `kubectl`, and the place in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubectl {
    /// The program.
    pub program: PathBuf,
    /// The context of the cluster; `None` for the current one.
    pub context: Option<String>,
    /// The namespace.
    pub namespace: String,
}

/// A call of `kubectl` that failed.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The cluster or a pod refused the call.
    #[error("kubectl {call}: {message}")]
    Failed {
        /// The subcommand.
        call: String,
        /// The messages of the program.
        message: String,
    },
    /// A pod does not start.
    #[error("{ready} of {wanted} pods are ready; {reason}")]
    NotReady {
        /// Number of ready pods.
        ready: usize,
        /// Number of pods of the run.
        wanted: usize,
        /// The state of a pod that is not ready.
        reason: String,
    },
    /// A call does not end.
    #[error("kubectl {call}: the cluster did not answer within {seconds} s")]
    Timeout {
        /// The subcommand.
        call: String,
        /// The time limit.
        seconds: u64,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// The standard input of a call.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// A text, and then the end of the input.
    Text(&'a str),
    /// A text, and no end of the input before the call ends: a broken call ends it.
    Open(&'a str),
}

impl Kubectl {
    /// Executes a subcommand. Returns its output.
    ///
    /// # Errors
    /// If it fails, or `stop` is set.
    pub(super) fn call(
        &self,
        arguments: &[&str],
        input: Input<'_>,
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, KubectlError> {
        self.call_within(arguments, input, (stop, Duration::MAX))
    }

    /// Like [`Self::call`], with a time limit.
    fn call_within(
        &self,
        arguments: &[&str],
        input: Input<'_>,
        (stop, timeout): (&AtomicBool, Duration),
    ) -> Result<Vec<u8>, KubectlError> {
        let failed = |source| KubectlError::Start { program: self.program.display().to_string(), source };
        let mut command = Command::new(&self.program);
        if let Some(context) = &self.context {
            command.arg(format!("--context={context}"));
        }
        command.arg(format!("--namespace={}", self.namespace)).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let (ending, output, errors) = std::thread::scope(|scope| {
            let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let written = scope.spawn(move || write_all(stdin, input));
            let output = scope.spawn(move || read_all(stdout));
            let errors = scope.spawn(move || read_all(stderr));
            let ending = wait(&mut child, stop, timeout);
            drop(written.join());
            (ending, output.join().unwrap_or_default(), errors.join().unwrap_or_default())
        });
        let call = arguments.first().copied().unwrap_or_default().to_owned();
        let status = match ending.map_err(failed)? {
            Ending::Exit(status) => status,
            Ending::Interrupted => return Err(KubectlError::Interrupted),
            Ending::Timeout => return Err(KubectlError::Timeout { call, seconds: timeout.as_secs() }),
        };
        if status.success() {
            return Ok(output);
        }
        let message = String::from_utf8_lossy(&errors).trim().to_owned();
        let message = if message.is_empty() { format!("it ended with {status}") } else { message };
        Err(KubectlError::Failed { call, message })
    }

    /// Creates the volumes and pods of a plan, and waits until all pods run. Returns the names of
    /// the pods, in the order of their instances.
    ///
    /// # Errors
    /// If the cluster refuses an object, a pod does not start, or `stop` is set. Objects that were
    /// created remain.
    pub fn create(&self, plan: &PodPlan, stop: &AtomicBool) -> Result<Vec<String>, KubectlError> {
        self.call(&["create", "--filename=-"], Input::Text(&plan.manifest().to_string()), stop)?;
        let wanted = usize::try_from(plan.instances).unwrap_or(usize::MAX);
        let selector = format!("--selector={LABEL}={}", plan.run);
        let started = Instant::now();
        loop {
            let text = self.call(&["get", "pods", &selector, "--output=json"], Input::Text(""), stop)?;
            let list: Value = serde_json::from_slice(&text).unwrap_or_default();
            let pods = list.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let ready: Vec<(u32, String)> = pods.iter().filter_map(ready_pod).collect();
            if ready.len() == wanted {
                return Ok(in_order(ready));
            }
            let failed = pods.iter().any(|pod| phase(pod) == "Failed" || has_no_image(pod));
            if failed || started.elapsed() > START_TIMEOUT {
                let reason = pods.iter().find_map(waiting_reason).unwrap_or("no pod is scheduled".into());
                return Err(KubectlError::NotReady { ready: ready.len(), wanted, reason });
            }
            std::thread::sleep(PODS_POLL_INTERVAL);
        }
    }

    /// Deletes all objects of a run, and waits until the cluster has removed them.
    ///
    /// # Errors
    /// The first failure, if the cluster refuses or does not remove them in time.
    pub fn delete(&self, run: &str) -> Result<(), KubectlError> {
        let selector = format!("--selector={LABEL}={run}");
        let timeout = format!("--timeout={}s", DELETE_TIMEOUT.as_secs());
        let never = AtomicBool::new(false);
        let delete = |kind: &str| {
            let arguments = ["delete", kind, &selector, "--cascade=foreground", "--wait=true", &timeout];
            self.call_within(&arguments, Input::Text(""), (&never, DELETE_CALL_TIMEOUT)).map(drop)
        };
        // Claims are deleted after a failure too: the cluster keeps them until their pods end.
        let [jobs, claims] = ["jobs", "persistentvolumeclaims"].map(delete);
        jobs.and(claims)
    }
}

/// Writes the input. Returns it if it must stay open.
fn write_all(stdin: Option<ChildStdin>, input: Input<'_>) -> Option<ChildStdin> {
    let (Input::Text(text) | Input::Open(text)) = input;
    let mut stdin = stdin?;
    // A program that ends early does not read all of its input.
    let _ = stdin.write_all(text.as_bytes());
    matches!(input, Input::Open(_)).then_some(stdin)
}

fn read_all(source: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The status of the program reports the failure.
    let _ = source.map(|mut source| source.read_to_end(&mut bytes));
    bytes
}

/// The end of a call.
enum Ending {
    Exit(ExitStatus),
    Interrupted,
    Timeout,
}

/// Waits for the end of a process; ends it when `stop` is set or `timeout` passes.
fn wait(child: &mut Child, stop: &AtomicBool, timeout: Duration) -> std::io::Result<Ending> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ending::Exit(status));
        }
        let is_interrupted = stop.load(Ordering::Relaxed);
        if is_interrupted || started.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Ok(if is_interrupted { Ending::Interrupted } else { Ending::Timeout });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the instance and the name of a pod that is ready.
fn ready_pod(pod: &Value) -> Option<(u32, String)> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    let is_ready = |condition: &Value| {
        condition.get("type").is_some_and(|kind| kind == "Ready")
            && condition.get("status").is_some_and(|status| status == "True")
    };
    let labels = pod.pointer("/metadata/labels")?;
    let instance = labels.get(super::objects::INSTANCE)?.as_str()?.parse().ok()?;
    let name = pod.pointer("/metadata/name")?.as_str()?.to_owned();
    conditions.iter().any(is_ready).then_some((instance, name))
}

fn in_order(mut pods: Vec<(u32, String)>) -> Vec<String> {
    pods.sort_unstable();
    pods.into_iter().map(|(_, name)| name).collect()
}

/// Returns true if the cluster cannot get the image of a pod, which it tries without end.
fn has_no_image(pod: &Value) -> bool {
    let reason = pod.pointer("/status/containerStatuses/0/state/waiting/reason").and_then(Value::as_str);
    matches!(reason, Some("ImagePullBackOff" | "InvalidImageName"))
}

/// Returns the reason why a pod is not ready; `None` if it is.
fn waiting_reason(pod: &Value) -> Option<String> {
    if ready_pod(pod).is_some() {
        return None;
    }
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("a pod");
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let of_condition = conditions.into_iter().flatten().find_map(|one| one.get("message")?.as_str());
    let reason = text("/status/containerStatuses/0/state/waiting/message")
        .or(text("/status/containerStatuses/0/state/waiting/reason"))
        .or(text("/status/containerStatuses/0/state/terminated/reason"))
        .or(of_condition)
        .unwrap_or(phase(pod));
    Some(format!("{name}: {reason}"))
}
