// Identities of S3: users, access keys, groups, policies, identity providers and roles.
import { useMemo, useState } from "preact/hooks";
import { call, enc, type AccessKey, type S3Group, type S3Policy, type S3Provider, type S3Role, type S3User } from "../api";
import { duration, time } from "../format";
import { Table, ask, attempt, type Field } from "../ui";
import { Filter, usePages, usePolled } from "./shared";

interface Lists { users: S3User[]; keys: AccessKey[]; groups: S3Group[]; policies: S3Policy[]; providers: S3Provider[]; roles: S3Role[] }

async function load(): Promise<Lists> {
  const list = <T,>(kind: string) => call<T[]>("GET", `/v1/${kind}`);
  const [users, keys, groups, policies, providers, roles] = await Promise.all([
    list<S3User>("users"), list<AccessKey>("keys"), list<S3Group>("groups"), list<S3Policy>("policies"), list<S3Provider>("providers"), list<S3Role>("roles")]);
  return { users, keys, groups, policies, providers, roles };
}

const NAME: Field = { name: "name", label: "Name" };
const namesOf = (all: { name: string }[]) => all.map(({ name }) => name);
/** The names of a field with choices. */
const chosen = (text: string | undefined) => (text ?? "").split(",").filter(Boolean);
const choice = (name: string, label: string, all: { name: string }[], own: string[] = []): Field => ({ name, label, choices: namesOf(all), value: own.join() });
/** Names in a cell of a table or in a list, the first of many. */
const some = (all: string[]) => (all.length > 8 ? `${all.slice(0, 8).join(", ")} and ${all.length - 8} more` : all.join(", ") || "none");
const itemPath = (kind: string, name: string) => `/v1/${kind}/${enc(name)}`;

/** Asks for the name of an object, and deletes it. */
const remove = (title: string, kind: string, name: string, data: string[]) => ask({
  title: `Delete ${title} ${name}`, button: "Delete", destroys: { name, data: <ul>{data.map((line) => <li key={line}>{line}</li>)}</ul> },
  run: () => attempt(`Deleted ${title} ${name}`, () => call("DELETE", itemPath(kind, name))),
});

const NONE: Lists = { users: [], keys: [], groups: [], policies: [], providers: [], roles: [] };

export function Identities() {
  const lists = usePolled(load, "identities");
  const [filter, setFilter] = useState("");
  const all = lists ?? NONE;
  const parts = { lists: all, empty: (text: string) => (!lists ? "Loading" : filter ? "None matches the filter." : text), filter };
  return (
    <>
      <h1>Identities</h1>
      <p class="tools"><Filter apply={setFilter} /></p>
      <Users {...parts} />
      <Keys {...parts} />
      <Groups {...parts} />
      <Policies {...parts} />
      <Providers {...parts} />
      <Roles {...parts} />
    </>
  );
}

/** The user of keys without a user. */
const ADMINISTRATOR = "gabion";

interface Part { lists: Lists; empty: (text: string) => string; filter: string }

/** A heading, a button to create an object, and the objects whose name or other text contains the filter. */
function Section<T>({ id, title, create, button, head, all, text, row, empty, filter }: {
  id: string; title: string; create: (() => void) | null; button: string; head: string[]; all: T[]; text: (one: T) => string; row: (one: T) => preact.VNode; empty: string; filter: string;
}) {
  const matching = useMemo(() => all.filter((one) => text(one).includes(filter)), [all, filter]);
  const { shown, pager } = usePages(matching, filter);
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {(create || pager) && <p class="tools">{create && <button class="primary" onClick={create}>{button}</button>}{pager}</p>}
      <Table label={`All ${title.toLowerCase()}`} head={[...head, "Created (UTC)", "Actions"]} empty={empty}>{shown.map(row)}</Table>
    </section>
  );
}

/** Creates an access key and shows its secret, which no later request can read. */
const createKey = (users: S3User[], user: string) => ask({
  title: "Create an access key", button: "Create",
  fields: [{ name: "user", label: "User (empty: the administrator of all buckets)", value: user, optional: true, suggestions: namesOf(users).slice(0, 1000) },
    { name: "hours", label: "Hours until it expires, up to 168 (empty: never); such a key also ends with the daemon", optional: true }],
  run: async (values) => {
    let key: AccessKey | null = null;
    const request = { user: values.user || null, valid_s: values.hours ? Math.round(Number(values.hours) * 3600) : null };
    const done = await attempt("Access key created", async () => { key = await call<AccessKey>("POST", "/v1/keys", request); });
    const made = key as AccessKey | null;
    // After this dialog has closed.
    if (made) setTimeout(() => ask({ title: "The new access key", button: "Done", run: async () => true,
      text: <p>Copy the secret now; it cannot be shown again:<br /><code class="secret">{made.access_key}</code><br /><code class="secret">{made.secret}</code></p> }));
    return done;
  },
});

function Users({ lists: { users, groups, policies }, empty, filter }: Part) {
  const create = () => ask({
    title: "Create a user", button: "Create", fields: [NAME, choice("policies", "Policies", policies), choice("groups", "Groups", groups)],
    run: (values) => attempt(`User ${values.name} created`, () => call("POST", "/v1/users", { name: values.name, policies: chosen(values.policies), groups: chosen(values.groups) })),
  });
  const change = (user: S3User) => ask({
    title: `Policies and groups of ${user.name}`, button: "Set", text: <p>The next requests of the user are subject to the change.</p>,
    fields: [choice("policies", "Policies", policies, user.policies), choice("groups", "Groups", groups, user.groups)],
    run: (values) => attempt(`User ${user.name} changed`, () => call("PATCH", itemPath("users", user.name), { policies: chosen(values.policies), groups: chosen(values.groups) })),
  });
  const row = (user: S3User) => (
    <tr key={user.name}><th scope="row">{user.name}</th><td class="names">{some(user.policies)}</td><td class="names">{some(user.groups)}</td><td class="number">{user.keys.length}</td><td class="time">{time(user.created)}</td>
      <td class="actions"><button onClick={() => change(user)}>Policies and groups</button><button onClick={() => createKey(users, user.name)}>Create a key</button>
        <button class="danger" onClick={() => remove("user", "users", user.name, [`the user ${user.name}`, `its access keys: ${some(user.keys)}`, "not destroyed: its buckets and objects"])}>Delete</button></td></tr>);
  return <Section id="users" title="Users" create={create} button="Create a user" head={["User", "Policies", "Groups", ">Access keys"]} all={users} text={(user) => user.name} row={row} empty={empty("No users.")} filter={filter} />;
}

function Keys({ lists: { users, keys }, empty, filter }: Part) {
  const row = (key: AccessKey) => (
    <tr key={key.access_key}><th scope="row">{key.access_key}</th><td class="names">{key.user}{key.user === ADMINISTRATOR && <small>administrator of all buckets</small>}</td><td class="time">{key.expires ? time(key.expires) : "never"}</td><td class="time">{time(key.created)}</td>
      <td class="actions"><button class="danger" onClick={() => remove("access key", "keys", key.access_key, [`the access of ${key.user} with this key`])}>Delete</button></td></tr>);
  return <Section id="keys" title="Access keys" create={() => createKey(users, "")} button="Create an access key" head={["Access key", "User", "Expires (UTC)"]} all={keys} text={(key) => `${key.user} ${key.access_key}`} row={row} empty={empty("No access keys.")} filter={filter} />;
}

function Groups({ lists: { groups, policies }, empty, filter }: Part) {
  const create = () => ask({
    title: "Create a group", button: "Create", fields: [NAME, choice("policies", "Policies", policies)],
    run: (values) => attempt(`Group ${values.name} created`, () => call("POST", "/v1/groups", { name: values.name, policies: chosen(values.policies) })),
  });
  const change = (group: S3Group) => ask({
    title: `Policies of ${group.name}`, button: "Set", text: <p>The next requests of its {group.users.length} users are subject to the change.</p>,
    fields: [choice("policies", "Policies", policies, group.policies)],
    run: (values) => attempt(`Group ${group.name} changed`, () => call("PATCH", itemPath("groups", group.name), { policies: chosen(values.policies) })),
  });
  const data = ({ name, users }: S3Group) => [`the group ${name}`, ...(users.length > 0 ? [`a group with users is refused; its users: ${some(users)}`] : [])];
  const row = (group: S3Group) => (
    <tr key={group.name}><th scope="row">{group.name}</th><td class="names">{some(group.policies)}</td><td class="names">{some(group.users)}</td><td class="time">{time(group.created)}</td>
      <td class="actions"><button onClick={() => change(group)}>Policies</button><button class="danger" onClick={() => remove("group", "groups", group.name, data(group))}>Delete</button></td></tr>);
  return <Section id="groups" title="Groups" create={create} button="Create a group" head={["Group", "Policies", "Users"]} all={groups} text={(group) => group.name} row={row} empty={empty("No groups.")} filter={filter} />;
}

const TEMPLATE = {
  Version: "2012-10-17",
  Statement: [{ Effect: "Allow", Action: ["s3:GetObject", "s3:ListBucket"], Resource: ["arn:aws:s3:::BUCKET", "arn:aws:s3:::BUCKET/*"] }],
};
/** The usual order of the fields, which the daemon does not keep. */
const ORDER = ["Version", "Id", "Statement", "Sid", "Effect", "Principal", "Action", "NotAction", "Resource", "NotResource", "Condition"];
const inOrder = (_: string, value: unknown) => (value && typeof value === "object" && !Array.isArray(value)
  ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b))) : value);
const pretty = (document: unknown) => JSON.stringify(document, inOrder, 2);
const DOCUMENT = { name: "document", label: "Document in the format of IAM (JSON)", lines: 16 };
/** Parses a document. The message of the browser names the place of a mistake. */
function parsed(text: string | undefined): unknown {
  try { return JSON.parse(text ?? ""); } catch (error) { throw new Error(`the document is not JSON: ${error instanceof Error ? error.message : String(error)}`); }
}

function Policies({ lists: { policies }, empty, filter }: Part) {
  const create = () => ask({
    title: "Create a policy", button: "Create", fields: [NAME, { ...DOCUMENT, value: pretty(TEMPLATE) }],
    run: (values) => attempt(`Policy ${values.name} created`, async () => call("POST", "/v1/policies", { name: values.name, document: parsed(values.document) })),
  });
  const holders = ({ users, groups, roles }: S3Policy) =>
    [["users", users], ["groups", groups], ["roles", roles]].filter(([, names]) => (names ?? []).length > 0).map(([kind, names]) => `${kind}: ${some(names as string[])}`);
  const change = (policy: S3Policy) => ask({
    title: `Policy ${policy.name}`, button: "Save", text: <p>The next requests of its users are subject to the change. Attached to {holders(policy).join("; ") || "nobody"}.</p>,
    fields: [{ ...DOCUMENT, value: pretty(policy.document) }],
    run: (values) => attempt(`Policy ${policy.name} changed`, async () => call("PATCH", itemPath("policies", policy.name), { document: parsed(values.document) })),
  });
  const show = (policy: S3Policy) => ask({
    title: `Built-in policy ${policy.name}`, button: "Done", text: <pre class="document" tabIndex={0} role="region" aria-label="Document">{pretty(policy.document)}</pre>, run: async () => true,
  });
  const data = (policy: S3Policy) => [`the policy ${policy.name}`, ...(holders(policy).length > 0 ? ["an attached policy is refused", ...holders(policy)] : [])];
  const row = (policy: S3Policy) => (
    <tr key={policy.name}><th scope="row">{policy.name}</th><td class="names">{holders(policy).join("; ") || "nobody"}</td><td class="time">{policy.created === null ? "built in" : time(policy.created)}</td>
      <td class="actions">{policy.created === null ? <button onClick={() => show(policy)}>Show</button>
        : <><button onClick={() => change(policy)}>Edit</button><button class="danger" onClick={() => remove("policy", "policies", policy.name, data(policy))}>Delete</button></>}</td></tr>);
  return <Section id="policies" title="Policies" create={create} button="Create a policy" head={["Policy", "Attached to"]} all={policies} text={(policy) => policy.name} row={row} empty={empty("No policies.")} filter={filter} />;
}

const words = (text: string | undefined) => (text ?? "").split(/\s+/).filter(Boolean);

function Providers({ lists: { providers }, empty, filter }: Part) {
  const fields = (provider?: S3Provider): Field[] => [
    { name: "audiences", label: "Client ids, separated by spaces: a token needs one of them in its claim aud", value: provider?.audiences.join(" ") ?? "" },
    { name: "user_claim", label: "Claim that is the name of the user", value: provider?.user_claim ?? "sub" },
    { name: "key_file", label: "File of the server with the keys (JWKS) (empty: those that the issuer publishes)", value: provider?.key_file ?? "", optional: true },
    { name: "authorities", label: "File of the server with certificates (PEM) of authorities (empty: those of the system)", value: provider?.authorities ?? "", optional: true },
  ];
  const create = () => ask({
    title: "Create an identity provider", button: "Create", fields: [NAME, { name: "issuer", label: "Issuer: claim iss of its tokens", placeholder: "https://login.example.org/realms/main" }, ...fields()],
    run: (values) => attempt(`Provider ${values.name} created`, () => call("POST", "/v1/providers", {
      name: values.name, issuer: values.issuer, audiences: words(values.audiences), user_claim: values.user_claim, key_file: values.key_file || null, authorities: values.authorities || null })),
  });
  const change = (provider: S3Provider) => ask({
    title: `Provider ${provider.name}`, button: "Set", fields: fields(provider), text: <p>Its keys are fetched again for the next token.</p>,
    // An empty name of a file stands for none.
    run: (values) => attempt(`Provider ${provider.name} changed`, () => call("PATCH", itemPath("providers", provider.name), {
      audiences: words(values.audiences), user_claim: values.user_claim, key_file: values.key_file, authorities: values.authorities })),
  });
  const data = ({ name, roles }: S3Provider) => [`the provider ${name}`, ...(roles.length > 0 ? [`a provider with roles is refused; its roles: ${some(roles)}`] : [])];
  const row = (provider: S3Provider) => (
    <tr key={provider.name}><th scope="row">{provider.name}</th><td class="path">{provider.issuer}</td><td class="names">{provider.audiences.join(", ")}</td>
      <td class="names">{provider.keys}{provider.fetched && <small>fetched {time(provider.fetched)}</small>}{provider.problem && <small class="error">{provider.problem}</small>}</td>
      <td class="names">{some(provider.roles)}</td><td class="time">{time(provider.created)}</td>
      <td class="actions"><button onClick={() => change(provider)}>Change</button><button class="danger" onClick={() => remove("provider", "providers", provider.name, data(provider))}>Delete</button></td></tr>);
  return <Section id="providers" title="Identity providers" create={create} button="Create an identity provider" head={["Provider", "Issuer", "Client ids", "Keys in memory", "Roles"]} all={providers} text={(provider) => provider.name} row={row} empty={empty("No identity providers.")} filter={filter} />;
}

/** Parses lines of the form claim=pattern. */
function claimsOf(text: string | undefined): Record<string, string> {
  const lines = (text ?? "").split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`'${line}' is not a claim and its pattern: use, for example, groups=storage-*`);
    return [line.slice(0, at), line.slice(at + 1)];
  }));
}
const claimLines = (claims: Record<string, string>) => Object.entries(claims).map(([claim, pattern]) => `${claim}=${pattern}`);

function Roles({ lists: { roles, providers, policies }, empty, filter }: Part) {
  const fields = (role?: S3Role): Field[] => [
    choice("policies", "Policies", policies, role?.policies),
    { name: "claims", label: "Claims that a token needs, one per line: claim=pattern", lines: 3, value: claimLines(role?.claims ?? {}).join("\n"), placeholder: "groups=storage-*", optional: true },
    { name: "any", label: "Accept every token of the provider for its client ids", checkbox: true, value: role && claimLines(role.claims).length === 0 ? "on" : "" },
    { name: "session", label: "Longest session in seconds, up to 43200", value: String(role?.session_max ?? 3600) },
  ];
  const request = (values: Record<string, string>) => ({ policies: chosen(values.policies), claims: claimsOf(values.claims), any_claims: values.any === "on", session_max: Number(values.session) });
  const create = () => ask({
    title: "Create a role", button: "Create", fields: [NAME, { name: "provider", label: "Identity provider", options: providers.map(({ name }) => [name, name]) }, ...fields()],
    run: (values) => attempt(`Role ${values.name} created`, async () => call("POST", "/v1/roles", { name: values.name, provider: values.provider, ...request(values) })),
  });
  const change = (role: S3Role) => ask({
    title: `Role ${role.name}`, button: "Set", fields: fields(role), text: <p>New policies are in effect for existing sessions as well; claims and the longest session for new ones.</p>,
    run: (values) => attempt(`Role ${role.name} changed`, async () => call("PATCH", itemPath("roles", role.name), request(values))),
  });
  const row = (role: S3Role) => (
    <tr key={role.name}><th scope="row">{role.name}</th><td class="names">{role.provider}</td><td class="names">{some(role.policies)}</td><td class="names">{claimLines(role.claims).join(", ") || "any token"}</td>
      <td class="number">{duration(role.session_max)}</td><td class="time">{time(role.created)}</td>
      <td class="actions"><button onClick={() => change(role)}>Change</button><button class="danger" onClick={() => remove("role", "roles", role.name, [`the role ${role.name}`, "its sessions: clients lose their access at once"])}>Delete</button></td></tr>);
  return <Section id="roles" title="Roles" create={providers.length > 0 ? create : null} button="Create a role" head={["Role", "Provider", "Policies", "Claims", ">Longest session"]} all={roles} text={(role) => `${role.name} ${role.provider}`} row={row}
    empty={empty(providers.length > 0 ? "No roles." : "No roles. A role needs an identity provider.")} filter={filter} />;
}
