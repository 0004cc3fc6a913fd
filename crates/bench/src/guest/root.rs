//! The initramfs of a guest: kernel modules, programs of the host with their libraries, and an init
//! that serves requests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use super::GuestError;
use super::archive::Archive;
use crate::program::{command, is_installed};

/// An unpacked kernel of the distribution.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Returns the newest kernel below `place`.
    pub(super) fn find(place: &Path) -> Result<Self, GuestError> {
        let none = |what: &str| {
            let place = place.display();
            GuestError::Kernel(format!(
                "there is no {what} in {place}: say kernel=DIR, where a package of your distribution is unpacked ('./run setup' \
                 unpacks one into target/guest)"
            ))
        };
        let images = std::fs::read_dir(place.join("boot")).map_err(|_| none("kernel (boot/vmlinuz-*)"))?;
        let version = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            name.strip_prefix("vmlinuz-").map(str::to_owned)
        };
        let mut found: Vec<(String, PathBuf)> =
            images.flatten().filter_map(|entry| Some((version(&entry.path())?, entry.path()))).collect();
        found.sort();
        let Some((version, image)) = found.pop() else { return Err(none("kernel (boot/vmlinuz-*)")) };
        let places = ["lib/modules", "usr/lib/modules"].map(|folder| place.join(folder).join(&version));
        let modules = places.into_iter().find(|folder| folder.join("kernel").is_dir());
        Ok(Self { image, modules: modules.ok_or_else(|| none("lib/modules of its kernel"))? })
    }

    /// Returns the files of `wanted` and their dependencies, in load order. `needs` returns the
    /// dependencies of a file.
    fn closure(
        &self,
        wanted: &[&str],
        needs: &impl Fn(&Path) -> Result<Vec<String>, GuestError>,
    ) -> Result<Vec<PathBuf>, GuestError> {
        let mut files = BTreeMap::new();
        index(&self.modules.join("kernel"), &mut files)
            .map_err(|error| GuestError::file(&self.modules, error))?;
        let text = std::fs::read_to_string(self.modules.join("modules.builtin")).unwrap_or_default();
        let built_in: BTreeSet<String> = text.lines().map(module_name).collect();
        let mut order = Vec::new();
        for name in wanted {
            self.push_with_dependencies(name, &files, &built_in, needs, &mut order)?;
        }
        Ok(order)
    }

    /// Adds a module to the order, push_with_dependencies its dependencies.
    fn push_with_dependencies(
        &self,
        name: &str,
        files: &BTreeMap<String, PathBuf>,
        built_in: &BTreeSet<String>,
        needs: &impl Fn(&Path) -> Result<Vec<String>, GuestError>,
        order: &mut Vec<PathBuf>,
    ) -> Result<(), GuestError> {
        let Some(path) = files.get(name) else {
            let kernel = self.image.display();
            let missing = || GuestError::Kernel(format!("{kernel} has no module '{name}'"));
            return if built_in.contains(name) { Ok(()) } else { Err(missing()) };
        };
        if order.contains(path) {
            return Ok(());
        }
        // Modules have no dependency cycles: the kernel could not load them.
        for other in needs(path)? {
            self.push_with_dependencies(&other, files, built_in, needs, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// Indexes the files of all modules below a folder by name.
fn index(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            index(&path, files)?;
        } else if path.to_string_lossy().contains(".ko") {
            files.insert(module_name(&path.to_string_lossy()), path);
        }
    }
    Ok(())
}

/// Returns the modules that a module file depends on.
fn needs(file: &Path) -> Result<Vec<String>, GuestError> {
    Ok(parse_needs(&unpacked(file)?))
}

/// Parses `depends=` in a module's information strings, which end with a zero byte and have commas
/// between names.
fn parse_needs(module: &[u8]) -> Vec<String> {
    let mut texts = module.split(|byte| *byte == 0);
    let Some(list) = texts.find_map(|text| text.strip_prefix(b"depends=")) else { return Vec::new() };
    let names = String::from_utf8_lossy(list).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// Returns a module's name from the path of its file.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// Returns a statically linked shell: one unpacked next to the kernel, or that of the host.
pub(super) fn shell(kernel: &Path) -> Result<PathBuf, GuestError> {
    let unpacked = kernel.join("bin/busybox");
    if unpacked.is_file() { Ok(unpacked) } else { found("busybox") }
}

/// Writes the initramfs.
pub(super) fn write(
    to: &Path,
    kernel: &Kernel,
    modules: &[&str],
    (shell, programs): (&Path, &[&str]),
) -> Result<(), GuestError> {
    let at = |error| GuestError::file(to, error);
    let mut archive = Archive::new(BufWriter::new(std::fs::File::create(to).map_err(at)?));
    for folder in ["dev", "proc", "sys", "tmp", "run", "etc"] {
        archive.folder(Path::new(folder)).map_err(at)?;
    }
    let mut loads = String::new();
    for module in kernel.closure(modules, &needs)? {
        let data = unpacked(&module)?;
        let name = module_name(&module.to_string_lossy());
        archive.file(Path::new(&format!("modules/{name}.ko")), &data).map_err(at)?;
        loads.push_str(&format!("insmod /modules/{name}.ko\n"));
    }
    let mut wanted = vec![shell.to_owned()];
    for program in programs {
        wanted.push(found(program)?);
    }
    for program in &wanted {
        let name = program.file_name().unwrap_or_default();
        add(&mut archive, program, &Path::new("bin").join(name)).map_err(at)??;
        for library in libraries(program)? {
            add(&mut archive, &library, &library).map_err(at)??;
        }
    }
    archive.file(Path::new("init"), INIT.replace("@MODULES@", &loads).as_bytes()).map_err(at)?;
    let mut file = archive.finish().map_err(at)?;
    std::io::Write::flush(&mut file).map_err(at)
}

/// Adds a file of the host; the outer error is the archive's.
fn add<W: std::io::Write>(
    archive: &mut Archive<W>,
    from: &Path,
    to: &Path,
) -> std::io::Result<Result<(), GuestError>> {
    match std::fs::read(from) {
        Ok(data) => archive.file(to, &data).map(Ok),
        Err(error) => Ok(Err(GuestError::file(from, error))),
    }
}

/// Returns a module uncompressed.
fn unpacked(module: &Path) -> Result<Vec<u8>, GuestError> {
    let read = || std::fs::read(module).map_err(|error| GuestError::file(module, error));
    let program = match module.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return read(),
    };
    let output = command(program).arg("-dc").arg(module).output();
    let output = output.map_err(|error| GuestError::file(Path::new(program), error))?;
    if output.status.success() { Ok(output.stdout) } else { read() }
}

fn found(program: &str) -> Result<PathBuf, GuestError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(more);
    let none = || GuestError::Kernel(format!("{program} is not installed"));
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file())).ok_or_else(none)
}

/// Returns the libraries of a program, including its loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, GuestError> {
    if !is_installed("ldd") {
        return Err(GuestError::Kernel("ldd is not installed".into()));
    }
    // ldd fails for a program without libraries.
    let output = command("ldd").arg(program).output();
    let output = output.map_err(|error| GuestError::file(program, error))?;
    Ok(parse_libraries(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses paths in lines such as `libx.so => /lib/libx.so (0x...)` and `/lib64/ld.so (0x...)`.
fn parse_libraries(text: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let line = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = line.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(of_line).collect()
}

/// The init: loads drivers, then serves requests as described in `agent.rs`.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=90% tmp /tmp
mkdir -p /dev/shm
cd /tmp
@MODULES@
while ! ls /dev/vport* >/dev/null 2>&1; do sleep 0.1; done
exec 3<>"$(ls /dev/vport* | head -n 1)"
while :; do
  if IFS=' ' read -r number digits <&3; then
    printf '%s' "$digits" | xxd -r -p >/run/script
    sh /run/script >/run/output 2>&1 </dev/null 3>&-
    status=$?
    { echo "$number $status $(stat -c %s /run/output)"; cat /run/output; } >&3
  else
    sleep 0.1
  fi
done
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_their_dependencies() {
        let place = tempfile::tempdir().unwrap();
        let missing = Kernel::find(place.path()).unwrap_err().to_string();
        assert!(missing.contains("./run setup"), "{missing}");
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("boot/vmlinuz-6.1.0-9", "");
        write("boot/vmlinuz-6.12.1", "");
        for file in ["md/raid456.ko", "a/async_xor.ko", "a/xor.ko", "v/virtio-pci.ko.xz"] {
            write(&format!("lib/modules/6.12.1/kernel/{file}"), "");
        }
        write("lib/modules/6.12.1/modules.builtin", "kernel/v/virtio_blk.ko\n");
        let kernel = Kernel::find(place.path()).unwrap();
        assert!(kernel.image.ends_with("boot/vmlinuz-6.12.1"));
        let needs = |file: &Path| {
            let list: &[&str] = match module_name(&file.to_string_lossy()).as_str() {
                "raid456" => &["xor", "async_xor", "virtio_blk"],
                "async_xor" => &["xor"],
                _ => &[],
            };
            Ok(list.iter().map(|name| (*name).to_owned()).collect())
        };
        let names = |wanted: &[&str]| {
            let files = kernel.closure(wanted, &needs).unwrap();
            files.iter().map(|path| module_name(&path.to_string_lossy())).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&["raid456", "virtio_pci", "virtio_blk"]),
            ["xor", "async_xor", "raid456", "virtio_pci"]
        );
        assert!(kernel.closure(&["btrfs"], &needs).unwrap_err().to_string().contains("no module 'btrfs'"));
    }

    #[test]
    fn dependencies_of_a_module_are_parsed() {
        let module = b"\x7fELF\0\0license=GPL\0depends=md-mod,async_xor\0name=raid456\0\0";
        assert_eq!(parse_needs(module), ["md_mod", "async_xor"]);
        assert!(parse_needs(b"\0depends=\0x").is_empty() && parse_needs(b"").is_empty());
    }

    #[test]
    fn libraries_are_parsed_from_ldd_output() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\tlibz.so => not found\n\t/lib64/ld.so.2 (0x3)\n";
        let paths: Vec<PathBuf> = ["/lib/x/libc.so.6", "/lib64/ld.so.2"].map(PathBuf::from).to_vec();
        assert_eq!(parse_libraries(text), paths);
        assert!(parse_libraries("\tnot a dynamic executable\n").is_empty());
    }
}
