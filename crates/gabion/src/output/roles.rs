//! Formatting of identity providers and roles of S3.

use api::types::{S3Provider, S3Role};

use super::table::table;
use super::time::utc;

fn joined(names: &[String]) -> String {
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

fn keys(provider: &S3Provider) -> String {
    match (&provider.problem, provider.keys) {
        (Some(_), 0) => "unavailable".to_owned(),
        (None, 0) => "not fetched".to_owned(),
        (_, keys) => keys.to_string(),
    }
}

/// Formats identity providers as a table.
pub(crate) fn providers(providers: &[S3Provider]) -> String {
    if providers.is_empty() {
        return "no identity providers; 'gabion provider create NAME --issuer URL --audience ID' creates one"
            .into();
    }
    let row = |provider: &S3Provider| {
        vec![
            provider.name.clone(),
            provider.issuer.clone(),
            joined(&provider.audiences),
            joined(&provider.roles),
            keys(provider),
        ]
    };
    table(&["PROVIDER", "ISSUER", "AUDIENCES", "ROLES", "KEYS"], providers.iter().map(row))
}

/// Formats an identity provider with the state of its keys.
pub(crate) fn provider(provider: &S3Provider) -> String {
    let mut lines = vec![
        format!("provider    {}", provider.name),
        format!("issuer      {}", provider.issuer),
        format!("audiences   {}", joined(&provider.audiences)),
        format!("user claim  {}", provider.user_claim),
        format!("roles       {}", joined(&provider.roles)),
    ];
    if let Some(file) = &provider.key_file {
        lines.push(format!("key file    {file}"));
    }
    if let Some(file) = &provider.authorities {
        lines.push(format!("authorities {file}"));
    }
    let fetched = provider.fetched.map(|time| format!(", fetched {}", utc(time))).unwrap_or_default();
    lines.push(format!("keys        {}{fetched}", keys(provider)));
    if let Some(problem) = &provider.problem {
        lines.push(format!("problem     {problem}"));
    }
    lines.join("\n")
}

/// Formats roles as a table.
pub(crate) fn roles(roles: &[S3Role]) -> String {
    if roles.is_empty() {
        return "no roles; 'gabion role create NAME --provider PROVIDER --policy readonly \
                --claim CLAIM=PATTERN' creates one"
            .into();
    }
    let row = |role: &S3Role| {
        let claims: Vec<String> =
            role.claims.iter().map(|(claim, pattern)| format!("{claim}={pattern}")).collect();
        vec![
            role.name.clone(),
            role.provider.clone(),
            joined(&role.policies),
            if claims.is_empty() { "any".to_owned() } else { joined(&claims) },
            format!("{} s", role.session_max),
        ]
    };
    table(&["ROLE", "PROVIDER", "POLICIES", "CLAIMS", "SESSION MAX"], roles.iter().map(row))
}
