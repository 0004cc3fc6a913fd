//! Invalid machine definitions are refused.

use super::*;
use crate::testing::machine;

#[test]
fn control_characters_are_refused() {
    let boot = |kernel: &str, initramfs: &str, append: &str| Boot::Kernel {
        kernel: kernel.into(),
        initramfs: Some(initramfs.into()),
        append: append.into(),
    };
    let of = |boot| Machine { boot, ..machine() };
    assert!(of(boot("/k", "/i", "a=b \u{e9}")).check().is_ok());
    let volume = Disk { volume: "fast/\u{1}".into(), made: true, read_only: false };
    for wrong in [
        of(boot("/k\0", "/i", "a")),
        of(boot("/k", "/i\n", "a")),
        of(boot("/k", "/i", "a\u{1b}b")),
        of(boot("/k", "/i", "a\u{ffff}b")),
        Machine { uuid: "9d1b\u{7f}".into(), ..machine() },
        Machine { disks: vec![volume], ..machine() },
        Machine { qemu: vec!["-x\0".into()], ..machine() },
    ] {
        let error = wrong.check().unwrap_err();
        assert!(error.to_string().contains("contains a control character"), "{error}");
    }
}
