// The console: login, navigation, and the page of the address.
import { computed, effect, signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, identity, may, whoAmI, type Identity } from "./api";
import { connect, connected, disconnect, live } from "./live";
import { Audit, Tokens } from "./pages/access";
import { Clusters } from "./pages/clusters";
import { Drives } from "./pages/drives";
import { Events } from "./pages/events";
import { Exports } from "./pages/exports";
import { Health } from "./pages/health";
import { Identities } from "./pages/identities";
import { Machines } from "./pages/machines";
import { Objects } from "./pages/objects";
import { Operations } from "./pages/operations";
import { Pools } from "./pages/pools";
import { Runs } from "./pages/runs";
import { Volumes } from "./pages/volumes";
import { Dialog, Notice, notice, question } from "./ui";
import "./style.css";

const PAGES = [
  ["health", "Health", Health], ["pools", "Pools", Pools], ["drives", "Drives", Drives], ["volumes", "Volumes", Volumes],
  ["exports", "Exports", Exports], ["objects", "Objects", Objects], ["machines", "Machines", Machines], ["clusters", "Clusters", Clusters], ["operations", "Operations", Operations], ["events", "Events", Events], ["runs", "Runs", Runs],
] as const;
const ADMIN_PAGES = [["identities", "Identities", Identities], ["tokens", "Tokens", Tokens], ["audit", "Audit", Audit]] as const;

const page = signal(location.hash.slice(1) || "health");
addEventListener("hashchange", () => { notice.value = null; page.value = location.hash.slice(1) || "health"; });
/** Pages read the live status themselves: the frame around them is not drawn again with each one. */
const hasStatus = computed(() => live.value !== null);
effect(() => { if (identity.value) connect(); else disconnect(); });

function Login() {
  const [error, setError] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const token = String(new FormData(event.target as HTMLFormElement).get("token") ?? "").trim();
    try { identity.value = await call<Identity>("POST", "/v1/access/session", { token }); }
    catch (failure) { setError(failure instanceof Error ? failure.message : String(failure)); }
  };
  return (
    <main class="login">
      <h1>Gabion</h1>
      <form onSubmit={submit}>
        <label>Token<input name="token" type="password" required autofocus autocomplete="current-password" /></label>
        {error && <p role="alert" class="error">{error}</p>}
        <button class="primary" type="submit">Log in</button>
      </form>
      <p>Create a token on the daemon's host: <code>gabion token create NAME --role viewer</code></p>
    </main>
  );
}

function App() {
  const me = identity.value;
  useEffect(() => {
    // Keys 1 to 9 open the pages.
    const open = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (question.value || ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName) || event.ctrlKey || event.altKey || event.metaKey) return;
      const entry = [...PAGES, ...(may("admin") ? ADMIN_PAGES : [])][Number(event.key) - 1];
      if (entry) location.hash = entry[0];
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);
  if (me === undefined) return <main class="login"><p role="status">Connecting</p></main>;
  if (me === null) return <Login />;
  const entries = [...PAGES, ...(may("admin") ? ADMIN_PAGES : [])];
  const current = entries.find(([id]) => id === page.value) ?? PAGES[0];
  const Page = current[2];
  const logout = async () => { await call("DELETE", "/v1/access/session").catch(() => undefined); identity.value = null; };
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
      <header>
        <span class="brand">Gabion</span>
        <nav aria-label="Pages">
          {entries.map(([id, title]) => <a key={id} href={`#${id}`} aria-current={id === current[0] ? "page" : undefined}>{title}</a>)}
        </nav>
        <span class="session">
          <span class={connected.value ? "dot on" : "dot"} role="status">{connected.value ? "live" : "reconnecting"}</span>
          {me.name} ({me.role}) <button type="button" class="plain" onClick={logout}>Log out</button>
        </span>
      </header>
      <main id="content" tabIndex={-1}>
        {!question.value && <Notice />}
        {hasStatus.value ? <Page /> : <p role="status">Loading</p>}
      </main>
      <Dialog />
    </>
  );
}

render(<App />, document.getElementById("app") as HTMLElement);
void whoAmI();
