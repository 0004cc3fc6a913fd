//! Arguments of the benchmarks of S3.

use api::Size;
use clap::Args;

use super::seconds;

/// Measure S3 on a pool: the five mixes of KIOXIA's document on object storage, or one of them
///
/// Clients put, read, examine and delete objects of a temporary bucket through the S3 service of
/// the pool ('gabion s3 start'). Every read is compared with the written bytes. Runs of the mixes
/// alternate. 'restore' has only GETs and 'backup' only PUTs, also for sizes other than that of
/// the document.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench objects fast
  gabion bench objects fast --mix backup --size 4K --clients 64 --objects 20000
  gabion bench objects fast --lab lab --objects 400 --repeats 3 --json > objects.json")]
pub(crate) struct ObjectsArgs {
    /// Name of the pool
    pub(crate) pool: String,
    /// Mixes, separated by commas: ai (90 % GET, 10 % PUT), web (70/30), cloud (40 % GET, 10 %
    /// STAT, 40 % PUT, 10 % DELETE), restore (GET), backup (PUT) [default: all five]
    #[arg(long, value_name = "MIXES", value_delimiter = ',', value_parser = mix, hide_possible_values = true)]
    pub(crate) mix: Vec<bench::objects::Mix>,
    /// Bytes of each object
    #[arg(long, default_value = "10M", value_name = "SIZE")]
    pub(crate) size: Size,
    /// Number of objects, at least one per client
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) objects: u64,
    /// Number of clients, each with one request at a time
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) clients: u32,
    /// Number of threads of the load
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Time before each measurement, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) warm_up: f64,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of measurements of each mix; means are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: u32,
    /// Lab that the drives of the pool belong to: observe them, and compute the upper bounds
    #[arg(long, value_name = "NAME")]
    pub(crate) lab: Option<String>,
}

/// Measure listings of a large bucket: single pages, and all keys
///
/// Puts objects of one byte into a temporary bucket of the pool's S3 service ('gabion s3 start'),
/// lists single pages 50 times, then all keys page after page, and deletes the objects. Every page
/// is compared with the keys.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench listing fast
  gabion bench listing fast --keys 10000000 --json > listing.json
  gabion bench listing fast --keys 10000000 --bucket large    # a second time without the puts")]
pub(crate) struct ListingArgs {
    /// Name of the pool
    pub(crate) pool: String,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: u64,
    /// Number of clients that put the objects
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) clients: u32,
    /// Bucket to create and to keep. If it exists, it must have the keys of an earlier run: only
    /// the listings are measured
    #[arg(long, value_name = "NAME")]
    pub(crate) bucket: Option<String>,
}

fn mix(name: &str) -> Result<bench::objects::Mix, String> {
    let names = bench::objects::MIXES.map(|mix| mix.name).join(", ");
    bench::objects::Mix::find(name).ok_or_else(|| format!("unknown mix: use {names}"))
}
