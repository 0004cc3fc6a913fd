// Operations with live progress and the log of their steps.
import { call, may } from "../api";
import { words } from "../format";
import { live } from "../live";
import { Badge, Table, attempt } from "../ui";

export function Operations() {
  const all = [...(live.value?.operations ?? [])].reverse();
  const cancel = (id: number) => () => void attempt("Cancelling the operation", () => call("DELETE", `/v1/operations/${id}`));
  return (
    <>
      <h1>Operations</h1>
      <Table label="Operations" head={[">Operation", "Kind", "Object", "State", "Step", "Progress", ">Seconds", "Log"]} empty="No operations since the start of the daemon.">
        {all.map((operation) => (
          <tr key={operation.id}>
            <th scope="row" class="number">{operation.id}</th><td>{words(operation.kind)}</td><td>{operation.target}</td><td><Badge state={operation.state} /></td>
            <td>{operation.error ? operation.error.message : operation.step}{operation.error?.hint && <small>{operation.error.hint}</small>}</td>
            <td>{operation.total ? <progress max={operation.total} value={operation.done ?? 0} aria-label={`Progress of operation ${operation.id}`} /> : "-"}
              {operation.cancellable && may("operator") && <button onClick={cancel(operation.id)}>Cancel</button>}</td>
            <td class="number">{operation.seconds.toFixed(1)}</td>
            <td><details><summary>{operation.log.length} {operation.log.length === 1 ? "step" : "steps"}</summary>
              <ol class="log">{operation.log.map((step, index) => <li key={index}><code>{step.seconds.toFixed(2)} s</code> {step.step}</li>)}</ol></details></td>
          </tr>))}
      </Table>
    </>
  );
}
