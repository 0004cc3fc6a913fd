// Objects: S3 services, and buckets with a browser of their objects.
import { useEffect, useState } from "preact/hooks";
import { call, enc, may, type Bucket, type ObjectPage, type S3Service } from "../api";
import { parseSize, size, time } from "../format";
import { Badge, Table, ask, attempt } from "../ui";
import { openPools, poolPath, usePolled } from "./shared";

type PoolBucket = Bucket & { pool: string };
const bucketPath = (bucket: { pool: string; name: string }) => `${poolPath(bucket.pool)}/buckets/${enc(bucket.name)}`;

export function Objects() {
  const services = usePolled(() => call<S3Service[]>("GET", "/v1/s3"), "services");
  const [open, setOpen] = useState<{ pool: string; name: string } | null>(null);
  const active = (services ?? []).filter((service) => service.state === "active").map((service) => service.pool);
  if (open) return <Browser bucket={open} leave={() => setOpen(null)} />;
  return (
    <>
      <h1>Objects</h1>
      <Services services={services} />
      {active.length > 0 && <Buckets pools={active} open={setOpen} />}
    </>
  );
}

function Services({ services }: { services: S3Service[] | null }) {
  const free = openPools().filter((pool) => !(services ?? []).some((service) => service.pool === pool.name));
  const start = () => ask({
    title: "Start S3 on a pool", button: "Start",
    fields: [{ name: "pool", label: "Pool", options: free.map((pool) => [pool.name, pool.name]) }, { name: "listen", label: "Address and port for clients", value: "0.0.0.0:9000" }],
    run: (values) => attempt(`S3 started on ${values.pool}`, () => call("POST", `${poolPath(values.pool ?? "")}/s3`, { listen: values.listen })),
  });
  const stop = (service: S3Service) => ask({
    title: `Stop S3 on ${service.pool}`, button: "Stop", text: <p>Clients are disconnected. The objects stay.</p>,
    run: () => attempt("S3 stopped", () => call("DELETE", `${poolPath(service.pool)}/s3`)),
  });
  return (
    <section aria-labelledby="services">
      <h2 id="services">Services</h2>
      {may("operator") && free.length > 0 && <p><button class="primary" onClick={start}>Start S3 on a pool</button></p>}
      <Table label="S3 services" head={["Pool", "Address", "Region", "State", "Actions"]} empty={services ? "No pool serves S3." : "Loading"}>
        {(services ?? []).map((service) => (
          <tr key={service.pool}><th scope="row">{service.pool}</th><td class="path">{service.listen}</td><td>{service.region}</td>
            <td><Badge state={service.state} />{service.reason && <small>{service.reason}</small>}</td>
            <td class="actions">{may("operator") && <button onClick={() => stop(service)}>Stop</button>}</td></tr>))}
      </Table>
    </section>
  );
}

function Buckets({ pools, open }: { pools: string[]; open: (bucket: PoolBucket) => void }) {
  const load = async () => (await Promise.all(pools.map(async (pool) => (await call<Bucket[]>("GET", `${poolPath(pool)}/buckets`)).map((bucket) => ({ ...bucket, pool }))))).flat();
  const buckets = usePolled(load, pools.join());
  const create = () => ask({
    title: "Create a bucket", button: "Create",
    fields: [{ name: "pool", label: "Pool", options: pools.map((pool) => [pool, pool]) }, { name: "name", label: "Name" }],
    run: (values) => attempt(`Bucket ${values.name} created`, () => call("POST", `${poolPath(values.pool ?? "")}/buckets`, { name: values.name })),
  });
  const quota = (bucket: PoolBucket) => ask({
    title: `Quota of ${bucket.name}`, button: "Set",
    fields: [{ name: "quota", label: "Largest size of all versions (empty: no quota)", value: bucket.quota ? String(bucket.quota) : "", placeholder: "100G", optional: true }],
    run: (values) => attempt(`Quota of ${bucket.name} set`, () => call("PATCH", bucketPath(bucket), { quota: values.quota ? parseSize(values.quota) : 0 })),
  });
  const remove = (bucket: PoolBucket) => ask({
    title: `Delete bucket ${bucket.name}`, button: "Delete",
    destroys: { name: bucket.name, data: <ul><li>the empty bucket {bucket.name} and its settings; a bucket with its {bucket.objects} objects is refused</li></ul> },
    run: () => attempt(`Bucket ${bucket.name} deleted`, () => call("DELETE", bucketPath(bucket))),
  });
  return (
    <section aria-labelledby="buckets">
      <h2 id="buckets">Buckets</h2>
      {may("operator") && <p><button class="primary" onClick={create}>Create a bucket</button></p>}
      <Table label="Buckets of all pools" head={["Bucket", ">Objects", ">Size", ">Quota", "Owner", "Versioning", "Created (UTC)", "Actions"]} empty={buckets ? "No buckets." : "Loading"}>
        {(buckets ?? []).map((bucket) => (
          <tr key={`${bucket.pool}/${bucket.name}`}>
            <th scope="row">{bucket.pool}/{bucket.name}</th><td class="number">{bucket.objects}</td><td class="number">{size(bucket.bytes)}</td>
            <td class="number">{bucket.quota ? size(bucket.quota) : "none"}</td><td>{bucket.owner}</td><td>{bucket.versioning}</td><td class="time">{time(bucket.created)}</td>
            <td class="actions"><button onClick={() => open(bucket)}>Browse</button>
              {may("operator") && <><button onClick={() => quota(bucket)}>Quota</button><button class="danger" onClick={() => remove(bucket)}>Delete</button></>}</td>
          </tr>))}
      </Table>
    </section>
  );
}

/** The objects of a bucket, by folders: keys up to the next slash. */
function Browser({ bucket, leave }: { bucket: { pool: string; name: string }; leave: () => void }) {
  const [prefix, setPrefix] = useState("");
  const [page, setPage] = useState<ObjectPage | null>(null);
  const [error, setError] = useState("");
  const load = async (after: string, before: ObjectPage | null) => {
    const query = new URLSearchParams({ prefix, delimiter: "/", after, limit: "200" });
    try {
      const next = await call<ObjectPage>("GET", `${bucketPath(bucket)}/objects?${query}`);
      setPage({ ...next, objects: [...(before?.objects ?? []), ...next.objects], prefixes: [...(before?.prefixes ?? []), ...next.prefixes] });
    } catch (failure) { setError(String(failure)); }
  };
  useEffect(() => { setPage(null); void load("", null); }, [prefix]);
  const parts = prefix.split("/").slice(0, -1);
  const to = (depth: number) => parts.slice(0, depth).map((part) => `${part}/`).join("");
  const next = page?.next;
  return (
    <>
      <h1>Bucket {bucket.name}</h1>
      <nav class="path-bar" aria-label="Folder">
        <button onClick={leave}>All buckets</button><button onClick={() => setPrefix("")}>{bucket.name}</button>
        {parts.map((part, index) => <button key={index} onClick={() => setPrefix(to(index + 1))}>{part}</button>)}
      </nav>
      {error && <p role="alert" class="error">{error}</p>}
      <Table label="Objects" head={["Name", ">Size", "Modified (UTC)", "ETag"]} empty={page ? "No objects here." : "Loading"}>
        {[...(page?.prefixes ?? []).map((folder) => (
          <tr key={folder}><th scope="row"><button class="plain" onClick={() => setPrefix(folder)}>{folder.slice(prefix.length)}</button></th><td class="number">-</td><td>-</td><td>-</td></tr>)),
        ...(page?.objects ?? []).map((object) => (
          <tr key={object.key}><th scope="row">{object.key.slice(prefix.length)}</th><td class="number">{size(object.size)}</td><td class="time">{time(object.modified)}</td><td class="path">{object.etag}</td></tr>))]}
      </Table>
      {next && <p><button onClick={() => void load(next, page)}>Show more</button></p>}
    </>
  );
}
