//! Tests of the checks: each request that the protocol library would accept by mistake.

use super::*;

const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=AKIA/20261124/us-east-1/s3/aws4_request, \
                      SignedHeaders=host;x-amz-date, Signature=ff";

fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), String> {
    let mut request = Request::builder().method("PUT").uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    check_request(&request.body(()).unwrap(), "us-east-1").map_err(|error| error.code().as_str().to_owned())
}

fn presigned(scope: &str, expires: &str) -> String {
    format!(
        "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F20261124%2F{scope}%2Faws4_request\
         &X-Amz-Date=20261124T000000Z&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host&X-Amz-Signature=ff"
    )
}

#[test]
fn complete_signatures_pass() {
    check("/b/k", &[("authorization", SIGNED), ("x-amz-date", "1"), ("x-amz-content-sha256", "0")]).unwrap();
    check(&presigned("us-east-1%2Fs3", "3600"), &[]).unwrap();
    check("/b/k", &[]).unwrap();
}

#[test]
fn a_presigned_upload_cannot_become_a_copy() {
    let uri = presigned("us-east-1%2Fs3", "3600");
    assert_eq!(check(&uri, &[("x-amz-copy-source", "other/secret")]).unwrap_err(), "AccessDenied");
    let unsigned = [("authorization", SIGNED), ("x-amz-date", "1"), ("x-amz-acl", "public-read")];
    assert_eq!(check("/b/k", &unsigned).unwrap_err(), "AccessDenied");
    let repeated = [("authorization", SIGNED), ("x-amz-date", "1"), ("x-amz-date", "2")];
    assert_eq!(check("/b/k", &repeated).unwrap_err(), "InvalidRequest");
}

#[test]
fn signatures_of_version_2_are_refused() {
    assert_eq!(check("/b/k", &[("authorization", "AWS AKIA:sig")]).unwrap_err(), "InvalidRequest");
    let uri = "/b/k?AWSAccessKeyId=AKIA&Expires=9999999999&Signature=x";
    assert_eq!(check(uri, &[]).unwrap_err(), "InvalidRequest");
}

#[test]
fn other_regions_and_services_are_refused() {
    for scope in ["eu-west-1%2Fs3", "us-east-1%2Fsts", "s3"] {
        assert_eq!(
            check(&presigned(scope, "60"), &[]).unwrap_err(),
            "AuthorizationHeaderMalformed",
            "{scope}"
        );
    }
    let other = SIGNED.replace("us-east-1", "eu-west-1");
    assert_eq!(check("/b", &[("authorization", &other)]).unwrap_err(), "AuthorizationHeaderMalformed");
}

#[test]
fn presigned_urls_expire_within_a_week() {
    for expires in ["604801", "0", "x", ""] {
        let error = check(&presigned("us-east-1%2Fs3", expires), &[]).unwrap_err();
        assert_eq!(error, "AuthorizationQueryParametersError", "{expires}");
    }
    check(&presigned("us-east-1%2Fs3", "604800"), &[]).unwrap();
}
