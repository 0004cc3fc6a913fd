//! Tests of the daemon as a child process, controlled by the command line, on file drives.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod access;
mod atomic_writes;
mod bad_input;
mod bit_flips;
mod cluster_benchmarks;
mod cluster_objects;
mod clusters;
mod commands;
mod concurrent_operations;
mod config;
mod connection_flood;
mod corruption;
mod crash;
mod data_loss;
mod drive_health;
mod drives;
mod events;
mod exports;
mod file_systems;
#[path = "../../../export/tests/vhost/front_end.rs"]
#[allow(dead_code, reason = "shared with the tests of the crate `export`, which use more of it")]
mod front_end;
mod fuse;
mod harness;
mod host_objects;
mod https;
mod images;
#[path = "../../../export/tests/nvme/initiator.rs"]
#[allow(dead_code, reason = "the initiator of the NVMe/TCP tests, of which these use less")]
mod initiator;
mod iscsi;
mod issuer;
mod key_client;
mod limits;
mod membership;
mod metrics;
mod mounts;
mod nbd;
mod needs_root;
mod nvme;
mod object_clients;
mod object_commands;
mod object_kills;
mod object_mirrors;
mod object_tls;
mod object_users;
mod objects;
#[path = "../../../export/tests/nvme/openssl_tunnel.rs"]
mod openssl_tunnel;
mod pools;
mod random_operations;
mod remote;
mod remote_limits;
mod remote_scale;
mod remote_service;
mod restart;
mod salvage;
mod snapshots;
mod stale_drives;
#[path = "../../../export/src/vhost/testing.rs"]
mod testing;
#[path = "../../../export/tests/nvme/tls_identity.rs"]
#[allow(dead_code, reason = "the identities of the NVMe/TCP tests, which use more of them")]
#[allow(clippy::big_endian_bytes, reason = "the numbers of TLS are big-endian")]
mod tls_identity;
mod vhost;
mod volumes;
mod web_identity;
mod webhooks;
