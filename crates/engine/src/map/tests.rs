//! The map against a model: random evictions, and checkpoints concurrent with writes.

use std::collections::BTreeMap;

use format::{Address, Column, Row, SegmentId};
use proptest::prelude::*;
use smallvec::SmallVec;

use super::checkpoint::FrozenLayers;
use super::*;

const A: LayerId = LayerId::new(20);
const B: LayerId = LayerId::new(21);

fn block(number: u32) -> MapEntry {
    MapEntry::block(Address::new(SegmentId::new(number), Column::new(0), Row::new(0)), number)
}

/// Node images by address, in place of the log.
#[derive(Default)]
struct Store {
    images: BTreeMap<u64, Box<[MapEntry; NODE_ENTRIES]>>,
    next: u32,
}

impl Store {
    fn put(&mut self, image: Box<[MapEntry; NODE_ENTRIES]>) -> MapEntry {
        self.next += 1;
        let entry = block(1_000_000 + self.next);
        self.images.insert(entry.address().unwrap().to_bits(), image);
        entry
    }

    fn get(&self, entry: MapEntry) -> Box<[MapEntry; NODE_ENTRIES]> {
        self.images[&entry.address().unwrap().to_bits()].clone()
    }
}

struct Harness {
    map: Map,
    store: Store,
    model: BTreeMap<(LayerId, u64), MapEntry>,
}

impl Harness {
    fn new(budget: usize) -> Self {
        let mut map = Map::new(budget, usize::MAX);
        map.budget = budget;
        Self { map, store: Store::default(), model: BTreeMap::new() }
    }

    fn retry<T>(&mut self, mut walk: impl FnMut(&mut Map) -> Result<T, MissingNode>) -> T {
        loop {
            match walk(&mut self.map) {
                Ok(value) => return value,
                Err(load) => self.load(load),
            }
        }
    }

    fn load(&mut self, load: MissingNode) {
        let entry = self.map.begin_load(load).unwrap().ok().unwrap();
        let image = self.store.get(entry);
        self.map.end_load(load, entry, Some(image));
    }

    /// Pins the leaf of a block.
    fn leaf(&mut self, layer: LayerId, at: u64) -> Pins {
        let mut pins = Pins::new();
        self.retry(|map| map.prepare_write(layer, at, 1, &mut pins));
        pins
    }

    fn write(&mut self, layer: LayerId, at: u64, entry: MapEntry) {
        let pins = self.leaf(layer, at);
        let old = self.map.replace(pins[0], slot_at(at, 0), entry);
        self.map.unpin(&pins);
        let expected = match entry.is_absent() {
            true => self.model.remove(&(layer, at)),
            false => self.model.insert((layer, at), entry),
        };
        assert_eq!(old, expected.unwrap_or(MapEntry::ABSENT));
    }

    fn unmap(&mut self, layer: LayerId, at: u64, count: u64) {
        let mut pins = Pins::new();
        self.retry(|map| map.prepare_unmap(layer, at, count, &mut pins));
        for leaf in &pins {
            let start = self.map.leaf_start(*leaf);
            for slot in 0..NODE_ENTRIES {
                if (at..at + count).contains(&(start + slot as u64)) {
                    self.map.replace(*leaf, slot, MapEntry::ABSENT);
                }
            }
        }
        self.map.unpin(&pins);
        self.model.retain(|(of, block), _| *of != layer || !(at..at + count).contains(block));
    }

    fn check_all(&mut self) {
        for ((layer, at), expected) in self.model.clone() {
            assert_eq!(self.retry(|map| map.lookup_one(layer, at)), expected, "{layer} {at}");
        }
        for layer in [A, B] {
            let blocks =
                self.model.iter().filter(|((of, _), entry)| *of == layer && entry.address().is_some());
            assert_eq!(self.map.stored(layer), blocks.count() as u64);
        }
    }

    /// Stores one batch of the running checkpoint; returns false at its end.
    fn step(&mut self, level: &mut usize, count: usize) -> bool {
        let images = self.map.take_level(*level, count);
        if images.is_empty() {
            *level += 1;
            return *level < self.map.frozen_levels();
        }
        for image in images {
            let entry = image.entries.map_or(MapEntry::ABSENT, |entries| self.store.put(entries));
            self.map.node_stored(image.node, entry);
        }
        true
    }

    /// Returns the content of a map restored from these layers.
    fn read_back(&self, layers: &FrozenLayers) -> BTreeMap<(LayerId, u64), MapEntry> {
        let mut found = BTreeMap::new();
        for layer in layers {
            let LayerEntry::Layer(layer) = layer else { continue };
            if layer.height > 0 {
                self.walk(layer.layer, layer.root, layer.height - 1, 0, &mut found);
            }
        }
        found
    }

    fn walk(
        &self,
        layer: LayerId,
        entry: MapEntry,
        level: u8,
        index: u64,
        found: &mut BTreeMap<(LayerId, u64), MapEntry>,
    ) {
        for (slot, entry) in self.store.get(entry).iter().enumerate() {
            let number = (index << LEVEL_BITS) + slot as u64;
            match (level, entry.is_absent()) {
                (_, true) => {}
                (0, _) => {
                    found.insert((layer, number), *entry);
                }
                _ => self.walk(layer, *entry, level - 1, number, found),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(LayerId, u64),
    Zero(LayerId, u64),
    Unmap(LayerId, u64, u64),
    Freeze,
    Step(usize),
    Abandon,
}

fn op() -> impl Strategy<Value = Op> {
    let layer = prop_oneof![Just(A), Just(B)];
    // Near and far: leaves that share parents, and trees of one to four levels.
    let at = prop_oneof![0u64..600, 0u64..100_000, 0u64..20_000_000, Just((1 << 32) + 5)];
    prop_oneof![
        8 => (layer.clone(), at.clone()).prop_map(|(layer, at)| Op::Write(layer, at)),
        1 => (layer.clone(), at.clone()).prop_map(|(layer, at)| Op::Zero(layer, at)),
        2 => (layer, at, 1u64..3000).prop_map(|(layer, at, count)| Op::Unmap(layer, at, count)),
        1 => Just(Op::Freeze),
        4 => (1usize..8).prop_map(Op::Step),
        1 => prop_oneof![9 => Just(Op::Step(3)), 1 => Just(Op::Abandon)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn checkpoint_stores_exactly_the_state_at_its_start(ops in prop::collection::vec(op(), 1..250), budget in 8usize..64) {
        let mut harness = Harness::new(budget);
        let mut frozen: Option<(BTreeMap<_, _>, usize)> = None;
        let mut number = 0;
        for op in ops {
            number += 1;
            match op {
                Op::Write(layer, at) => harness.write(layer, at, block(number)),
                Op::Zero(layer, at) => harness.write(layer, at, MapEntry::ZERO),
                Op::Unmap(layer, at, count) => harness.unmap(layer, at, count),
                Op::Freeze if frozen.is_none() => {
                    harness.map.freeze();
                    frozen = Some((harness.model.clone(), 0));
                }
                Op::Step(count) => {
                    if let Some((model, mut level)) = frozen.take() {
                        if harness.step(&mut level, count) {
                            frozen = Some((model, level));
                        } else {
                            let layers = harness.map.thaw();
                            prop_assert_eq!(harness.read_back(&layers), model);
                        }
                    }
                }
                Op::Abandon => {
                    harness.map.abandon_freeze();
                    frozen = None;
                }
                Op::Freeze => {}
            }
        }
        harness.check_all();
        if let Some((model, mut level)) = frozen {
            while harness.step(&mut level, 5) {}
            let layers = harness.map.thaw();
            prop_assert_eq!(harness.read_back(&layers), model);
        }
        // A second checkpoint without concurrent writes stores everything; then all nodes are
        // evictable.
        harness.map.freeze();
        let mut level = 0;
        while harness.step(&mut level, 100) {}
        let layers = harness.map.thaw();
        prop_assert_eq!(harness.read_back(&layers), harness.model.clone());
        prop_assert_eq!(harness.map.dirty_count(), 0);
        let mut restored = Harness { map: Map::new(8, usize::MAX), store: harness.store, model: harness.model };
        layers.iter().for_each(|layer| restored.map.restore_layer(layer));
        restored.check_all();
    }
}

/// A checkpoint that fails leaves memory full of dirty nodes: only nodes of walks are evictable.
#[test]
fn walks_in_a_map_full_of_dirty_nodes_load_each_node_once() {
    const AT: u64 = 1 << 40;
    const LEVELS: usize = 6;
    const DIRTY: LayerId = LayerId::new(22);
    let layers: Vec<LayerId> = (30..38).map(LayerId::new).collect();
    let mut harness = Harness::new(16);
    for layer in &layers {
        harness.write(*layer, AT, block(1));
    }
    harness.map.freeze();
    let mut level = 0;
    while harness.step(&mut level, 100) {}
    harness.map.thaw();
    for leaf in 0..32 {
        harness.write(DIRTY, leaf << LEVEL_BITS, block(2));
    }
    let mut held = Vec::new();
    let mut waiting = layers.clone();
    while !waiting.is_empty() {
        waiting.retain(|layer| match harness.map.lookup_one(*layer, AT) {
            Ok(found) => {
                assert_eq!(found, block(1));
                false
            }
            Err(load) => {
                harness.map.hold(load);
                held.push(load);
                harness.load(load);
                true
            }
        });
        assert!(held.len() <= layers.len() * LEVELS, "each node is loaded once");
    }
    assert_eq!(held.len(), layers.len() * LEVELS);
    held.into_iter().for_each(|node| harness.map.release(node));
    assert!(harness.map.held.is_empty());
    // Without holds, the next nodes take the place of these.
    for leaf in 32..64 {
        harness.write(DIRTY, leaf << LEVEL_BITS, block(3));
    }
    assert!(layers.iter().all(|layer| harness.map.lookup_one(*layer, AT).is_err()));
}

#[test]
fn lookup_spans_leaves_and_holes() {
    let mut harness = Harness::new(64);
    for at in [250, 255, 256, 1000] {
        harness.write(A, at, block(at as u32));
    }
    let mut entries = SmallVec::new();
    harness.map.lookup(A, 249, 900, &mut entries).unwrap();
    assert_eq!(entries.len(), 900);
    for (offset, entry) in entries.iter().enumerate() {
        let at = 249 + offset as u64;
        let expected = harness.model.get(&(A, at)).copied().unwrap_or(MapEntry::ABSENT);
        assert_eq!(*entry, expected, "{at}");
    }
    assert_eq!(harness.map.next_leaf(A, 300, 100_000), Ok(Some(300)));
    assert_eq!(harness.map.next_leaf(A, 1024, 1 << 40), Ok(None));
}

#[test]
fn dropping_an_empty_layer_frees_all_nodes() {
    let mut harness = Harness::new(64);
    for at in 0..2000 {
        harness.write(A, at * 300, block(1 + at as u32));
    }
    harness.map.freeze();
    let mut level = 0;
    while harness.step(&mut level, 100) {}
    harness.map.thaw();
    harness.unmap(A, 0, 1 << 30);
    harness.map.freeze();
    let mut level = 0;
    while harness.step(&mut level, 100) {}
    let layers = harness.map.thaw();
    let empty = format::LayerRecord { layer: A, height: 0, root: MapEntry::ABSENT, stored: 0 };
    assert_eq!(layers, [LayerEntry::Layer(empty)]);
    harness.map.drop_layer(A, format::Incarnation::new(1));
    assert_eq!(harness.map.forget_dropped(), []);
    assert_eq!(harness.map.node_count(), 0);
}

/// Returns the visible entry of a block, by a search of each layer.
fn naive_lookup(harness: &Harness, parents: &[(LayerId, LayerId)], layer: LayerId, at: u64) -> MapEntry {
    let mut next = Some(layer);
    while let Some(layer) = next {
        if let Some(entry) = harness.model.get(&(layer, at)) {
            return *entry;
        }
        next = parents.iter().find(|(above, _)| *above == layer).map(|(_, below)| *below);
    }
    MapEntry::ABSENT
}

impl Harness {
    /// Merges a leaf into its child layer.
    fn merge(&mut self, from: LayerId, into: LayerId, at: u64) {
        let mut pins = self.leaf(from, at);
        pins.extend(self.leaf(into, at));
        self.map.merge_leaf(pins[0], pins[1]);
        self.map.unpin(&pins);
        let first = at / 256 * 256;
        for block in first..first + 256 {
            if let Some(entry) = self.model.remove(&(from, block)) {
                self.model.entry((into, block)).or_insert(entry);
            }
        }
    }
}

/// A record names the layer that its blocks were written to. Lookups must follow chains of merges.
#[test]
fn merged_into_follows_a_chain_of_merges() {
    let mut harness = Harness::new(64);
    let layers: Vec<_> = (11..14).map(LayerId::new).collect();
    for (below, above) in layers.iter().zip(&layers[1..]) {
        harness.map.set_parent(*above, Some(*below));
    }
    for pair in layers.windows(2) {
        harness.write(pair[0], 5, block(1));
        harness.merge(pair[0], pair[1], 5);
        assert_eq!(harness.map.merged_into(pair[0]).as_slice(), pair);
    }
    assert_eq!(harness.map.merged_into(layers[0]).as_slice(), layers);
}

#[derive(Clone, Copy, Debug)]
enum StackOp {
    /// Writes to a layer of the stack, counted from the oldest; includes late writes to older
    /// layers.
    Write(usize, u64),
    Read(u64),
    /// Merges a leaf of a layer into its child.
    Merge(usize, u64),
    /// Adds a new top layer.
    Snapshot,
    /// Adds a layer below all others, with one block.
    AddBase(u64),
    /// Merges all of a layer into its child and removes the layer.
    Delete(usize),
    /// Removes a layer from the stack without merging its blocks.
    Detach(usize),
}

fn stack_op() -> impl Strategy<Value = StackOp> {
    // Few blocks in three leaves, so that blocks are read and written repeatedly.
    let at = prop_oneof![0u64..4, 256u64..258, Just(600)];
    prop_oneof![
        3 => (0usize..8, at.clone()).prop_map(|(layer, at)| StackOp::Write(layer, at)),
        8 => at.clone().prop_map(StackOp::Read),
        1 => (0usize..8, at.clone()).prop_map(|(layer, at)| StackOp::Merge(layer, at)),
        1 => Just(StackOp::Snapshot),
        1 => at.prop_map(StackOp::AddBase),
        1 => (0usize..8).prop_map(StackOp::Delete),
        1 => (0usize..8).prop_map(StackOp::Detach),
    ]
}

/// A stack of layers, and layers removed from it that still hold blocks.
struct LayerStack {
    harness: Harness,
    chain: Vec<LayerId>,
    detached: Vec<LayerId>,
    written: u32,
}

impl LayerStack {
    fn new() -> Self {
        Self { harness: Harness::new(4096), chain: vec![A], detached: Vec::new(), written: 0 }
    }

    fn top(&self) -> LayerId {
        *self.chain.last().unwrap()
    }

    /// Returns an unused layer number, possibly used before.
    fn free(&self) -> LayerId {
        let used = |layer: &LayerId| self.chain.contains(layer) || self.detached.contains(layer);
        (20..).map(LayerId::new).find(|layer| !used(layer)).unwrap()
    }

    fn below(&self, layer: usize) -> Option<LayerId> {
        layer.checked_sub(1).map(|below| self.chain[below])
    }

    fn write(&mut self, layer: LayerId, at: u64) {
        self.written += 1;
        self.harness.write(layer, at, block(self.written));
    }

    /// Removes a layer other than the top one from the stack.
    fn take_out(&mut self, layer: usize) -> LayerId {
        let below = self.below(layer);
        self.harness.map.set_parent(self.chain[layer + 1], below);
        self.harness.map.set_parent(self.chain[layer], None);
        self.chain.remove(layer)
    }

    fn apply(&mut self, op: StackOp) {
        let below_top = self.chain.len() - 1;
        match op {
            StackOp::Write(layer, at) => self.write(self.chain[layer % self.chain.len()], at),
            StackOp::Read(at) => {
                let parents: Vec<_> = self.chain.windows(2).map(|pair| (pair[1], pair[0])).collect();
                let top = self.top();
                let (_, found) = self.harness.retry(|map| map.lookup_one_through(top, at));
                assert_eq!(found, naive_lookup(&self.harness, &parents, top, at));
            }
            StackOp::Merge(layer, at) if below_top > 0 => {
                let layer = layer % below_top;
                self.harness.merge(self.chain[layer], self.chain[layer + 1], at);
            }
            StackOp::Snapshot if self.chain.len() < 8 => {
                let new = self.free();
                self.harness.map.set_parent(new, Some(self.top()));
                self.chain.push(new);
            }
            StackOp::AddBase(at) if self.chain.len() < 8 => {
                let new = self.free();
                self.write(new, at);
                self.harness.map.set_parent(self.chain[0], Some(new));
                self.chain.insert(0, new);
            }
            StackOp::Delete(layer) if below_top > 0 => {
                let layer = layer % below_top;
                for leaf in 0..3 {
                    self.harness.merge(self.chain[layer], self.chain[layer + 1], leaf * 256);
                }
                let empty = self.take_out(layer);
                self.harness.map.drop_layer(empty, format::Incarnation::new(1));
                self.harness.map.forget_dropped();
                self.harness.map.forget_merged(format::Incarnation::new(2));
            }
            StackOp::Detach(layer) if below_top > 0 && self.detached.len() < 8 => {
                let layer = layer % below_top;
                // A layer being merged into this one must stay mergeable.
                if self.below(layer).is_none_or(|below| self.harness.map.merged_into(below).len() == 1) {
                    let detached = self.take_out(layer);
                    self.detached.push(detached);
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn shortcuts_match_a_naive_lookup(ops in prop::collection::vec(stack_op(), 1..300)) {
        let mut stack = LayerStack::new();
        ops.into_iter().for_each(|op| stack.apply(op));
    }
}

/// A block moves up out of the layer that a shortcut refers to, and an older block moves into it.
#[test]
fn a_shortcut_never_returns_an_older_block() {
    let mut stack = LayerStack::new();
    (0..4).for_each(|_| stack.apply(StackOp::Snapshot));
    stack.apply(StackOp::Write(1, 1));
    stack.apply(StackOp::Write(2, 1));
    stack.apply(StackOp::Read(1));
    stack.apply(StackOp::Merge(2, 0));
    stack.apply(StackOp::Merge(1, 0));
    stack.apply(StackOp::Read(1));
}
