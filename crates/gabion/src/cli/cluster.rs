//! Arguments of `gabion cluster`.

use std::path::PathBuf;

use ::cluster::{CLUSTERS_DIR, PoolSpec, ProposalArgs, Redundancy};
use clap::{Args, Subcommand};

/// Deploy and monitor Ceph clusters: storage across many servers
///
/// A cluster is deployed in stages, from a hosts file and a policy file: prepare, discover,
/// configure, deploy. Each stage can be repeated and then performs only the steps that are still
/// needed. Hosts are reached by SSH, or are network namespaces of this machine. Needs root; Ceph
/// comes from the packages of the distribution.
#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    Prepare(PrepareArgs),
    Discover(DiscoverArgs),
    Configure(ConfigureArgs),
    Deploy(DeployArgs),
    Services(ServicesArgs),
    Adopt(AdoptArgs),
    Status(ClusterStatusArgs),
    /// List the clusters that were prepared on this machine
    List {
        #[command(flatten)]
        place: ClustersDir,
    },
    Remove(RemoveArgs),
    Quickstart(ClusterQuickstartArgs),
}

/// The directory of all clusters.
#[derive(Args, Debug, Clone)]
pub(crate) struct ClustersDir {
    /// Directory of the clusters, on this machine and on the hosts
    #[arg(long, value_name = "DIR", default_value = CLUSTERS_DIR)]
    pub(crate) dir: PathBuf,
}

/// A cluster.
#[derive(Args, Debug, Clone)]
pub(crate) struct ClusterArg {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: ClustersDir,
}

/// Install packages and set kernel limits on the hosts
///
/// Creates the cluster's directory on this machine. Installs the packages of Ceph on all hosts, and
/// chrony on remote hosts without a running time service; raises fs.aio-max-nr.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Hosts file:
  [[host]]
  name = \"osd1\"
  address = \"root@osd1.example\"     # for ssh; or \"local:\", or \"local:NAMESPACE\"
  drives = [\"/dev/sdb\"]             # optional: by default all drives of the machine

Examples:
  gabion cluster prepare prod --hosts hosts.toml --dry-run
  gabion cluster prepare prod --hosts hosts.toml")]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Hosts file
    #[arg(long, value_name = "FILE")]
    pub(crate) hosts: PathBuf,
    /// Print the missing steps and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Take the inventory of the hosts and write proposals
///
/// Reads drives, addresses, memory and processors of each host, and writes fragments to the
/// directory 'proposals' of the cluster: roles, networks, and storage profiles. Existing fragments
/// are kept, except those of the named profiles.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cluster discover prod
  gabion cluster discover prod --proposal \\
    \"name=apollo ratio=9 wal=740-770 db=740-770 target=osd* db-size=40g wal-size=5g data=5000-7000\"")]
pub(crate) struct DiscoverArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Storage profile: name, target (pattern of hosts), ratio, db-ratio, data, wal, db (sizes in
    /// GB), wal-size, db-size, leftovers, standalone [default: all drives, as 'name=default']
    #[arg(long = "proposal", value_name = "ARGUMENTS")]
    pub(crate) proposals: Vec<ProposalArgs>,
    /// Print the result and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Merge the policy and its fragments, and validate the result
///
/// Reports all mistakes of the policy and all violated requirements at once; stores a result only
/// if there are none.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Policy file:
  cluster-ceph/cluster/*.sls
  role-mon/cluster/*.sls slice=[:3]
  role-mgr/cluster/*.sls regex=.*node[12]
  config/stack/default/global.yml
  config/stack/default/ceph/cluster.yml
  profile-default/cluster/*.sls
  profile-default/stack/default/ceph/minions/*.yml

Examples:
  gabion cluster configure prod --policy policy.cfg")]
pub(crate) struct ConfigureArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Policy file; it is copied to 'proposals/policy.cfg' [default: that copy]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Permit fewer than 3 monitors and 4 storage hosts
    #[arg(long)]
    pub(crate) development: bool,
    /// Drive with contents that 'deploy' will erase, as HOST:DRIVE
    #[arg(long, value_name = "HOST:DRIVE")]
    pub(crate) wipe: Vec<String>,
    /// Validate and store nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Deploy monitors, managers and OSDs, until the cluster is healthy
///
/// Starts daemons that do not run, and restarts those whose configuration changed, one after the
/// other. An interrupted deployment continues with the steps that remain.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cluster deploy prod --dry-run
  gabion cluster deploy prod
  gabion cluster deploy prod --wipe osd1:/dev/sdb")]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Erase the contents of a drive, as HOST:DRIVE. Drives in use are always refused
    #[arg(long, value_name = "HOST:DRIVE")]
    pub(crate) wipe: Vec<String>,
    /// Print the steps and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Create pools, volumes, a file system and S3 on a deployed cluster
///
/// Creates what is missing: the pool 'rbd' of volumes and its user; with the role mds in the
/// policy, metadata servers and the file system 'cephfs'; with the role rgw, object gateways on
/// port 7480. An interrupted command continues with the steps that remain.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cluster services prod --dry-run
  gabion cluster services prod
  gabion cluster services prod --volumes ec:2+2
  gabion cluster services prod --pool backup=ec:4+2
  gabion cluster services prod --pool ec22=ec:2+2,rbd    # for 'gabion volume create --data-pool ec22'
  gabion cluster services prod --pool files22=ec:2+2,cephfs")]
pub(crate) struct ServicesArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Redundancy of the data of new volumes, as ec:2+2 or replicated:2 [default: that of the pool
    /// 'rbd', three copies]
    #[arg(long, value_name = "REDUNDANCY")]
    pub(crate) volumes: Option<Redundancy>,
    /// Additional pool, as NAME=ec:4+2 or NAME=replicated:3, and ',APPLICATION' if it has one:
    /// 'rbd' for the data of volumes, 'cephfs' for the data of the file system's directories
    #[arg(long = "pool", value_name = "NAME=REDUNDANCY")]
    pub(crate) pools: Vec<PoolSpec>,
    /// Print the steps and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Use a running cluster that another tool deployed
///
/// Reads the cluster and changes nothing of it. Afterwards 'status', 'services' and volumes work;
/// hosts, drives and daemons stay with the other tool. 'remove --all' forgets the cluster and
/// deletes none of its data.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cluster adopt prod --conf /etc/ceph/ceph.conf --keyring /etc/ceph/ceph.client.admin.keyring")]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Configuration of the cluster, with its monitors
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.conf")]
    pub(crate) conf: PathBuf,
    /// Keyring with the key of client.admin
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.client.admin.keyring")]
    pub(crate) keyring: PathBuf,
}

/// Show health, problems with their consequences and actions, and drives
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit status:
  0  the cluster is healthy
  1  failure
  3  the cluster is degraded, failed or unreachable")]
pub(crate) struct ClusterStatusArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
}

/// Remove a drive or a host, or delete the cluster
///
/// A drive is drained first: its data moves to the other drives. A drive of databases or
/// write-ahead logs is removed with all OSDs that have theirs on it. The removal is refused if the
/// remaining hosts cannot hold all copies. The policy still names a removed host: change it before
/// the next 'gabion cluster configure'.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cluster remove prod osd4:/dev/sdb
  gabion cluster remove prod osd4
  gabion cluster remove test --all --yes")]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    /// Host, drive, or HOST:DRIVE
    #[arg(value_name = "HOST|DRIVE", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) target: Option<String>,
    /// Stop all daemons, erase the drives, and delete all data of the cluster
    #[arg(long)]
    pub(crate) all: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Deploy a small cluster on this machine: four hosts in network namespaces, on file drives
///
/// Creates the namespaces, a bridge with addresses of its own and sparse files, and runs all
/// stages: three monitors, two managers, two OSDs on each host, a file system, and S3. Then exports
/// a volume by NBD and vhost-user, writes data, kills a host and a monitor, and verifies the disk,
/// the file system and S3 after each loss. For trying and testing: all copies are on one machine.
/// '--remove' takes everything down.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cluster quickstart
  gabion cluster quickstart --deploy-only
  gabion cluster status demo
  gabion cluster quickstart --remove")]
pub(crate) struct ClusterQuickstartArgs {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER", default_value = "demo")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: ClustersDir,
    /// Number of hosts, from 3 to 9
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=9))]
    pub(crate) hosts: u8,
    /// Drives of each host
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) drives: u8,
    /// Size of each drive; files are sparse
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub(crate) drive_size: api::Size,
    /// End with HEALTH_OK: create no services, and kill nothing
    #[arg(long)]
    pub(crate) deploy_only: bool,
    /// Remove everything at the end
    #[arg(long, conflicts_with = "deploy_only")]
    pub(crate) once: bool,
    /// Remove the cluster, its namespaces and its files
    #[arg(long, conflicts_with_all = ["deploy_only", "once"])]
    pub(crate) remove: bool,
}
