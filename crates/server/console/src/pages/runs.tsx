// Benchmark runs of the daemon's host, with their reports.
import { call, enc, type BenchmarkRun } from "../api";
import { time } from "../format";
import { Badge, Table } from "../ui";
import { usePolled } from "./shared";

export function Runs() {
  const runs = usePolled(() => call<BenchmarkRun[]>("GET", "/v1/runs"), "runs");
  return (
    <>
      <h1>Runs</h1>
      <Table label="Benchmark runs" head={["Run", "Started (UTC)", "State", "Systems", ">Results", "Command", "Report"]}
        empty={runs ? "No runs. 'gabion bench run SUITE' on the daemon's host makes one; 'gabion bench list' lists the suites." : "Loading"}>
        {[...(runs ?? [])].reverse().map((run) => (
          <tr key={run.id}><th scope="row">{run.id}</th><td class="time">{time(run.started)}</td>
            <td><Badge state={run.state} />{run.state === "incomplete" && <small>continue with <code>gabion bench resume {run.id}</code></small>}</td>
            <td>{run.targets.join(", ") || "drives"}</td><td class="number">{run.results}</td><td class="path">gabion {run.command}</td>
            <td>{run.results > 0 ? <a href={`/v1/runs/${enc(run.id)}/report`} target="_blank" rel="noreferrer" aria-label={`Report of ${run.id}`}>Report</a> : "-"}</td></tr>))}
      </Table>
    </>
  );
}
