// Pools: create, open, close, destroy; scrub and rebuild.
import { call, may, type Bucket, type Pool, type Volume } from "../api";
import { count, duration, latency, parseSize, size, time, words } from "../format";
import { history, live } from "../live";
import { Badge, Table, ask, attempt } from "../ui";
import { poolPath, pools } from "./shared";

const createPool = () => ask({
  title: "Create a pool", button: "Create",
  fields: [
    { name: "name", label: "Name" },
    { name: "scheme", label: "Protection: data + parity columns", value: "4+1" },
    { name: "drives", label: "Drives of the server, separated by spaces", placeholder: "/dev/nvme0n1 /dev/nvme1n1", optional: true },
    { name: "directory", label: "Or a directory for file drives", optional: true },
    { name: "count", label: "Number of file drives", value: "5", optional: true },
    { name: "size", label: "Size of each file drive", value: "1G", optional: true },
  ],
  run: (values) => {
    const drives = () => (values.directory
      ? { files: { directory: values.directory, size: parseSize(values.size), count: Number(values.count) } }
      : { drives: (values.drives ?? "").split(/\s+/).filter(Boolean) });
    return attempt(`Creating pool ${values.name}`, async () => call("POST", "/v1/pools", { name: values.name, scheme: values.scheme, ...drives() }));
  },
});

async function destroy(pool: Pool) {
  const volumes = await call<Volume[]>("GET", `${poolPath(pool.name)}/volumes`).catch(() => [] as Volume[]);
  const buckets = await call<Bucket[]>("GET", `${poolPath(pool.name)}/buckets`).catch(() => null);
  ask({
    title: `Destroy pool ${pool.name}`, button: "Destroy the pool",
    destroys: { name: pool.name, data: <ul>
      <li>{size(pool.space?.stored)} of data in {volumes.filter((volume) => !volume.snapshot).length} volumes and {volumes.filter((volume) => volume.snapshot).length} snapshots</li>
      {volumes.slice(0, 20).map((volume) => <li key={volume.name}>{volume.name} ({size(volume.size)})</li>)}
      {volumes.length > 20 && <li>and {volumes.length - 20} more</li>}
      {buckets === null ? <li>its objects, if it has any: they are listed while S3 runs on the pool</li>
        : buckets.slice(0, 20).map((bucket) => <li key={`bucket ${bucket.name}`}>bucket {bucket.name} ({bucket.objects} objects, {size(bucket.bytes)})</li>)}
      {buckets && buckets.length > 20 && <li>and {buckets.length - 20} more buckets</li>}</ul> },
    run: () => attempt(`Destroying pool ${pool.name}`, () => call("DELETE", poolPath(pool.name))),
  });
}

const close = (pool: Pool) => {
  const used = (live.value?.exports ?? []).filter((one) => one.pool === pool.name);
  ask({
    title: `Close pool ${pool.name}`, button: "Close the pool",
    text: <><p>The volumes of the pool cannot be used until it is opened again. The data stays.</p>
      {used.length > 0 && <p>{used.length} exports with {used.reduce((sum, one) => sum + one.connections, 0)} clients stop.</p>}</>,
    fields: used.length > 0 ? [{ name: "force", label: "Disconnect the clients", checkbox: true }] : [],
    run: (values) => attempt("Closing the pool", () => call("POST", `${poolPath(pool.name)}/close`, { force: values.force === "on" })),
  });
};

const limits = (pool: Pool) => ask({
  title: `Rebuild of ${pool.name}`, button: "Set",
  text: <p>{pool.rebuild?.state === "idle" ? "No columns are missing." : `${words(pool.rebuild?.state ?? "")}, ${size(pool.rebuild?.bytes_per_second)}/s${pool.rebuild?.seconds_left == null ? "" : `, ${duration(pool.rebuild.seconds_left)} left`}.`}</p>,
  fields: [{ name: "paused", label: "Pause the rebuild", checkbox: true, value: pool.rebuild?.paused ? "on" : "" },
    { name: "rate", label: "Limit per second (empty: none)", value: pool.rebuild?.rate_limit ? String(pool.rebuild.rate_limit) : "", placeholder: "500M", optional: true }],
  run: (values) => attempt("Rebuild changed", () => call("PATCH", `${poolPath(pool.name)}/rebuild`, { paused: values.paused === "on", rate_limit: values.rate ? parseSize(values.rate) : 0 })),
});

export function Pools() {
  const act = (text: string, method: string, path: string, body?: unknown) => () => void attempt(text, () => call(method, path, body));
  return (
    <>
      <h1>Pools</h1>
      {may("admin") && <p><button class="primary" onClick={createPool}>Create a pool</button></p>}
      <Table label="Pools" head={["Pool", "Health", "Protection", "Used", ">Volumes", ">Reads", ">Writes", ">Amplification", "Last scrub (UTC)", "Actions"]} empty={may("admin") ? "No pools. 'Create a pool' makes one of drives or files." : "No pools."}>
        {pools().map((pool) => {
          const rate = history.value.get(pool.name)?.at(-1);
          return (
          <tr key={pool.name}>
            <th scope="row">{pool.name}</th>
            <td><Badge state={pool.state === "open" ? pool.health : pool.state} />{pool.error && <small>{pool.error.message}</small>}</td>
            <td>{pool.scheme ?? "-"}</td><td class="used"><Used pool={pool} /></td>
            <td class="number">{pool.space?.volumes ?? "-"}</td><td class="number"><Rate operations={rate?.reads} seconds={rate?.readLatency} /></td>
            <td class="number"><Rate operations={rate?.writes} seconds={rate?.writeLatency} /></td><td class="number">{pool.counters?.write_amplification?.toFixed(2) ?? "-"}</td>
            <td class="time">{pool.scrub?.current ? `running, ${pool.scrub.percent} %` : time(pool.scrub?.last?.finished)}</td>
            <td class="actions">
              {pool.state === "open" && may("operator") && (pool.scrub?.current
                ? <button onClick={act("Scrub cancelled", "DELETE", `${poolPath(pool.name)}/scrub`)}>Cancel scrub</button>
                : <button onClick={act("Scrub started", "POST", `${poolPath(pool.name)}/scrub`)}>Scrub</button>)}
              {pool.state === "open" && may("operator") && <button onClick={() => limits(pool)}>Rebuild</button>}
              {pool.state === "open" && may("admin") && <button onClick={() => close(pool)}>Close</button>}
              {["closed", "unavailable"].includes(pool.state) && may("admin") && <button onClick={act("Opening the pool", "POST", `${poolPath(pool.name)}/open`, {})}>Open</button>}
              {pool.state === "open" && may("admin") && <button class="danger" onClick={() => void destroy(pool)}>Destroy</button>}
            </td>
          </tr>);
        })}
      </Table>
    </>
  );
}

function Rate({ operations, seconds }: { operations: number | undefined; seconds: number | null | undefined }) {
  return <>{count(operations ?? 0)}/s{seconds != null && <small>{latency(seconds)}</small>}</>;
}

function Used({ pool: { name, space } }: { pool: Pool }) {
  if (!space) return <>-</>;
  const used = space.capacity - space.free;
  return (
    <><meter min={0} max={space.capacity} high={space.capacity * 0.8} value={used} aria-label={`Space of ${name}`} />
      <small>{size(used)} of {size(space.capacity)}</small></>
  );
}
