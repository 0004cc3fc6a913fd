//! Arguments of `gabion serve`. The flags are generated from the server's table of settings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use server::config::{DEFAULT_FILE, KEYS, Key};

/// The flags of `gabion serve`.
#[derive(Debug, Default)]
pub(crate) struct ServeArgs {
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// Print the settings and exit.
    pub(crate) print_config: bool,
    /// Values of settings by flag name.
    pub(crate) settings: BTreeMap<String, String>,
}

const ABOUT: &str = "Run the daemon";

const MANUAL: &str = "\
Run the daemon: opens its pools, serves their exports, and provides the API for the other commands.

The daemon runs in the foreground and logs to standard error. SIGTERM and SIGINT shut it down:
requests in flight are completed and pools are closed. A second signal ends it immediately; the next
start then replays the log.

Every setting below is also a key of the configuration file and an environment variable. Flags
override environment variables, which override the file. The file also lists pools to open at start:

    [pools.fast]
    drives = [\"/dev/disk/by-id/nvme-...\", ...]";

const EXAMPLES: &str = "\
Examples:
  gabion serve --print-config > /etc/gabion/gabion.toml   # all settings with comments
  gabion serve --nbd-listen 10.0.0.1:10809
  gabion serve --cores 0,7 --log-format json";

/// The settings that are flags of `serve` only; `--socket` is a flag of every command.
fn own_keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| key.flag() != "socket")
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(format!("Configuration file [default: {DEFAULT_FILE}, if it exists]"));
        let print = Arg::new("print-config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Print all settings as a configuration file with comments, and exit");
        let settings = own_keys().map(|key| {
            let help = format!("{} [env: {}] [key: {}]", key.help, key.variable(), key.path());
            Arg::new(key.flag()).long(key.flag()).value_name(key.value).help(help)
        });
        command
            .about(ABOUT)
            .long_about(MANUAL)
            .after_long_help(EXAMPLES)
            .arg(config)
            .arg(print)
            .args(settings)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |flag: String| matches.get_one::<String>(&flag).cloned().map(|value| (flag, value));
        Ok(Self {
            config: matches.get_one("config").cloned(),
            print_config: matches.get_flag("print-config"),
            settings: own_keys().filter_map(|key| value(key.flag())).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
