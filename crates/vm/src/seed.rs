//! The disk from which cloud-init in a guest learns what it is to do (NoCloud): a small FAT file system called CIDATA.
//!
//! Always true: the same texts make the same bytes.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};

use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine;
use crate::template::{Kind, Templates, fill};

/// Bytes of the disk: the templates' limit, several times.
const SIZE: usize = 4 << 20;
/// The name by which cloud-init looks for it.
const LABEL: [u8; 11] = *b"CIDATA     ";
/// The meta data of a machine for which no template is named.
const META_DATA: &str = "instance-id: ${vm.uuid}\nlocal-hostname: ${vm.name}\n";
/// Likewise the user data, without which NoCloud takes no disk.
const USER_DATA: &str = "#cloud-config\n{}\n";

/// What cloud-init is told, filled in.
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
    /// A machine's; none if it is told nothing.
    ///
    /// # Errors
    /// When a template is missing, or something to fill it in with.
    pub fn of(machine: &Machine, templates: &Templates) -> Result<Option<Self>> {
        let told = &machine.cloud_init;
        if !told.is_wanted() {
            return Ok(None);
        }
        let mut values: BTreeMap<String, String> = told.values.clone();
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
        let user_data = text(Kind::UserData, &told.user_data)?.unwrap_or_else(|| USER_DATA.into());
        let network_config = text(Kind::NetworkData, &told.network_data)?;
        let meta_data = match text(Kind::MetaData, &told.meta_data)? {
            Some(text) => text,
            None => fill(META_DATA, &values)?,
        };
        Ok(Some(Self { user_data, meta_data, network_config }))
    }

    /// The disk.
    ///
    /// # Errors
    /// When it does not all fit.
    pub fn image(&self) -> Result<Vec<u8>> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Invalid, format!("the seed for cloud-init: {error}"))
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
    fn a_machine_that_is_told_nothing_has_no_seed() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Seed::of(&machine(), &Templates::new(home.path().into())).unwrap(), None);
    }

    #[test]
    fn the_seed_has_what_the_templates_say() {
        let home = tempfile::tempdir().unwrap();
        let templates = Templates::new(home.path().into());
        let mut machine = machine();
        machine.cloud_init.user_data = Some("username-setup".into());
        machine.cloud_init.network_data = Some("dhcp".into());
        machine.cloud_init.values.insert("user".into(), "ada".into());
        let error = Seed::of(&machine, &templates).unwrap_err();
        assert!(
            error.to_string().contains("username-setup") && error.to_string().contains("password"),
            "{error}"
        );
        machine.cloud_init.values.insert("password".into(), "$6$x".into());
        let seed = Seed::of(&machine, &templates).unwrap().unwrap();
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
