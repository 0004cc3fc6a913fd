//! The engine's benchmark alone, for profilers: `engine [SECONDS [PART OF A JOB'S NAME]]`.

fn main() {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(2.0);
    let only = std::env::args().nth(2).unwrap_or_default();
    let result = bench::engine_bench::run(seconds, &only, |sample| {
        println!(
            "{:32} {:>8} B qd {:>2} {:>9.0} IOPS {:>7.2} GB/s mean {:>7.2} us p99 {:>7.2} us wrong {}",
            sample.op,
            sample.block_bytes,
            sample.queue_depth,
            sample.iops,
            sample.bytes_per_s / 1e9,
            sample.mean_us,
            sample.p99_us,
            sample.wrong
        );
    });
    if let Err(error) = result {
        println!("{error}");
    }
}
