//! Display and arithmetic of numbers and identities.

use super::*;

#[test]
fn numbers_are_displayed_plain_and_debugged_with_their_type() {
    let row = Row::new(7);
    assert_eq!((row.get(), row.index(), row.to_string()), (7, 7, "7".into()));
    assert_eq!(format!("{row:?} {:?}", DriveIndex::new(3)), "Row(7) DriveIndex(3)");
    assert_eq!(format!("{:>4}", LayerId::new(16)), "  16");
}

#[test]
fn successors() {
    assert_eq!(Sequence::new(7).next(), Sequence::new(8));
    assert_eq!(Row::new(7).plus(5), Row::new(12));
    assert_eq!(LayerBlock::new(7).plus(1 << 40), LayerBlock::new((1 << 40) + 7));
}

#[test]
fn identities_are_displayed_in_five_groups() {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(0..).for_each(|(byte, value)| *byte = 0x10 + value);
    let shown = "1f1e1d1c-1b1a-1918-1716-151413121110";
    assert_eq!(PoolId(bytes).to_string(), shown);
    assert_eq!(format!("{:?}", DriveId(bytes)), format!("DriveId({shown})"));
    let mut low = [0; 16];
    low[0] = 1;
    assert_eq!(PoolId(low).to_string(), "00000000-0000-0000-0000-000000000001");
}
