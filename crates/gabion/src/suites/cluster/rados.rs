//! A pool of a Ceph cluster as a benchmark target of `rados bench`.
//!
//! Always true: the objects are in a namespace of the pool with the name of the run, and only those
//! are removed.

use std::path::{Path, PathBuf};

use ::cluster::{VOLUMES_DATA_POOLS, Workspace};
use anyhow::{Result, bail};
use api::Size;
use api::types::ClusterPool;
use bench::load::{RadosTarget, Target};
use bench::network::NetworkPath;
use bench::rados;
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::super::cleanup_record::CleanupRecord;
use super::pools::Sharing;
use super::{ClusterOptions, link_text, network, new_record, pools};

/// The benchmark target.
pub(crate) struct RadosSystem {
    name: String,
    options: ClusterOptions,
    shape: String,
    protection: String,
    network: Option<NetworkPath>,
    /// The daemons of the cluster on this machine.
    daemons: Vec<u32>,
    /// The folder of the run, the namespace, and the parts of the instances.
    running: Option<(PathBuf, RadosTarget, Vec<TargetExtent>)>,
}

impl RadosSystem {
    /// Parses the name of the cluster and the options of the target.
    ///
    /// # Errors
    /// If an option is invalid, or there is no such cluster or no program.
    pub(crate) fn parse(name: &str, options: &str) -> Result<Self> {
        let options = ClusterOptions::parse("rados", options, |_, _| false)?;
        if let Some(requirement) = rados::missing_requirement() {
            bail!("{name}: {requirement}");
        }
        let (shape, protection) = (String::new(), String::new());
        Ok(Self {
            name: name.into(),
            options,
            shape,
            protection,
            network: None,
            daemons: Vec::new(),
            running: None,
        })
    }

    fn pool(&self, workspace: &Workspace) -> Result<ClusterPool> {
        match &self.options.pool {
            Some(pool) => pools::find(workspace, &[pool]),
            None => pools::find(workspace, &VOLUMES_DATA_POOLS),
        }
    }

    /// Returns a namespace of a pool, to which nothing may be written yet.
    fn target(workspace: &Workspace, pool: &str, namespace: &str) -> RadosTarget {
        let access = workspace.admin_access();
        RadosTarget {
            conf: access.conf,
            user: access.user,
            keyring: access.keyring,
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            write_max: 0,
        }
    }

    fn remove_objects(&self, folder: &Path, target: &RadosTarget) -> Result<()> {
        rados::remove_objects(target).map_err(anyhow::Error::msg)?;
        CleanupRecord::forget(folder, &self.name)
    }

    /// Removes objects of a killed process of this run, or of a failed removal.
    fn remove_stale(&self, folder: &Path) -> Result<()> {
        let Some(record) = CleanupRecord::find(folder, &self.name)? else { return Ok(()) };
        let workspace = self.options.workspace()?;
        let pool = record.pool.unwrap_or_default();
        // A deleted pool has no objects.
        if !::cluster::status(&workspace)?.pools.iter().any(|one| one.name == pool) {
            return CleanupRecord::forget(folder, &self.name);
        }
        self.remove_objects(folder, &Self::target(&workspace, &pool, &record.name))
    }

    fn start(&mut self, requirements: &Requirements<'_>) -> Result<()> {
        let workspace = self.options.workspace()?;
        let pool = self.pool(&workspace)?;
        let sharing = Sharing::new(requirements);
        let bytes = pools::size(&pool, sharing, self.options.bytes, requirements.instance_bytes)?;
        self.remove_stale(requirements.folder)?;
        let record =
            CleanupRecord { pool: Some(pool.name.clone()), ..new_record(requirements.folder, &self.name)? };
        record.store(requirements.folder, &self.name)?;
        let write_max = pools::write_max(&pool, sharing, bytes);
        let target = RadosTarget { write_max, ..Self::target(&workspace, &pool.name, &record.name) };
        let path = network::find(&workspace, Some(&pool.protection), self.options.link_gbits, false)?;
        self.shape = format!(
            "rados bench with {} of objects in pool {} ({}) of cluster '{}', {}",
            Size(bytes),
            pool.name,
            pool.protection,
            self.options.cluster,
            link_text(&path)
        );
        self.protection = format!("{} on different hosts", pool.protection);
        self.network = Some(path);
        self.daemons = ::cluster::local_processes(&workspace);
        let extent = TargetExtent { target: Target::Rados(target.clone()), bytes };
        self.running = Some((requirements.folder.to_owned(), target, vec![extent; sharing.count as usize]));
        Ok(())
    }
}

impl System for RadosSystem {
    fn info(&self) -> SystemInfo {
        SystemInfo {
            name: self.name.clone(),
            what: format!("Ceph: {}", self.shape),
            guarantees: Guarantees {
                flush: "a completed write is on the drives of all copies".into(),
                checksums: "CRC-32C of Ceph's stores, verified on every read; rados bench compares contents"
                    .into(),
                protection: self.protection.clone(),
            },
            takes_drives: false,
            own_contents: true,
            degrades: false,
            layout: None,
            remark: Some("whole objects; without ramp-up and percentiles".into()),
            network: self.network.clone(),
            is_remote: self.daemons.is_empty(),
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        let started = self.start(requirements);
        started.map_err(|error| SystemError::new(&self.name, "setting up", format!("{error:#}")))
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.running.as_ref().map(|(_, _, extents)| extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        // The load is the client.
        self.daemons.clone()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let message = "a target 'rados' fails no drives: stop an OSD of the cluster";
        Err(SystemError::new(&self.name, "failing a drive", message))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let removed = self.remove_stale(folder);
        removed.map_err(|error| {
            SystemError::new(&self.name, "removing objects of a killed run", format!("{error:#}"))
        })
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some((folder, target, _)) = self.running.take() else { return Ok(()) };
        let removed = self.remove_objects(&folder, &target);
        removed.map_err(|error| SystemError::new(&self.name, "tearing down", format!("{error:#}")))
    }
}

impl Drop for RadosSystem {
    fn drop(&mut self) {
        // Reported by `tear_down` otherwise.
        let _ = self.tear_down();
    }
}
