//! Fuzz targets for every decoder of on-disk bytes, with raw input and with input that has a valid
//! MAC.
//!
//! A decoded value can be encoded and decodes to the same value again; decoding allocates
//! memory in proportion to the length of its input.

use ::fuzz::within;

use crate::item::Item;
use crate::limits::{BLOCK, SUPERBLOCK_SLOT};
use crate::mac::MAC_BYTES;
use crate::record::tests::{KEY, assert_agree, location};
use crate::wire::Reader;
use crate::{
    CheckpointRoot, DriveId, EventBlock, FORMAT_VERSION, FormatError, Header, PoolKey, Scheme, Superblock,
    UnverifiedHeader, UnverifiedSuperblock, VolumeRecord, decode_entries, decode_layers, decode_live,
    decode_lost, decode_segments, encode_entries, encode_layers, encode_live, encode_lost, encode_segments,
};

::fuzz::target!(superblock, |bytes| {
    check_superblock(bytes);
    let mut sealed = bytes.to_vec();
    sealed.truncate(SUPERBLOCK_SLOT as usize);
    if sealed.len() >= 80 {
        seal_superblock(&mut sealed);
        check_superblock(&sealed);
    }
});

/// Turns the bytes into a superblock with valid magic number, version, length and MAC.
fn seal_superblock(bytes: &mut [u8]) {
    let length = (bytes.len() as u32).to_le_bytes();
    bytes[..16].copy_from_slice(&[b"GABIONSB".as_slice(), &FORMAT_VERSION.to_le_bytes(), &length].concat());
    let key = PoolKey(bytes[48..64].try_into().unwrap());
    let mac = key.mac(&[&bytes[..16], &bytes[32..]]);
    bytes[16..32].copy_from_slice(&mac);
}

fn read_superblock(slot: &[u8]) -> Result<(Superblock, DriveId), FormatError> {
    UnverifiedSuperblock::parse(slot)?.verify(slot)
}

fn check_superblock(slot: &[u8]) {
    // Drives and segments take only a few bytes on disk each, but more in memory.
    let read = within(64 * slot.len() + (64 << 10), || read_superblock(slot));
    if let Ok((superblock, drive)) = read {
        assert_eq!(read_superblock(&superblock.encode(drive)), Ok((superblock, drive)));
    }
}

::fuzz::target!(record, |bytes| {
    check_header(bytes);
    if bytes.len() >= 96 {
        check_header(&sealed_header(bytes));
    }
    check_items(bytes);
});

/// Returns a header of these bytes with valid magic number, version and MAC, padded to whole
/// blocks.
fn sealed_header(bytes: &[u8]) -> Vec<u8> {
    let mut header = bytes.to_vec();
    header[..8].copy_from_slice(&[b"GREC".as_slice(), &FORMAT_VERSION.to_le_bytes()].concat());
    let claimed = u32::from_le_bytes(header[84..88].try_into().unwrap()) as usize;
    let used = if (96..=header.len()).contains(&claimed) { claimed } else { header.len() };
    header.truncate(used);
    header[84..88].copy_from_slice(&(used as u32).to_le_bytes());
    header[12..12 + MAC_BYTES].fill(0);
    let mac = KEY.mac(&[&header]);
    header[12..12 + MAC_BYTES].copy_from_slice(&mac);
    header.resize(used.next_multiple_of(BLOCK).max(usize::from(header[8].min(8)) * BLOCK), 0);
    header
}

fn check_header(bytes: &[u8]) {
    let Ok(unverified) = UnverifiedHeader::parse(bytes) else { return };
    let Some(blocks) = bytes.get(..usize::from(unverified.blocks()) * BLOCK) else { return };
    let Ok(header) = within(128 << 10, || unverified.verify(blocks, &KEY)) else { return };
    let mut stored = vec![0xFF; blocks.len()];
    Header::encode(&header.location, &header.items, &header.crcs, &KEY, &mut stored);
    // All bytes except reserved fields and the MAC.
    let plain = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[9] = 0;
        bytes[12..28].fill(0);
        bytes[88..96].fill(0);
        bytes
    };
    assert_eq!(plain(&stored), plain(blocks));
    assert_eq!(UnverifiedHeader::parse(&stored).unwrap().verify(&stored, &KEY), Ok(header));
}

/// Checks that the encoder accepts arbitrary items if and only if the decoder does.
fn check_items(bytes: &[u8]) {
    let mut input = Reader::new(bytes);
    let items: Vec<Item> =
        std::iter::from_fn(|| Item::read(&mut input).ok()).map(|(item, _)| item).take(1025).collect();
    let payload = items.iter().map(|item| item.payload() as usize).sum();
    if payload <= 1025 {
        assert_agree(&location(), &items, payload);
    }
}

::fuzz::target!(table, |bytes| {
    let [kind, width, rest @ ..] = bytes else { return };
    let block = block_of(rest);
    match kind % 5 {
        0 => check_round_trip(
            &block,
            |bytes| decode_segments(bytes, *width),
            |them| encode_segments(them, *width),
        ),
        1 => check_round_trip(&block, decode_live, |counts| encode_live(counts)),
        2 => check_round_trip(&block, decode_layers, |them| encode_layers(them)),
        3 => check_round_trip(&block, decode_entries, |entries| {
            let mut stored = vec![0xFF; BLOCK];
            encode_entries(entries, &mut stored);
            stored
        }),
        _ => check_round_trip(&sealed_block(&block, b"GCKP"), CheckpointRoot::decode, CheckpointRoot::encode),
    }
});

::fuzz::target!(catalogue, |bytes| {
    let [kind, rest @ ..] = bytes else { return };
    let block = block_of(rest);
    match kind % 4 {
        0 => check_round_trip(&sealed_block(&block, b"GVOL"), VolumeRecord::decode, VolumeRecord::encode),
        1 => check_round_trip(&sealed_block(&block, b"GEVT"), EventBlock::decode, EventBlock::encode),
        3 => check_round_trip(&sealed_block(&block, b"GLST"), decode_lost, encode_lost),
        _ => {
            let _ = VolumeRecord::decode(rest);
            let _ = EventBlock::decode(rest);
            let _ = CheckpointRoot::decode(rest);
            let _ = decode_lost(rest);
            if let Some(scheme) = str::from_utf8(rest).ok().and_then(|text| text.parse::<Scheme>().ok()) {
                assert_eq!(scheme.to_string().parse(), Ok(scheme));
            }
        }
    }
});

/// Returns a block that starts with these bytes.
fn block_of(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK, 0);
    block
}

/// Returns the block with this magic number and the version in front.
fn sealed_block(block: &[u8], magic: &[u8; 4]) -> Vec<u8> {
    [magic.as_slice(), &FORMAT_VERSION.to_le_bytes(), &block[8..]].concat()
}

/// Checks that a decoded value is encoded and decodes to the same value again.
fn check_round_trip<T: PartialEq + std::fmt::Debug>(
    block: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(value) = within(256 << 10, || decode(block)) else { return };
    let stored = encode(&value);
    assert_eq!(stored.len(), BLOCK);
    assert_eq!(decode(&stored), Ok(value));
}
