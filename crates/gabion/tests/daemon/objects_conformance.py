# The S3 protocol by two users, with boto3 and plain HTTP. Usage:
#   objects_conformance.py ENDPOINT DAY
# DAY is the length of a day of lifecycle rules in seconds. The users are in the environment:
# AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the user main, ALT_ACCESS_KEY_ID and
# ALT_SECRET_ACCESS_KEY of the user alt.
import base64
import datetime
import hashlib
import hmac
import json
import os
import sys
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
import uuid

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT, DAY = sys.argv[1], int(sys.argv[2])
GROUP_ALL = "http://acs.amazonaws.com/groups/global/AllUsers"


def client(access=None, secret=None, **more):
    more.setdefault("signature_version", "s3v4")
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **more)
    return boto3.client("s3", endpoint_url=ENDPOINT, region_name="us-east-1", config=config,
                        aws_access_key_id=access, aws_secret_access_key=secret)


main = client()
alt = client(os.environ["ALT_ACCESS_KEY_ID"], os.environ["ALT_SECRET_ACCESS_KEY"])
anyone = client(signature_version=UNSIGNED)


def bucket(**more):
    name = "c-" + uuid.uuid4().hex[:20]
    main.create_bucket(Bucket=name, **more)
    return name


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        status = str(error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert code in (found, status), f"{found} ({status}) instead of {code}"
        return error.response
    raise AssertionError(f"not refused with {code}")


def http(method, path, body=None, headers={}):
    request = urllib.request.Request(ENDPOINT + path, data=body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, dict((k.lower(), v) for k, v in answer.headers.items()), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict((k.lower(), v) for k, v in error.headers.items()), error.read()


def test_versions():
    b = bucket()
    main.put_object(Bucket=b, Key="k", Body=b"null")
    main.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Enabled"})
    ids = [main.put_object(Bucket=b, Key="k", Body=bytes([i]))["VersionId"] for i in range(3)]
    assert len(set(ids)) == 3
    assert main.get_object(Bucket=b, Key="k", VersionId="null")["Body"].read() == b"null"
    marker = main.delete_object(Bucket=b, Key="k")
    assert marker["DeleteMarker"]
    refused("404", main.head_object, Bucket=b, Key="k")
    refused("405", main.head_object, Bucket=b, Key="k", VersionId=marker["VersionId"])
    listed = main.list_object_versions(Bucket=b)
    assert [v["VersionId"] for v in listed["Versions"]] == ids[::-1] + ["null"]
    assert [m["IsLatest"] for m in listed["DeleteMarkers"]] == [True]
    assert listed["Versions"][0]["Owner"]["ID"] == "main"
    # A page for each version.
    seen, marks = [], {}
    while True:
        page = main.list_object_versions(Bucket=b, MaxKeys=1, **marks)
        seen += [v["VersionId"] for v in page.get("Versions", []) + page.get("DeleteMarkers", [])]
        if not page["IsTruncated"]:
            break
        marks = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
    assert seen == [marker["VersionId"]] + ids[::-1] + ["null"], seen
    main.delete_object(Bucket=b, Key="k", VersionId=marker["VersionId"])
    assert main.get_object(Bucket=b, Key="k")["Body"].read() == bytes([2])
    copied = main.copy_object(Bucket=b, Key="copy", CopySource={"Bucket": b, "Key": "k", "VersionId": ids[0]})
    assert copied["CopySourceVersionId"] == ids[0]
    assert main.get_object(Bucket=b, Key="copy")["Body"].read() == bytes([0])
    main.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Suspended"})
    assert main.put_object(Bucket=b, Key="k", Body=b"new null")["VersionId"] == "null"
    assert main.delete_object(Bucket=b, Key="k")["VersionId"] == "null"
    refused("404", main.get_object, Bucket=b, Key="k", VersionId="0123456789abcdef")
    versions = main.list_object_versions(Bucket=b)
    every = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in versions["Versions"] + versions["DeleteMarkers"]]
    assert "Errors" not in main.delete_objects(Bucket=b, Delete={"Objects": every})
    main.delete_bucket(Bucket=b)


def test_conditions():
    b = bucket()
    etag = main.put_object(Bucket=b, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", main.put_object, Bucket=b, Key="k", Body=b"2", IfNoneMatch="*")
    refused("PreconditionFailed", main.put_object, Bucket=b, Key="k", Body=b"2", IfMatch='"other"')
    refused("NoSuchKey", main.put_object, Bucket=b, Key="none", Body=b"2", IfMatch=etag)
    main.put_object(Bucket=b, Key="k", Body=b"1", IfMatch=etag)
    refused("304", main.get_object, Bucket=b, Key="k", IfNoneMatch=etag)
    refused("412", main.get_object, Bucket=b, Key="k", IfMatch='"other"')
    now = datetime.datetime.now(datetime.timezone.utc)
    refused("304", main.get_object, Bucket=b, Key="k", IfModifiedSince=now + datetime.timedelta(seconds=5))
    refused("412", main.get_object, Bucket=b, Key="k", IfUnmodifiedSince=now - datetime.timedelta(days=5))
    refused("412", main.copy_object, Bucket=b, Key="c", CopySource=f"{b}/k", CopySourceIfMatch='"other"')
    refused("412", main.copy_object, Bucket=b, Key="c", CopySource=f"{b}/k", CopySourceIfNoneMatch=etag)
    main.copy_object(Bucket=b, Key="c", CopySource=f"{b}/k", CopySourceIfMatch=etag)
    refused("PreconditionFailed", main.delete_object, Bucket=b, Key="k", IfMatch='"other"')
    main.delete_object(Bucket=b, Key="k", IfMatch=etag)
    upload = main.create_multipart_upload(Bucket=b, Key="c")["UploadId"]
    part = main.upload_part(Bucket=b, Key="c", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    refused("PreconditionFailed", main.complete_multipart_upload, Bucket=b, Key="c", UploadId=upload,
            MultipartUpload=parts, IfNoneMatch="*")
    main.complete_multipart_upload(Bucket=b, Key="c", UploadId=upload, MultipartUpload=parts, IfMatch=etag)


def test_listings():
    b = bucket()
    keys = ["a/1", "a/2", "b%2B c", "b/ü", "c", "quux ab/thud", "x+y"]
    for key in keys:
        main.put_object(Bucket=b, Key=key, Body=key.encode())
    for listing in (main.list_objects, main.list_objects_v2):
        page = listing(Bucket=b)
        assert [o["Key"] for o in page["Contents"]] == sorted(keys, key=str.encode)
        assert page["Prefix"] == "" and page["MaxKeys"] == 1000 and not page["IsTruncated"]
        page = listing(Bucket=b, Delimiter="/")
        assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["a/", "b/", "quux ab/"]
        assert [o["Key"] for o in page["Contents"]] == ["b%2B c", "c", "x+y"]
        page = listing(Bucket=b, Delimiter="")
        assert "Delimiter" not in page and len(page["Contents"]) == len(keys)
        page = listing(Bucket=b, MaxKeys=0)
        assert not page["IsTruncated"] and "Contents" not in page
        page = listing(Bucket=b, Delimiter="/", EncodingType="url")
        assert page["CommonPrefixes"][2]["Prefix"] == "quux%20ab/", page["CommonPrefixes"]
    page = main.list_objects(Bucket=b, Marker="b/ü", MaxKeys=2)
    assert [o["Key"] for o in page["Contents"]] == ["c", "quux ab/thud"] and page["IsTruncated"]
    assert page["Contents"][0]["Owner"]["DisplayName"] == "main"
    page = main.list_objects_v2(Bucket=b, StartAfter="c", FetchOwner=True)
    assert page["KeyCount"] == 2 and page["Contents"][0]["Owner"]["ID"] == "main" and page["StartAfter"] == "c"
    assert "Owner" not in main.list_objects_v2(Bucket=b)["Contents"][0]
    refused("400", main.list_objects, Bucket=b, MaxKeys=-1)
    refused("403", anyone.list_objects, Bucket=b)
    refused("NoSuchBucket", main.list_objects, Bucket="none-" + b)


def test_buckets():
    names = sorted(bucket() for _ in range(3))
    listed, token = [], {}
    while True:
        page = main.list_buckets(MaxBuckets=2, Prefix="c-", **token)
        listed += [each["Name"] for each in page["Buckets"]]
        if "ContinuationToken" not in page:
            break
        token = {"ContinuationToken": page["ContinuationToken"]}
    assert set(names) <= set(listed) and listed == sorted(listed)
    assert not any(each["Name"] in names for each in alt.list_buckets()["Buckets"])
    refused("BucketAlreadyExists", alt.create_bucket, Bucket=names[0])
    main.create_bucket(Bucket=names[0])
    refused("InvalidLocationConstraint", main.create_bucket, Bucket="c-" + uuid.uuid4().hex,
            CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    assert http("PUT", "/UPPER")[0] in (400, 403)
    assert main.get_bucket_location(Bucket=names[0])["LocationConstraint"] in (None, "")
    head = main.head_bucket(Bucket=names[0])["ResponseMetadata"]["HTTPHeaders"]
    assert head["x-gabion-object-count"] == "0", head
    assert main.get_bucket_request_payment(Bucket=names[0])["Payer"] == "BucketOwner"
    for call in (main.get_bucket_logging, main.get_bucket_website, main.get_bucket_replication):
        refused("NotImplemented", call, Bucket=names[0])
    # Uploads in progress do not keep a bucket.
    main.create_multipart_upload(Bucket=names[1], Key="k")
    main.delete_bucket(Bucket=names[1])
    refused("NoSuchBucket", main.list_objects, Bucket=names[1])


def test_acls():
    b = bucket()
    acl = main.get_bucket_acl(Bucket=b)
    assert acl["Owner"]["ID"] == "main"
    assert [(g["Grantee"]["ID"], g["Permission"]) for g in acl["Grants"]] == [("main", "FULL_CONTROL")]
    main.put_object(Bucket=b, Key="private", Body=b"1")
    main.put_object(Bucket=b, Key="public", Body=b"2", ACL="public-read")
    main.put_object(Bucket=b, Key="users", Body=b"3", ACL="authenticated-read")
    assert anyone.get_object(Bucket=b, Key="public")["Body"].read() == b"2"
    for c in (alt, anyone):
        refused("AccessDenied", c.get_object, Bucket=b, Key="private")
        refused("AccessDenied", c.put_object, Bucket=b, Key="new", Body=b"x")
        refused("AccessDenied", c.list_objects, Bucket=b)
        refused("AccessDenied", c.get_object, Bucket=b, Key="missing")
        refused("AccessDenied", c.delete_bucket, Bucket=b)
    refused("AccessDenied", anyone.get_object, Bucket=b, Key="users")
    assert alt.get_object(Bucket=b, Key="users")["Body"].read() == b"3"
    main.put_bucket_acl(Bucket=b, ACL="public-read-write")
    assert len(anyone.list_objects(Bucket=b)["Contents"]) == 3
    refused("NoSuchKey", anyone.get_object, Bucket=b, Key="missing")
    alt.put_object(Bucket=b, Key="of alt", Body=b"4", ACL="bucket-owner-full-control")
    owner = main.get_object_acl(Bucket=b, Key="of alt")
    assert owner["Owner"]["ID"] == "alt" and len(owner["Grants"]) == 2
    main.put_object_acl(Bucket=b, Key="private", ACL="public-read")
    grants = main.get_object_acl(Bucket=b, Key="private")["Grants"]
    assert any(g["Grantee"].get("URI") == GROUP_ALL and g["Permission"] == "READ" for g in grants)
    policy = {"Owner": {"ID": "main"}, "Grants": [
        {"Grantee": {"Type": "CanonicalUser", "ID": "alt"}, "Permission": "READ_ACP"}]}
    main.put_object_acl(Bucket=b, Key="private", AccessControlPolicy=policy)
    alt.get_object_acl(Bucket=b, Key="private")
    refused("AccessDenied", alt.get_object, Bucket=b, Key="private")
    main.put_object(Bucket=b, Key="granted", Body=b"5", GrantRead="id=alt")
    alt.get_object(Bucket=b, Key="granted")
    policy["Grants"][0]["Grantee"]["ID"] = "nobody"
    refused("InvalidArgument", main.put_bucket_acl, Bucket=b, AccessControlPolicy=policy)
    enforced = bucket(ObjectOwnership="BucketOwnerEnforced")
    refused("AccessControlListNotSupported", main.put_bucket_acl, Bucket=enforced, ACL="public-read")
    rule = main.get_bucket_ownership_controls(Bucket=enforced)["OwnershipControls"]["Rules"][0]
    assert rule["ObjectOwnership"] == "BucketOwnerEnforced"
    main.delete_bucket_ownership_controls(Bucket=enforced)
    refused("OwnershipControlsNotFoundError", main.get_bucket_ownership_controls, Bucket=enforced)


def test_policies():
    b = bucket()
    refused("NoSuchBucketPolicy", main.get_bucket_policy, Bucket=b)
    main.put_object(Bucket=b, Key="open/k", Body=b"1")
    main.put_object(Bucket=b, Key="tagged", Body=b"2", Tagging="security=public")
    main.put_object(Bucket=b, Key="k", Body=b"3")

    def policy(*statements):
        text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        main.put_bucket_policy(Bucket=b, Policy=text)
        assert main.get_bucket_policy(Bucket=b)["Policy"] == text

    def allow(actions, resource, principal="*", **condition):
        statement = {"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": f"arn:aws:s3:::{resource}"}
        if condition:
            statement["Condition"] = condition
        return statement

    policy(allow("s3:ListBucket", b), allow("s3:GetObject", f"{b}/open/*"),
           allow("s3:GetObject", f"{b}/*", StringEquals={"s3:ExistingObjectTag/security": "public"}))
    assert len(anyone.list_objects_v2(Bucket=b)["Contents"]) == 3
    anyone.get_object(Bucket=b, Key="open/k")
    anyone.get_object(Bucket=b, Key="tagged")
    refused("AccessDenied", anyone.get_object, Bucket=b, Key="k")
    assert main.get_bucket_policy_status(Bucket=b)["PolicyStatus"]["IsPublic"]
    main.put_public_access_block(Bucket=b, PublicAccessBlockConfiguration={"RestrictPublicBuckets": True})
    refused("AccessDenied", anyone.get_object, Bucket=b, Key="open/k")
    main.delete_public_access_block(Bucket=b)
    refused("NoSuchPublicAccessBlockConfiguration", main.get_public_access_block, Bucket=b)
    policy(allow(["s3:PutObject", "s3:GetObject"], f"{b}/*", {"AWS": "arn:aws:iam:::user/alt"},
                 StringEquals={"s3:x-amz-acl": "public-read"}))
    refused("AccessDenied", alt.put_object, Bucket=b, Key="p", Body=b"x")
    alt.put_object(Bucket=b, Key="p", Body=b"x", ACL="public-read")
    assert not main.get_bucket_policy_status(Bucket=b)["PolicyStatus"]["IsPublic"]
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{b}/k"}
    policy(deny)
    refused("AccessDenied", main.delete_object, Bucket=b, Key="k")
    result = main.delete_objects(Bucket=b, Delete={"Objects": [{"Key": "k"}, {"Key": "p"}]})
    assert [e["Code"] for e in result["Errors"]] == ["AccessDenied"] and len(result["Deleted"]) == 1
    refused("MalformedPolicy", main.put_bucket_policy, Bucket=b, Policy="{}")
    main.delete_bucket_policy(Bucket=b)
    main.delete_object(Bucket=b, Key="k")
    block = {"BlockPublicAcls": True, "IgnorePublicAcls": True, "BlockPublicPolicy": True}
    main.put_public_access_block(Bucket=b, PublicAccessBlockConfiguration=block)
    assert not main.get_public_access_block(Bucket=b)["PublicAccessBlockConfiguration"]["RestrictPublicBuckets"]
    refused("AccessDenied", main.put_bucket_acl, Bucket=b, ACL="public-read")
    refused("AccessDenied", main.put_object, Bucket=b, Key="x", Body=b"", ACL="public-read")
    refused("AccessDenied", main.put_bucket_policy, Bucket=b,
            Policy=json.dumps({"Statement": [allow("s3:GetObject", f"{b}/*")]}))


def test_cors():
    b = bucket()
    refused("NoSuchCORSConfiguration", main.get_bucket_cors, Bucket=b)
    rules = [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*suffix"]},
             {"AllowedMethods": ["PUT"], "AllowedOrigins": ["https://a.org"], "AllowedHeaders": ["x-amz-*"],
              "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 9}]
    main.put_bucket_cors(Bucket=b, CORSConfiguration={"CORSRules": rules})
    assert main.get_bucket_cors(Bucket=b)["CORSRules"] == rules
    main.put_object(Bucket=b, Key="k", Body=b"x", ACL="public-read")
    status, headers, _ = http("GET", f"/{b}/k", headers={"Origin": "foo.suffix"})
    assert status == 200 and headers["access-control-allow-origin"] == "foo.suffix"
    assert headers["access-control-allow-methods"] == "GET"
    assert "access-control-allow-origin" not in http("GET", f"/{b}/k", headers={"Origin": "foo.bar"})[1]
    asked = {"Origin": "https://a.org", "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-amz-date"}
    status, headers, _ = http("OPTIONS", f"/{b}/k", headers=asked)
    assert status == 200 and headers["access-control-max-age"] == "9"
    asked["Access-Control-Request-Headers"] = "other"
    assert http("OPTIONS", f"/{b}/k", headers=asked)[0] == 403
    assert http("OPTIONS", f"/{b}/k")[0] == 400
    main.delete_bucket_cors(Bucket=b)
    assert http("OPTIONS", f"/{b}/k", headers=asked)[0] == 403


def test_lifecycle():
    b = bucket()
    refused("NoSuchLifecycleConfiguration", main.get_bucket_lifecycle_configuration, Bucket=b)
    rules = [{"ID": "r1", "Filter": {"Prefix": "expire/"}, "Status": "Enabled", "Expiration": {"Days": 1}},
             {"ID": "r2", "Filter": {"Prefix": "up/"}, "Status": "Enabled",
              "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}},
             {"ID": "r3", "Filter": {"And": {"Prefix": "tag/", "Tags": [{"Key": "a", "Value": "b"}]}},
              "Status": "Disabled", "Expiration": {"Days": 1}}]
    main.put_bucket_lifecycle_configuration(Bucket=b, LifecycleConfiguration={"Rules": rules})
    assert main.get_bucket_lifecycle_configuration(Bucket=b)["Rules"] == rules
    put = main.put_object(Bucket=b, Key="expire/1", Body=b"x")
    assert 'rule-id="r1"' in put["Expiration"]
    main.put_object(Bucket=b, Key="keep/1", Body=b"x")
    main.create_multipart_upload(Bucket=b, Key="up/1")
    deadline = time.monotonic() + 12 * DAY
    while len(main.list_objects(Bucket=b)["Contents"]) > 1 or "Uploads" in main.list_multipart_uploads(Bucket=b):
        assert time.monotonic() < deadline, "nothing expired"
        time.sleep(0.1)
    assert main.list_objects(Bucket=b)["Contents"][0]["Key"] == "keep/1"
    for bad in ({"Expiration": {"Days": 0}}, {"Status": "enabled"}, {"ID": "x" * 256},
                {"Expiration": {"Date": "2030-01-01T01:00:00Z"}}):
        rule = {"ID": "r", "Filter": {"Prefix": ""}, "Status": "Enabled", "Expiration": {"Days": 1}, **bad}
        refused("400", main.put_bucket_lifecycle_configuration, Bucket=b, LifecycleConfiguration={"Rules": [rule]})
    main.delete_bucket_lifecycle(Bucket=b)


def test_locks():
    b = bucket(ObjectLockEnabledForBucket=True)
    default = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}}
    main.put_object_lock_configuration(Bucket=b, ObjectLockConfiguration=default)
    assert main.get_object_lock_configuration(Bucket=b)["ObjectLockConfiguration"] == default
    bad = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 0}}}
    refused("InvalidRetentionPeriod", main.put_object_lock_configuration, Bucket=b, ObjectLockConfiguration=bad)
    refused("InvalidBucketState", main.put_bucket_versioning, Bucket=b, VersioningConfiguration={"Status": "Suspended"})
    version = main.put_object(Bucket=b, Key="k", Body=b"x")["VersionId"]
    head = main.head_object(Bucket=b, Key="k")
    assert head["ObjectLockMode"] == "GOVERNANCE" and head["ObjectLockLegalHoldStatus"] == "OFF"
    refused("AccessDenied", main.delete_object, Bucket=b, Key="k", VersionId=version)
    main.delete_object(Bucket=b, Key="k", VersionId=version, BypassGovernanceRetention=True)
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3)
    version = main.put_object(Bucket=b, Key="c", Body=b"x", ObjectLockMode="COMPLIANCE",
                              ObjectLockRetainUntilDate=until)["VersionId"]
    refused("AccessDenied", main.delete_object, Bucket=b, Key="c", VersionId=version, BypassGovernanceRetention=True)
    refused("AccessDenied", main.put_object_retention, Bucket=b, Key="c", VersionId=version, BypassGovernanceRetention=True,
            Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until + datetime.timedelta(days=1)})
    refused("InvalidArgument", main.put_object_retention, Bucket=b, Key="c",
            Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until - datetime.timedelta(days=1)})
    main.put_object_legal_hold(Bucket=b, Key="c", LegalHold={"Status": "ON"})
    assert main.get_object_legal_hold(Bucket=b, Key="c")["LegalHold"]["Status"] == "ON"
    retention = main.get_object_retention(Bucket=b, Key="c")["Retention"]
    assert retention["Mode"] == "COMPLIANCE"
    while datetime.datetime.now(datetime.timezone.utc) <= until:
        time.sleep(0.1)
    refused("AccessDenied", main.delete_object, Bucket=b, Key="c", VersionId=version)
    main.put_object_legal_hold(Bucket=b, Key="c", LegalHold={"Status": "OFF"})
    main.delete_object(Bucket=b, Key="c", VersionId=version)
    plain = bucket()
    main.put_object(Bucket=plain, Key="k", Body=b"")
    refused("ObjectLockConfigurationNotFoundError", main.get_object_lock_configuration, Bucket=plain)
    refused("InvalidRequest", main.put_object_legal_hold, Bucket=plain, Key="k", LegalHold={"Status": "ON"})
    refused("InvalidRequest", main.get_object_retention, Bucket=plain, Key="k")


def test_tags():
    b = bucket()
    refused("NoSuchTagSet", main.get_bucket_tagging, Bucket=b)
    tags = [{"Key": "a", "Value": "1"}, {"Key": "ü", "Value": "x y"}]
    main.put_bucket_tagging(Bucket=b, Tagging={"TagSet": tags})
    assert main.get_bucket_tagging(Bucket=b)["TagSet"] == tags
    main.delete_bucket_tagging(Bucket=b)
    refused("NoSuchTagSet", main.get_bucket_tagging, Bucket=b)
    main.put_object(Bucket=b, Key="k", Body=b"", Tagging="a=1&b=2")
    assert main.get_object(Bucket=b, Key="k")["TagCount"] == 2
    main.put_object_tagging(Bucket=b, Key="k", Tagging={"TagSet": tags})
    assert main.get_object_tagging(Bucket=b, Key="k")["TagSet"] == tags
    many = [{"Key": str(n), "Value": ""} for n in range(11)]
    refused("InvalidTag", main.put_object_tagging, Bucket=b, Key="k", Tagging={"TagSet": many})
    main.delete_object_tagging(Bucket=b, Key="k")
    assert main.get_object_tagging(Bucket=b, Key="k")["TagSet"] == []


def form(bucket, fields, content, name="file.txt"):
    boundary = uuid.uuid4().hex
    body = b""
    for key, value in fields.items():
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
    body += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    body += content + f"\r\n--{boundary}--\r\n".encode()
    return http("POST", f"/{bucket}", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})


def test_forms():
    b = bucket()
    made = main.generate_presigned_post(b, "form/${key}", Conditions=[["content-length-range", 1, 10]])
    assert form(b, made["fields"], b"content")[0] == 204
    assert main.get_object(Bucket=b, Key="form/${key}")["Body"].read() == b"content"
    assert form(b, made["fields"], b"too long content")[0] == 400
    wrong = dict(made["fields"], **{"x-amz-signature": "0" * 64})
    assert form(b, wrong, b"content")[0] == 403
    extra = dict(made["fields"], acl="public-read")
    assert form(b, extra, b"content")[0] == 403
    made = main.generate_presigned_post(b, "created", {"success_action_status": "201"}, [{"success_action_status": "201"}])
    status, _, body = form(b, made["fields"], b"x")
    assert status == 201 and b"<Key>created</Key>" in body
    # Signature version 2, with the policy document that limits it.
    expires = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")
    policy = {"expiration": expires, "conditions": [{"bucket": b}, ["starts-with", "$key", "foo"]]}
    policy = base64.b64encode(json.dumps(policy).encode())
    signature = base64.b64encode(hmac.new(os.environ["AWS_SECRET_ACCESS_KEY"].encode(), policy, hashlib.sha1).digest())
    fields = {"key": "foo.txt", "AWSAccessKeyId": os.environ["AWS_ACCESS_KEY_ID"], "signature": signature.decode(),
              "policy": policy.decode()}
    assert form(b, fields, b"bar")[0] == 204
    assert main.get_object(Bucket=b, Key="foo.txt")["Body"].read() == b"bar"
    assert form(b, dict(fields, key="bar.txt"), b"bar")[0] in (400, 403)
    assert form(b, {"key": "k"}, b"anonymous")[0] == 403
    main.put_bucket_acl(Bucket=b, ACL="public-read-write")
    assert form(b, {"key": "k"}, b"anonymous")[0] == 204


def test_presigned():
    b = bucket()
    url = main.generate_presigned_url("put_object", {"Bucket": b, "Key": "k ü"}, ExpiresIn=60)
    path = url[len(ENDPOINT):]
    assert http("PUT", path, b"body")[0] == 200
    url = main.generate_presigned_url("get_object", {"Bucket": b, "Key": "k ü", "ResponseContentType": "text/x"}, ExpiresIn=60)
    status, headers, body = http("GET", url[len(ENDPOINT):])
    assert (status, headers["content-type"], body) == (200, "text/x", b"body")
    for expiry in (604801, 0, -1):
        url = main.generate_presigned_url("get_object", {"Bucket": b, "Key": "k ü"}, ExpiresIn=expiry)
        assert http("GET", url[len(ENDPOINT):])[0] in (400, 403), expiry
    url = main.generate_presigned_url("get_object", {"Bucket": b, "Key": "k ü"}, ExpiresIn=60)
    assert http("GET", url[len(ENDPOINT):-1] + ("1" if url[-1] == "0" else "0"))[0] == 403
    assert http("GET", f"/{b}/k?response-content-type=x")[0] in (400, 403)


def test_checksums():
    b = bucket()
    body = b"hello checksum"
    for name in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"):
        try:
            put = main.put_object(Bucket=b, Key=name, Body=body, ChecksumAlgorithm=name)
        except Exception as error:
            # Some algorithms need the AWS CRT library.
            assert "MissingDependency" in type(error).__name__, error
            continue
        got = main.get_object(Bucket=b, Key=name, ChecksumMode="ENABLED")
        assert got["Checksum" + name] == put["Checksum" + name] and got["ChecksumType"] == "FULL_OBJECT"
        found = main.get_object_attributes(Bucket=b, Key=name, ObjectAttributes=["Checksum", "ObjectSize", "ETag"])
        assert found["Checksum"]["Checksum" + name] == put["Checksum" + name] and found["ObjectSize"] == len(body)
    digest = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    refused("BadDigest", main.put_object, Bucket=b, Key="k", Body=body, ChecksumSHA256=digest)
    refused("InvalidRequest", main.put_object, Bucket=b, Key="k", Body=body, ChecksumSHA256="short")
    refused("InvalidDigest", main.put_object, Bucket=b, Key="k", Body=body, ContentMD5="bad")
    for algorithm, kind in (("SHA256", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC32", "COMPOSITE")):
        upload = main.create_multipart_upload(Bucket=b, Key="m", ChecksumAlgorithm=algorithm, ChecksumType=kind)
        assert upload["ChecksumType"] == kind
        where = {"Bucket": b, "Key": "m", "UploadId": upload["UploadId"]}
        parts, pieces = [], [os.urandom(5 << 20), b"tail"]
        for number, piece in enumerate(pieces, 1):
            sent = main.upload_part(**where, PartNumber=number, Body=piece, ChecksumAlgorithm=algorithm)
            sum_name = "Checksum" + algorithm
            parts.append({"PartNumber": number, "ETag": sent["ETag"], sum_name: sent[sum_name]})
        assert main.list_parts(**where)["Parts"][0][sum_name] == parts[0][sum_name]
        wrong = [dict(parts[0], **{sum_name: parts[1][sum_name]}), parts[1]]
        refused("InvalidPart", main.complete_multipart_upload, **where, MultipartUpload={"Parts": wrong})
        done = main.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
        if algorithm == "SHA256":
            joined = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
            assert done[sum_name] == base64.b64encode(hashlib.sha256(joined).digest()).decode() + "-2"
        elif kind == "FULL_OBJECT":
            import zlib
            whole = zlib.crc32(b"".join(pieces)).to_bytes(4, "big")
            assert done[sum_name] == base64.b64encode(whole).decode()
        found = main.get_object_attributes(Bucket=b, Key="m", ObjectAttributes=["ObjectParts", "Checksum"], MaxParts=1)
        assert found["ObjectParts"]["TotalPartsCount"] == 2 and found["ObjectParts"]["IsTruncated"]
        assert found["ObjectParts"]["Parts"][0][sum_name] == parts[0][sum_name]


def customer(byte):
    key = bytes([byte]) * 32
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}


def test_encryption():
    b = bucket()
    for size in (0, 1, 1000, 70_000, 3_000_000):
        body = os.urandom(size)
        put = main.put_object(Bucket=b, Key="c", Body=body, **customer(1))
        assert put["SSECustomerAlgorithm"] == "AES256" and put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
        assert main.get_object(Bucket=b, Key="c", **customer(1))["Body"].read() == body
        if size > 100:
            got = main.get_object(Bucket=b, Key="c", Range=f"bytes={size // 2}-{size // 2 + 99}", **customer(1))
            assert got["Body"].read() == body[size // 2:size // 2 + 100]
        put = main.put_object(Bucket=b, Key="s", Body=body, ServerSideEncryption="AES256")
        got = main.get_object(Bucket=b, Key="s")
        assert got["ServerSideEncryption"] == "AES256" and got["Body"].read() == body and got["ContentLength"] == size
    refused("400", main.get_object, Bucket=b, Key="c")
    refused("400", main.get_object, Bucket=b, Key="c", **customer(2))
    refused("400", main.get_object, Bucket=b, Key="s", **customer(1))
    refused("400", main.head_object, Bucket=b, Key="c")
    refused("400", main.put_object, Bucket=b, Key="x", Body=b"", ServerSideEncryption="AES256", **customer(1))
    refused("400", main.put_object, Bucket=b, Key="x", Body=b"", ServerSideEncryption="aws:kms")
    got = main.put_object(Bucket=b, Key="kms", Body=b"kms", ServerSideEncryption="aws:kms", SSEKMSKeyId="key-1")
    assert got["SSEKMSKeyId"] == "key-1" and main.get_object(Bucket=b, Key="kms")["Body"].read() == b"kms"
    source = {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": bytes([1]) * 32}
    main.copy_object(Bucket=b, Key="plain", CopySource=f"{b}/c", **source)
    assert main.get_object(Bucket=b, Key="plain")["Body"].read() == body
    main.copy_object(Bucket=b, Key="again", CopySource=f"{b}/plain", **customer(3))
    assert main.get_object(Bucket=b, Key="again", **customer(3))["Body"].read() == body
    upload = main.create_multipart_upload(Bucket=b, Key="m", **customer(4))["UploadId"]
    where = {"Bucket": b, "Key": "m", "UploadId": upload}
    pieces = [os.urandom((5 << 20) + 77), os.urandom(1000)]
    refused("400", main.upload_part, **where, PartNumber=1, Body=b"x")
    parts = [{"PartNumber": n, "ETag": main.upload_part(**where, PartNumber=n, Body=p, **customer(4))["ETag"]}
             for n, p in enumerate(pieces, 1)]
    main.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    got = main.get_object(Bucket=b, Key="m", **customer(4))
    assert got["Body"].read() == b"".join(pieces) and got["ContentLength"] == sum(map(len, pieces))
    got = main.get_object(Bucket=b, Key="m", PartNumber=2, **customer(4))
    assert got["Body"].read() == pieces[1]
    refused("ServerSideEncryptionConfigurationNotFoundError", main.get_bucket_encryption, Bucket=b)
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    main.put_bucket_encryption(Bucket=b, ServerSideEncryptionConfiguration=rules)
    assert main.put_object(Bucket=b, Key="d", Body=b"d")["ServerSideEncryption"] == "AES256"
    main.delete_bucket_encryption(Bucket=b)
    assert sum(o["Size"] for o in main.list_objects(Bucket=b, Prefix="m")["Contents"]) == sum(map(len, pieces))


def test_multipart():
    b = bucket()
    upload = main.create_multipart_upload(Bucket=b, Key="k", ContentType="text/x", Metadata={"foo": "bar"})["UploadId"]
    where = {"Bucket": b, "Key": "k", "UploadId": upload}
    refused("InvalidArgument", main.upload_part, **where, PartNumber=10001, Body=b"")
    refused("NoSuchUpload", main.upload_part, Bucket=b, Key="k", UploadId="none", PartNumber=1, Body=b"")
    refused("400", main.complete_multipart_upload, **where)
    one = main.upload_part(**where, PartNumber=1, Body=b"small")["ETag"]
    two = main.upload_part(**where, PartNumber=10000, Body=b"tail")["ETag"]
    parts = [{"PartNumber": 1, "ETag": one}, {"PartNumber": 10000, "ETag": two}]
    refused("EntityTooSmall", main.complete_multipart_upload, **where, MultipartUpload={"Parts": parts})
    refused("InvalidPartOrder", main.complete_multipart_upload, **where, MultipartUpload={"Parts": parts[::-1]})
    first = os.urandom(5 << 20)
    parts[0]["ETag"] = main.upload_part(**where, PartNumber=1, Body=first)["ETag"]
    page = main.list_parts(**where, MaxParts=1)
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 1 and page["Owner"]["ID"] == "main"
    assert main.list_parts(**where, PartNumberMarker=1)["Parts"][0]["PartNumber"] == 10000
    main.create_multipart_upload(Bucket=b, Key="dir/x")
    listed = main.list_multipart_uploads(Bucket=b, Delimiter="/")
    assert [u["Key"] for u in listed["Uploads"]] == ["k"] and listed["CommonPrefixes"] == [{"Prefix": "dir/"}]
    done = main.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    assert done["ETag"].endswith('-2"')
    got = main.get_object(Bucket=b, Key="k")
    assert got["Body"].read() == first + b"tail" and got["Metadata"] == {"foo": "bar"} and got["ContentType"] == "text/x"
    refused("NoSuchUpload", main.list_parts, **where)
    refused("400", main.get_object, Bucket=b, Key="k", PartNumber=3)
    upload = main.create_multipart_upload(Bucket=b, Key="copy")["UploadId"]
    where = {"Bucket": b, "Key": "copy", "UploadId": upload}
    refused("InvalidRange", main.upload_part_copy, **where, PartNumber=1, CopySource=f"{b}/k", CopySourceRange="bytes=0-99999999")
    refused("400", main.upload_part_copy, **where, PartNumber=1, CopySource=f"{b}/k", CopySourceRange="0-2")
    part = main.upload_part_copy(**where, PartNumber=1, CopySource=f"{b}/k", CopySourceRange="bytes=3-9")
    etag = part["CopyPartResult"]["ETag"]
    main.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert main.get_object(Bucket=b, Key="copy")["Body"].read() == first[3:10]


def test_objects():
    b = bucket()
    meta = {"name": "Hello World", "mixed": "a,b;c"}
    put = dict(CacheControl="no-cache", ContentDisposition="x", ContentEncoding="gzip", ContentLanguage="de",
               ContentType="text/plain", Expires=datetime.datetime(2030, 1, 1), Metadata=meta)
    main.put_object(Bucket=b, Key="k", Body=b"0123456789", **put)
    got = main.get_object(Bucket=b, Key="k")
    for name in ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Metadata"):
        assert got[name] == put[name], name
    assert got["AcceptRanges"] == "bytes"
    for text, found in (("bytes=4-", b"456789"), ("bytes=-3", b"789"), ("bytes=2-3", b"23"), ("bytes=8-99", b"89")):
        part = main.get_object(Bucket=b, Key="k", Range=text)
        assert part["Body"].read() == found and part["ResponseMetadata"]["HTTPStatusCode"] == 206
    error = refused("InvalidRange", main.get_object, Bucket=b, Key="k", Range="bytes=10-")
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 416
    main.put_object(Bucket=b, Key="empty", Body=b"")
    refused("InvalidRange", main.get_object, Bucket=b, Key="empty", Range="bytes=0-")
    main.copy_object(Bucket=b, Key="c", CopySource=f"{b}/k")
    assert main.head_object(Bucket=b, Key="c")["Metadata"] == meta
    main.copy_object(Bucket=b, Key="c", CopySource=f"{b}/k", Metadata={"new": "1"}, MetadataDirective="REPLACE")
    assert main.head_object(Bucket=b, Key="c")["Metadata"] == {"new": "1"}
    refused("InvalidRequest", main.copy_object, Bucket=b, Key="c", CopySource=f"{b}/c")
    main.copy_object(Bucket=b, Key="c", CopySource=f"{b}/c", Metadata={"self": "1"}, MetadataDirective="REPLACE")
    refused("NoSuchKey", main.copy_object, Bucket=b, Key="c", CopySource=f"{b}/none")
    refused("403", alt.copy_object, Bucket=b, Key="c", CopySource=f"{b}/k")
    own = "c-" + uuid.uuid4().hex[:20]
    alt.create_bucket(Bucket=own)
    refused("AccessDenied", alt.copy_object, Bucket=own, Key="c", CopySource=f"{b}/k")
    refused("KeyTooLongError", main.put_object, Bucket=b, Key="k" * 1025, Body=b"")
    refused("MetadataTooLarge", main.put_object, Bucket=b, Key="m", Body=b"", Metadata={"k": "v" * 3000})
    for key in ("../../etc/passwd", "a//b", "./x", "ü/日本", "a b+c%41", "\x01low", "k?x#y"):
        main.put_object(Bucket=b, Key=key, Body=key.encode())
        assert main.get_object(Bucket=b, Key=key)["Body"].read() == key.encode(), key
    assert http("GET", f"/{b}/%ff")[0] in (400, 403)
    deleted = main.delete_objects(Bucket=b, Delete={"Objects": [{"Key": "k"}, {"Key": "none"}]})["Deleted"]
    assert [each["Key"] for each in deleted] == ["k", "none"]
    too_many = {"Objects": [{"Key": str(n)} for n in range(1001)]}
    refused("MalformedXML", main.delete_objects, Bucket=b, Delete=too_many)


failed = 0
for name, test in sorted((name, test) for name, test in globals().items() if name.startswith("test_")):
    if len(sys.argv) > 3 and name not in sys.argv[3:]:
        continue
    try:
        test()
    except Exception:
        failed += 1
        print(f"{name} failed:", file=sys.stderr)
        traceback.print_exc()
sys.exit(1 if failed else 0)
