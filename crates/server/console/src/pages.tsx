// The pages.
import { useEffect, useState } from "preact/hooks";
import { call, enc, may, type AuditRecord, type Drive, type Pool, type PoolEvent, type Token, type Volume } from "./api";
import { count, parseSize, size, time, words } from "./format";
import { ioKey, live, rates } from "./live";
import { Badge, Table, ask, attempt } from "./ui";

const pools = () => live.value?.pools ?? [];
const openPools = () => pools().filter((pool) => pool.state === "open");
const poolPath = (pool: string) => `/v1/pools/${enc(pool)}`;
const volumePath = (volume: { pool: string; name: string }) => `${poolPath(volume.pool)}/volumes/${enc(volume.name)}`;

function Fill({ pool }: { pool: Pool }) {
  const space = pool.space;
  if (!space) return null;
  const used = space.capacity - space.free;
  return (
    <p class="fill"><meter min={0} max={space.capacity} high={space.capacity * 0.8} value={used} aria-label={`Space of ${pool.name}`} />
      {size(used)} of {size(space.capacity)} used, {size(space.free)} free</p>
  );
}

export function Health() {
  const status = live.value;
  const problems = pools().flatMap((pool) => pool.problems.map((problem) => ({ pool: pool.name, ...problem })));
  const failed = (status?.operations ?? []).filter((operation) => operation.state === "failed").slice(-3);
  return (
    <>
      <h1>Health</h1>
      {problems.length === 0
        ? <p class="notice">No problems in {pools().length} {pools().length === 1 ? "pool" : "pools"}.</p>
        : <ul class="problems">{problems.map((problem) => (
            <li key={problem.pool + problem.message}><strong>{problem.pool}:</strong> {problem.message}<br />
              <span class="fix">To solve it: {problem.action}</span></li>))}</ul>}
      {failed.length > 0 && <><h2>Failed operations</h2><ul class="problems">{failed.map((operation) => (
        <li key={operation.id}><strong>{words(operation.kind)} {operation.target}:</strong> {operation.error?.message}
          {operation.error?.hint && <><br /><span class="fix">{operation.error.hint}</span></>}</li>))}</ul></>}
      <div class="cards">{pools().map((pool) => (
        <section class="card" key={pool.name} aria-label={`Pool ${pool.name}`}>
          <h2>{pool.name} <Badge state={pool.state === "open" ? pool.health : pool.state} /></h2>
          <Fill pool={pool} />
          <PoolRates pool={pool.name} />
          {pool.rebuild && pool.rebuild.state !== "idle" && <p>Rebuild: {words(pool.rebuild.state)}, {pool.rebuild.percent} %, {size(pool.rebuild.remaining)} left</p>}
          {pool.scrub?.current && <p>Scrub: {pool.scrub.percent} %</p>}
        </section>))}</div>
    </>
  );
}

function PoolRates({ pool }: { pool: string }) {
  let [reads, writes, readBytes, writeBytes] = [0, 0, 0, 0];
  for (const [key, rate] of rates.value) {
    if (!key.startsWith(`${pool}/`)) continue;
    reads += rate.reads; writes += rate.writes; readBytes += rate.readBytes; writeBytes += rate.writeBytes;
  }
  return <p>{count(reads)} reads/s ({size(readBytes)}/s), {count(writes)} writes/s ({size(writeBytes)}/s)</p>;
}

const create_pool = () => ask({
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
    const request: Record<string, unknown> = { name: values.name, scheme: values.scheme };
    if (values.directory) request.files = { directory: values.directory, size: parseSize(values.size ?? ""), count: Number(values.count) };
    else request.drives = (values.drives ?? "").split(/\s+/).filter(Boolean);
    return attempt(`Creating pool ${values.name}`, () => call("POST", "/v1/pools", request));
  },
});

async function destroy(pool: Pool) {
  const volumes = await call<Volume[]>("GET", `${poolPath(pool.name)}/volumes`).catch(() => [] as Volume[]);
  ask({
    title: `Destroy pool ${pool.name}`, button: "Destroy the pool",
    destroys: { name: pool.name, data: <ul>
      <li>{size(pool.space?.stored)} of data in {volumes.filter((volume) => !volume.snapshot).length} volumes and {volumes.filter((volume) => volume.snapshot).length} snapshots</li>
      {volumes.slice(0, 20).map((volume) => <li key={volume.name}>{volume.name} ({size(volume.size)})</li>)}
      {volumes.length > 20 && <li>and {volumes.length - 20} more</li>}</ul> },
    run: () => attempt(`Destroying pool ${pool.name}`, () => call("DELETE", poolPath(pool.name))),
  });
}

export function Pools() {
  const act = (text: string, method: string, path: string, body?: unknown) => () => void attempt(text, () => call(method, path, body));
  return (
    <>
      <h1>Pools</h1>
      {may("admin") && <p><button class="primary" onClick={create_pool}>Create a pool</button></p>}
      <Table label="Pools" head={["Pool", "Health", "Protection", ">Capacity", ">Free", ">Volumes", ">Write amplification", "Last scrub", "Actions"]} empty="No pools.">
        {pools().map((pool) => (
          <tr key={pool.name}>
            <th scope="row">{pool.name}</th>
            <td><Badge state={pool.state === "open" ? pool.health : pool.state} />{pool.error && <small>{pool.error.message}</small>}</td>
            <td>{pool.scheme ?? "-"}</td><td class="number">{size(pool.space?.capacity)}</td><td class="number">{size(pool.space?.free)}</td>
            <td class="number">{pool.space?.volumes ?? "-"}</td><td class="number">{pool.counters?.write_amplification?.toFixed(2) ?? "-"}</td>
            <td>{pool.scrub?.current ? `running, ${pool.scrub.percent} %` : time(pool.scrub?.last?.finished)}</td>
            <td class="actions">
              {pool.state === "open" && may("operator") && (pool.scrub?.current
                ? <button onClick={act("Scrub cancelled", "DELETE", `${poolPath(pool.name)}/scrub`)}>Cancel scrub</button>
                : <button onClick={act("Scrub started", "POST", `${poolPath(pool.name)}/scrub`)}>Scrub</button>)}
              {pool.state === "open" && may("admin") && <button onClick={act("Closing the pool", "POST", `${poolPath(pool.name)}/close`, {})}>Close</button>}
              {["closed", "unavailable"].includes(pool.state) && may("admin") && <button onClick={act("Opening the pool", "POST", `${poolPath(pool.name)}/open`, {})}>Open</button>}
              {pool.state === "open" && may("admin") && <button class="danger" onClick={() => void destroy(pool)}>Destroy</button>}
            </td>
          </tr>))}
      </Table>
    </>
  );
}

function DriveActions({ drive }: { drive: Drive }) {
  if (drive.index === null) return null;
  const path = `${poolPath(drive.pool)}/drives/${drive.index}`;
  const one = (text: string, verb: string) => () => void attempt(text, () => call("POST", `${path}/${verb}`, {}));
  const replace = () => ask({
    title: `Replace drive ${drive.index} of ${drive.pool}`, button: "Replace",
    text: <p>The data of {drive.path} is migrated to the new drive, and the old drive leaves the pool.</p>,
    fields: [{ name: "path", label: "New drive", placeholder: "/dev/disk/by-id/..." }],
    run: (values) => attempt("Replacing the drive", () => call("POST", `${path}/replace`, { path: values.path })),
  });
  const fail = () => ask({
    title: `Fail drive ${drive.index} of ${drive.pool}`, button: "Fail the drive",
    destroys: { name: drive.path, data: <ul><li>the redundancy that {drive.path} provides, until it is rebuilt or returned</li></ul> },
    run: () => attempt("Drive failed", () => call("POST", `${path}/fail`, {})),
  });
  return (
    <>
      {may("admin") && drive.state !== "removing" && <button onClick={replace}>Replace</button>}
      {may("operator") && drive.state === "online" && <button onClick={one("Removing the drive", "remove")}>Remove</button>}
      {may("operator") && drive.state === "removing" && <button onClick={one("Removal cancelled", "remove/cancel")}>Cancel removal</button>}
      {may("operator") && ["failed", "missing"].includes(drive.state) && <button onClick={one("Drive returned", "return")}>Return</button>}
      {may("operator") && drive.state === "online" && <button class="danger" onClick={fail}>Fail</button>}
    </>
  );
}

export function Drives() {
  const add = () => ask({
    title: "Add a drive", button: "Add",
    fields: [{ name: "pool", label: "Pool", options: openPools().map((pool) => [pool.name, pool.name]) }, { name: "path", label: "Drive", placeholder: "/dev/disk/by-id/..." }],
    run: (values) => attempt("Adding the drive", () => call("POST", `${poolPath(values.pool ?? "")}/drives`, { path: values.path })),
  });
  return (
    <>
      <h1>Drives</h1>
      {may("admin") && openPools().length > 0 && <p><button class="primary" onClick={add}>Add a drive</button></p>}
      <Table label="Drives" head={["Pool", ">Drive", "Path", "State", ">Size", ">Used", ">Read errors", ">Checksum errors", "Actions"]} empty="No drives.">
        {pools().flatMap((pool) => pool.drives).map((drive) => (
          <tr key={`${drive.pool}/${drive.index}/${drive.path}`}>
            <td>{drive.pool}</td><th scope="row" class="number">{drive.index ?? "-"}</th><td class="path">{drive.path}</td>
            <td><Badge state={drive.failing ? "failing" : drive.state} /></td>
            <td class="number">{size(drive.size)}</td><td class="number">{size(drive.used)}</td>
            <td class="number">{drive.read_errors ?? "-"}</td><td class="number">{drive.checksum_errors ?? "-"}</td>
            <td class="actions"><DriveActions drive={drive} /></td>
          </tr>))}
      </Table>
    </>
  );
}

/** Data that is read every few seconds while its page is open. */
function usePolled<T>(load: () => Promise<T>, key: string): T | null {
  const [value, setValue] = useState<T | null>(null);
  useEffect(() => {
    let active = true;
    const read = () => void load().then((loaded) => active && setValue(loaded), () => undefined);
    read();
    const timer = setInterval(read, 3000);
    return () => { active = false; clearInterval(timer); };
  }, [key]);
  return value;
}

const SHOWN = 200;

export function Volumes() {
  const names = openPools().map((pool) => pool.name);
  const [filter, setFilter] = useState("");
  const all = usePolled(async () => (await Promise.all(names.map((name) => call<Volume[]>("GET", `${poolPath(name)}/volumes`)))).flat(), names.join());
  const shown = (all ?? []).filter((volume) => `${volume.pool}/${volume.name}`.includes(filter));
  const create = () => ask({
    title: "Create a volume", button: "Create",
    fields: [{ name: "pool", label: "Pool", options: names.map((name) => [name, name]) }, { name: "name", label: "Name" }, { name: "size", label: "Size", placeholder: "500G" }],
    run: (values) => attempt(`Volume ${values.pool}/${values.name} created`, () =>
      call("POST", `${poolPath(values.pool ?? "")}/volumes`, { name: values.name, size: parseSize(values.size ?? "") })),
  });
  return (
    <>
      <h1>Volumes</h1>
      <p class="tools">
        {may("operator") && names.length > 0 && <button class="primary" onClick={create}>Create a volume</button>}
        <label>Filter <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>
        <span>{shown.length > SHOWN ? `${SHOWN} of ${shown.length} shown` : `${shown.length} shown`}</span>
      </p>
      <Table label="Volumes" head={["Volume", ">Size", ">Stored", "Created", "State", "Actions"]} empty={all ? "No volumes." : "Loading"}>
        {shown.slice(0, SHOWN).map((volume) => (
          <tr key={`${volume.pool}/${volume.name}`}>
            <th scope="row" class={volume.snapshot ? "snapshot" : ""}>{volume.pool}/{volume.name}{volume.origin && <small>clone of {volume.origin}</small>}</th>
            <td class="number">{size(volume.size)}</td><td class="number">{size(volume.stored)}</td><td>{time(volume.created)}</td>
            <td>{volume.deleting ? "deleting" : volume.exported ? "exported" : volume.snapshot ? "snapshot" : "not exported"}</td>
            <td class="actions">{may("operator") && !volume.deleting && <VolumeActions volume={volume} all={all ?? []} />}</td>
          </tr>))}
      </Table>
    </>
  );
}

function VolumeActions({ volume, all }: { volume: Volume; all: Volume[] }) {
  const name = `${volume.pool}/${volume.name}`;
  const path = volumePath(volume);
  const resize = () => ask({
    title: `Resize ${name}`, button: "Resize", fields: [{ name: "size", label: `New size, larger than ${size(volume.size)}` }],
    run: (values) => attempt(`${name} resized`, () => call("PATCH", path, { size: parseSize(values.size ?? "") })),
  });
  const snapshot = () => ask({
    title: `Snapshot of ${name}`, button: "Create", fields: [{ name: "name", label: "Name of the snapshot" }],
    run: (values) => attempt(`Snapshot ${name}@${values.name} created`, () => call("POST", `${path}/snapshots`, { name: values.name })),
  });
  const clone = () => ask({
    title: `Clone of ${name}`, button: "Create", fields: [{ name: "name", label: "Name of the new volume" }],
    run: (values) => attempt(`Volume ${values.name} created`, () => call("POST", `${path}/clone`, { name: values.name })),
  });
  const origin = volume.name.split("@")[0] ?? "";
  const rollback = () => ask({
    title: `Roll ${volume.pool}/${origin} back`, button: "Roll back",
    destroys: { name: `${volume.pool}/${origin}`, data: <ul><li>all data written to {volume.pool}/{origin} since {time(volume.created)}, unless a later snapshot has it</li></ul> },
    run: () => attempt("Volume rolled back", () => call("POST", `${path}/rollback`, {})),
  });
  const snapshots = all.filter((other) => other.pool === volume.pool && other.name.startsWith(`${volume.name}@`));
  const remove = () => ask({
    title: `Delete ${name}`, button: "Delete",
    destroys: { name, data: <ul><li>{name}, {size(volume.size)}, with {size(volume.stored)} of its own data</li>
      {snapshots.map((other) => <li key={other.name}>its snapshot {other.name} exists; delete it first if the daemon refuses</li>)}</ul> },
    run: () => attempt(`Deleting ${name}`, () => call("DELETE", path)),
  });
  const exportIt = () => ask({
    title: `Export ${name}`, button: "Export",
    fields: [{ name: "protocol", label: "Protocol", options: [["nbd", "NBD"], ["vhost_user", "vhost-user (disk of a virtual machine)"], ["fuse", "FUSE (file of the server)"], ["ublk", "ublk (block device of the server)"]] }],
    run: (values) => attempt(`${name} exported`, () => call("POST", "/v1/exports", { pool: volume.pool, volume: volume.name, protocol: values.protocol })),
  });
  return volume.snapshot
    ? <><button onClick={clone}>Clone</button><button onClick={rollback} class="danger">Roll back</button><button class="danger" onClick={remove}>Delete</button></>
    : <><button onClick={snapshot}>Snapshot</button><button onClick={resize}>Resize</button><button onClick={exportIt}>Export</button><button class="danger" onClick={remove}>Delete</button></>;
}

export function Exports() {
  const all = live.value?.exports ?? [];
  const remove = (one: (typeof all)[number]) => ask({
    title: `Delete export ${one.id} of ${one.pool}/${one.volume}`, button: "Delete the export",
    destroys: { name: `${one.pool}/${one.volume}`, data: <ul><li>the connections of {one.connections} clients; the volume and its data stay</li></ul> },
    run: () => attempt("Export deleted", () => call("DELETE", `/v1/exports/${enc(one.pool)}/${enc(one.volume)}?id=${enc(one.id)}`)),
  });
  return (
    <>
      <h1>Exports</h1>
      <Table label="Exports" head={["Volume", "Export", "State", ">Clients", ">Reads/s", ">Writes/s", ">Read", ">Written", "Address", "Actions"]} empty="No exports. The page of volumes creates them.">
        {all.slice(0, SHOWN).map((one) => {
          const rate = rates.value.get(ioKey(one));
          return (
            <tr key={ioKey(one)}>
              <th scope="row">{one.pool}/{one.volume}</th><td>{one.id}{one.read_only && <small>read-only</small>}</td>
              <td><Badge state={one.state} />{one.reason && <small>{one.reason}</small>}</td><td class="number">{one.connections}</td>
              <td class="number">{count(rate?.reads ?? 0)}</td><td class="number">{count(rate?.writes ?? 0)}</td>
              <td class="number">{size(rate?.readBytes ?? 0)}/s</td><td class="number">{size(rate?.writeBytes ?? 0)}/s</td>
              <td class="path">{one.uris.join(" ")}</td>
              <td class="actions">{may("operator") && <button class="danger" onClick={() => remove(one)}>Delete</button>}</td>
            </tr>);
        })}
      </Table>
    </>
  );
}

export function Operations() {
  const all = [...(live.value?.operations ?? [])].reverse();
  return (
    <>
      <h1>Operations</h1>
      <Table label="Operations" head={[">Operation", "Kind", "Object", "State", "Step", "Progress", ">Seconds"]} empty="No operations since the start of the daemon.">
        {all.map((operation) => (
          <tr key={operation.id}>
            <th scope="row" class="number">{operation.id}</th><td>{words(operation.kind)}</td><td>{operation.target}</td><td><Badge state={operation.state} /></td>
            <td>{operation.error ? operation.error.message : operation.step}{operation.error?.hint && <small>{operation.error.hint}</small>}</td>
            <td>{operation.total ? <progress max={operation.total} value={operation.done ?? 0} aria-label={`Progress of operation ${operation.id}`} /> : "-"}</td>
            <td class="number">{operation.seconds.toFixed(1)}</td>
          </tr>))}
      </Table>
    </>
  );
}

export function Events() {
  const names = openPools().map((pool) => pool.name);
  const load = async () => {
    const lists = await Promise.all(names.map(async (name) => (await call<PoolEvent[]>("GET", `${poolPath(name)}/events?last=200`)).map((event) => ({ ...event, pool: name }))));
    return lists.flat().sort((a, b) => b.time - a.time || b.number - a.number);
  };
  const events = usePolled(load, names.join());
  return (
    <>
      <h1>Events</h1>
      <Table label="Events" head={["Time", "Pool", "Severity", "Event"]} empty={events ? "No events." : "Loading"}>
        {(events ?? []).map((event) => (
          <tr key={`${event.pool}/${event.number}`}><td>{time(event.time)}</td><td>{event.pool}</td><td><Badge state={event.severity} /></td><td>{event.message}</td></tr>))}
      </Table>
    </>
  );
}

export function Tokens() {
  const tokens = usePolled(() => call<Token[]>("GET", "/v1/access/tokens"), "tokens");
  const create = () => ask({
    title: "Create a token", button: "Create",
    fields: [{ name: "name", label: "Name of the person or program" }, { name: "role", label: "Role", options: [["viewer", "viewer"], ["operator", "operator"], ["admin", "admin"]] },
      { name: "days", label: "Days until it expires (empty: never)", value: "30", optional: true }],
    run: async (values) => {
      let secret = "";
      const request = { name: values.name, role: values.role, expires_in: values.days ? Number(values.days) * 86400 : null };
      const done = await attempt("Token created", async () => { secret = (await call<{ secret: string }>("POST", "/v1/access/tokens", request)).secret; });
      // After this dialog has closed.
      if (done) setTimeout(() => ask({ title: "The new token", button: "Done", text: <p>Copy it now; it cannot be shown again:<br /><code class="secret">{secret}</code></p>, run: async () => true }));
      return done;
    },
  });
  const remove = (token: Token) => ask({
    title: `Delete token ${token.name}`, button: "Delete", destroys: { name: token.name, data: <ul><li>the access of {token.name} ({token.role}), and its sessions</li></ul> },
    run: () => attempt("Token deleted", () => call("DELETE", `/v1/access/tokens/${enc(token.id)}`)),
  });
  return (
    <>
      <h1>Tokens</h1>
      <p><button class="primary" onClick={create}>Create a token</button></p>
      <Table label="Tokens" head={["Id", "Name", "Role", "Created", "Expires", "Last used", "Actions"]} empty={tokens ? "No tokens." : "Loading"}>
        {(tokens ?? []).map((token) => (
          <tr key={token.id}><th scope="row">{token.id}</th><td>{token.name}</td><td>{token.role}</td><td>{time(token.created)}</td>
            <td>{token.expires ? time(token.expires) : "never"}</td><td>{time(token.last_used)}</td>
            <td class="actions"><button class="danger" onClick={() => remove(token)}>Delete</button></td></tr>))}
      </Table>
    </>
  );
}

export function Audit() {
  const records = usePolled(() => call<AuditRecord[]>("GET", "/v1/access/audit?last=200"), "audit");
  return (
    <>
      <h1>Audit</h1>
      <Table label="Audit log" head={["Time", "Client", "Role", "Address", "Request", ">Status"]} empty={records ? "No requests have changed anything." : "Loading"}>
        {[...(records ?? [])].reverse().map((record, index) => (
          <tr key={index}><td>{time(record.time)}</td><td>{record.client}</td><td>{record.role ?? "-"}</td><td>{record.address ?? "Unix socket"}</td>
            <td class="path">{record.method} {record.path}</td><td class="number">{record.status}</td></tr>))}
      </Table>
    </>
  );
}
