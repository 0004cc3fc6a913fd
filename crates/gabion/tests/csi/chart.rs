//! The Helm chart, as Helm checks and renders it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::sanity::find_go_program;

/// The values of a cluster that uses a storage server.
const NETWORK: [&str; 3] =
    ["attach=nvme-tcp", "server.url=https://storage-1:9188", "server.tokenSecret=storage-1"];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/gabion-csi")
}

/// Runs Helm on the chart with these values.
fn helm(program: &Path, command: &[&str], values: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut helm = Command::new(program);
    helm.args(command).arg(chart()).env("HOME", home.path());
    values.iter().for_each(|value| {
        helm.args(["--set", value]);
    });
    helm.output().unwrap()
}

/// Returns the rendered objects, one text for each.
fn render(program: &Path, values: &[&str]) -> Vec<String> {
    let output = helm(program, &["template", "release"], values);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{values:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("\n---\n").map(str::to_owned).collect()
}

/// Returns the objects of a kind.
fn of_kind<'a>(objects: &'a [String], kind: &str) -> Vec<&'a str> {
    let line = format!("kind: {kind}");
    objects.iter().map(String::as_str).filter(|text| text.lines().any(|found| found == line)).collect()
}

fn refusal(program: &Path, values: &[&str]) -> String {
    let output = helm(program, &["template", "release"], values);
    assert!(!output.status.success(), "{values:?} was not refused");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_chart_renders_the_objects_of_each_form() {
    let Some(program) = find_go_program("helm") else { return };
    let lint = helm(&program, &["lint", "--strict"], &[]);
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));

    let local = render(&program, &[]);
    assert!(of_kind(&local, "Deployment").is_empty() && of_kind(&local, "ServiceMonitor").is_empty());
    let [node] = of_kind(&local, "DaemonSet")[..] else { panic!("{local:?}") };
    for text in
        ["hostNetwork: true", "- --controller", "- --expand-on-node", "- --attach=local", "privileged: true"]
    {
        assert!(node.contains(text), "{text}: {node}");
    }
    let [driver] = of_kind(&local, "CSIDriver")[..] else { panic!("{local:?}") };
    assert!(driver.contains("attachRequired: false") && driver.contains("storageCapacity: true"), "{driver}");

    let single = render(&program, &["singleNode=true"]);
    assert!(!of_kind(&single, "DaemonSet")[0].contains("--expand-on-node"));

    let network = render(&program, &[&NETWORK[..], &["controller.replicas=2"]].concat());
    let [controller] = of_kind(&network, "Deployment")[..] else { panic!("{network:?}") };
    for text in ["replicas: 2", "- --attach=nvme-tcp", "csi-attacher", "name: storage-1"] {
        assert!(controller.contains(text), "{text}: {controller}");
    }
    let node = of_kind(&network, "DaemonSet")[0];
    assert!(node.contains("automountServiceAccountToken: false") && !node.contains("--controller"), "{node}");
    assert!(of_kind(&network, "CSIDriver")[0].contains("attachRequired: true"));
}

#[test]
fn the_chart_lets_prometheus_find_the_daemons() {
    let Some(program) = find_go_program("helm") else { return };
    let monitored =
        ["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prometheus"];
    let local = render(&program, &monitored);
    let [monitor] = of_kind(&local, "ServiceMonitor")[..] else { panic!("{local:?}") };
    for text in ["release: prometheus", "jobLabel: gabion.io/job", "port: metrics", "targetLabel: node"] {
        assert!(monitor.contains(text), "{text}: {monitor}");
    }
    // The Service that it selects has the pods of the nodes as endpoints.
    let [service] = of_kind(&local, "Service")[..] else { panic!("{local:?}") };
    for text in ["component: metrics", "gabion.io/job: gabion", "component: node", "targetPort: 9187"] {
        assert!(service.contains(text), "{text}: {service}");
    }
    assert!(of_kind(&local, "Endpoints").is_empty());

    let network = [&NETWORK[..], &monitored, &["metrics.port=9200"]].concat();
    assert!(refusal(&program, &network).contains("metrics.addresses"));
    let network = render(&program, &[&network[..], &["metrics.addresses={10.0.0.1,fd00::1}"]].concat());
    let [endpoints] = of_kind(&network, "Endpoints")[..] else { panic!("{network:?}") };
    for text in ["- ip: \"10.0.0.1\"", "- ip: \"fd00::1\"", "port: 9200", "name: release-metrics"] {
        assert!(endpoints.contains(text), "{text}: {endpoints}");
    }
    assert!(!of_kind(&network, "Service")[0].contains("selector"), "the server is no pod");
}

#[test]
fn the_schema_of_the_chart_knows_all_values_and_refuses_others() {
    let Some(program) = find_go_program("helm") else { return };
    for (values, named) in [
        (&["attach=ceph"][..], "attach"),
        (&["colour=red"], "colour"),
        (&["metrics.port=0"], "port"),
        (&["metrics.serviceMonitor.interval=soon"], "interval"),
        (&["server.url=http://storage-1"], "url"),
        (&["storageClasses[0].name=a", "storageClasses[0].parameters.fsType=btrfs"], "fsType"),
        (&["storageClasses[0].name=a", "storageClasses[0].parameters.colour=red"], "colour"),
        (&["attach=nvme-tcp"], "server.url"),
        (&["attach=nvme-tcp", "server.url=https://a"], "tokenSecret"),
    ] {
        let refused = refusal(&program, values);
        assert!(refused.contains(named), "{values:?}: {refused}");
    }
    // The values have every property of the schema, and Helm has checked the other direction.
    let schema = std::fs::read(chart().join("values.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&schema).unwrap();
    let values = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let described: BTreeSet<&str> = values
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '-']))
        .filter_map(|line| line.split_once(':').map(|(key, _)| key))
        .collect();
    let properties = schema["properties"].as_object().unwrap();
    // Helm adds 'global' for charts of charts.
    let known: BTreeSet<&str> =
        properties.keys().map(String::as_str).filter(|key| *key != "global").collect();
    assert_eq!(known, described);
    assert_eq!(schema["additionalProperties"], false);
}
