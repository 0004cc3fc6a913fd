//! Calls that several commands share: deletion of volumes, and exports.

use anyhow::Result;
use api::VolumeName;
use api::types::{CreateExport, DeleteExportQuery, Export, Protocol};

use super::CommandContext;
use crate::progress::follow;

/// Options of an export.
pub(crate) struct ExportOptions {
    pub(crate) protocol: Protocol,
    pub(crate) read_only: bool,
    pub(crate) reactors: Vec<u32>,
}

impl CommandContext {
    /// Deletes a volume or snapshot, and waits for the end of the deletion.
    pub(crate) async fn delete_volume(&self, name: &VolumeName) -> Result<()> {
        let started = self.client.delete_volume(name).await?;
        follow(&self.client, started, self.quiet).await.map(drop)
    }

    /// Exports a volume or snapshot.
    pub(crate) async fn export(&self, name: &VolumeName, options: ExportOptions) -> Result<Export> {
        let ExportOptions { protocol, read_only, reactors } = options;
        let VolumeName { pool, volume } = name.clone();
        let request = CreateExport { read_only, reactors, ..CreateExport::new(pool, volume, protocol) };
        Ok(self.client.create_export(&request).await?)
    }

    /// Deletes an export.
    pub(crate) async fn delete_export(&self, export: &Export) -> Result<()> {
        let Export { pool, volume, id, .. } = export;
        let name = VolumeName { pool: pool.clone(), volume: volume.clone() };
        let request = DeleteExportQuery { id: Some(id.clone()), ..DeleteExportQuery::default() };
        Ok(self.client.delete_export(&name, &request).await?)
    }
}
