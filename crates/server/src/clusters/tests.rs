//! Tests without a cluster: names, files and stored addresses.

use super::*;

#[tokio::test]
async fn a_cluster_that_does_not_answer_occupies_a_limited_number_of_threads() {
    let (_directory, clusters) = clusters();
    let mut clusters = Arc::try_unwrap(clusters).ok().unwrap();
    clusters.limit = Duration::from_millis(50);
    let mut waiting = Vec::new();
    let mut releases = Vec::new();
    let clusters = Arc::new(clusters);
    for _ in 0..THREADS {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        releases.push(release);
        let clusters = clusters.clone();
        let work = move || {
            // Ends with an error when the sender is dropped.
            let _ = wait.recv();
            Ok(())
        };
        waiting.push(tokio::spawn(async move { clusters.on_thread("demo", work).await }));
    }
    while clusters.called("demo").threads.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let refused = clusters.on_thread("demo", || Ok(())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable);
    assert_eq!(refused.hint_text(), Some("'gabion cluster status demo' shows its problems"));
    clusters.on_thread("other", || Ok(())).await.unwrap();
    drop(releases);
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    clusters.on_thread("demo", || Ok(())).await.unwrap();
}

fn clusters() -> (tempfile::TempDir, Arc<Clusters>) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    config.clusters_directory = directory.path().join("clusters");
    config.state_dir = directory.path().to_owned();
    std::fs::create_dir_all(config.clusters_directory.join("demo")).unwrap();
    (directory, Clusters::new(&config))
}

#[test]
fn a_cluster_exists_once_it_has_its_configuration() {
    let (_directory, clusters) = clusters();
    assert!(!clusters.contains("demo"));
    std::fs::write(clusters.directory.join("demo/ceph.conf"), "[global]\nmon_host = 10.0.0.1\n").unwrap();
    assert!(clusters.contains("demo"));
    for name in ["", "..", "../demo", "demo/", "other", "-demo"] {
        assert!(!clusters.contains(name), "{name}");
    }
}

#[tokio::test]
async fn a_cluster_without_a_key_for_volumes_names_the_stage() {
    let (_directory, clusters) = clusters();
    std::fs::write(clusters.directory.join("demo/ceph.conf"), "[global]\nmon_host = 10.0.0.1\n").unwrap();
    let error = clusters.volumes("demo").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.hint_text(), Some("run 'gabion cluster services demo'"));
}

#[test]
fn a_connection_that_is_being_made_delays_no_other_cluster() {
    let (_directory, clusters) = clusters();
    let demo = clusters.called("demo");
    let _connecting = demo.connecting.lock().unwrap();
    assert!(clusters.connection("other").is_err(), "it has no configuration");
}

#[test]
fn addresses_of_earlier_processes_are_kept_up_to_a_limit() {
    let (_directory, clusters) = clusters();
    let mut former = Vec::new();
    for number in 0..ADDRESSES_MAX + 5 {
        former = clusters.record_addresses("demo", &format!("10.0.0.1:0/{number}")).unwrap();
    }
    assert_eq!(former.len(), ADDRESSES_MAX);
    assert_eq!(former.last().unwrap(), &format!("10.0.0.1:0/{}", ADDRESSES_MAX + 3));
    assert!(clusters.record_addresses("other", "10.0.0.2:0/1").unwrap().is_empty());
}
