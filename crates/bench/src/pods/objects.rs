//! The objects of a run in the cluster: for each instance a claim, and a job with one pod that has
//! fio and waits for loads, as those of KBench. Pure.

use serde_json::{Value, json};

/// Label of all objects of a run.
pub(super) const LABEL: &str = "gabion.io/bench";
/// Label of a pod with the number of its instance.
pub(super) const INSTANCE: &str = "gabion.io/bench-instance";
/// Longest label of a run. A label has up to 63 characters, and names of pods have the number of
/// the instance and five letters more.
const RUN_MAX: usize = 63 - 12;

/// The kind of the volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMode {
    /// A file in the file system of the volume.
    Filesystem,
    /// The volume as a block device.
    Block,
}

impl VolumeMode {
    /// Returns the file or device that a load uses.
    pub fn path(self) -> &'static str {
        match self {
            Self::Filesystem => "/volume/test.dat",
            Self::Block => "/volume",
        }
    }
}

/// The objects of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    /// Value of the run's label, which also begins the names of the objects.
    pub run: String,
    /// Number of claims and pods.
    pub instances: u32,
    /// Storage class of the claims.
    pub class: String,
    /// Size of a claim in bytes.
    pub bytes: u64,
    /// Kind of the volumes.
    pub mode: VolumeMode,
    /// Image with fio and a shell.
    pub image: String,
}

/// Returns the value of the label of a run's objects. Different names have different labels: a name
/// that is cut or has other characters than a label ends with its hash.
pub fn run_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(plain).collect();
    if label == name && label.len() <= RUN_MAX && !label.ends_with('-') {
        return label;
    }
    let hash = format!("{:016x}", fnv1a(name.as_bytes()));
    let begin: String = label.chars().take(RUN_MAX - hash.len() - 1).collect();
    format!("{}-{hash}", begin.trim_end_matches('-'))
}

/// Returns the hash FNV-1a of a text with 64 bits, which is the same in all releases.
fn fnv1a(text: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl PodPlan {
    /// Returns the objects as a list.
    pub(super) fn manifest(&self) -> Value {
        let items: Vec<Value> =
            (0..self.instances).flat_map(|instance| [self.claim(instance), self.job(instance)]).collect();
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }

    fn name(&self, instance: u32) -> String {
        format!("{}-{instance}", self.run)
    }

    fn claim(&self, instance: u32) -> Value {
        let mode = match self.mode {
            VolumeMode::Filesystem => "Filesystem",
            VolumeMode::Block => "Block",
        };
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": self.name(instance), "labels": { LABEL: self.run } },
            "spec": {
                "storageClassName": self.class,
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": mode,
                "resources": { "requests": { "storage": self.bytes.to_string() } },
            },
        })
    }

    fn job(&self, instance: u32) -> Value {
        let labels = json!({ LABEL: self.run, INSTANCE: instance.to_string() });
        let mut container = json!({
            "name": "fio",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "trap exit TERM; while true; do sleep 1; done"],
        });
        let (key, mount) = match self.mode {
            VolumeMode::Filesystem => ("volumeMounts", json!([{ "name": "volume", "mountPath": "/volume" }])),
            VolumeMode::Block => ("volumeDevices", json!([{ "name": "volume", "devicePath": "/volume" }])),
        };
        if let Some(fields) = container.as_object_mut() {
            fields.insert(key.to_owned(), mount);
        }
        let claim = json!({ "claimName": self.name(instance) });
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": self.name(instance), "labels": { LABEL: self.run } },
            "spec": {
                "backoffLimit": 0,
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [container],
                        "volumes": [{ "name": "volume", "persistentVolumeClaim": claim }],
                    },
                },
            },
        })
    }
}
