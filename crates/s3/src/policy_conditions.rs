//! The conditions of policies: operators of strings, numbers, times, flags and networks.
//!
//! Always true: an unknown operator is refused when the policy is stored.

use serde_json::{Map, Value};

use crate::patterns::{is_in_network, is_like, strings};
use crate::times::parse_time;

/// The comparison of an operator.
#[derive(Clone, Copy, Debug)]
enum Comparison {
    Equals,
    EqualsIgnoreCase,
    Like,
    Numeric(fn(f64, f64) -> bool),
    Date(fn(f64, f64) -> bool),
    Bool,
    Network,
    Null,
}

/// The values of the request that must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantifier {
    Single,
    ForAny,
    ForAll,
}

/// A test of one condition key.
#[derive(Clone, Debug)]
pub(crate) struct ConditionTest {
    quantifier: Quantifier,
    comparison: Comparison,
    is_negated: bool,
    if_exists: bool,
    key: String,
    values: Vec<String>,
}

impl ConditionTest {
    /// Parses the conditions of a statement.
    ///
    /// # Errors
    /// The reason why they are malformed.
    pub(crate) fn parse_all(conditions: Map<String, Value>) -> Result<Vec<Self>, String> {
        let mut tests = Vec::new();
        for (operator, keys) in conditions {
            let Value::Object(keys) = keys else {
                return Err(format!("the condition '{operator}' has no keys"));
            };
            for (key, values) in keys {
                tests.push(Self::parse(&operator, &key, &values)?);
            }
        }
        Ok(tests)
    }

    fn parse(operator: &str, key: &str, values: &Value) -> Result<Self, String> {
        let (quantifier, name) = match operator.split_once(':') {
            Some(("ForAnyValue", rest)) => (Quantifier::ForAny, rest),
            Some(("ForAllValues", rest)) => (Quantifier::ForAll, rest),
            Some(_) => return Err(format!("the condition '{operator}' is unknown")),
            None => (Quantifier::Single, operator),
        };
        let (name, if_exists) = match name.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (comparison, is_negated) = match name {
            "StringEquals" => (Comparison::Equals, false),
            "StringNotEquals" => (Comparison::Equals, true),
            "StringEqualsIgnoreCase" => (Comparison::EqualsIgnoreCase, false),
            "StringNotEqualsIgnoreCase" => (Comparison::EqualsIgnoreCase, true),
            "StringLike" | "ArnLike" | "ArnEquals" => (Comparison::Like, false),
            "StringNotLike" | "ArnNotLike" | "ArnNotEquals" => (Comparison::Like, true),
            "NumericEquals" => (Comparison::Numeric(|a, b| a == b), false),
            "NumericNotEquals" => (Comparison::Numeric(|a, b| a == b), true),
            "NumericLessThan" => (Comparison::Numeric(|a, b| a < b), false),
            "NumericLessThanEquals" => (Comparison::Numeric(|a, b| a <= b), false),
            "NumericGreaterThan" => (Comparison::Numeric(|a, b| a > b), false),
            "NumericGreaterThanEquals" => (Comparison::Numeric(|a, b| a >= b), false),
            "DateEquals" => (Comparison::Date(|a, b| a == b), false),
            "DateNotEquals" => (Comparison::Date(|a, b| a == b), true),
            "DateLessThan" => (Comparison::Date(|a, b| a < b), false),
            "DateLessThanEquals" => (Comparison::Date(|a, b| a <= b), false),
            "DateGreaterThan" => (Comparison::Date(|a, b| a > b), false),
            "DateGreaterThanEquals" => (Comparison::Date(|a, b| a >= b), false),
            "Bool" => (Comparison::Bool, false),
            "IpAddress" => (Comparison::Network, false),
            "NotIpAddress" => (Comparison::Network, true),
            "Null" => (Comparison::Null, false),
            _ => return Err(format!("the condition '{operator}' is unknown")),
        };
        let (key, values) = (key.to_owned(), strings(values)?);
        Ok(Self { quantifier, comparison, is_negated, if_exists, key, values })
    }

    /// True if the condition limits a statement to certain clients.
    pub(crate) fn limits_clients(&self) -> bool {
        let key = self.key.to_ascii_lowercase();
        let is_of_client =
            ["aws:sourceip", "aws:username", "aws:userid", "aws:principalarn", "aws:sourcearn"];
        let is_wide = |value: &String| value.contains('*') || value.ends_with("/0");
        is_of_client.contains(&key.as_str()) && !self.is_negated && !self.values.iter().any(is_wide)
    }

    /// True if the condition holds for the values of a request.
    pub(crate) fn holds(&self, values: &dyn Fn(&str) -> Option<Vec<String>>) -> bool {
        // The part after a slash, the key of a tag, keeps its case.
        let key = match self.key.split_once('/') {
            Some((name, rest)) => format!("{}/{rest}", name.to_ascii_lowercase()),
            None => self.key.to_ascii_lowercase(),
        };
        let found = values(&key);
        if matches!(self.comparison, Comparison::Null) {
            let is_absent = found.is_none();
            return self.values.iter().any(|value| value.eq_ignore_ascii_case(&is_absent.to_string()));
        }
        let Some(found) = found else {
            return self.if_exists || self.is_negated || self.quantifier == Quantifier::ForAll;
        };
        let matches = |value: &String| self.values.iter().any(|wanted| self.compare(value, wanted));
        let passes = |value: &String| matches(value) != self.is_negated;
        match self.quantifier {
            Quantifier::ForAll => found.iter().all(passes),
            Quantifier::ForAny => found.iter().any(passes),
            Quantifier::Single if self.is_negated => found.iter().all(passes),
            Quantifier::Single => found.iter().any(passes),
        }
    }

    fn compare(&self, found: &str, wanted: &str) -> bool {
        let numbers = |parse: fn(&str) -> Option<f64>, compare: fn(f64, f64) -> bool| {
            parse(found).zip(parse(wanted)).is_some_and(|(found, wanted)| compare(found, wanted))
        };
        match self.comparison {
            Comparison::Equals => found == wanted,
            Comparison::EqualsIgnoreCase | Comparison::Bool => found.eq_ignore_ascii_case(wanted),
            Comparison::Like => is_like(wanted, found),
            Comparison::Numeric(compare) => numbers(|text| text.parse().ok(), compare),
            Comparison::Date(compare) => numbers(parse_time, compare),
            Comparison::Network => is_in_network(wanted, found),
            Comparison::Null => false,
        }
    }
}
