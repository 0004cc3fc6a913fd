//! Start of a host's daemons at boot: a script on the host, and a systemd unit that runs it.
//!
//! Always true: the script starts the daemons that a deployment has started and that were not
//! removed since; a host in a network namespace has the script without a unit, because namespaces
//! do not outlive a restart.

use crate::daemons::{FUNCTIONS, HostDaemons};
use crate::transport::quote;
use ceph::Result;

/// The order in which daemons start: the others need monitors.
const ORDER: &str = "mon mgr osd mds client";

/// Returns the script that starts the daemons, or stops them with the argument `stop`.
fn script(root: &str) -> String {
    format!(
        "#!/bin/sh\n# Written by 'gabion cluster deploy'.\nset -u\nroot={}\n{FUNCTIONS}\n\
         each() {{ # function\n\
         for kind in {ORDER}; do for file in \"$root\"/boot/$kind.*; do\n\
         [ -e \"$file\" ] || continue\n\
         \"$1\" \"$(basename \"$file\")\" $(cat \"$file\")\n\
         done; done\n\
         }}\n\
         missing() {{ alive \"$1\" || echo \"$1\"; }}\n\
         start() {{ alive \"$1\" || start_daemon \"$2\" \"$1\" \"$4\" \"$3\" || true; }}\n\
         if [ \"${{1:-start}}\" = stop ]; then each stop_daemon; exit; fi\n\
         # The monitors of other hosts may start later.\n\
         for attempt in 1 2 3 4 5 6 7 8 9 10; do\n\
         each start\n\
         [ -n \"$(each missing)\" ] || exit 0\n\
         sleep 10\n\
         done\n\
         echo \"not running: $(each missing | tr '\\n' ' ')\" >&2; exit 1\n",
        quote(root)
    )
}

/// Returns the unit.
fn unit(cluster: &str, root: &str) -> String {
    format!(
        "# Written by 'gabion cluster deploy'.\n\
         [Unit]\n\
         Description=Ceph daemons of cluster {cluster} on this host\n\
         Wants=network-online.target\n\
         After=network-online.target time-sync.target local-fs.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart=/bin/sh {root}/boot.sh\n\
         ExecStop=/bin/sh {root}/boot.sh stop\n\
         TimeoutStartSec=900\n\
         TimeoutStopSec=300\n\
         LimitNOFILE=1048576\n\
         TasksMax=infinity\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// Returns the path of the unit of a cluster.
fn unit_path(cluster: &str) -> String {
    quote(&format!("/etc/systemd/system/gabion-cluster-{cluster}.service"))
}

/// The condition that systemd manages the host.
const HAS_SYSTEMD: &str = "[ -d /run/systemd/system ]";

impl HostDaemons {
    /// Lets the daemons start at boot. Returns true if anything changed.
    ///
    /// # Errors
    /// As [`HostDaemons::run`].
    pub(crate) fn install_boot(&self, cluster: &str) -> Result<bool> {
        let replace = |path: &str| {
            format!(
                "cat >{path}.new; if cmp -s {path}.new {path}; then rm {path}.new; \
                 else mv {path}.new {path}; echo changed; fi"
            )
        };
        let mut output = self.run(&replace("\"$root/boot.sh\""), script(self.root()).as_bytes())?;
        if !self.is_namespace() && self.holds(HAS_SYSTEMD)? {
            let path = unit_path(cluster);
            let enable = format!(
                "if ! systemctl -q is-enabled gabion-cluster-{cluster}.service 2>/dev/null; then\n\
                 systemctl daemon-reload; systemctl -q enable gabion-cluster-{cluster}.service; echo changed\n\
                 fi"
            );
            let script = format!("{}\n{enable}", replace(&path));
            output.push_str(&self.run(&script, unit(cluster, self.root()).as_bytes())?);
        }
        Ok(!output.is_empty())
    }

    /// Removes the unit of a host.
    ///
    /// # Errors
    /// As [`HostDaemons::run`].
    pub(crate) fn remove_boot(&self, cluster: &str) -> Result<()> {
        if self.is_namespace() {
            return Ok(());
        }
        let path = unit_path(cluster);
        let remove = format!(
            "if [ -e {path} ]; then\n\
             systemctl -q disable gabion-cluster-{cluster}.service 2>/dev/null || true\n\
             rm -f {path}; systemctl daemon-reload 2>/dev/null || true\n\
             fi"
        );
        self.run(&remove, b"").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;

    #[test]
    fn the_script_starts_the_recorded_daemons_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_str().unwrap().to_owned();
        // A daemon is a program that runs in the background with its `ceph.conf` as an argument.
        let program = directory.path().join("fake");
        let body = format!(
            "#!/bin/sh\necho \"$2\" >>{root}/order\nperl -e 'sleep 600' \"$4\" & \
             echo $! >{root}/run/$2.pid\n"
        );
        std::fs::write(&program, body).unwrap();
        let run = |command: &str| Transport::Local.run(command).unwrap();
        run(&format!("chmod +x {}; mkdir -p {root}/boot {root}/run {root}/log", program.display()));
        std::fs::write(directory.path().join("ceph.conf"), "").unwrap();
        for name in ["osd.1", "mon.a"] {
            std::fs::write(
                directory.path().join("boot").join(name),
                format!("{} -i {name}\n", program.display()),
            )
            .unwrap();
        }
        std::fs::write(directory.path().join("boot.sh"), script(&root)).unwrap();
        run(&format!("sh {root}/boot.sh"));
        run(&format!("sh {root}/boot.sh"));
        let order = std::fs::read_to_string(directory.path().join("order")).unwrap();
        assert_eq!(order, "mon.a\nosd.1\n", "each starts once, monitors first");
        let pid = std::fs::read_to_string(directory.path().join("run/mon.a.pid")).unwrap();
        run(&format!("sh {root}/boot.sh stop"));
        assert!(!std::path::Path::new("/proc").join(pid.trim()).join("exe").exists());
    }

    #[test]
    fn the_unit_runs_the_script() {
        let text = unit("prod", "/var/lib/gabion/clusters/prod/hosts/a");
        assert!(text.contains("ExecStart=/bin/sh /var/lib/gabion/clusters/prod/hosts/a/boot.sh\n"));
        assert_eq!(unit_path("prod"), "'/etc/systemd/system/gabion-cluster-prod.service'");
    }
}
