# An S3 client for the tests of webhooks, by boto3. Usage:
#   webhooks.py configure ENDPOINT BUCKET ARN PREFIX SUFFIX   sets the rule of a bucket
#   webhooks.py remove ENDPOINT BUCKET                        removes the rules of a bucket
#   webhooks.py refused ENDPOINT BUCKET                       sends configurations that are refused
#   webhooks.py change ENDPOINT BUCKET                        changes objects in every way
#   webhooks.py put ENDPOINT BUCKET FIRST COUNT               puts objects with numbers as keys; prints
#                                                             those that are acknowledged
import io
import sys
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


def client(endpoint):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)


def queue(arn, events, prefix="", suffix=""):
    rules = [{"Name": "prefix", "Value": prefix}, {"Name": "suffix", "Value": suffix}]
    return {"Id": "all", "QueueArn": arn, "Events": events, "Filter": {"Key": {"FilterRules": rules}}}


def configure(endpoint, bucket, arn, prefix="", suffix=""):
    s3 = client(endpoint)
    events = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*"]
    wanted = queue(arn, events, prefix, suffix)
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [wanted]}
    )
    found = s3.get_bucket_notification_configuration(Bucket=bucket)
    assert found["QueueConfigurations"] == [wanted], found


def remove(endpoint, bucket):
    s3 = client(endpoint)
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket=bucket)


def refused(endpoint, bucket):
    s3 = client(endpoint)
    arn, put = "arn:gabion:sqs::none:webhook", ["s3:ObjectCreated:Put"]
    topic = {"TopicConfigurations": [{"TopicArn": arn, "Events": put}]}
    for code, config in [
        ("InvalidArgument", {"QueueConfigurations": [queue(arn, put)]}),
        ("NotImplemented", topic),
        ("NotImplemented", {"EventBridgeConfiguration": {}}),
    ]:
        try:
            s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=config)
        except ClientError as error:
            assert error.response["Error"]["Code"] == code, error
        else:
            raise AssertionError(f"not refused with {code}")


def post_form(s3, bucket, key):
    form = s3.generate_presigned_post(bucket, key)
    boundary, body = "boundary", b""
    for name, value in [*form["fields"].items(), ("file", "form")]:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    body += f"--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    urllib.request.urlopen(urllib.request.Request(form["url"], body, headers)).read()


def change(endpoint, bucket):
    s3 = client(endpoint)
    s3.put_object(Bucket=bucket, Key="in/a b.txt", Body=b"body")
    s3.put_object(Bucket=bucket, Key="out/a.txt", Body=b"other prefix")
    s3.put_object(Bucket=bucket, Key="in/a.png", Body=b"other suffix")
    s3.copy_object(Bucket=bucket, Key="in/copy.txt", CopySource={"Bucket": bucket, "Key": "out/a.txt"})
    upload = s3.create_multipart_upload(Bucket=bucket, Key="in/parts.txt")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="in/parts.txt", UploadId=upload, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="in/parts.txt", UploadId=upload, MultipartUpload=parts)
    post_form(s3, bucket, "in/form.txt")
    s3.delete_object(Bucket=bucket, Key="in/none.txt")
    s3.delete_object(Bucket=bucket, Key="in/form.txt")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="in/copy.txt", Body=b"version")["VersionId"]
    objects = {"Objects": [{"Key": "in/copy.txt"}]}
    s3.delete_objects(Bucket=bucket, Delete=objects)
    s3.delete_object(Bucket=bucket, Key="in/copy.txt", VersionId=version)
    print(version)


def put(endpoint, bucket, first, count):
    s3 = client(endpoint)
    for number in range(int(first), int(first) + int(count)):
        try:
            s3.upload_fileobj(io.BytesIO(b"x"), bucket, str(number))
        except (BotoCoreError, ClientError, boto3.exceptions.S3UploadFailedError):
            return
        print(number, flush=True)


globals()[sys.argv[1]](*sys.argv[2:])
