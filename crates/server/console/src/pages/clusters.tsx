// Ceph clusters of the daemon's host: problems first, then hosts, OSDs, pools and volumes.
import { signal } from "@preact/signals";
import { call, enc, may, type Bucket, type Cluster, type ClusterStatus, type Volume } from "../api";
import { parseSize, size, time, words } from "../format";
import { live } from "../live";
import { Badge, Table, ask, attempt } from "../ui";
import { poolPath, usePages, usePolled, volumePath } from "./shared";

export interface ClusterView { cluster: Cluster; status: ClusterStatus | null; error: string | null }
const views = signal<ClusterView[] | null>(null);

/** The clusters with their last known status. The status of one that does not answer takes up to 20 seconds, and the others do not wait for it. */
export function useClusters(): ClusterView[] | null {
  usePolled(async () => {
    const clusters = await call<Cluster[]>("GET", "/v1/clusters");
    const before = new Map((views.value ?? []).map((one) => [one.cluster.name, one]));
    views.value = clusters.map((cluster) => ({ cluster, status: before.get(cluster.name)?.status ?? null, error: before.get(cluster.name)?.error ?? null }));
    const show = (name: string, change: Partial<ClusterView>) => { views.value = (views.value ?? []).map((one) => (one.cluster.name === name ? { ...one, ...change } : one)); };
    await Promise.all(clusters.filter((cluster) => cluster.configured).map(async ({ name }) => {
      try { show(name, { status: await call<ClusterStatus>("GET", `/v1/clusters/${enc(name)}`), error: null }); }
      catch (error) { show(name, { error: error instanceof Error ? error.message : String(error) }); }
    }));
    return true;
  }, "clusters");
  return views.value;
}

export function ClusterProblems({ status }: { status: ClusterStatus }) {
  return (
    <ul class="problems">{status.problems.map((problem) => (
      <li key={problem.message}><strong>{status.name}:</strong> {problem.message}
        <p class="fix">Consequence: {problem.consequence}</p><p class="fix">To solve it: {problem.action}</p></li>))}</ul>
  );
}

export function ClusterSpace({ status }: { status: ClusterStatus }) {
  if (status.capacity === 0) return null;
  const used = status.capacity - status.free;
  return (
    <p class="fill"><meter min={0} max={status.capacity} high={status.capacity * 0.8} value={used} aria-label={`Space of ${status.name}`} />
      {size(used)} of {size(status.capacity)} used before protection, {size(status.stored)} stored</p>
  );
}

export function Clusters() {
  const clusters = useClusters();
  return (
    <>
      <h1>Clusters</h1>
      {!clusters ? <p class="empty">Loading</p> : clusters.length === 0
        ? <p class="empty">No clusters. On the daemon's host, 'gabion cluster prepare' deploys a Ceph cluster, and 'gabion cluster adopt' takes a running one.</p>
        : clusters.map((one) => <OneCluster key={one.cluster.name} {...one} />)}
    </>
  );
}

function OneCluster({ cluster, status, error }: ClusterView) {
  return (
    <section aria-label={`Cluster ${cluster.name}`}>
      <h2>{cluster.name} {status && <Badge state={status.health} />}</h2>
      {error && <p class="error">{error}</p>}
      {!cluster.configured && <p class="fix">The cluster is not configured yet. On the daemon's host: gabion cluster configure {cluster.name}</p>}
      {cluster.configured && !status && !error && <p class="empty" role="status">Waiting for the answer of the monitors</p>}
      {status && <>
        {status.problems.length === 0 ? <p class="notice">No problems.</p> : <ClusterProblems status={status} />}
        <ClusterSpace status={status} />
        <p>{status.monitors_in_quorum.length} of {status.monitors.length} monitors in the quorum, manager {status.manager ?? "none"}, {status.replicas} copies of new pools{status.adopted ? ", deployed by another tool" : ""}.
          {" "}Clients read {size(status.read_bytes)}/s and write {size(status.write_bytes)}/s{status.recovery_bytes > 0 ? `; recovery copies ${size(status.recovery_bytes)}/s` : ""}.</p>
        <p class="fix">{Object.entries(status.placement_groups).map(([state, number]) => `${number} placement groups ${state.replace(/\+/g, " + ")}`).join(", ")}</p>
        <h3>Hosts</h3>
        <Table label={`Hosts of ${status.name}`} head={["Host", "Address", "Roles", "Monitor", ">OSDs up"]} empty="No hosts.">
          {status.hosts.map((host) => (
            <tr key={host.name}><th scope="row">{host.name}</th><td>{host.address ?? "-"}</td><td>{host.roles.join(", ")}</td>
              <td>{host.in_quorum === null ? "-" : <Badge state={host.in_quorum ? "online" : "missing"} />}</td>
              <td class="number">{host.osds === 0 ? "-" : `${host.osds_up} of ${host.osds}`}</td></tr>))}
        </Table>
        {status.osds.length > 0 && <>
          <h3>Drives (OSDs)</h3>
          <Table label={`OSDs of ${status.name}`} head={[">OSD", "Host", "State", "Drive", ">Size", ">Used"]} empty="No OSDs.">
            {status.osds.map((osd) => (
              <tr key={osd.id}><th scope="row" class="number">{osd.id}</th><td>{osd.host}</td><td><Badge state={osd.state} /></td><td class="path">{osd.drive ?? "-"}{osd.db && <small>database on {osd.db}</small>}{osd.wal && <small>log on {osd.wal}</small>}</td>
                <td class="number">{size(osd.bytes)}</td><td class="number">{size(osd.used)}{osd.bytes ? <small>{Math.round(100 * osd.used / osd.bytes)} %</small> : null}</td></tr>))}
          </Table></>}
        {status.pools.length > 0 && <>
          <h3>Pools</h3>
          <Table label={`Pools of ${status.name}`} head={["Pool", "Protection", "Application", ">Stored", ">Used", ">Available", ">Objects"]} empty="No pools.">
            {status.pools.map((pool) => (
              <tr key={pool.name}><th scope="row">{pool.name}</th><td>{pool.protection}</td><td>{pool.applications.join(", ") || "-"}</td>
                <td class="number">{size(pool.stored)}</td><td class="number">{size(pool.used)}</td><td class="number">{size(pool.available)}</td><td class="number">{pool.objects}</td></tr>))}
          </Table></>}
        {cluster.volumes
          ? status.health !== "unreachable" && <ClusterVolumes cluster={cluster.name} />
          : <p class="fix">On the daemon's host, 'gabion cluster services {cluster.name}' prepares it for volumes.</p>}
        {status.hosts.some((host) => host.roles.includes("rgw")) && status.health !== "unreachable" && <ClusterBuckets cluster={cluster.name} />}
      </>}
    </section>
  );
}

/** The buckets of a cluster's object gateways. The daemon runs a program of Ceph for each list, so it is read rarely. */
function ClusterBuckets({ cluster }: { cluster: string }) {
  const load = async () => {
    try { return { buckets: await call<Bucket[]>("GET", `${poolPath(cluster)}/buckets`), error: null }; }
    catch (error) { return { buckets: [], error: error instanceof Error ? error.message : String(error) }; }
  };
  const listed = usePolled(load, `buckets of ${cluster}`, 30_000);
  return (
    <>
      <h3>Buckets</h3>
      {listed?.error && <p class="error">{listed.error}</p>}
      <Table label={`Buckets of ${cluster}`} head={["Bucket", ">Objects", ">Size", ">Quota", "Owner", "Created (UTC)"]} empty={listed ? "No buckets." : "Loading"}>
        {(listed?.buckets ?? []).map((bucket) => (
          <tr key={bucket.name}><th scope="row">{cluster}/{bucket.name}</th><td class="number">{bucket.objects}</td><td class="number">{size(bucket.bytes)}</td>
            <td class="number">{bucket.quota ? size(bucket.quota) : "none"}</td><td>{bucket.owner}</td><td class="time">{time(bucket.created)}</td></tr>))}
      </Table>
    </>
  );
}

/** The images of a cluster, which the daemon exports as volumes. */
function ClusterVolumes({ cluster }: { cluster: string }) {
  const volumes = usePolled(() => call<Volume[]>("GET", `${poolPath(cluster)}/volumes`), `volumes of ${cluster}`);
  const { shown, pager } = usePages(volumes ?? [], "");
  const exports = (live.value?.exports ?? []).filter((one) => one.pool === cluster);
  const create = () => ask({
    title: `Create a volume on ${cluster}`, button: "Create", fields: [{ name: "name", label: "Name" }, { name: "size", label: "Size", placeholder: "500G" }],
    run: (values) => attempt(`Volume ${cluster}/${values.name} created`, () => call("POST", `${poolPath(cluster)}/volumes`, { name: values.name, size: parseSize(values.size), thick: false })),
  });
  const exportIt = (volume: Volume) => ask({
    title: `Export ${cluster}/${volume.name}`, button: "Export",
    fields: [{ name: "protocol", label: "Protocol", options: [["nbd", "NBD"], ["nvme_tcp", "NVMe/TCP"], ["iscsi", "iSCSI"], ["vhost_user", "vhost-user (disk of a virtual machine)"], ["ublk", "ublk (block device of the server)"], ["fuse", "FUSE (file of the server)"]] },
      { name: "read_only", label: "Read-only", checkbox: true }],
    run: (values) => attempt(`${cluster}/${volume.name} exported`, () => call("POST", "/v1/exports", { pool: cluster, volume: volume.name, protocol: values.protocol, read_only: values.read_only === "on" })),
  });
  const remove = (volume: Volume) => ask({
    title: `Delete ${cluster}/${volume.name}`, button: "Delete",
    destroys: { name: `${cluster}/${volume.name}`, data: <ul><li>{cluster}/{volume.name}, {size(volume.size)}, with {size(volume.stored)} of data</li></ul> },
    run: () => attempt(`Deleting ${cluster}/${volume.name}`, () => call("DELETE", volumePath(volume))),
  });
  return (
    <>
      <h3>Volumes</h3>
      {(may("operator") || pager) && <p class="tools">{may("operator") && <button class="primary" onClick={create}>Create a volume on {cluster}</button>}{pager}</p>}
      <Table label={`Volumes of ${cluster}`} head={["Volume", ">Size", ">Stored", "Exports", "Actions"]} empty={volumes ? "No volumes." : "Loading"}>
        {shown.map((volume) => (
          <tr key={volume.name}><th scope="row">{cluster}/{volume.name}{volume.origin && <small>clone of {volume.origin}</small>}</th>
            <td class="number">{size(volume.size)}</td><td class="number">{size(volume.stored)}</td>
            <td>{exports.filter((one) => one.volume === volume.name).map((one) => <a key={one.id} href="#exports">{words(one.id)} ({one.connections})</a>)}</td>
            <td class="actions">{may("operator") && <>{!volume.snapshot && <button onClick={() => exportIt(volume)}>Export</button>}<button class="danger" onClick={() => remove(volume)}>Delete</button></>}</td></tr>))}
      </Table>
    </>
  );
}
