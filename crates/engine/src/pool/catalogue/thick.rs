//! Thick volumes: room is kept for all that they may store, and others' writes leave it.
//!
//! What is kept is counted by layer, the one that a volume writes to: what lies below it belongs to snapshots as well, and is not
//! replaced by writes. So a thick volume of which a snapshot is taken wants room for all of itself anew.

use std::rc::Rc;

use format::limits::BLOCK;
use format::{LayerId, VolumeKind, VolumeRecord};

use super::{Catalogue, Pool};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Shard;

impl Catalogue {
    /// Tells the shards how much room to keep for a volume; none if it is not thick.
    pub(super) async fn promise(&self, record: &VolumeRecord) -> Result<()> {
        let slices = self.slices(record);
        let blocks = if record.reserves_space() { record.size.div_ceil(BLOCK as u64) } else { 0 };
        for (index, shard) in self.shards.iter().enumerate() {
            let (layer, share) = (record.layer, slices.local_bound(index, blocks));
            shard.call(move |shard: Rc<Shard>| async move { shard.promise(layer, share) }).await?;
        }
        Ok(())
    }

    /// Keeps room for a volume, if it is thick.
    ///
    /// # Errors
    /// `NoSpace` if there is not enough of it for `what`; nothing is kept for this layer then.
    pub(super) async fn keep_room(&self, record: &VolumeRecord, what: &str) -> Result<()> {
        if !record.reserves_space() {
            return Ok(());
        }
        self.promise(record).await?;
        if !self.shard.is_overcommitted() {
            return Ok(());
        }
        self.keep_no_room(record.layer).await?;
        let message =
            format!("room is kept for all of volume '{}', and the pool has none for {what}", record.name);
        Err(Error::new(ErrorKind::NoSpace, message))
    }

    /// Keeps no room for a layer any more.
    pub(super) async fn keep_no_room(&self, layer: LayerId) -> Result<()> {
        self.on_shards(move |shard| shard.promise(layer, 0)).await
    }

    async fn set_thick(&self, name: String, thick: bool) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        if record.kind == VolumeKind::Snapshot {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "nothing more is written to a snapshot: no room is kept for it",
            ));
        }
        if record.thick == thick {
            return Ok(());
        }
        record.thick = thick;
        self.keep_room(&record, "that").await?;
        if let Err(error) = self.store(&[&record], None).await {
            self.promise(&VolumeRecord { thick: !thick, ..record }).await?;
            return Err(error);
        }
        self.promise(&record).await?;
        self.update(record);
        Ok(())
    }
}

impl Pool {
    /// Keeps room for all of a volume, or for no more than it stores.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly` for a snapshot; `NoSpace` if the pool has no room for all of it.
    pub async fn set_volume_thick(&self, name: &str, thick: bool) -> Result<()> {
        let name = name.to_owned();
        let set = move |catalogue: Rc<Catalogue>| async move { catalogue.set_thick(name, thick).await };
        self.catalogue().call(set).await?
    }
}
