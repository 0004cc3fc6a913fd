//! Tests of the detection of image formats.

use super::*;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn a_file_without_a_signature_is_raw() {
    let (_directory, path) = file("disk", &[7; 1000]);
    let image = Image::inspect(&path, None).unwrap();
    assert_eq!((image.format.as_str(), image.size), ("raw", 1000));
}

#[test]
fn extension_and_signature_must_match() {
    let (_directory, path) = file("disk.qcow2", &[7; 1000]);
    let error = Image::inspect(&path, None).unwrap_err().to_string();
    assert!(error.contains("has the extension of the format 'qcow2'"), "{error}");
    assert_eq!(Image::inspect(&path, Some(ImageFormat::Raw)).unwrap().size, 1000);
}

#[test]
fn signatures_are_detected_at_their_offsets() {
    assert!(has_magic(b"QFI\xfb and more"));
    assert!(!has_magic(b"QFI"));
    assert!(!has_magic(b" QFI\xfb"));
    let mut vdi = vec![0; 64];
    assert!(!has_magic(&vdi));
    vdi.extend(b"\x7f\x10\xda\xbe");
    assert!(has_magic(&vdi));
}

#[test]
fn empty_files_and_directories_are_refused() {
    let (directory, path) = file("disk.img", &[]);
    assert!(Image::inspect(&path, None).unwrap_err().to_string().contains("is empty"));
    assert!(Image::inspect(directory.path(), None).unwrap_err().to_string().contains("is not a file"));
}

#[test]
fn the_extension_determines_the_format_of_a_new_image() {
    for (name, format) in
        [("a", ImageFormat::Raw), ("a.img", ImageFormat::Raw), ("a.b.QCOW2", ImageFormat::Qcow2)]
    {
        assert_eq!(format_to_write(Path::new(name)).unwrap(), format, "{name}");
    }
    assert!(format_to_write(Path::new("a.vmdk")).is_err());
}

#[test]
fn progress_output_of_qemu_img_is_parsed() {
    for (text, hundredths) in [
        ("    (0.00/100%)\r", Some(0)),
        ("    (12.34/100%)\r    (56.78/100%)\r    (9", Some(5678)),
        ("    (100.00/100%)\r", Some(10_000)),
        ("12.34/100%)", None),
        ("(x.34/100%)", None),
        ("", None),
    ] {
        assert_eq!(qemu_img::hundredths(text), hundredths, "{text}");
    }
}

#[test]
fn zero_blocks_are_skipped() {
    let mut bytes = vec![0; 5 * 4096 + 100];
    assert!(extents::nonzero_ranges(&bytes).is_empty());
    for at in [4096, 3 * 4096 - 1, 5 * 4096 + 99] {
        bytes[at] = 1;
    }
    assert_eq!(extents::nonzero_ranges(&bytes), [4096..3 * 4096, 5 * 4096..5 * 4096 + 100]);
}
