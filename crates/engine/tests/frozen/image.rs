//! A drive image as text: the blocks that are not zero, in lines of 16 bytes. Repeated lines are
//! counted.
//!
//! ```text
//! drive of 8388608 bytes
//! block 0
//! 4741 ... (32 digits)
//! * 12                    12 repetitions of the line before
//! ```

use std::fmt::Write;
use std::path::Path;

const BLOCK: usize = 4096;
const LINE: usize = 16;

/// The contents of a drive.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
}

impl Image {
    /// Loads drive `index` of the pool in `directory`.
    pub(crate) fn load(directory: &Path, index: usize) -> Self {
        let path = directory.join(format!("drive{index}.txt"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text)
    }

    /// Stores the image in `directory` as drive `index`.
    pub(crate) fn store(&self, directory: &Path, index: usize) {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join(format!("drive{index}.txt")), self.to_text()).unwrap();
    }

    fn to_text(&self) -> String {
        let mut text = format!("drive of {} bytes\n", self.bytes.len());
        for (number, block) in self.bytes.chunks(BLOCK).enumerate() {
            if block.iter().all(|byte| *byte == 0) {
                continue;
            }
            writeln!(text, "block {number}").unwrap();
            let mut lines = block.chunks(LINE).peekable();
            while let Some(line) = lines.next() {
                line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
                let mut more = 0;
                while lines.next_if_eq(&line).is_some() {
                    more += 1;
                }
                text.push_str(&if more > 0 { format!("\n* {more}\n") } else { "\n".to_owned() });
            }
        }
        text
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let size = lines.next().and_then(|line| line.strip_prefix("drive of ")?.strip_suffix(" bytes"));
        let mut image = Self { bytes: vec![0; size.unwrap().parse().unwrap()] };
        let mut at = 0;
        for line in lines {
            if let Some(number) = line.strip_prefix("block ") {
                at = number.parse::<usize>().unwrap() * BLOCK;
            } else if let Some(more) = line.strip_prefix("* ") {
                for _ in 0..more.parse::<usize>().unwrap() {
                    image.bytes.copy_within(at - LINE..at, at);
                    at += LINE;
                }
            } else {
                assert_eq!(line.len(), 2 * LINE, "{line}");
                for pair in 0..LINE {
                    image.bytes[at] = u8::from_str_radix(&line[2 * pair..2 * pair + 2], 16).unwrap();
                    at += 1;
                }
            }
        }
        image
    }
}

#[test]
fn stored_images_are_loaded_unchanged() {
    let mut image = Image { bytes: vec![0; 5 * BLOCK] };
    for (at, byte) in image.bytes[BLOCK..2 * BLOCK].iter_mut().enumerate() {
        *byte = (at / 100) as u8;
    }
    image.bytes[3 * BLOCK + 4095] = 1;
    image.bytes[4 * BLOCK..].fill(0xAB);
    assert!(Image::parse(&image.to_text()) == image);
}
