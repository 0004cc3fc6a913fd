# S3 clients for the tests of objects, by boto3. Usage:
#   objects.py operations ENDPOINT      exercises the operations
#   objects.py quota ENDPOINT           exceeds the quota of a bucket
#   objects.py policies ENDPOINT KEY SECRET
#       combines policies of buckets with those of the user anna, whose access key is given: it may
#       get and put all objects but not delete them, and may not put those with the prefix both/
#   objects.py web_identity ENDPOINT ROLE TOKEN FOREIGN
#       exchanges a token for credentials, and uses them; FOREIGN is a token for another audience
import datetime
import hashlib
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def client(endpoint, keys={}, **more):
    config = Config(
        signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 0}, max_pool_connections=16, **more
    )
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config, **keys)


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}"
        return
    raise AssertionError(f"not refused with {code}")


def operations(endpoint):
    s3 = client(endpoint)
    s3.create_bucket(Bucket="photos")
    small, large = b"small", os.urandom(3 << 20)
    for key, body in [("a/small", small), ("a/large", large), ("b ü/+?&.txt", small), ("empty", b"")]:
        s3.put_object(Bucket="photos", Key=key, Body=body, Metadata={"n": key[0]}, ContentType="text/plain")
        got = s3.get_object(Bucket="photos", Key=key)
        assert got["Body"].read() == body and got["Metadata"] == {"n": key[0]}
        assert got["ETag"] == '"' + hashlib.md5(body).hexdigest() + '"'
    part = s3.get_object(Bucket="photos", Key="a/large", Range="bytes=1000000-2000000")
    assert part["Body"].read() == large[1000000:2000001]
    assert part["ResponseMetadata"]["HTTPStatusCode"] == 206
    refused("InvalidRange", s3.get_object, Bucket="photos", Key="a/small", Range="bytes=9-")
    refused("NoSuchKey", s3.get_object, Bucket="photos", Key="none")
    refused("PreconditionFailed", s3.put_object, Bucket="photos", Key="a/small", Body=b"x", IfNoneMatch="*")
    refused("BadDigest", s3.put_object, Bucket="photos", Key="bad", Body=b"x", ChecksumCRC32="AAAAAA==")

    listed = s3.list_objects_v2(Bucket="photos", Delimiter="/", MaxKeys=2)
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["a/", "b ü/"], listed
    token = listed["NextContinuationToken"]
    listed = s3.list_objects_v2(Bucket="photos", Delimiter="/", ContinuationToken=token)
    assert [each["Key"] for each in listed["Contents"]] == ["empty"] and not listed["IsTruncated"]
    assert len(s3.list_objects(Bucket="photos")["Contents"]) == 4

    upload = s3.create_multipart_upload(Bucket="photos", Key="big")["UploadId"]
    pieces = [os.urandom(5 << 20), os.urandom(5 << 20), b"tail"]
    parts = []
    for number, piece in enumerate(pieces, 1):
        sent = s3.upload_part(Bucket="photos", Key="big", UploadId=upload, PartNumber=number, Body=piece)
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
    source = {"Bucket": "photos", "Key": "a/large"}
    copied = s3.upload_part_copy(
        Bucket="photos", Key="big", UploadId=upload, PartNumber=9, CopySource=source, CopySourceRange="bytes=5-99"
    )
    assert copied["CopyPartResult"]["ETag"] == '"' + hashlib.md5(large[5:100]).hexdigest() + '"'
    assert len(s3.list_parts(Bucket="photos", Key="big", UploadId=upload)["Parts"]) == 4
    complete = {"Bucket": "photos", "Key": "big", "UploadId": upload}
    refused("InvalidPart", s3.complete_multipart_upload, **complete,
            MultipartUpload={"Parts": [{"PartNumber": 7, "ETag": "x"}]})
    s3.complete_multipart_upload(**complete, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="photos", Key="big")["Body"].read() == b"".join(pieces)
    second = s3.get_object(Bucket="photos", Key="big", PartNumber=2)
    assert second["Body"].read() == pieces[1] and second["PartsCount"] == 3

    s3.copy_object(Bucket="photos", Key="copy", CopySource={"Bucket": "photos", "Key": "big"})
    s3.delete_object(Bucket="photos", Key="big")
    assert s3.get_object(Bucket="photos", Key="copy")["Body"].read() == b"".join(pieces)
    s3.put_object_tagging(Bucket="photos", Key="copy", Tagging={"TagSet": [{"Key": "k", "Value": "v w"}]})
    assert s3.get_object_tagging(Bucket="photos", Key="copy")["TagSet"] == [{"Key": "k", "Value": "v w"}]

    s3.put_bucket_versioning(Bucket="photos", VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket="photos", Key="v", Body=b"1")["VersionId"]
    s3.put_object(Bucket="photos", Key="v", Body=b"2")
    marker = s3.delete_object(Bucket="photos", Key="v")["VersionId"]
    refused("NoSuchKey", s3.get_object, Bucket="photos", Key="v")
    assert s3.get_object(Bucket="photos", Key="v", VersionId=first)["Body"].read() == b"1"
    s3.delete_object(Bucket="photos", Key="v", VersionId=marker)
    assert s3.get_object(Bucket="photos", Key="v")["Body"].read() == b"2"

    url = s3.generate_presigned_url("get_object", Params={"Bucket": "photos", "Key": "a/small"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == small
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "photos", "Key": "stolen"}, ExpiresIn=60)
    request = urllib.request.Request(url, method="PUT", headers={"x-amz-copy-source": "photos/a/large"})
    try:
        urllib.request.urlopen(request)
        raise AssertionError("a presigned upload became a copy")
    except urllib.error.HTTPError as error:
        assert error.code == 403, error.code
    wrong = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                         aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key="wrong",
                         config=Config(s3={"addressing_style": "path"}))
    refused("SignatureDoesNotMatch", wrong.list_buckets)
    refused("NotImplemented", s3.get_bucket_website, Bucket="photos")
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="photos")
    versions = s3.list_object_versions(Bucket="photos")
    every = [{"Key": each["Key"], "VersionId": each["VersionId"]}
             for each in versions.get("Versions", []) + versions.get("DeleteMarkers", [])]
    assert "Errors" not in s3.delete_objects(Bucket="photos", Delete={"Objects": every})
    s3.delete_bucket(Bucket="photos")


def quota(endpoint):
    s3 = client(endpoint)
    s3.put_object(Bucket="small", Key="k", Body=b"x" * 900_000)
    refused("QuotaExceeded", s3.put_object, Bucket="small", Key="other", Body=b"x" * 200_000)
    etag = s3.put_object(Bucket="small", Key="k", Body=b"x" * 1_000_000)["ETag"]
    assert etag.endswith('-1"') and etag != s3.put_object(Bucket="small", Key="k", Body=b"x")["ETag"], etag
    s3.put_object(Bucket="small", Key="other", Body=b"x" * 200_000)


def policies(endpoint, key, secret):
    admin = client(endpoint)
    anna = client(endpoint, keys={"aws_access_key_id": key, "aws_secret_access_key": secret})

    def statement(effect, action, prefix, principal="arn:aws:iam:::user/anna"):
        return {"Effect": effect, "Principal": {"AWS": principal}, "Action": action,
                "Resource": f"arn:aws:s3:::photos/{prefix}*"}

    def put_policy(*statements):
        admin.put_bucket_policy(Bucket="photos", Policy=json.dumps({"Statement": statements}))

    calls = {
        "get": lambda prefix: anna.get_object(Bucket="photos", Key=prefix + "k"),
        "put": lambda prefix: anna.put_object(Bucket="photos", Key=prefix + "k", Body=b"body"),
        "delete": lambda prefix: anna.delete_object(Bucket="photos", Key=prefix + "k"),
        "tag": lambda prefix: anna.put_object_tagging(
            Bucket="photos", Key=prefix + "k", Tagging={"TagSet": [{"Key": "t", "Value": "v"}]}),
    }

    def check(prefix, allowed):
        for name, call in calls.items():
            admin.put_object(Bucket="photos", Key=prefix + "k", Body=b"body")
            if name in allowed:
                call(prefix)
            else:
                refused("AccessDenied", call, prefix=prefix)

    # The bucket is silent: the policy of the user alone.
    check("a/", {"get", "put"})
    check("both/", {"get"})
    put_policy(
        statement("Deny", "s3:PutObject", "a/"),           # the user allows
        statement("Allow", "s3:DeleteObject", "a/"),       # the user denies
        statement("Allow", "s3:PutObjectTagging", "a/"),   # the user is silent
        statement("Allow", ["s3:GetObject", "s3:PutObject"], "b/"),    # the user allows too
        statement("Deny", ["s3:DeleteObject", "s3:PutObjectTagging"], "b/"),  # denies, is silent
        statement("Allow", "s3:*", "both/"),               # the user denies to put
    )
    check("a/", {"get", "tag"})
    check("b/", {"get", "put"})
    check("both/", {"get", "tag"})
    # Statements for others do not concern the user.
    put_policy(statement("Allow", "s3:*", "a/", "arn:aws:iam:::user/ben"),
               statement("Deny", "s3:GetObject", "b/", "arn:aws:iam:::user/ben"))
    check("a/", {"get", "put"})
    check("b/", {"get", "put"})
    # A denial for everyone does, and the administrator is subject to it too.
    put_policy(statement("Deny", "s3:GetObject", "a/", "*"))
    check("a/", {"put"})
    refused("AccessDenied", admin.get_object, Bucket="photos", Key="a/k")
    admin.delete_bucket_policy(Bucket="photos")
    check("a/", {"get", "put"})


def web_identity(endpoint, role, token, foreign):
    sts = boto3.client("sts", endpoint_url=endpoint, region_name="us-east-1",
                       config=Config(retries={"max_attempts": 0}))
    request = {"RoleArn": role, "RoleSessionName": "boto3"}
    refused("InvalidIdentityToken", sts.assume_role_with_web_identity, **request, WebIdentityToken=foreign)
    answer = sts.assume_role_with_web_identity(**request, WebIdentityToken=token, DurationSeconds=900)
    assert answer["SubjectFromWebIdentityToken"] == "anna" and answer["Audience"] == "gabion", answer
    assert answer["AssumedRoleUser"]["Arn"].endswith(":assumed-role/writers/boto3"), answer
    got = answer["Credentials"]
    left = got["Expiration"] - datetime.datetime.now(datetime.timezone.utc)
    assert 800 < left.total_seconds() <= 900, left

    def session(key, secret, token):
        return client(endpoint, keys={"aws_access_key_id": key, "aws_secret_access_key": secret,
                                      "aws_session_token": token})

    s3 = session(got["AccessKeyId"], got["SecretAccessKey"], got["SessionToken"])
    s3.put_object(Bucket="photos", Key="k", Body=b"body")
    assert s3.get_object(Bucket="photos", Key="k")["Body"].read() == b"body"
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "photos", "Key": "k"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"body"
    parts = urllib.parse.urlsplit(url)
    query = [(k, v) for k, v in urllib.parse.parse_qsl(parts.query) if k != "X-Amz-Security-Token"]
    try:
        urllib.request.urlopen(parts._replace(query=urllib.parse.urlencode(query)).geturl())
        raise AssertionError("the URL works without its session token")
    except urllib.error.HTTPError as error:
        assert error.code == 403, error.code
    s3.create_bucket(Bucket="own-bucket")
    assert {each["Name"] for each in s3.list_buckets()["Buckets"]} == {"photos", "own-bucket"}

    without = session(got["AccessKeyId"], got["SecretAccessKey"], None)
    refused("InvalidToken", without.list_buckets)
    other = sts.assume_role_with_web_identity(**request, WebIdentityToken=token)["Credentials"]
    mixed = session(got["AccessKeyId"], got["SecretAccessKey"], other["SessionToken"])
    refused("InvalidToken", mixed.list_buckets)
    forged = session(got["AccessKeyId"], "x" * 40, got["SessionToken"])
    refused("SignatureDoesNotMatch", forged.list_buckets)
    unknown = session("ASIA" + "2" * 16, got["SecretAccessKey"], got["SessionToken"])
    refused("SignatureDoesNotMatch", unknown.list_buckets)


{"operations": operations, "policies": policies, "quota": quota, "web_identity": web_identity}[sys.argv[1]](*sys.argv[2:])
