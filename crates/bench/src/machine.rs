//! A description of the machine that ran a benchmark.

/// Returns a one-line description: processor, number of CPUs, memory, kernel.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let processor = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".into());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok())
        .map_or_else(String::new, |kib| format!(", {} GiB of memory", kib.div_ceil(1 << 20)));
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processor}, {cpus} CPUs{memory}, Linux {}", kernel.trim())
}
