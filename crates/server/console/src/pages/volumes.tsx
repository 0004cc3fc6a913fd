// Volumes with their snapshots and clones as a tree.
import { useMemo, useState } from "preact/hooks";
import { call, may, type Volume } from "../api";
import { count, parseSize, size, time } from "../format";
import { Table, ask, attempt } from "../ui";
import { Filter, openPools, poolPath, usePages, usePolled, volumePath } from "./shared";

const PROTOCOLS: [string, string][] = [
  ["nbd", "NBD"], ["nvme_tcp", "NVMe/TCP"], ["iscsi", "iSCSI"], ["vhost_user", "vhost-user (disk of a virtual machine)"],
  ["fuse", "FUSE (file of the server)"], ["ublk", "ublk (block device of the server)"],
];

const HEAD = ["Volume", ">Size", ">Stored", "Created (UTC)", "Limits", "State", "Actions"];

interface Entry { volume: Volume; depth: number }

/** Returns each volume, followed by its snapshots, each followed by its clones. */
function treeOf(all: Volume[]): Entry[] {
  const children = new Map<string, Volume[]>();
  const names = new Set(all.map((volume) => `${volume.pool}/${volume.name}`));
  const roots: Volume[] = [];
  for (const volume of all) {
    const above = volume.snapshot ? volume.name.split("@")[0] : volume.origin;
    const parent = `${volume.pool}/${above}`;
    const others = children.get(parent);
    if (!above || !names.has(parent)) roots.push(volume);
    else if (others) others.push(volume);
    else children.set(parent, [volume]);
  }
  const tree: Entry[] = [];
  const add = (volume: Volume, depth: number) => {
    tree.push({ volume, depth });
    for (const child of children.get(`${volume.pool}/${volume.name}`) ?? []) add(child, depth + 1);
  };
  for (const root of roots) add(root, 0);
  return tree;
}

function limitsOf({ qos, snapshot }: Volume): string {
  if (snapshot) return "";
  const limits = [qos.iops ? `${count(qos.iops)} operations/s` : "", qos.bandwidth ? `${size(qos.bandwidth)}/s` : "", qos.thick ? "thick" : ""];
  return limits.filter(Boolean).join(", ") || "none";
}

export function Volumes() {
  const names = openPools().map((pool) => pool.name);
  const [filter, setFilter] = useState("");
  const all = usePolled(async () => (await Promise.all(names.map((name) => call<Volume[]>("GET", `${poolPath(name)}/volumes`)))).flat(), names.join());
  const tree = useMemo(() => treeOf(all ?? []), [all]);
  const matching = useMemo(() => tree.filter(({ volume }) => `${volume.pool}/${volume.name}`.includes(filter)), [tree, filter]);
  const { shown, pager } = usePages(matching, filter);
  const create = () => ask({
    title: "Create a volume", button: "Create",
    fields: [{ name: "pool", label: "Pool", options: names.map((name) => [name, name]) }, { name: "name", label: "Name" }, { name: "size", label: "Size", placeholder: "500G" },
      { name: "thick", label: "Reserve the full size", checkbox: true }],
    run: (values) => attempt(`Volume ${values.pool}/${values.name} created`, () =>
      call("POST", `${poolPath(values.pool ?? "")}/volumes`, { name: values.name, size: parseSize(values.size), thick: values.thick === "on" })),
  });
  const change = may("operator");
  // The same rows while nothing changes: they are not drawn again with each live status.
  const rows = useMemo(() => shown.map(({ volume, depth }) => (
    <tr key={`${volume.pool}/${volume.name}`}>
      <th scope="row" class={`depth${Math.min(depth, 6)} ${volume.snapshot ? "snapshot" : ""}`}>{volume.pool}/{volume.name}{volume.origin && <small>clone of {volume.origin}</small>}</th>
      <td class="number">{size(volume.size)}</td><td class="number">{size(volume.stored)}</td><td class="time">{time(volume.created)}</td>
      <td>{limitsOf(volume)}</td>
      <td>{volume.deleting ? "deleting" : volume.exported ? "exported" : volume.snapshot ? "snapshot" : "not exported"}</td>
      <td class="actions">{change && !volume.deleting && <VolumeActions volume={volume} all={all ?? []} />}</td>
    </tr>)), [shown, change]);
  return (
    <>
      <h1>Volumes</h1>
      <p class="tools">
        {change && names.length > 0 && <button class="primary" onClick={create}>Create a volume</button>}
        <Filter apply={setFilter} />
        {pager ?? <span>{shown.length} shown</span>}
      </p>
      <Table label="Volumes" head={HEAD} empty={all ? "No volumes." : "Loading"}>{rows}</Table>
      {pager && <p class="tools">{pager}</p>}
    </>
  );
}

function VolumeActions({ volume, all }: { volume: Volume; all: Volume[] }) {
  const name = `${volume.pool}/${volume.name}`;
  const path = volumePath(volume);
  const resize = () => ask({
    title: `Resize ${name}`, button: "Resize", fields: [{ name: "size", label: `New size, larger than ${size(volume.size)}` }],
    run: (values) => attempt(`${name} resized`, () => call("PATCH", path, { size: parseSize(values.size) })),
  });
  const qos = volume.qos;
  const limit = () => ask({
    title: `Limits of ${name}`, button: "Set",
    fields: [{ name: "iops", label: "Operations per second (empty: no limit)", value: qos.iops ? String(qos.iops) : "", optional: true },
      { name: "bandwidth", label: "Bytes per second (empty: no limit)", value: qos.bandwidth ? String(qos.bandwidth) : "", placeholder: "200M", optional: true },
      { name: "weight", label: "Weight under contention, 1 to 10000", value: String(qos.weight) },
      { name: "thick", label: "Reserve the full size", checkbox: true, value: qos.thick ? "on" : "" }],
    run: (values) => attempt(`Limits of ${name} set`, () => call("PUT", `${path}/qos`, {
      iops: values.iops ? Number(values.iops) : null, bandwidth: values.bandwidth ? parseSize(values.bandwidth) : null,
      burst_ms: qos.burst_ms, weight: Number(values.weight), thick: values.thick === "on",
    })),
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
    destroys: { name: `${volume.pool}/${origin}`, data: <ul><li>all data written to {volume.pool}/{origin} since {time(volume.created)} UTC, unless a later snapshot has it</li></ul> },
    run: () => attempt("Volume rolled back", () => call("POST", `${path}/rollback`, {})),
  });
  const snapshots = all.filter((other) => other.pool === volume.pool && other.name.startsWith(`${volume.name}@`));
  const remove = () => ask({
    title: `Delete ${name}`, button: "Delete",
    destroys: { name, data: <ul><li>{name}, {size(volume.size)}, with {size(volume.stored)} of its own data</li>
      {snapshots.map((other) => <li key={other.name}>not destroyed: its snapshot {other.name}; a volume with snapshots cannot be deleted before them</li>)}</ul> },
    run: () => attempt(`Deleting ${name}`, () => call("DELETE", path)),
  });
  const exportIt = () => ask({
    title: `Export ${name}`, button: "Export",
    fields: [{ name: "protocol", label: "Protocol", options: PROTOCOLS },
      { name: "listen", label: "NVMe/TCP and iSCSI: address and port (empty: those of the configuration)", placeholder: "10.0.0.1:4420", optional: true },
      { name: "read_only", label: "Read-only", checkbox: true }],
    run: (values) => attempt(`${name} exported`, () => call("POST", "/v1/exports", {
      pool: volume.pool, volume: volume.name, protocol: values.protocol, read_only: values.read_only === "on",
      ...(values.listen ? { network: { listen: [values.listen] } } : {}),
    })),
  });
  return volume.snapshot
    ? <><button onClick={clone}>Clone</button><button onClick={rollback} class="danger">Roll back</button><button class="danger" onClick={remove}>Delete</button></>
    : <><button onClick={snapshot}>Snapshot</button><button onClick={resize}>Resize</button><button onClick={limit}>Limits</button><button onClick={exportIt}>Export</button><button class="danger" onClick={remove}>Delete</button></>;
}
