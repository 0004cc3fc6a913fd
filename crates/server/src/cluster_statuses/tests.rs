//! Queries that clients share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::types::{BenchmarkRun, ClusterHealth, HostMachine};

use super::*;

/// A host with one cluster, whose queries wait for a message.
struct SlowHost {
    queries: AtomicUsize,
    release: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl HostObjects for SlowHost {
    fn machines(&self) -> api::Result<Vec<HostMachine>> {
        Ok(Vec::new())
    }

    fn console(&self, machine: &str) -> api::Result<PathBuf> {
        Err(api::Error::new(api::ErrorKind::NotFound, machine))
    }

    fn clusters(&self) -> api::Result<Vec<Cluster>> {
        Ok(vec![Cluster { name: "demo".into(), configured: true, volumes: true }])
    }

    fn cluster(&self, cluster: &str) -> api::Result<ClusterStatus> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        self.release.lock().unwrap().recv().unwrap();
        let empty = serde_json::json!({
            "name": cluster, "fsid": "", "adopted": false, "health": "unreachable", "problems": [], "replicas": 3,
            "monitors_in_quorum": [], "monitors": [], "manager": null, "capacity": 0, "free": 0, "stored": 0,
            "placement_groups": {}, "read_bytes": 0, "write_bytes": 0, "recovery_bytes": 0, "pools": [],
            "hosts": [], "osds": [],
        });
        Ok(serde_json::from_value(empty).unwrap())
    }

    fn runs(&self) -> api::Result<Vec<BenchmarkRun>> {
        Ok(Vec::new())
    }

    fn report(&self, run: &str) -> api::Result<String> {
        Err(api::Error::new(api::ErrorKind::NotFound, run))
    }
}

#[tokio::test]
async fn clients_share_one_query_of_a_cluster() {
    let (release, wait) = std::sync::mpsc::channel();
    let host = Arc::new(SlowHost { queries: AtomicUsize::new(0), release: Mutex::new(wait) });
    let statuses = Arc::new(ClusterStatuses::new(host.clone()));
    let ask = || {
        let statuses = statuses.clone();
        tokio::spawn(async move { statuses.get("demo").await })
    };
    let gone = ask();
    while host.queries.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // The query continues without its client, and others wait for it.
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let clients: Vec<_> = (0..20).map(|_| ask()).collect();
    release.send(()).unwrap();
    for client in clients {
        assert_eq!(client.await.unwrap().unwrap().health, ClusterHealth::Unreachable);
    }
    assert_eq!(host.queries.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_unknown_cluster_is_not_queried() {
    let (_release, wait) = std::sync::mpsc::channel();
    let host = Arc::new(SlowHost { queries: AtomicUsize::new(0), release: Mutex::new(wait) });
    let statuses = ClusterStatuses::new(host.clone());
    let error = statuses.get("other").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(host.queries.load(Ordering::SeqCst), 0);
    assert!(statuses.locked().is_empty());
}
