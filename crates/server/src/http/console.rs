//! The files of the console, embedded in the program.
//!
//! Invariant: the pages load nothing from other hosts and run no inline scripts or styles, which
//! the content security policy enforces.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// Windows of other origins get no reference to the console's.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// A file: path, type, contents.
type ConsoleFile = (&'static str, &'static str, &'static [u8]);

const FILES: [ConsoleFile; 3] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../console/dist/index.html")),
    (
        "/assets/console.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../console/dist/assets/console.js"),
    ),
    (
        "/assets/console.css",
        "text/css; charset=utf-8",
        include_bytes!("../../console/dist/assets/console.css"),
    ),
];

/// Returns the paths of the files.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, ..)| *path)
}

/// Returns the file with a path.
pub(super) fn file(path: &str, headers: &HeaderMap) -> Response {
    let Some((_, kind, contents)) = FILES.iter().find(|(own, ..)| *own == path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let hash = digest(&SHA256, contents);
    let tag: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let common = [
        (CONTENT_SECURITY_POLICY, POLICY.to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
        (OPENER_POLICY, "same-origin".to_owned()),
        // Browsers keep the file and ask whether it is current.
        (CACHE_CONTROL, "no-cache".to_owned()),
        (ETAG, tag.clone()),
    ];
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, [(CONTENT_TYPE, *kind)], *contents).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn files_are_sent_with_a_policy_and_revalidated() {
        let response = file("/", &HeaderMap::new());
        assert!(response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("script-src 'self'"));
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, response.headers()[ETAG].clone());
        assert_eq!(file("/", &headers).status(), StatusCode::NOT_MODIFIED);
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(file("/", &headers).status(), StatusCode::OK);
        assert_eq!(file("/other", &headers).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_page_names_only_its_own_files() {
        let page = String::from_utf8_lossy(FILES[0].2);
        for (path, ..) in &FILES[1..] {
            assert!(page.contains(path), "{path}: {page}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
        let size: usize = FILES.iter().map(|(.., contents)| contents.len()).sum();
        assert!(size <= 150 << 10, "{size} bytes");
    }
}
