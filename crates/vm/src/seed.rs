//! The seed disk for cloud-init (NoCloud): a small FAT file system with the label CIDATA.
//!
//! Always true: the same texts produce the same bytes.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};

use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine;
use crate::template::{TemplateKind, Templates, fill};

/// Bytes of the disk: several times the limit of a template.
const SIZE: usize = 4 << 20;
/// The volume label by which cloud-init finds the disk.
const LABEL: [u8; 11] = *b"CIDATA     ";
/// The meta data of a machine without a meta data template.
const META_DATA: &str = "instance-id: ${vm.uuid}\nlocal-hostname: ${vm.name}\n";
/// The user data of a machine without a user data template; NoCloud ignores a disk without user
/// data.
const USER_DATA: &str = "#cloud-config\n{}\n";

/// The files for cloud-init, with placeholders replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The user data.
    pub user_data: String,
    /// The meta data.
    pub meta_data: String,
    /// The network configuration, if there is one.
    pub network_config: Option<String>,
}

impl Seed {
    /// Builds the seed of a machine; returns `None` if cloud-init is not configured.
    ///
    /// # Errors
    /// If a template or one of its values is missing.
    pub fn for_machine(machine: &Machine, templates: &Templates) -> Result<Option<Self>> {
        let cloud_init = &machine.cloud_init;
        if !cloud_init.is_configured() {
            return Ok(None);
        }
        let mut values: BTreeMap<String, String> = cloud_init.values.clone();
        values.insert("vm.name".into(), machine.name.clone());
        values.insert("vm.uuid".into(), machine.uuid.clone());
        if let Some(mac) = machine.network.mac() {
            values.insert("vm.mac".into(), mac.to_string());
        }
        let text = |kind, name: &Option<String>| match name {
            Some(name) => fill(&templates.get(kind, name)?.text, &values).map(Some).map_err(|error| {
                let message = format!("{} template '{name}': {error}", kind.name());
                Error::new(error.kind(), message).hint(error.hint_text().unwrap_or_default())
            }),
            None => Ok(None),
        };
        let user_data =
            text(TemplateKind::UserData, &cloud_init.user_data)?.unwrap_or_else(|| USER_DATA.into());
        let network_config = text(TemplateKind::NetworkData, &cloud_init.network_data)?;
        let meta_data = match text(TemplateKind::MetaData, &cloud_init.meta_data)? {
            Some(text) => text,
            None => fill(META_DATA, &values)?,
        };
        Ok(Some(Self { user_data, meta_data, network_config }))
    }

    /// Returns the bytes of the disk.
    ///
    /// # Errors
    /// If the files do not fit.
    pub fn image(&self) -> Result<Vec<u8>> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Invalid, format!("cannot build the cloud-init seed disk: {error}"))
        };
        let mut bytes = vec![0; SIZE];
        let options = FormatVolumeOptions::new().volume_label(LABEL).volume_id(0x4741_4249);
        fatfs::format_volume(Cursor::new(&mut bytes), options).map_err(failed)?;
        {
            let system = FileSystem::new(Cursor::new(&mut bytes), FsOptions::new()).map_err(failed)?;
            let files = [
                ("user-data", Some(&self.user_data)),
                ("meta-data", Some(&self.meta_data)),
                ("network-config", self.network_config.as_ref()),
            ];
            for (name, text) in files {
                let Some(text) = text else { continue };
                let mut file = system.root_dir().create_file(name).map_err(failed)?;
                file.write_all(text.as_bytes()).map_err(failed)?;
            }
            system.unmount().map_err(failed)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::testing::machine;

    #[test]
    fn a_machine_without_cloud_init_has_no_seed() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Seed::for_machine(&machine(), &Templates::new(home.path().into())).unwrap(), None);
    }

    #[test]
    fn the_seed_contains_the_filled_templates() {
        let home = tempfile::tempdir().unwrap();
        let templates = Templates::new(home.path().into());
        let mut machine = machine();
        machine.cloud_init.user_data = Some("username-setup".into());
        machine.cloud_init.network_data = Some("dhcp".into());
        machine.cloud_init.values.insert("user".into(), "ada".into());
        let error = Seed::for_machine(&machine, &templates).unwrap_err();
        assert!(
            error.to_string().contains("username-setup") && error.to_string().contains("password"),
            "{error}"
        );
        machine.cloud_init.values.insert("password".into(), "$6$x".into());
        let seed = Seed::for_machine(&machine, &templates).unwrap().unwrap();
        assert!(seed.user_data.contains("name: ada") && seed.user_data.contains("\"$6$x\""), "{seed:?}");
        assert_eq!(seed.meta_data, format!("instance-id: {}\nlocal-hostname: web\n", machine.uuid));

        let image = seed.image().unwrap();
        assert_eq!(image, seed.image().unwrap(), "the same texts make the same bytes");
        let system = FileSystem::new(Cursor::new(image), FsOptions::new()).unwrap();
        assert_eq!(system.volume_label(), "CIDATA");
        assert_eq!(system.read_volume_label_from_root_dir().unwrap().unwrap(), "CIDATA");
        let read = |name: &str| {
            let mut text = String::new();
            system.root_dir().open_file(name).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!((read("user-data"), read("meta-data")), (seed.user_data, seed.meta_data));
        assert_eq!(Some(read("network-config")), seed.network_config);
    }
}
