# S3 clients for the tests of objects, by boto3. Usage:
#   objects.py operations ENDPOINT      exercises the operations
#   objects.py quota ENDPOINT           exceeds the quota of a bucket
import hashlib
import os
import sys
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def client(endpoint, **more):
    config = Config(
        signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 0}, max_pool_connections=16, **more
    )
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)


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


{"operations": operations, "quota": quota}[sys.argv[1]](*sys.argv[2:])
