// Tokens and the audit log.
import { call, enc, type AuditRecord, type Token } from "../api";
import { time } from "../format";
import { Table, ask, attempt } from "../ui";
import { usePolled } from "./shared";

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
      <Table label="Tokens" head={["Id", "Name", "Role", "Created (UTC)", "Expires (UTC)", "Last used (UTC)", "Actions"]} empty={tokens ? "No tokens." : "Loading"}>
        {(tokens ?? []).map((token) => (
          <tr key={token.id}><th scope="row">{token.id}</th><td>{token.name}</td><td>{token.role}</td><td class="time">{time(token.created)}</td>
            <td class="time">{token.expires ? time(token.expires) : "never"}</td><td class="time">{time(token.last_used)}</td>
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
      <Table label="Audit log" head={["Time (UTC)", "Client", "Role", "Address", "Request", ">Status", "Detail"]} empty={records ? "No requests have changed anything." : "Loading"}>
        {[...(records ?? [])].reverse().map((record, index) => (
          <tr key={index}><td class="time">{time(record.time)}</td><td>{record.client}</td><td>{record.role ?? "-"}</td><td>{record.address ?? "Unix socket"}</td>
            <td class="path">{record.method} {record.path}</td><td class="number">{record.status}</td>
            <td class="path">{[record.detail, record.operation && `operation ${record.operation}`, record.result].filter(Boolean).join(" ")}</td></tr>))}
      </Table>
    </>
  );
}
