//! Random valid commands, compared with a plain array.

use proptest::prelude::*;
use reactor::Backend;
use test_support::pattern;

use crate::initiator::{Data, Session, block_16, flagged, wires};
use crate::target::{Target, TargetOptions};

/// Blocks that the commands touch.
const BLOCKS: usize = 300;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_volume_behaves_like_an_array(
        steps in prop::collection::vec((0..9u8, 0..240u64, 1..60u32, any::<u8>()), 1..40), which in 0..6usize,
    ) {
        let target = Target::start(Backend::Auto, &TargetOptions::default());
        let mut session = Session::new(target.address, wires()[which]);
        let mut model = vec![0u8; BLOCKS * 512];
        for (kind, first, count, byte) in steps {
            let range = first as usize * 512..(first as usize + count as usize) * 512;
            let data = pattern(byte.into(), count as usize * 512);
            match kind {
                0 | 1 => {
                    session.write(first, &data).good();
                    model[range].copy_from_slice(&data);
                }
                2 => {
                    session.run(0, &flagged(block_16(0x93, first, count), 9), Data::None).good();
                    model[range].fill(0);
                }
                3 => {
                    session.run(0, &block_16(0x93, first, count), Data::Out(&[byte; 512])).good();
                    model[range].fill(byte);
                }
                4 => {
                    let block = flagged(block_16(0x8f, first, count), 2);
                    let same = session.run(0, &block, Data::Out(&model[range.clone()]));
                    prop_assert_eq!(same.status, 0);
                    let done = session.run(0, &block, Data::Out(&data));
                    prop_assert_eq!(done.status == 0, data == model[range]);
                }
                5 => {
                    // Half of the exchanges compare equal data.
                    let old = if byte & 1 == 0 { model[range.clone()].to_vec() } else { data.clone() };
                    let mut block = block_16(0x89, first, 0);
                    block[13] = count as u8;
                    let swapped = session.run(0, &block, Data::Out(&[&old[..], &data].concat()));
                    if model[range.clone()] == old {
                        swapped.good();
                        model[range].copy_from_slice(&data);
                    } else {
                        prop_assert_eq!(swapped.failed(), (0xe, 0x1d, 0));
                    }
                }
                6 => {
                    // Several writes in flight, of ranges that do not overlap.
                    let tags: Vec<u32> = (0..4)
                        .map(|part| {
                            let at = part * data.len() / 4 / 512 * 512;
                            let end = (part + 1) * data.len() / 4 / 512 * 512;
                            let block = block_16(0x8a, first + at as u64 / 512, ((end - at) / 512) as u32);
                            session.submit(0, &block, Data::Out(&data[at..end]))
                        })
                        .collect();
                    for _ in &tags {
                        session.complete().good();
                    }
                    let whole = data.len() / 512 * 512;
                    model[range][..whole].copy_from_slice(&data[..whole]);
                }
                _ => prop_assert_eq!(&session.read(first, count).good()[..], &model[range]),
            }
        }
        prop_assert_eq!(session.read(0, BLOCKS as u32).good(), model);
    }
}
