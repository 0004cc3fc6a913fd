// Virtual machines of the daemon's host, with their serial consoles.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, enc, may, type HostMachine } from "../api";
import { size, time } from "../format";
import { Screen } from "../screen";
import { Badge, Table, notice } from "../ui";
import { usePolled } from "./shared";

export function Machines() {
  const machines = usePolled(() => call<HostMachine[]>("GET", "/v1/machines"), "machines");
  const [shown, setShown] = useState<string | null>(null);
  return (
    <>
      <h1>Machines</h1>
      <Table label="Machines" head={["Machine", "State", ">Processors", ">Memory", "Disks", "Started (UTC)", "Actions"]}
        empty={machines ? "No virtual machines. On the daemon's host, 'gabion vm create' creates one." : "Loading"}>
        {(machines ?? []).map((machine) => (
          <tr key={machine.name}>
            <th scope="row">{machine.name}</th><td><Badge state={machine.started ? "running" : "stopped"} /></td>
            <td class="number">{machine.cpus}</td><td class="number">{size(machine.memory)}</td><td>{machine.disks.join(", ")}</td><td class="time">{time(machine.started)}</td>
            <td class="actions">{machine.started && may("operator") && <button onClick={() => setShown(shown === machine.name ? null : machine.name)}>{shown === machine.name ? "Close console" : "Console"}</button>}</td>
          </tr>))}
      </Table>
      {shown && <SerialConsole key={shown} machine={shown} close={() => setShown(null)} />}
    </>
  );
}

/** Keys that send other characters than their own. */
const KEYS: Record<string, string> = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", ArrowUp: "\x1b[A", ArrowDown: "\x1b[B", ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D",
  Home: "\x1b[H", End: "\x1b[F", Delete: "\x1b[3~",
};

function SerialConsole({ machine, close }: { machine: string; close: () => void }) {
  const [text, setText] = useState("");
  const [ended, setEnded] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const send = useRef<(data: string) => void>(() => undefined);
  useEffect(() => {
    const path = `/v1/machines/${enc(machine)}/console`;
    const screen = new Screen();
    let source: EventSource | null = null;
    let active = true;
    // One request at a time keeps the order of the characters.
    let waiting = "";
    let sending = false;
    const flush = async (number: number) => {
      if (sending) return;
      sending = true;
      while (waiting && active) {
        const data = waiting.slice(0, 1000);
        waiting = waiting.slice(1000);
        await call("POST", `${path}/${number}/input`, { data }).catch(() => setEnded(true));
      }
      sending = false;
    };
    call<{ console: number }>("POST", path, {}).then(({ console: number }) => {
      if (!active) return;
      source = new EventSource(`${path}/${number}/output`);
      source.onmessage = (event) => { screen.write(JSON.parse(event.data as string) as string); setText(screen.text()); };
      source.addEventListener("end", () => { source?.close(); setEnded(true); });
      source.onerror = () => { source?.close(); setEnded(true); };
      send.current = (data) => { waiting += data; void flush(number); };
      place.current?.focus();
    }, (error: Error) => { notice.value = { text: error.message, bad: true }; close(); });
    return () => { active = false; source?.close(); };
  }, []);
  useEffect(() => { if (place.current) place.current.scrollTop = place.current.scrollHeight; }, [text]);
  const press = (event: KeyboardEvent) => {
    if (event.metaKey || event.altKey) return;
    // Shift and Tab leave the console.
    if (event.key === "Tab" && event.shiftKey) return;
    let data = KEYS[event.key] ?? (event.key.length === 1 ? event.key : "");
    if (event.ctrlKey && event.key.length === 1) data = String.fromCharCode(event.key.toUpperCase().charCodeAt(0) & 31);
    if (!data) return;
    event.preventDefault();
    event.stopPropagation();
    send.current(data);
  };
  const paste = (event: ClipboardEvent) => { event.preventDefault(); send.current(event.clipboardData?.getData("text") ?? ""); };
  return (
    <section aria-label={`Console of ${machine}`}>
      <h2>Console of {machine} {ended && <Badge state="closed" />}</h2>
      <p class="fix">Characters that you type go to the machine. Shift and Tab leave the console.</p>
      <div ref={place} class="terminal" role="textbox" aria-multiline="true" aria-label={`Serial console of ${machine}`} tabIndex={0} onKeyDown={press} onPaste={paste}>{text}</div>
    </section>
  );
}
