//! Tags of objects and buckets. Their attribute has the form of a URL's query.

use object::ObjectInfo;
use s3s::dto;
use s3s::{S3Result, s3_error};

use crate::attributes::{Attributes, TAGS, get};
use crate::request_check::decode;

/// The largest number of tags, as in S3.
pub(crate) const TAGS_MAX: usize = 10;
/// The longest key and value in characters, as in S3.
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;

/// Checks the tags of a header.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn check_header(tags: Option<String>) -> S3Result<Option<String>> {
    let Some(tags) = tags.filter(|tags| !tags.is_empty()) else { return Ok(None) };
    let parsed = parse(&tags);
    check(&parsed, TAGS_MAX)?;
    Ok(Some(write(&parsed)))
}

/// The number of tags of an object, if it has any.
pub(crate) fn count(info: &ObjectInfo) -> Option<i32> {
    let tags = get(info, TAGS)?;
    i32::try_from(parse(&tags).len()).ok()
}

/// The tags of an object.
pub(crate) fn tags_of(attributes: &Attributes) -> Vec<(String, String)> {
    attributes.get(TAGS).map(|tags| parse(tags)).unwrap_or_default()
}

/// Checks the tags of a document.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn check_set(tags: Vec<dto::Tag>, max: usize) -> S3Result<Vec<(String, String)>> {
    let tags = tags.into_iter();
    let tags: Vec<_> = tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect();
    check(&tags, max)?;
    Ok(tags)
}

/// Tags for answers.
pub(crate) fn to_wire(tags: Vec<(String, String)>) -> Vec<dto::Tag> {
    tags.into_iter().map(|(key, value)| dto::Tag { key: Some(key), value: Some(value) }).collect()
}

fn check(tags: &[(String, String)], max: usize) -> S3Result<()> {
    if tags.len() > max {
        return Err(s3_error!(InvalidTag, "there are more than {max} tags"));
    }
    for (index, (key, value)) in tags.iter().enumerate() {
        if key.is_empty() || key.chars().count() > KEY_MAX || value.chars().count() > VALUE_MAX {
            return Err(s3_error!(
                InvalidTag,
                "a tag has a key of 1 to {KEY_MAX} characters and a value of up to {VALUE_MAX}"
            ));
        }
        if tags.iter().take(index).any(|(other, _)| other == key) {
            return Err(s3_error!(InvalidTag, "two tags have the key '{key}'"));
        }
    }
    Ok(())
}

/// The tags in the form of a query.
pub(crate) fn parse(tags: &str) -> Vec<(String, String)> {
    let pairs = tags.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    });
    decoded.collect()
}

/// The form of a query of tags.
pub(crate) fn write(tags: &[(String, String)]) -> String {
    let encode = |text: &str| {
        text.bytes()
            .map(|byte| match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect::<String>()
    };
    let pairs: Vec<_> =
        tags.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_the_form_of_a_query() {
        let tags = vec![("a b".to_owned(), "1&2=ü".to_owned()), ("c".to_owned(), String::new())];
        assert_eq!(parse(&write(&tags)), tags);
        assert!(check_header(Some("a=1&a=2".into())).is_err());
        assert!(check_header(Some((0..11).map(|n| format!("k{n}=v&")).collect())).is_err());
        assert_eq!(check_header(Some("k=v+w".into())).unwrap().unwrap(), "k=v%20w");
    }
}
