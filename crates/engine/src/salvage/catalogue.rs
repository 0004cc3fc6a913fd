//! The catalogue of a pool of which parts cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use format::limits::{BLOCK, VOLUMES_MAX};
use format::{LayerId, VolumeKind, VolumeRecord, VolumeState};
use reactor::Buffer;

use crate::check::{Finding, FindingKind};
use crate::shard::{BlockState, LayerChain, Probe, SalvageShard};
use crate::volume::Slices;

/// A volume or snapshot of which there is a record.
pub(crate) struct KnownVolume {
    /// Its name; with its number behind a `#` if an older record has the same name.
    pub(crate) name: String,
    pub(crate) record: VolumeRecord,
    /// Its layer and those below it.
    pub(crate) chain: LayerChain,
    pub(crate) slices: Slices,
    /// The record, or data of the volume, may be older than the newest.
    pub(crate) stale: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct SalvageCatalogue {
    /// All readable records by number, those of volumes that are being deleted included.
    pub(crate) records: BTreeMap<u64, VolumeRecord>,
    /// The volumes and snapshots that are in use, by name.
    pub(crate) volumes: Vec<Rc<KnownVolume>>,
    /// Numbers of records that cannot be read.
    pub(crate) lost: Vec<Range<u64>>,
    pub(crate) findings: Vec<Finding>,
    /// Shards of the pool.
    pub(super) shards: usize,
}

impl SalvageCatalogue {
    /// Reads the catalogue from shard 0 as far as it can be read.
    pub(crate) async fn read(shards: &[Rc<SalvageShard>]) -> Self {
        let mut catalogue = Self { shards: shards.len(), ..Self::default() };
        let mut stale = BTreeSet::new();
        let Some(first) = shards.first() else { return catalogue };
        let chain = LayerChain { layers: vec![LayerId::SYSTEM], open: false };
        let mut next = 0;
        while next < u64::from(VOLUMES_MAX) {
            let states = first.states(&chain, next, u64::from(VOLUMES_MAX), &Probe::Read).await;
            for run in states {
                let numbers = next..next + run.blocks;
                next = numbers.end;
                match run.state {
                    BlockState::Hole => {}
                    BlockState::Lost => catalogue.lose(numbers),
                    BlockState::Data => {
                        stale.extend(numbers.clone().filter(|_| run.stale));
                        for number in numbers {
                            catalogue.take(first, &chain, number, shards.len()).await;
                        }
                    }
                }
            }
        }
        catalogue.find_volumes(shards, &stale);
        catalogue
    }

    fn lose(&mut self, numbers: Range<u64>) {
        match self.lost.last_mut() {
            Some(last) if last.end == numbers.start => last.end = numbers.end,
            _ => self.lost.push(numbers),
        }
    }

    async fn take(&mut self, shard: &SalvageShard, chain: &LayerChain, number: u64, shards: usize) {
        let block = Buffer::new(BLOCK);
        if !shard.read(chain, number, &block.span(), true).await.is_empty() {
            return self.lose(number..number + 1);
        }
        let message = match VolumeRecord::decode(block.as_slice()) {
            Ok(record) if record.spread.fits(shards) => {
                self.records.insert(number, record);
                return;
            }
            Ok(_) => format!("catalogue record {number}: it names shards that the pool does not have"),
            Err(error) => format!("catalogue record {number}: {error}"),
        };
        self.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        self.lose(number..number + 1);
    }

    fn find_volumes(&mut self, shards: &[Rc<SalvageShard>], stale: &BTreeSet<u64>) {
        let layers: BTreeMap<LayerId, Option<LayerId>> =
            self.records.values().map(|record| (record.layer, record.parent)).collect();
        let of_stale = self.records.iter().filter(|(number, _)| stale.contains(number));
        let stale_layers: BTreeSet<LayerId> = of_stale.map(|(_, record)| record.layer).collect();
        let catalogue_stale = shards.first().is_none_or(|shard| shard.is_stale());
        let mut names = BTreeSet::new();
        for (number, record) in &self.records {
            if record.state != VolumeState::Ready {
                continue;
            }
            let slices = Slices::of(record.spread, shards.len());
            let mut holders = slices.holders().filter_map(|shard| shards.get(shard));
            let chain = chain_of(record.layer, &layers, !self.lost.is_empty());
            // An older record of a layer below may name another parent.
            let of_stale = chain.layers.iter().any(|layer| stale_layers.contains(layer));
            let is_stale = catalogue_stale || of_stale || holders.any(|shard| shard.is_stale());
            let name = match names.insert(record.name.clone()) {
                true => record.name.clone(),
                false => format!("{}#{number}", record.name),
            };
            self.volumes.push(Rc::new(KnownVolume {
                name,
                record: record.clone(),
                chain,
                slices,
                stale: is_stale,
            }));
        }
        self.volumes.sort_by(|one, next| one.name.cmp(&next.name));
    }

    /// Layers of volumes whose record cannot be read: layers that shards have, and that no record owns.
    pub(crate) fn unowned(&self, shards: &[Rc<SalvageShard>]) -> BTreeSet<LayerId> {
        let owned: BTreeSet<LayerId> = self.records.values().map(|record| record.layer).collect();
        let all = shards.iter().flat_map(|shard| shard.user_layers());
        all.filter(|layer| !owned.contains(layer)).collect()
    }
}

/// A layer and those below it, from the top down. Below a layer that no record owns there may be others if records are lost.
fn chain_of(layer: LayerId, parents: &BTreeMap<LayerId, Option<LayerId>>, records_lost: bool) -> LayerChain {
    let mut chain = LayerChain { layers: vec![layer], open: false };
    let mut at = layer;
    loop {
        match parents.get(&at) {
            Some(Some(parent)) if !chain.layers.contains(parent) => {
                chain.layers.push(*parent);
                at = *parent;
            }
            Some(_) => return chain,
            None => {
                chain.open = records_lost;
                return chain;
            }
        }
    }
}

impl KnownVolume {
    pub(crate) fn is_snapshot(&self) -> bool {
        self.record.kind == VolumeKind::Snapshot
    }

    /// Blocks that the volume has, the last one perhaps in part.
    pub(crate) fn blocks(&self) -> u64 {
        self.record.size.div_ceil(BLOCK as u64)
    }
}
