//! The storage engine: pools, logs, maps, recovery, volumes.
