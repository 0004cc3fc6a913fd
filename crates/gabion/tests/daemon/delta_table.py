# Concurrent writers of a Delta Lake table, whose commits are puts with `If-None-Match: *`. Usage:
#   delta_table.py ENDPOINT WRITERS COMMITS
import concurrent.futures
import sys

import deltalake
from arro3.core import Array, DataType, Table

ENDPOINT, WRITERS, COMMITS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TABLE = "s3://lake/events"
OPTIONS = {"endpoint": ENDPOINT, "allow_http": "true", "region": "us-east-1",
           "virtual_hosted_style_request": "false", "conditional_put": "etag"}


def rows(writer, numbers):
    def column(values):
        return Array(values, type=DataType.int64())

    return Table.from_pydict({"writer": column([writer] * len(numbers)), "number": column(numbers)})


def write(writer):
    for number in range(COMMITS):
        # A commit that loses the race for a version is repeated with the next one.
        properties = deltalake.CommitProperties(max_commit_retries=1000)
        deltalake.write_deltalake(TABLE, rows(writer, [number]), mode="append", storage_options=OPTIONS,
                                  commit_properties=properties)


deltalake.write_deltalake(TABLE, rows(0, []), storage_options=OPTIONS)
with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
    for done in [pool.submit(write, writer) for writer in range(WRITERS)]:
        done.result()
table = deltalake.DeltaTable(TABLE, storage_options=OPTIONS)
versions = sorted(each["version"] for each in table.history())
query = deltalake.QueryBuilder().register("events", table)
found = query.execute("select writer, number from events").read_all()
pairs = sorted(zip(found["writer"].to_pylist(), found["number"].to_pylist()))
assert pairs == [(writer, number) for writer in range(WRITERS) for number in range(COMMITS)], pairs
assert versions == list(range(WRITERS * COMMITS + 1)), versions
print(f"versions 0 to {versions[-1]}, {len(pairs)} rows")
