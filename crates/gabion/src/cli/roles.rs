//! Arguments of `gabion provider` and `gabion role`.

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::time_span::seconds;

/// Manage the identity providers of S3, whose tokens give temporary credentials
///
/// A client sends a token of the provider (OpenID Connect) to the address of S3 with the action
/// AssumeRoleWithWebIdentity of STS, and gets an access key that expires, with the rights of a
/// role.
#[derive(Subcommand, Debug)]
pub(crate) enum ProviderCommand {
    /// Create an identity provider
    ///
    /// The daemon fetches the keys of the provider from the address in its discovery document,
    /// ISSUER/.well-known/openid-configuration, with the first token, then every hour, and when a
    /// token names an unknown key.
    #[command(after_long_help = "\
Examples:
  gabion provider create corp --issuer https://login.example.org/realms/main --audience gabion
  gabion provider create kubernetes --issuer https://kubernetes.default.svc --audience s3 \
    --key-file /etc/gabion/jwks.json")]
    Create {
        /// Name of the provider
        #[arg(value_name = "PROVIDER")]
        name: String,
        /// Claim 'iss' of its tokens: an URL of HTTPS, or of HTTP for this host
        #[arg(long, value_name = "URL")]
        issuer: String,
        /// Client ids: a token needs one of them in its claim 'aud'
        #[arg(long, value_name = "ID,...", value_delimiter = ',', required = true)]
        audience: Vec<String>,
        /// Claim of its tokens that is the name of the user [default: sub]
        #[arg(long, value_name = "CLAIM")]
        user_claim: Option<String>,
        /// File with its keys (JWKS) on the daemon's host, in place of the discovery document
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// File on the daemon's host with the certificates (PEM) of the authorities of its
        /// certificate [default: those of the system]
        #[arg(long, value_name = "FILE")]
        authorities: Option<PathBuf>,
    },
    /// List the identity providers
    List,
    /// Show an identity provider, and the state of its keys
    Show {
        /// Name of the provider
        #[arg(value_name = "PROVIDER")]
        name: String,
    },
    /// Change an identity provider. Its keys are fetched again for the next token
    Set {
        /// Name of the provider
        #[arg(value_name = "PROVIDER")]
        name: String,
        /// All client ids from now on
        #[arg(long, value_name = "ID,...", value_delimiter = ',')]
        audience: Option<Vec<String>>,
        /// Claim of its tokens that is the name of the user
        #[arg(long, value_name = "CLAIM")]
        user_claim: Option<String>,
        /// File with its keys; '' for the discovery document
        #[arg(long, value_name = "FILE", value_parser = path_or_empty())]
        key_file: Option<PathBuf>,
        /// File with the certificates of authorities; '' for those of the system
        #[arg(long, value_name = "FILE", value_parser = path_or_empty())]
        authorities: Option<PathBuf>,
    },
    /// Delete an identity provider without roles
    Delete {
        /// Name of the provider
        #[arg(value_name = "PROVIDER")]
        name: String,
    },
}

/// Manage the roles of S3: the policies of clients with tokens of an identity provider
///
/// The ARN of a role is arn:aws:iam:::role/NAME.
#[derive(Subcommand, Debug)]
pub(crate) enum RoleCommand {
    /// Create a role
    #[command(after_long_help = "\
Examples:
  gabion role create readers --provider corp --policy readonly --any-claims
  gabion role create ci --provider corp --policy builds --claim 'groups=ci-*' --session-max 15m")]
    Create {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
        /// Name of the identity provider
        #[arg(long, value_name = "PROVIDER")]
        provider: String,
        /// Policies of the role [default: none]
        #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
        policy: Vec<String>,
        /// Claim that a token must have, with '*' for any text and '?' for a character; may be
        /// repeated
        #[arg(long, value_name = "CLAIM=PATTERN", value_parser = claim,
            required_unless_present = "any_claims", conflicts_with = "any_claims")]
        claim: Vec<(String, String)>,
        /// Accept every token of the provider for its audiences
        #[arg(long)]
        any_claims: bool,
        /// Longest time of a session, up to 12h [default: 1h]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        session_max: Option<u64>,
    },
    /// List the roles
    List,
    /// Show a role
    Show {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
    },
    /// Change a role. New policies are in effect for existing sessions too, and new claims are not
    Set {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
        /// All policies of the role from now on; '' for none
        #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
        policy: Option<Vec<String>>,
        /// All claims that a new token must have from now on; may be repeated
        #[arg(long, value_name = "CLAIM=PATTERN", value_parser = claim, conflicts_with = "any_claims")]
        claim: Vec<(String, String)>,
        /// Accept all tokens of the provider from now on
        #[arg(long)]
        any_claims: bool,
        /// Longest time of a new session, up to 12h
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        session_max: Option<u64>,
    },
    /// Delete a role and end its sessions
    Delete {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
    },
}

/// Parses a path that may be empty, which that of clap refuses.
pub(super) fn path_or_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Parses `CLAIM=PATTERN`.
fn claim(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((claim, pattern)) if !claim.is_empty() && !pattern.is_empty() => {
            Ok((claim.to_owned(), pattern.to_owned()))
        }
        _ => Err("use CLAIM=PATTERN, for example groups=admins".to_owned()),
    }
}
