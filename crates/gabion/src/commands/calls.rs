//! What several commands ask the daemon for: volumes, and their exports.

use anyhow::Result;
use api::types::{CreateExport, CreateVolume, Export, Operation, Protocol, Volume};
use api::{Error, ErrorKind};

use super::Setting;
use super::volume::path_of;
use api::VolumeName;
use crate::client::segment;
use crate::progress::follow;

/// How a volume is served.
pub(crate) struct Manner {
    pub(crate) protocol: Protocol,
    pub(crate) read_only: bool,
    pub(crate) reactors: Vec<u32>,
}

impl Setting {
    /// A volume, if there is one.
    pub(crate) async fn volume(&self, name: &VolumeName) -> Result<Option<Volume>> {
        let path = path_of(name);
        let found: Result<Volume> = self.client.get(&path).await;
        match found {
            Ok(volume) => Ok(Some(volume)),
            Err(error) => match error.downcast_ref::<Error>() {
                Some(known)
                    if known.kind() == ErrorKind::NotFound && known.to_string().contains("no volume") =>
                {
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    /// Makes a volume, all zeros.
    pub(crate) async fn create_volume(&self, pool: &str, request: &CreateVolume) -> Result<Volume> {
        self.client.post(&format!("/v1/pools/{}/volumes", segment(pool)), request).await
    }

    /// Deletes a volume or snapshot, and waits for that.
    pub(crate) async fn delete_volume(&self, name: &VolumeName) -> Result<()> {
        let path = path_of(name);
        let started: Operation = self.client.delete(&path).await?;
        follow(&self.client, started, self.quiet).await.map(drop)
    }

    /// Has a volume or snapshot served.
    pub(crate) async fn export(&self, name: &VolumeName, manner: Manner) -> Result<Export> {
        let Manner { protocol, read_only, reactors } = manner;
        let VolumeName { pool, volume } = name.clone();
        let request = CreateExport { pool, volume, protocol, read_only, queues: None, reactors };
        self.client.post("/v1/exports", &request).await
    }

    /// All exports.
    pub(crate) async fn exports(&self) -> Result<Vec<Export>> {
        self.client.get("/v1/exports").await
    }

    /// Ends an export.
    pub(crate) async fn end_export(&self, name: &VolumeName) -> Result<()> {
        let path = format!("/v1/exports/{}/{}", segment(&name.pool), segment(&name.volume));
        let _nothing: Option<()> = self.client.delete(&path).await?;
        Ok(())
    }
}
