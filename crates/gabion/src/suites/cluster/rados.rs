//! A pool of a Ceph cluster as a benchmark target of `rados bench`.
//!
//! Always true: the objects are in a namespace of the pool with the name of the run, and only those
//! are removed.

use ::cluster::VOLUMES_DATA_POOLS;
use anyhow::{Context, Result, bail};
use api::Size;
use bench::load::{RadosTarget, Target};
use bench::network::NetworkPath;
use bench::rados;
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::{ClusterOptions, link_text, network, pools, run_name};

/// The benchmark target.
pub(crate) struct RadosSystem {
    name: String,
    options: ClusterOptions,
    shape: String,
    protection: String,
    network: Option<NetworkPath>,
    /// The daemons of the cluster on this machine.
    daemons: Vec<u32>,
    running: Option<(RadosTarget, Vec<TargetExtent>)>,
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

    fn start(&mut self, requirements: &Requirements<'_>) -> Result<()> {
        let workspace = self.options.workspace()?;
        let named = match &self.options.pool {
            Some(pool) => vec![pool.as_str()],
            None => VOLUMES_DATA_POOLS.to_vec(),
        };
        let pool = pools::find(&workspace, &named)?;
        let count = requirements.instances.max(1);
        let bytes = pools::size(&pool, count, self.options.bytes, requirements.instance_bytes)?;
        let access = workspace.admin_access();
        let target = RadosTarget {
            conf: access.conf,
            user: access.user,
            keyring: access.keyring,
            pool: pool.name.clone(),
            namespace: run_name(requirements.folder, &self.name)?.trim_end_matches('-').to_owned(),
            write_max: pools::write_max(&pool, count, bytes),
        };
        let removed = rados::remove_objects(&target).map_err(anyhow::Error::msg);
        removed.context("removing objects of a killed run")?;
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
        self.running = Some((target, vec![extent; count as usize]));
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
        self.running.as_ref().map(|(_, extents)| extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        // The load is the client.
        self.daemons.clone()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let message = "a target 'rados' fails no drives: stop an OSD of the cluster";
        Err(SystemError::new(&self.name, "failing a drive", message))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some((target, _)) = self.running.take() else { return Ok(()) };
        rados::remove_objects(&target).map_err(|error| SystemError::new(&self.name, "tearing down", error))
    }
}

impl Drop for RadosSystem {
    fn drop(&mut self) {
        // Reported by `tear_down` otherwise.
        let _ = self.tear_down();
    }
}
