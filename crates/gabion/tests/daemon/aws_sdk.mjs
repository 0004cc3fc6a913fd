// The AWS SDK for JavaScript as a client of S3. Usage: aws_sdk.mjs MODULES ENDPOINT. MODULES is the
// directory in which npm has installed @aws-sdk/client-s3. Prints "done" after the last check.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { Readable } from "node:stream";

const [modules, endpoint] = process.argv.slice(2);
const sdk = createRequire(`${modules}/package.json`)("@aws-sdk/client-s3");
const s3 = new sdk.S3Client({ endpoint, forcePathStyle: true, maxAttempts: 1 });
const Bucket = "javascript";
const send = (name, input = {}) => s3.send(new sdk[`${name}Command`]({ Bucket, ...input }));
const body = async (found) => Buffer.from(await found.Body.transformToByteArray());

async function refused(name, input, code) {
  await assert.rejects(send(name, input), (error) => (assert.equal(error.name, code), true));
}

/** Bodies in memory and streams, whose checksums the SDK sends in trailers. */
async function objects() {
  const large = randomBytes(3 << 20);
  const md5 = createHash("md5").update(large).digest("hex");
  const stored = await send("PutObject", { Key: "a/large", Body: large, Metadata: { n: "1" } });
  assert.deepEqual([stored.ETag, stored.ChecksumType], [`"${md5}"`, "FULL_OBJECT"]);
  assert.ok(stored.ChecksumCRC32);
  for (const ChecksumAlgorithm of ["CRC32C", "CRC64NVME", "SHA1", "SHA256"]) {
    const Body = Readable.from([large.subarray(0, 1 << 20), large.subarray(1 << 20)]);
    const Key = `a/${ChecksumAlgorithm}`;
    await send("PutObject", { Key, Body, ContentLength: large.length, ChecksumAlgorithm });
    // The SDK verifies the checksum of the answer.
    const found = await send("GetObject", { Key, ChecksumMode: "ENABLED" });
    assert.ok(found[`Checksum${ChecksumAlgorithm}`]);
    assert.ok((await body(found)).equals(large));
  }
  const range = await send("GetObject", { Key: "a/large", Range: "bytes=1000-1999" });
  assert.ok((await body(range)).equals(large.subarray(1000, 2000)));
  const head = await send("HeadObject", { Key: "a/large" });
  assert.deepEqual([head.ContentLength, head.Metadata], [large.length, { n: "1" }]);
  await send("PutObject", { Key: "ü +%&?#", Body: "text", ContentType: "text/plain" });
  const text = await send("GetObject", { Key: "ü +%&?#" });
  assert.deepEqual([await text.Body.transformToString(), text.ContentType], ["text", "text/plain"]);
  await refused("GetObject", { Key: "none" }, "NoSuchKey");
  await refused("HeadObject", { Key: "none" }, "NotFound");
  await refused("PutObject", { Key: "a/large", Body: "x", IfNoneMatch: "*" }, "PreconditionFailed");
  await refused("PutObject", { Key: "x", Body: "x", ChecksumCRC32: "AAAAAA==" }, "BadDigest");
  await send("PutObjectTagging", { Key: "a/large", Tagging: { TagSet: [{ Key: "k", Value: "v" }] } });
  const tags = await send("GetObjectTagging", { Key: "a/large" });
  assert.deepEqual(tags.TagSet, [{ Key: "k", Value: "v" }]);
}

async function uploads() {
  const Key = "parts";
  const parts = [randomBytes(5 << 20), randomBytes(100)];
  const { UploadId } = await send("CreateMultipartUpload", { Key, ChecksumAlgorithm: "CRC32" });
  const Parts = [];
  for (const [index, Body] of parts.entries()) {
    const PartNumber = index + 1;
    const stored = await send("UploadPart", { Key, UploadId, PartNumber, Body, ChecksumAlgorithm: "CRC32" });
    Parts.push({ PartNumber, ETag: stored.ETag, ChecksumCRC32: stored.ChecksumCRC32 });
  }
  const listed = await send("ListParts", { Key, UploadId });
  assert.deepEqual(listed.Parts.map((part) => part.Size), parts.map((part) => part.length));
  const completed = await send("CompleteMultipartUpload", { Key, UploadId, MultipartUpload: { Parts } });
  assert.match(completed.ETag, /-2"$/);
  await send("CopyObject", { Key: "copy", CopySource: `${Bucket}/parts` });
  assert.ok((await body(await send("GetObject", { Key: "copy" }))).equals(Buffer.concat(parts)));
  const { UploadId: other } = await send("CreateMultipartUpload", { Key });
  await send("AbortMultipartUpload", { Key, UploadId: other });
  await refused("ListParts", { Key, UploadId: other }, "NoSuchUpload");
}

async function listings() {
  for (let number = 0; number < 25; number += 1) {
    await send("PutObject", { Key: `list/${number}`, Body: "" });
  }
  const keys = [];
  for await (const page of sdk.paginateListObjectsV2({ client: s3, pageSize: 10 }, { Bucket, Prefix: "list/" })) {
    keys.push(...page.Contents.map((entry) => entry.Key));
  }
  assert.equal(new Set(keys).size, 25);
  const groups = await send("ListObjectsV2", { Delimiter: "/" });
  assert.deepEqual(groups.CommonPrefixes.map((group) => group.Prefix), ["a/", "list/"]);
  const Objects = keys.map((Key) => ({ Key }));
  const deleted = await send("DeleteObjects", { Delete: { Objects } });
  assert.deepEqual([deleted.Deleted.length, deleted.Errors], [25, undefined]);
}

async function versions() {
  await send("PutBucketVersioning", { VersioningConfiguration: { Status: "Enabled" } });
  const first = await send("PutObject", { Key: "version", Body: "1" });
  await send("PutObject", { Key: "version", Body: "2" });
  const found = await send("GetObject", { Key: "version", VersionId: first.VersionId });
  assert.equal(await found.Body.transformToString(), "1");
  assert.equal((await send("DeleteObject", { Key: "version" })).DeleteMarker, true);
  const listed = await send("ListObjectVersions", {});
  const all = [...listed.Versions, ...listed.DeleteMarkers];
  for (const { Key, VersionId } of all) {
    await send("DeleteObject", { Key, VersionId });
  }
}

await send("CreateBucket");
const { Buckets } = await s3.send(new sdk.ListBucketsCommand({}));
assert.deepEqual(Buckets.map((bucket) => bucket.Name), [Bucket]);
await objects();
await uploads();
await listings();
await versions();
await send("DeleteBucket");
console.log("done");
