//! Cross-origin requests of browsers: preflight requests, and the headers of answers.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use s3s::dto::{CORSConfiguration, CORSRule};
use s3s::{S3Error, S3Result, s3_error};

use crate::errors::custom;
use crate::patterns::is_like;

/// The largest number of rules, as in S3.
const RULES_MAX: usize = 100;
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// Checks a configuration.
///
/// # Errors
/// `MalformedXML`, `InvalidRequest`.
pub(crate) fn check(config: &CORSConfiguration) -> S3Result<()> {
    if config.cors_rules.is_empty() || config.cors_rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "a configuration has 1 to {RULES_MAX} rules"));
    }
    for rule in &config.cors_rules {
        if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
            return Err(s3_error!(MalformedXML, "a rule needs methods and origins"));
        }
        if let Some(method) = rule.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(s3_error!(InvalidRequest, "the method '{method}' of a CORS rule is unknown"));
        }
        if let Some(origin) = rule.allowed_origins.iter().find(|origin| origin.matches('*').count() > 1) {
            return Err(s3_error!(InvalidRequest, "the origin '{origin}' has more than one wildcard"));
        }
    }
    Ok(())
}

/// The headers of a request that rules look at.
pub(crate) struct OriginRequest {
    pub(crate) origin: String,
    /// The method of the request, or the one that a preflight request asks for.
    method: Option<String>,
    /// The headers that a preflight request asks for.
    headers: Vec<String>,
    is_preflight: bool,
}

impl OriginRequest {
    /// Returns the cross-origin part of a request, if it has one.
    pub(crate) fn new(method: &Method, headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let origin = text(header::ORIGIN)?;
        let is_preflight = method == Method::OPTIONS;
        // An answer to a request with the header of a preflight is checked for the method in it.
        let asked = text(header::ACCESS_CONTROL_REQUEST_METHOD);
        let method = if is_preflight { asked } else { asked.or_else(|| Some(method.as_str().to_owned())) };
        let wanted = text(header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        let wanted = wanted.split(',').map(|name| name.trim().to_ascii_lowercase());
        let headers = wanted.filter(|name| !name.is_empty() && is_preflight).collect();
        Some(Self { origin, method, headers, is_preflight })
    }

    /// The headers of the answer by the first rule that allows the request; `None` if none does.
    pub(crate) fn answer(&self, config: &CORSConfiguration) -> Option<HeaderMap> {
        let method = self.method.as_deref()?;
        let rule = config.cors_rules.iter().find(|rule| self.is_allowed(rule, method))?;
        let mut answer = HeaderMap::new();
        let mut add = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                answer.insert(name, value);
            }
        };
        let is_for_all = rule.allowed_origins.iter().any(|origin| origin == "*");
        add(header::ACCESS_CONTROL_ALLOW_ORIGIN, if is_for_all { "*" } else { &self.origin });
        add(header::ACCESS_CONTROL_ALLOW_METHODS, &rule.allowed_methods.join(", "));
        if !is_for_all {
            add(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        add(header::VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
        if let Some(exposed) = rule.expose_headers.as_ref().filter(|names| !names.is_empty()) {
            add(header::ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
        }
        if self.is_preflight {
            if !self.headers.is_empty() {
                add(header::ACCESS_CONTROL_ALLOW_HEADERS, &self.headers.join(", "));
            }
            if let Some(age) = rule.max_age_seconds {
                add(header::ACCESS_CONTROL_MAX_AGE, &age.to_string());
            }
        }
        Some(answer)
    }

    fn is_allowed(&self, rule: &CORSRule, method: &str) -> bool {
        let allowed: Vec<String> =
            rule.allowed_headers.iter().flatten().map(|name| name.to_ascii_lowercase()).collect();
        rule.allowed_origins.iter().any(|pattern| is_like(pattern, &self.origin))
            && rule.allowed_methods.iter().any(|allowed| allowed == method)
            && self.headers.iter().all(|name| allowed.iter().any(|pattern| is_like(pattern, name)))
    }
}

/// The error for a preflight request that no rule allows.
pub(crate) fn forbidden() -> S3Error {
    custom("AccessForbidden", StatusCode::FORBIDDEN, "CORSResponse: This CORS request is not allowed.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CORSRule {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        CORSRule {
            allowed_headers: Some(texts(headers)),
            allowed_methods: texts(methods),
            allowed_origins: texts(origins),
            expose_headers: Some(texts(&["ETag"])),
            id: None,
            max_age_seconds: Some(60),
        }
    }

    fn ask(config: &CORSConfiguration, method: Method, pairs: &[(&'static str, &str)]) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        OriginRequest::new(&method, &headers)?.answer(config)
    }

    #[test]
    fn the_first_rule_that_fits_answers() {
        let rules = vec![rule(&["*suffix"], &["GET"], &[]), rule(&["https://*.org"], &["PUT"], &["x-amz-*"])];
        let config = CORSConfiguration { cors_rules: rules };
        check(&config).unwrap();
        let found = ask(&config, Method::GET, &[("origin", "foo.suffix")]).unwrap();
        assert_eq!(found["access-control-allow-origin"], "foo.suffix");
        assert!(found.get("access-control-max-age").is_none());
        assert!(ask(&config, Method::PUT, &[("origin", "foo.suffix")]).is_none());
        assert!(ask(&config, Method::GET, &[("origin", "foo.suffix.get")]).is_none());
        let preflight = |headers| {
            let pairs = [
                ("origin", "https://a.org"),
                ("access-control-request-method", "PUT"),
                ("access-control-request-headers", headers),
            ];
            ask(&config, Method::OPTIONS, &pairs)
        };
        assert_eq!(preflight("X-Amz-Date").unwrap()["access-control-max-age"], "60");
        assert!(preflight("x-amz-date, content-type").is_none());
        assert!(ask(&config, Method::OPTIONS, &[("origin", "https://a.org")]).is_none(), "no method");
    }

    #[test]
    fn malformed_rules_are_refused() {
        for bad in [rule(&["a*b*"], &["GET"], &[]), rule(&["*"], &["PATCH"], &[]), rule(&[], &["GET"], &[])] {
            assert!(check(&CORSConfiguration { cors_rules: vec![bad] }).is_err());
        }
    }
}
