//! Thick volumes: their full size is reserved and unavailable to other volumes.
//!
//! Reservations are counted by layer, for the layer that a volume writes to: writes do not replace
//! blocks of ancestor layers, which belong to snapshots. After a snapshot, a thick volume therefore
//! needs a new reservation of its full size.

use std::rc::Rc;

use format::limits::BLOCK;
use format::{LayerId, VolumeKind, VolumeRecord};
use futures_util::future::LocalBoxFuture;

use super::{Catalogue, Pool};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Shard;

impl Catalogue {
    /// Sets the reservation of a volume on its shards; zero for a thin volume.
    pub(super) async fn reserve(&self, record: &VolumeRecord) -> Result<()> {
        let slices = self.slices(record);
        let blocks = if record.reserves_space() { record.size.div_ceil(BLOCK as u64) } else { 0 };
        for (index, shard) in self.shards.iter().enumerate() {
            let (layer, share) = (record.layer, slices.local_bound(index, blocks));
            shard.call(move |shard: Rc<Shard>| async move { shard.reserve_layer(layer, share) }).await?;
        }
        Ok(())
    }

    /// Reserves the full size of a thick volume. `purpose` completes the error message.
    ///
    /// # Errors
    /// `NoSpace` if the pool lacks space; nothing is reserved for the layer then.
    pub(super) async fn try_reserve(&self, record: &VolumeRecord, purpose: &str) -> Result<()> {
        if !record.reserves_space() {
            return Ok(());
        }
        self.reserve(record).await?;
        if !self.shard.is_overcommitted() {
            return Ok(());
        }
        self.release_reservation(record.layer).await?;
        let message = format!(
            "cannot reserve the full size of volume '{}': the pool has no space for {purpose}",
            record.name
        );
        Err(Error::new(ErrorKind::NoSpace, message))
    }

    /// Releases the reservation of a layer.
    pub(super) async fn release_reservation(&self, layer: LayerId) -> Result<()> {
        self.on_shards(move |shard| shard.reserve_layer(layer, 0)).await
    }

    async fn set_thick(&self, name: String, thick: bool) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        if record.kind == VolumeKind::Snapshot {
            return Err(Error::new(ErrorKind::ReadOnly, "a snapshot is read-only and needs no reservation"));
        }
        if record.thick == thick {
            return Ok(());
        }
        record.thick = thick;
        self.try_reserve(&record, "it").await?;
        if let Err(error) = self.store(&[&record], None).await {
            self.reserve(&VolumeRecord { thick: !thick, ..record }).await?;
            return Err(error);
        }
        self.reserve(&record).await?;
        self.update(record);
        Ok(())
    }
}

impl Pool {
    /// Makes a volume thick, which reserves its full size, or thin.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly` for a snapshot; `NoSpace` if the pool lacks space for the full size.
    pub fn set_volume_thick<'a>(&'a self, name: &'a str, thick: bool) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = name.to_owned();
            let set = move |catalogue: Rc<Catalogue>| async move { catalogue.set_thick(name, thick).await };
            self.catalogue().call(set).await?
        })
    }
}
