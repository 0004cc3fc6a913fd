//! Suites: workloads as data, with the figures that were published for them.
//!
//! Must not know: how a job is run, what on.

use serde::{Deserialize, Serialize};

/// A workload of a reference document.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name on the command line.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The document, and the hardware of its figures.
    pub source: String,
    /// Its jobs, in their order.
    pub jobs: Vec<Job>,
    /// What others have measured with it.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// One job of a suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What it is called in tables.
    pub name: String,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Reads among its operations, in percent.
    pub read_percent: u8,
    /// Anywhere, or one after the other.
    pub random: bool,
    /// Operations that each thread keeps under way.
    pub depth: u32,
    /// Threads.
    pub threads: u32,
    /// It is run with one drive lost.
    #[serde(default)]
    pub degraded: bool,
}

/// What somebody has published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of what.
    pub system: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// One published figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The job that it is of.
    pub job: String,
    /// Thousands of operations a second below 64 KiB, GB/s from there on; reads before writes.
    pub value: Vec<f64>,
    /// Mean latency in microseconds.
    #[serde(default)]
    pub mean_us: Vec<f64>,
    /// Latency that 99.95 % of operations keep, in microseconds.
    #[serde(default)]
    pub p9995_us: Vec<f64>,
}

/// What is wrong with a suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// It is no TOML, or not of the form of a suite.
    #[error("the suite cannot be read: {0}")]
    Parse(#[from] toml::de::Error),
    /// It says something that makes no sense.
    #[error("suite '{suite}': {message}")]
    Invalid {
        /// The suite.
        suite: String,
        /// What.
        message: String,
    },
}

impl Suite {
    /// Reads a suite.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, SuiteError> {
        let suite: Self = toml::from_str(text)?;
        let invalid = |message: String| Err(SuiteError::Invalid { suite: suite.name.clone(), message });
        for job in &suite.jobs {
            if !job.block_bytes.is_multiple_of(512) || job.block_bytes == 0 || job.block_bytes > 64 << 20 {
                return invalid(format!("job '{}': blocks of {} bytes", job.name, job.block_bytes));
            }
            if job.read_percent > 100 || job.depth == 0 || job.threads == 0 {
                return invalid(format!("job '{}': a share above 100 %, or nothing to do", job.name));
            }
        }
        for (published, figure) in
            suite.published.iter().flat_map(|of| of.figures.iter().map(move |figure| (of, figure)))
        {
            if !suite.jobs.iter().any(|job| job.name == figure.job) {
                return invalid(format!(
                    "{} has a figure for '{}', which is no job",
                    published.system, figure.job
                ));
            }
        }
        Ok(suite)
    }

    /// The workload of the RAID document.
    pub fn raid_vm() -> Self {
        match Self::parse(include_str!("../suites/raid-vm.toml")) {
            Ok(suite) => suite,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Published {
    /// The figure for a job.
    pub fn figure(&self, job: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.job == job)
    }
}

impl Job {
    /// True if its figures are bytes a second, not operations.
    pub fn is_bandwidth(&self) -> bool {
        self.block_bytes >= 64 << 10
    }

    /// True if it does both.
    pub fn is_mixed(&self) -> bool {
        (1..100).contains(&self.read_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raid_suite_is_what_the_document_says() {
        let suite = Suite::raid_vm();
        assert_eq!(suite.jobs.len(), 7);
        assert_eq!(suite.jobs.iter().filter(|job| job.degraded).count(), 2);
        for published in &suite.published {
            assert_eq!(published.figures.len(), suite.jobs.len(), "{}", published.system);
        }
        let mixed = suite.published[0].figure("4k random 70:30").unwrap();
        assert_eq!(mixed.value, [7088.0, 2960.0]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let suite = |job: &str| {
            format!(
                "name = 'x'\ntitle = 't'\nsource = 's'\n[[jobs]]\nname = 'j'\nrandom = true\ndepth = 1\nthreads = 1\n{job}"
            )
        };
        Suite::parse(&suite("block_bytes = 4096\nread_percent = 50")).unwrap();
        for (job, says) in [
            ("block_bytes = 1000\nread_percent = 50", "1000 bytes"),
            ("block_bytes = 4096\nread_percent = 101", "above 100"),
            ("block_bytes = 4096\nread_percent = 1\nspeed = 3", "speed"),
            (
                "block_bytes = 4096\nread_percent = 1\n[[published]]\nsystem = 'y'\nfigures = [{ job = 'k', value = [1] }]",
                "'k', which is no job",
            ),
        ] {
            let error = Suite::parse(&suite(job)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
