//! An S3 server of another project as a system under test. Owns the running server; the servers
//! differ in their file systems, command lines and guarantees.

use std::path::Path;

use crate::bounds::Layout;
use crate::suite::Workload;
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::s3_server::{self, RunningS3};
use super::{Failure, PeerOptions, with_left};

/// The parts in which S3 servers differ.
pub(super) trait S3Server: Send {
    /// Makes the file systems and starts the server. `running` holds all that has to be removed
    /// later, also after an error.
    fn start(
        &self,
        run: (&PeerOptions, &Requirements<'_>),
        running: &mut RunningS3,
    ) -> Result<Layout, Failure>;

    /// Describes the server, for reports.
    fn describe(&self, layout: Option<Layout>) -> String;

    fn guarantees(&self) -> Guarantees;

    /// Returns a remark on its figures, if one is due.
    fn remark(&self) -> Option<String>;

    /// Returns the reason why no drive can be failed.
    fn no_degrade(&self) -> &'static str;
}

/// A server and its state.
pub(super) struct S3Peer<S> {
    options: PeerOptions,
    server: S,
    layout: Option<Layout>,
    running: Option<RunningS3>,
}

impl<S: S3Server> S3Peer<S> {
    pub(super) fn new(options: PeerOptions, server: S) -> Self {
        Self { options, server, layout: None, running: None }
    }
}

impl<S: S3Server> System for S3Peer<S> {
    fn info(&self) -> SystemInfo {
        SystemInfo {
            name: self.options.name.clone(),
            what: self.server.describe(self.layout),
            guarantees: self.server.guarantees(),
            takes_drives: true,
            own_contents: false,
            degrades: false,
            layout: self.layout,
            remark: self.server.remark(),
            network: None,
            is_remote: false,
        }
    }

    fn serves(&self, workload: Workload) -> bool {
        workload == Workload::Objects
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        let mut running = RunningS3::default();
        match self.server.start((&self.options, requirements), &mut running) {
            Ok(layout) => self.layout = Some(layout),
            Err(error) => return Err(self.options.error("set up", with_left(error, running.remove()))),
        }
        self.running = Some(running);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.running.as_ref().map(|running| running.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.running.iter().filter_map(|running| Some(running.server.as_ref()?.process())).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        Err(self.options.error("fail a drive", self.server.no_degrade()))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let cleaned = s3_server::clean_up(folder, &self.options.name);
        cleaned.map_err(|error| self.options.error("clean up after the run", error))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        running.remove().map_err(|error| self.options.error("tear down", error))
    }
}

impl<S> Drop for S3Peer<S> {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.remove();
        }
    }
}
