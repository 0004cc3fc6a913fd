//! Runs of various lengths, intact and with a damaged block.

use codec::crc32c;
use reactor::{Buffer, Drive, Memory};

use super::*;

/// Offset of the run on its drive, in bytes.
const BEFORE: usize = 3 * BLOCK;

#[test]
fn a_run_is_accepted_only_if_every_crc_matches() {
    for count in [1, 2, 7, 8, STEP - 1, STEP, STEP + 1, 4 * STEP + 3] {
        let mut data = Buffer::new(count * BLOCK);
        let bytes = data.as_mut_slice();
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + at / 4099) as u8);
        let crcs: Vec<u32> = data.as_slice().chunks(BLOCK).map(crc32c).collect();
        let drive = Memory::new(BEFORE + count * BLOCK).unwrap().open();
        assert_eq!(drive.write(BEFORE as u64, &[data.span()]).try_take(), Some(Ok(count * BLOCK)));
        let into = Buffer::zeroed(count * BLOCK);
        let read = |crcs: &[u32]| {
            let window = drive.read_window(BEFORE as u64, count * BLOCK);
            window.map(|window| copy(window, crcs, &into.span()))
        };
        assert_eq!(read(&crcs), Some(true), "{count} blocks");
        assert!(into.as_slice() == data.as_slice(), "{count} blocks");
        for damaged in [0, count / 2, count - 1] {
            let mut wrong = crcs.clone();
            wrong[damaged] ^= 1;
            assert_eq!(read(&wrong), Some(false), "block {damaged} of {count}");
        }
    }
}
