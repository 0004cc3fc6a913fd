//! `gabion context`, and the choice of the daemon that a command uses.
//!
//! Precedence: flags, environment variables, the named or current context, this host's daemon.

use std::path::PathBuf;

use anyhow::{Context, Result};
use api::client::{Client, RemoteServer, ServerTrust};

use super::{absolute_one, print};
use crate::cli::{ContextCommand, Global, RemoteArgs};
use crate::contexts::{LOCAL, NamedContext, file_path, no_context, read, write};
use crate::failure::{ExitReason, Usage};
use crate::output;
use crate::terminal::to_json;

/// Returns the client of the daemon that a command uses.
///
/// # Errors
/// When a file cannot be read, or the address, token or certificate is invalid.
pub(crate) fn client(global: &Global) -> Result<Client> {
    match remote(&global.remote, global.socket.is_some())? {
        Some(context) => Ok(Client::https(server(&context)?)),
        None => Ok(Client::unix(super::serve::socket(global))),
    }
}

/// Returns the remote daemon that flags, environment and contexts select, if any.
fn remote(arguments: &RemoteArgs, has_socket: bool) -> Result<Option<NamedContext>> {
    if has_socket {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let explicit = NamedContext {
        server: String::new(),
        token_file: path(&arguments.token_file).or_else(|| variable("GABION_TOKEN_FILE")),
        ca_file: path(&arguments.ca_file).or_else(|| variable("GABION_CA_FILE")),
        fingerprint: arguments.fingerprint.clone().or_else(|| variable("GABION_FINGERPRINT")),
    };
    if let Some(server) =
        arguments.server.clone().or_else(|| variable("GABION_SERVER").filter(|_| arguments.context.is_none()))
    {
        return Ok(Some(NamedContext { server, ..explicit }));
    }
    let named = arguments.context.clone().or_else(|| variable("GABION_CONTEXT"));
    if named.is_none() && variable("GABION_SOCKET").is_some() {
        return Ok(None);
    }
    let file = read(&file_path())?;
    let Some(name) = named.or(file.current.clone()).filter(|name| name != LOCAL) else { return Ok(None) };
    let context = file.contexts.get(&name).cloned().ok_or_else(|| no_context(&name))?;
    Ok(Some(NamedContext {
        server: context.server,
        token_file: explicit.token_file.or(context.token_file),
        // A flag for one kind of trust replaces the other kind of the context.
        ca_file: explicit.ca_file.clone().or(context.ca_file.filter(|_| explicit.fingerprint.is_none())),
        fingerprint: explicit.fingerprint.or(context.fingerprint.filter(|_| explicit.ca_file.is_none())),
    }))
}

fn server(context: &NamedContext) -> Result<RemoteServer> {
    let token = match &context.token_file {
        Some(path) => {
            Some(std::fs::read_to_string(path).with_context(|| format!("cannot read the token in {path}"))?)
        }
        None => None,
    };
    let trust = match (&context.fingerprint, &context.ca_file) {
        (Some(fingerprint), _) => ServerTrust::fingerprint(fingerprint)?,
        (None, Some(path)) => {
            ServerTrust::Authorities(std::fs::read(path).with_context(|| format!("cannot read {path}"))?)
        }
        (None, None) => ServerTrust::System,
    };
    Ok(RemoteServer::new(&context.server, token.as_deref(), &trust)?)
}

/// Runs a `gabion context` command.
///
/// # Errors
/// When the file of contexts cannot be read or written, or has no such context.
pub(crate) fn run(global: &Global, command: ContextCommand) -> Result<ExitReason> {
    let path = file_path();
    let mut file = read(&path)?;
    match command {
        ContextCommand::List => {
            let text = if global.json { to_json(&file)? } else { output::contexts(&file) };
            print(&text)?;
            return Ok(ExitReason::Success);
        }
        ContextCommand::Add { name } => {
            if name == LOCAL || name.is_empty() {
                return Err(Usage(format!(
                    "'{name}' cannot be the name of a context: '{LOCAL}' is the daemon of this host"
                ))
                .into());
            }
            let context = described(&global.remote)?;
            // Errors in it are reported now, not at its first use.
            server(&context)?;
            file.contexts.insert(name, context);
        }
        ContextCommand::Use { name } => {
            if name != LOCAL && !file.contexts.contains_key(&name) {
                return Err(no_context(&name));
            }
            file.current = Some(name).filter(|name| name != LOCAL);
        }
        ContextCommand::Remove { name } => {
            file.contexts.remove(&name).ok_or_else(|| no_context(&name))?;
            file.current = file.current.filter(|current| *current != name);
        }
    }
    write(&path, &file)?;
    Ok(ExitReason::Success)
}

/// Returns the context that the flags describe, with absolute paths.
fn described(arguments: &RemoteArgs) -> Result<NamedContext> {
    let RemoteArgs { server, token_file, ca_file, fingerprint, context: _ } = arguments.clone();
    let server = server.ok_or_else(|| Usage("--server is required for a new context".to_owned()))?;
    let absolute = |path: Option<PathBuf>| path.map(|path| absolute_one(&path)).transpose();
    Ok(NamedContext { server, token_file: absolute(token_file)?, ca_file: absolute(ca_file)?, fingerprint })
}
