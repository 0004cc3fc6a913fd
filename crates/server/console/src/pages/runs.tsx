// Benchmark runs of the daemon's host, with their reports.
import { call, enc, type BenchmarkRun } from "../api";
import { Table } from "../ui";
import { usePolled } from "./shared";

export function Runs() {
  const runs = usePolled(() => call<BenchmarkRun[]>("GET", "/v1/runs"), "runs");
  return (
    <>
      <h1>Runs</h1>
      <Table label="Benchmark runs" head={["Run", "Systems", ">Results", "Command", "Report"]}
        empty={runs ? "No runs. On the daemon's host, 'gabion bench run' measures." : "Loading"}>
        {[...(runs ?? [])].reverse().map((run) => (
          <tr key={run.id}><th scope="row">{run.id}</th><td>{run.targets.join(", ")}</td><td class="number">{run.results}</td><td class="path">gabion {run.command}</td>
            <td>{run.results > 0 ? <a href={`/v1/runs/${enc(run.id)}/report`} target="_blank" rel="noreferrer">Report of {run.id}</a> : "-"}</td></tr>))}
      </Table>
    </>
  );
}
