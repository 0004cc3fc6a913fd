//! Handlers of virtual machines with their serial consoles, of clusters, and of benchmark runs.

use std::sync::Arc;

use api::types::{BenchmarkRun, Cluster, ClusterStatus, HostMachine, Identity, MachineConsole, MachineInput};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use http_body_util::channel::{Channel, Sender as BodySender};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

use super::extract::{JsonBody, PathParameters};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::services::Services;

/// Paths of resources that are not JSON.
pub(super) const CONSOLE_OUTPUT: &str = "/v1/machines/{machine}/console/{console}/output";
pub(super) const REPORT: &str = "/v1/runs/{run}/report";
/// Reports are pages of their own, with inline styles and charts, and without scripts.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";
/// Largest input of a console in bytes.
const INPUT_MAX: usize = 4096;
/// Bytes of a console's output that are sent together.
const OUTPUT_BYTES: usize = 16 << 10;

pub(super) async fn machines(State(services): State<Arc<Services>>) -> Result<Json<Vec<HostMachine>>> {
    let host = services.host.clone();
    Ok(Json(blocking(move || host.machines()).await??))
}

pub(super) async fn clusters(State(services): State<Arc<Services>>) -> Result<Json<Vec<Cluster>>> {
    Ok(Json(services.cluster_statuses.list().await?))
}

pub(super) async fn cluster(
    State(services): State<Arc<Services>>,
    PathParameters(cluster): PathParameters<String>,
) -> Result<Json<ClusterStatus>> {
    Ok(Json(services.cluster_statuses.get(&cluster).await?))
}

pub(super) async fn runs(State(services): State<Arc<Services>>) -> Result<Json<Vec<BenchmarkRun>>> {
    let host = services.host.clone();
    Ok(Json(blocking(move || host.runs()).await??))
}

pub(super) async fn report(
    State(services): State<Arc<Services>>,
    PathParameters(run): PathParameters<String>,
) -> Result<impl IntoResponse> {
    let host = services.host.clone();
    let page = blocking(move || host.report(&run)).await??;
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, REPORT_POLICY)];
    Ok((headers, page))
}

pub(super) async fn open_console(
    State(services): State<Arc<Services>>,
    Extension(identity): Extension<Identity>,
    PathParameters(machine): PathParameters<String>,
) -> Result<(StatusCode, Json<MachineConsole>)> {
    let host = services.host.clone();
    let socket = blocking(move || host.console(&machine)).await??;
    let console = services.consoles.open(&socket, &identity.name).await?;
    Ok((StatusCode::CREATED, Json(MachineConsole { console })))
}

pub(super) async fn console_input(
    State(services): State<Arc<Services>>,
    Extension(identity): Extension<Identity>,
    PathParameters((_, console)): PathParameters<(String, u64)>,
    JsonBody(input): JsonBody<MachineInput>,
) -> Result<StatusCode> {
    if input.data.len() > INPUT_MAX {
        return Err(Error::new(ErrorKind::Invalid, format!("the input is longer than {INPUT_MAX} bytes")));
    }
    services.consoles.send(console, &identity.name, input.data.as_bytes()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends the output of a console as server-sent events, whose data are JSON strings.
pub(super) async fn console_output(
    State(services): State<Arc<Services>>,
    Extension(identity): Extension<Identity>,
    PathParameters((_, console)): PathParameters<(String, u64)>,
) -> Result<impl IntoResponse> {
    let output = services.consoles.take_output(console, &identity.name)?;
    let (sender, channel) = Channel::<Bytes>::new(1);
    let inside = services.clone();
    tokio::spawn(async move {
        let _ = send(output, sender, &inside).await;
        inside.consoles.close(console);
    });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(channel)))
}

/// Sends output until the machine, the client or the daemon ends.
async fn send(
    mut output: OwnedReadHalf,
    mut sender: BodySender<Bytes>,
    services: &Services,
) -> std::io::Result<()> {
    let mut snapshots = services.live.subscribe().map_err(std::io::Error::other)?;
    let gone = |_| std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let mut read = vec![0; OUTPUT_BYTES];
    let mut pending = Vec::new();
    sender.send_data(Bytes::from_static(b":\n\n")).await.map_err(gone)?;
    loop {
        let event = tokio::select! {
            length = output.read(&mut read) => match length? {
                0 => break,
                length => {
                    pending.extend_from_slice(read.get(..length).unwrap_or_default());
                    format!("data: {}\n\n", serde_json::Value::from(take_text(&mut pending)))
                }
            },
            // Each snapshot of the live status is the occasion to look for the client. There are no
            // more when the daemon shuts down.
            changed = snapshots.changed() => match changed {
                Ok(()) => ":\n\n".to_owned(),
                Err(_) => break,
            },
        };
        sender.send_data(event.into()).await.map_err(gone)?;
    }
    sender.send_data(Bytes::from_static(b"event: end\ndata:\n\n")).await.map_err(gone)
}

/// Takes the text from the front of `bytes`. An incomplete character at the end stays.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let complete = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let rest = bytes.split_off(complete);
    String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_split() {
        let mut bytes = "aé".as_bytes()[..2].to_vec();
        assert_eq!(take_text(&mut bytes), "a");
        bytes.push(0xa9);
        assert_eq!(take_text(&mut bytes), "é");
        bytes.extend([b'x', 0xff, b'y']);
        assert_eq!((take_text(&mut bytes).as_str(), bytes.len()), ("x\u{fffd}y", 0));
    }
}
