//! The catalogue of a damaged pool: the volume records that can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use format::limits::{BLOCK, VOLUMES_MAX};
use format::{LayerId, VolumeKind, VolumeRecord, VolumeState};
use reactor::Buffer;

use crate::finding::{Finding, FindingKind};
use crate::shard::{BlockState, LayerChain, Probe, SalvageShard};
use crate::slices::Slices;

/// A volume or snapshot with a readable record.
pub(crate) struct SalvageableVolume {
    /// The name; followed by `#` and the volume's number if an earlier record has the same name.
    pub(crate) name: String,
    pub(crate) record: VolumeRecord,
    /// The volume's layer and its ancestors.
    pub(crate) chain: LayerChain,
    pub(crate) slices: Slices,
    /// The record or data of the volume may be out of date.
    pub(crate) stale: bool,
}

/// The readable and the lost records of the catalogue.
#[derive(Default)]
pub(crate) struct SalvageCatalogue {
    /// All readable records by number, including volumes under deletion.
    pub(crate) records: BTreeMap<u64, VolumeRecord>,
    /// The volumes and snapshots that are not under deletion, sorted by name.
    pub(crate) volumes: Vec<Rc<SalvageableVolume>>,
    /// Numbers of unreadable records.
    pub(crate) lost: Vec<Range<u64>>,
    pub(crate) findings: Vec<Finding>,
    /// Number of shards of the pool.
    pub(super) shards: usize,
}

impl SalvageCatalogue {
    /// Reads the catalogue from shard 0, as far as possible.
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
                    BlockState::Lost => catalogue.mark_lost(numbers),
                    BlockState::Data => {
                        stale.extend(numbers.clone().filter(|_| run.stale));
                        for number in numbers {
                            catalogue.read_record(first, &chain, number, shards.len()).await;
                        }
                    }
                }
            }
        }
        catalogue.list_volumes(shards, &stale);
        catalogue
    }

    fn mark_lost(&mut self, numbers: Range<u64>) {
        match self.lost.last_mut() {
            Some(last) if last.end == numbers.start => last.end = numbers.end,
            _ => self.lost.push(numbers),
        }
    }

    /// Adds a record to the catalogue, or marks it as lost.
    async fn read_record(&mut self, shard: &SalvageShard, chain: &LayerChain, number: u64, shards: usize) {
        let block = Buffer::new(BLOCK);
        if !shard.read(chain, number, &block.span(), true).await.is_empty() {
            return self.mark_lost(number..number + 1);
        }
        let message = match VolumeRecord::decode(block.as_slice()) {
            Ok(record) if record.spread.fits(shards) => {
                self.records.insert(number, record);
                return;
            }
            Ok(_) => format!("catalogue record {number} refers to shards that the pool does not have"),
            Err(error) => format!("catalogue record {number}: {error}"),
        };
        self.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        self.mark_lost(number..number + 1);
    }

    fn list_volumes(&mut self, shards: &[Rc<SalvageShard>], stale: &BTreeSet<u64>) {
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
            // A stale record of an ancestor may name a wrong parent.
            let of_stale = chain.layers.iter().any(|layer| stale_layers.contains(layer));
            let is_stale = catalogue_stale || of_stale || holders.any(|shard| shard.is_stale());
            let name = match names.insert(record.name.clone()) {
                true => record.name.clone(),
                false => format!("{}#{number}", record.name),
            };
            self.volumes.push(Rc::new(SalvageableVolume {
                name,
                record: record.clone(),
                chain,
                slices,
                stale: is_stale,
            }));
        }
        self.volumes.sort_by(|one, next| one.name.cmp(&next.name));
    }

    /// Returns the layers of volumes whose record cannot be read: layers in the shards that no
    /// record owns.
    pub(crate) fn unowned(&self, shards: &[Rc<SalvageShard>]) -> BTreeSet<LayerId> {
        let owned: BTreeSet<LayerId> = self.records.values().map(|record| record.layer).collect();
        let all = shards.iter().flat_map(|shard| shard.user_layers());
        all.filter(|layer| !owned.contains(layer)).collect()
    }
}

/// Returns a layer and its ancestors, from the top down. If records are lost, a layer without a
/// record may have unknown ancestors, and the chain is open.
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

impl SalvageableVolume {
    pub(crate) fn is_snapshot(&self) -> bool {
        self.record.kind == VolumeKind::Snapshot
    }

    /// Returns the number of blocks of the volume; the last one may be partial.
    pub(crate) fn blocks(&self) -> u64 {
        self.record.size.div_ceil(BLOCK as u64)
    }
}
