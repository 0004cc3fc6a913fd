//! Policies of buckets and users: the JSON of IAM, and the decision of a policy about a request.
//!
//! Always true: a statement that denies wins over all that allow; an unknown condition key or
//! operator never widens access. Must not know: the store, HTTP.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::patterns::{is_like, strings};
use crate::policy_conditions::ConditionTest;

/// The largest policy in bytes, as in S3.
pub(crate) const POLICY_BYTES_MAX: usize = 20 << 10;
/// The variable in resources for the name of the user.
const USER_NAME: &str = "${aws:username}";

/// The decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A statement denies.
    Deny,
    /// A statement allows, and none denies.
    Allow,
    /// No statement applies.
    Silent,
}

/// A request as policies see it.
pub(crate) struct PolicyRequest<'a> {
    /// The user; `None` for an anonymous request.
    pub(crate) user: Option<&'a str>,
    /// The role of the session of the user, if it has temporary credentials.
    pub(crate) role: Option<&'a str>,
    /// The action with its prefix: `s3:GetObject`.
    pub(crate) action: &'a str,
    /// The resource: `bucket` or `bucket/key`.
    pub(crate) resource: &'a str,
    /// The values of condition keys in lower case.
    pub(crate) values: &'a dyn Fn(&str) -> Option<Vec<String>>,
}

/// The owner of a policy.
#[derive(Clone, Copy, Debug)]
enum PolicyScope<'a> {
    /// A bucket of this name. The statements name principals.
    Bucket(&'a str),
    /// Users and groups, which are the principals.
    Users,
}

/// A parsed policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicyDocument {
    statements: Vec<Statement>,
}

#[derive(Clone, Debug)]
struct Statement {
    allows: bool,
    principals: Vec<String>,
    excludes_principals: bool,
    actions: Vec<String>,
    excludes_actions: bool,
    resources: Vec<String>,
    excludes_resources: bool,
    conditions: Vec<ConditionTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct RawPolicy {
    version: Option<String>,
    #[serde(rename = "Id")]
    _id: Option<String>,
    statement: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct RawStatement {
    #[serde(rename = "Sid")]
    _sid: Option<String>,
    effect: String,
    principal: Option<Value>,
    not_principal: Option<Value>,
    action: Option<Value>,
    not_action: Option<Value>,
    resource: Option<Value>,
    not_resource: Option<Value>,
    condition: Option<Map<String, Value>>,
}

impl PolicyDocument {
    /// Parses a policy for a bucket.
    ///
    /// # Errors
    /// The reason why it is malformed.
    pub(crate) fn parse_of_bucket(text: &str, bucket: &str) -> Result<Self, String> {
        Self::parse_for(text, PolicyScope::Bucket(bucket))
    }

    /// Parses a policy of users and groups.
    ///
    /// # Errors
    /// The reason why it is malformed.
    pub(crate) fn parse_of_users(text: &str) -> Result<Self, String> {
        Self::parse_for(text, PolicyScope::Users)
    }

    fn parse_for(text: &str, scope: PolicyScope<'_>) -> Result<Self, String> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(format!("the policy has more than {POLICY_BYTES_MAX} bytes"));
        }
        let raw: RawPolicy = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(version) =
            raw.version.filter(|version| version != "2012-10-17" && version != "2008-10-17")
        {
            return Err(format!("the version '{version}' is unknown: use 2012-10-17"));
        }
        let statements = match raw.statement {
            Value::Array(list) => list,
            single => vec![single],
        };
        if statements.is_empty() {
            return Err("the policy has no statement".to_owned());
        }
        let statements = statements.into_iter().map(|each| Statement::parse(each, scope));
        Ok(Self { statements: statements.collect::<Result<_, _>>()? })
    }

    /// Returns a principal that is a session, which policies do not name.
    pub(crate) fn session_principal(&self) -> Option<&str> {
        let principals = self.statements.iter().flat_map(|statement| &statement.principals);
        principals.map(String::as_str).find(|principal| principal.starts_with("arn:aws:sts:"))
    }

    /// Decides about a request.
    pub(crate) fn decide(&self, request: &PolicyRequest<'_>) -> Decision {
        let mut decision = Decision::Silent;
        for statement in self.statements.iter().filter(|statement| statement.applies(request)) {
            if !statement.allows {
                return Decision::Deny;
            }
            decision = Decision::Allow;
        }
        decision
    }

    /// True if the policy allows anyone anything, without a condition that limits it to known
    /// clients.
    pub(crate) fn is_public(&self) -> bool {
        let is_public = |statement: &Statement| {
            let is_anyone =
                statement.excludes_principals || statement.principals.iter().any(|each| each == "*");
            statement.allows && is_anyone && !statement.conditions.iter().any(ConditionTest::limits_clients)
        };
        self.statements.iter().any(is_public)
    }
}

impl Statement {
    fn parse(value: Value, scope: PolicyScope<'_>) -> Result<Self, String> {
        let raw: RawStatement = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let allows = match raw.effect.as_str() {
            "Allow" => true,
            "Deny" => false,
            other => return Err(format!("the effect '{other}' is unknown: use Allow or Deny")),
        };
        let (principals, excludes_principals) = match (scope, raw.principal, raw.not_principal) {
            (PolicyScope::Bucket(_), Some(value), None) => (principals(&value)?, false),
            (PolicyScope::Bucket(_), None, Some(value)) => (principals(&value)?, true),
            (PolicyScope::Bucket(_), ..) => return Err("a statement needs a Principal".to_owned()),
            (PolicyScope::Users, None, None) => (vec!["*".to_owned()], false),
            (PolicyScope::Users, ..) => {
                return Err("a policy of users has no Principal: remove it".to_owned());
            }
        };
        let (actions, excludes_actions) = either(raw.action, raw.not_action, "Action")?;
        let (resources, excludes_resources) = either(raw.resource, raw.not_resource, "Resource")?;
        for action in &actions {
            if action != "*" && !action.to_ascii_lowercase().starts_with("s3:") {
                return Err(format!("the action '{action}' is not an action of S3"));
            }
        }
        let mut names = Vec::new();
        for resource in resources {
            let arn = resource.strip_prefix("arn:aws:s3:::");
            let name = arn.unwrap_or(&resource);
            match scope {
                PolicyScope::Bucket(bucket)
                    if !is_like(name.split('/').next().unwrap_or_default(), bucket) =>
                {
                    return Err(format!("the resource '{resource}' does not belong to bucket '{bucket}'"));
                }
                PolicyScope::Users if arn.is_none() && name != "*" => {
                    return Err(format!(
                        "the resource '{resource}' is malformed: use '*' or arn:aws:s3:::BUCKET/KEY"
                    ));
                }
                PolicyScope::Users if name.replace(USER_NAME, "").contains("${") => {
                    return Err(format!(
                        "the resource '{resource}' has an unknown variable: only {USER_NAME} is known"
                    ));
                }
                _ => names.push(name.to_owned()),
            }
        }
        let conditions = ConditionTest::parse_all(raw.condition.unwrap_or_default())?;
        let resources = names;
        Ok(Self {
            allows,
            principals,
            excludes_principals,
            actions,
            excludes_actions,
            resources,
            excludes_resources,
            conditions,
        })
    }

    fn applies(&self, request: &PolicyRequest<'_>) -> bool {
        let is_named = self.principals.iter().any(|principal| is_principal(principal, request));
        let action = request.action.to_ascii_lowercase();
        let has_action = self.actions.iter().any(|pattern| is_like(&pattern.to_ascii_lowercase(), &action));
        // Names of users have no wildcards. Without a user, the variable stays and matches nothing.
        let expand = |pattern: &str| match request.user {
            Some(user) => pattern.replace(USER_NAME, user),
            None => pattern.to_owned(),
        };
        let has_resource = self.resources.iter().any(|pattern| is_like(&expand(pattern), request.resource));
        is_named != self.excludes_principals
            && has_action != self.excludes_actions
            && has_resource != self.excludes_resources
            && self.conditions.iter().all(|condition| condition.holds(request.values))
    }
}

fn either(
    positive: Option<Value>,
    negative: Option<Value>,
    name: &str,
) -> Result<(Vec<String>, bool), String> {
    match (positive, negative) {
        (Some(value), None) => Ok((strings(&value)?, false)),
        (None, Some(value)) => Ok((strings(&value)?, true)),
        _ => Err(format!("a statement needs either {name} or Not{name}")),
    }
}

fn principals(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(text) if text == "*" => Ok(vec!["*".to_owned()]),
        Value::Object(kinds) => {
            let mut found = Vec::new();
            for (kind, names) in kinds {
                let names = strings(names)?;
                // Principals of other kinds are no users of this service.
                if kind == "AWS" || kind == "CanonicalUser" {
                    found.extend(names);
                }
            }
            Ok(found)
        }
        other => Err(format!("the principal '{other}' is malformed")),
    }
}

/// True if a principal names the user of a request: `*`, the name, an ARN of the user or of its
/// role, or the root of its account.
fn is_principal(principal: &str, request: &PolicyRequest<'_>) -> bool {
    if principal == "*" {
        return true;
    }
    let Some(user) = request.user else { return false };
    let Some(rest) = principal.strip_prefix("arn:aws:iam::") else { return principal == user };
    let Some((account, name)) = rest.split_once(':') else { return false };
    if request.role.is_some() {
        return name.strip_prefix("role/") == request.role;
    }
    name.strip_prefix("user/") == Some(user) || (account == user && name == "root")
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
