// Exports with their clients, rates and latencies. The page of volumes creates exports.
import { call, enc, may } from "../api";
import { count, latency, size } from "../format";
import { ioKey, live, rates } from "../live";
import { Badge, Table, ask, attempt } from "../ui";
import { usePages } from "./shared";

export function Exports() {
  const all = live.value?.exports ?? [];
  const { shown, pager } = usePages(all, "");
  const remove = (one: (typeof all)[number]) => ask({
    title: `Delete export ${one.id} of ${one.pool}/${one.volume}`, button: "Delete the export",
    destroys: { name: `${one.pool}/${one.volume}`, data: <ul><li>the connections of {one.connections} clients; the volume and its data stay</li></ul> },
    run: () => attempt("Export deleted", () => call("DELETE", `/v1/exports/${enc(one.pool)}/${enc(one.volume)}?id=${enc(one.id)}`)),
  });
  return (
    <>
      <h1>Exports</h1>
      {pager && <p class="tools">{pager}</p>}
      <Table label="Exports" head={["Volume", "Export", "State", ">Clients", ">Reads/s", ">Writes/s", ">Read latency", ">Write latency", ">Read", ">Written", "Address", "Actions"]} empty="No exports. The page of volumes creates them.">
        {shown.map((one) => {
          const rate = rates.value.get(ioKey(one));
          return (
            <tr key={ioKey(one)}>
              <th scope="row">{one.pool}/{one.volume}</th><td>{one.id}{one.read_only && <small>read-only</small>}{one.owner && <small>managed by {one.owner}</small>}</td>
              <td><Badge state={one.state} />{one.reason && <small>{one.reason}</small>}</td><td class="number">{one.connections}</td>
              <td class="number">{count(rate?.reads ?? 0)}</td><td class="number">{count(rate?.writes ?? 0)}</td>
              <td class="number">{latency(rate?.readLatency)}</td><td class="number">{latency(rate?.writeLatency)}</td>
              <td class="number">{size(rate?.readBytes ?? 0)}/s</td><td class="number">{size(rate?.writeBytes ?? 0)}/s</td>
              <td class="path">{one.uris.join(" ")}</td>
              <td class="actions">{may("operator") && !one.owner && <button class="danger" onClick={() => remove(one)}>Delete</button>}</td>
            </tr>);
        })}
      </Table>
    </>
  );
}
