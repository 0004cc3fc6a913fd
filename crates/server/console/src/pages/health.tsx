// Health: problems with their causes and actions, and an overview of the pools.
import { call, may, type Pool } from "../api";
import { Chart } from "../chart";
import { count, duration, latency, size, words } from "../format";
import { history, live } from "../live";
import { Badge, attempt } from "../ui";
import { ClusterProblems, ClusterSpace, useClusters } from "./clusters";
import { Fill, poolPath, pools } from "./shared";

/** The button for the action that solves a problem. */
function Solve({ pool, action }: { pool: Pool; action: string }) {
  const post = (text: string, path: string) => () => void attempt(text, () => call("POST", `${poolPath(pool.name)}/${path}`, {}));
  if (action.includes("pool open") && ["closed", "unavailable"].includes(pool.state)) return may("admin") ? <button onClick={post("Opening the pool", "open")}>Open the pool</button> : null;
  if (/pool scrub/.test(action)) return may("operator") ? <button onClick={post("Scrub started", "scrub")}>Scrub the pool</button> : null;
  if (/drive (add|replace|return|remove)|\bdrives?\b/.test(action)) return <a class="button" href="#drives">Show the drives</a>;
  if (/volume|snapshot/.test(action)) return <a class="button" href="#volumes">Show the volumes</a>;
  return null;
}

export function Health() {
  const problems = pools().flatMap((pool) => pool.problems.map((problem) => ({ pool, ...problem })));
  const views = useClusters() ?? [];
  const clusters = views.flatMap(({ status }) => (status ? [status] : []));
  const unread = views.filter(({ error }) => error);
  const ill = clusters.filter((status) => status.problems.length > 0);
  const failed = (live.value?.operations ?? []).filter((operation) => operation.state === "failed").slice(-3);
  return (
    <>
      <h1>Health</h1>
      {problems.length === 0 && ill.length === 0 && unread.length === 0 && <p class="notice">No problems in {pools().length} {pools().length === 1 ? "pool" : "pools"}{clusters.length > 0 ? ` and ${clusters.length} ${clusters.length === 1 ? "cluster" : "clusters"}` : ""}.</p>}
      {problems.length > 0 && <ul class="problems">{problems.map((problem) => (
            <li key={problem.pool.name + problem.message}><strong>{problem.pool.name}:</strong> {problem.message}
              <p class="fix">To solve it: {problem.action}</p><Solve pool={problem.pool} action={problem.action} /></li>))}</ul>}
      {unread.length > 0 && <ul class="problems">{unread.map(({ cluster, error }) => <li key={cluster.name}><strong>{cluster.name}:</strong> {error}</li>)}</ul>}
      {ill.map((status) => <ClusterProblems key={status.name} status={status} />)}
      {failed.length > 0 && <><h2>Failed operations</h2><ul class="problems">{failed.map((operation) => (
        <li key={operation.id}><strong>{words(operation.kind)} {operation.target}:</strong> {operation.error?.message}
          {operation.error?.hint && <p class="fix">{operation.error.hint}</p>}</li>))}</ul></>}
      <div class="cards">{pools().map((pool) => (
        <section class="card" key={pool.name} aria-label={`Pool ${pool.name}`}>
          <h2>{pool.name} <Badge state={pool.state === "open" ? pool.health : pool.state} /></h2>
          <Fill pool={pool} />
          {pool.rebuild && pool.rebuild.state !== "idle" && <p>Rebuild: {words(pool.rebuild.state)}, {pool.rebuild.percent} %, {size(pool.rebuild.remaining)}{pool.rebuild.seconds_left == null ? "" : ` and ${duration(pool.rebuild.seconds_left)}`} left</p>}
          {pool.scrub?.current && <p>Scrub: {pool.scrub.percent} %</p>}
          {pool.state === "open" && <PoolCharts pool={pool.name} />}
        </section>))}
        {clusters.map((status) => (
          <section class="card" key={`cluster ${status.name}`} aria-label={`Cluster ${status.name}`}>
            <h2>{status.name} <Badge state={status.health} /></h2>
            <ClusterSpace status={status} />
            <p>{status.osds.filter((osd) => osd.state.startsWith("up")).length} of {status.osds.length} drives up</p>
            <a class="button" href="#clusters">Show the cluster</a>
          </section>))}</div>
    </>
  );
}

/** The last minutes of a pool's exports. */
function PoolCharts({ pool }: { pool: string }) {
  const samples = history.value.get(pool) ?? [];
  const times = samples.map((sample) => sample.at);
  const pair = (read: "reads" | "readBytes" | "readLatency", write: "writes" | "writeBytes" | "writeLatency") => [
    { name: "reads", color: "--accent" as const, values: samples.map((sample) => sample[read]) },
    { name: "writes", color: "--second" as const, values: samples.map((sample) => sample[write]) },
  ];
  return (
    <>
      <Chart title="Operations per second" least={10} times={times} series={pair("reads", "writes")} format={(value) => count(value ?? 0)} />
      <Chart title="Throughput" binary least={1 << 20} times={times} series={pair("readBytes", "writeBytes")} format={(value) => `${size(value ?? 0)}/s`} />
      <Chart title="Mean latency" least={1e-3} times={times} series={pair("readLatency", "writeLatency")} format={latency} />
    </>
  );
}
