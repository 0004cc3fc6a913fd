//! Arguments of `gabion token`.

use api::types::Role;
use clap::{Args, Subcommand};

/// Manage tokens, with which remote clients and the console use the daemon
#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    Create(CreateTokenArgs),
    /// List tokens; their secrets are not stored and cannot be shown
    List,
    /// Delete a token: its holder and its sessions of the console are refused from then on
    #[command(visible_alias = "remove")]
    Delete {
        /// Id of the token, as 'gabion token list' shows it
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Create a token and print it. The daemon stores only its hash
#[derive(Args, Debug)]
#[command(after_long_help = "\
Roles:
  viewer    reads everything except tokens and the audit log, and changes nothing
  operator  also changes volumes, snapshots and exports, and controls drives, rebuild and scrub
  admin     everything, with pools, added drives and tokens

Examples:
  gabion token create prometheus --role viewer
  (umask 077; gabion token create alice --role admin --expires 30d > ~/.gabion-token)")]
pub(crate) struct CreateTokenArgs {
    /// Name of the person or program that will use the token
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Role of its holder: viewer, operator or admin
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// Time after which the token is refused: 90s, 30min, 12h, 30d or 52w. Without this option, it
    /// is valid until it is deleted
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) expires: Option<u64>,
}

/// Parses a time span into seconds.
fn seconds(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] = [("s", 1), ("min", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let wrong = || format!("'{text}' is not a time: use, for example, 12h or 30d");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let factor = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
    let seconds = number.parse().ok().and_then(|number: u64| number.checked_mul(factor));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_number_and_a_unit() {
        for (text, expected) in
            [("90s", 90), ("30min", 1800), ("12h", 43_200), ("30d", 2_592_000), ("1w", 604_800)]
        {
            assert_eq!(seconds(text), Ok(expected));
        }
        for wrong in
            ["", "d", "0d", "30", "30m", "-1d", "99999999999999999999d", "1e3s", "18446744073709551615w"]
        {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
