//! Which format an image is taken for.

use super::*;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn what_begins_like_no_other_format_is_raw() {
    let (_directory, path) = file("disk", &[7; 1000]);
    let image = Image::look(&path, None).unwrap();
    assert_eq!((image.format(), image.size), ("raw", 1000));
}

#[test]
fn what_it_is_named_and_what_it_is_must_agree() {
    let (_directory, path) = file("disk.qcow2", &[7; 1000]);
    let error = Image::look(&path, None).unwrap_err().to_string();
    assert!(error.contains("named like an image of the format 'qcow2'"), "{error}");
    assert_eq!(Image::look(&path, Some(Format::Raw)).unwrap().size, 1000);
}

#[test]
fn a_magic_is_found_where_it_belongs() {
    assert!(has_magic(b"QFI\xfb and more"));
    assert!(!has_magic(b"QFI"));
    assert!(!has_magic(b" QFI\xfb"));
    let mut vdi = vec![0; 64];
    assert!(!has_magic(&vdi));
    vdi.extend(b"\x7f\x10\xda\xbe");
    assert!(has_magic(&vdi));
}

#[test]
fn files_without_bytes_and_what_is_no_file_are_refused() {
    let (directory, path) = file("disk.img", &[]);
    assert!(Image::look(&path, None).unwrap_err().to_string().contains("is empty"));
    assert!(Image::look(directory.path(), None).unwrap_err().to_string().contains("is not a file"));
}

#[test]
fn a_new_images_name_says_its_format() {
    for (name, format) in [("a", Format::Raw), ("a.img", Format::Raw), ("a.b.QCOW2", Format::Qcow2)] {
        assert_eq!(Format::to_write(Path::new(name)).unwrap(), format, "{name}");
    }
    assert!(Format::to_write(Path::new("a.vmdk")).is_err());
}

#[test]
fn what_another_program_says_of_its_progress_is_understood() {
    for (text, hundredths) in [
        ("    (0.00/100%)\r", Some(0)),
        ("    (12.34/100%)\r    (56.78/100%)\r    (9", Some(5678)),
        ("    (100.00/100%)\r", Some(10_000)),
        ("12.34/100%)", None),
        ("(x.34/100%)", None),
        ("", None),
    ] {
        assert_eq!(program::hundredths(text), hundredths, "{text}");
    }
}

#[test]
fn blocks_of_zeros_are_left_out() {
    let mut bytes = vec![0; 5 * 4096 + 100];
    assert!(extents::not_zero(&bytes).is_empty());
    for at in [4096, 3 * 4096 - 1, 5 * 4096 + 99] {
        bytes[at] = 1;
    }
    assert_eq!(extents::not_zero(&bytes), [4096..3 * 4096, 5 * 4096..5 * 4096 + 100]);
}
