// Shared parts: tables, dialogs, badges, notices.
import { signal } from "@preact/signals";
import { Fragment, cloneElement, isValidElement, toChildArray, type ComponentChildren, type VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { words } from "./format";

export const notice = signal<{ text: string; hint?: string | undefined; bad: boolean } | null>(null);

/** Changes after each request, so that pages read their data again. */
export const changes = signal(0);

/** Runs a request and shows its result. Returns true if it succeeded. */
export async function attempt(what: string, work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    changes.value += 1;
    notice.value = { text: what, bad: false };
    return true;
  } catch (error) {
    const hint = error instanceof ApiError ? error.hint : undefined;
    notice.value = { text: error instanceof Error ? error.message : String(error), hint, bad: true };
    return false;
  }
}

export function Notice() {
  const shown = notice.value;
  if (!shown) return null;
  return (
    <div class={shown.bad ? "notice bad" : "notice"} role={shown.bad ? "alert" : "status"}>
      <span>{shown.text}{shown.hint && <small>{shown.hint}</small>}</span>
      <button type="button" class="plain" aria-label="Close the message" onClick={() => (notice.value = null)}>×</button>
    </div>
  );
}

const GOOD = ["healthy", "running", "online", "active", "open", "succeeded", "info", "idle", "up", "complete"];
const BAD = ["failed", "data_lost", "unavailable", "missing", "error", "lost", "unreachable", "down", "down, out"];
export function Badge({ state }: { state: string }) {
  const kind = GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "warn";
  return <span class={`badge ${kind}`}>{words(state)}</span>;
}

/** Gives each cell the title of its column, which a narrow screen shows beside it. */
function withTitles(row: ComponentChildren, head: string[]): ComponentChildren {
  if (!isValidElement(row)) return row;
  const cells = toChildArray((row.props as { children?: ComponentChildren }).children).flatMap((cell) => (isValidElement(cell) && cell.type === Fragment ? toChildArray((cell.props as { children?: ComponentChildren }).children) : [cell]));
  let column = 0;
  return cloneElement(row, {}, cells.map((cell) => (isValidElement(cell) ? cloneElement(cell as VNode<Record<string, unknown>>, { "data-title": head[column++]?.replace(">", ""), key: column }) : cell)));
}

export function Table({ head, children, label, empty }: { head: string[]; children: ComponentChildren[]; label: string; empty: string }) {
  const rows = useMemo(() => toChildArray(children).map((row) => withTitles(row, head)), [children, head.join()]);
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>{head.map((title) => <th scope="col" key={title} class={title.startsWith(">") ? "number" : ""}>{title.replace(">", "")}</th>)}</tr></thead>
        <tbody>{rows}</tbody>
      </table>
    </div>
  );
}

export interface Field {
  name: string; label: string; value?: string; placeholder?: string; options?: [string, string][]; optional?: boolean; checkbox?: boolean;
  /** Names of which any number can be chosen: the value holds the chosen ones, separated by commas. */
  choices?: string[];
  /** Names that complete an input. */
  suggestions?: string[];
  /** A text of several lines, with this many in sight. */
  lines?: number;
}
export interface Question {
  title: string; fields?: Field[]; button: string; text?: ComponentChildren;
  /** Data that is destroyed; the user has to type `name`. */
  destroys?: { data: ComponentChildren; name: string };
  run: (values: Record<string, string>) => Promise<boolean>;
}
export const question = signal<Question | null>(null);

function FormField({ field: { name, label, value, placeholder, options, optional, checkbox, choices, suggestions, lines } }: { field: Field }) {
  if (checkbox) return <label class="check"><input type="checkbox" name={name} defaultChecked={value === "on"} />{label}</label>;
  if (choices) {
    const chosen = (value ?? "").split(",");
    return (
      <fieldset><legend>{label}</legend>
        {choices.map((choice) => <label key={choice} class="check"><input type="checkbox" name={name} value={choice} defaultChecked={chosen.includes(choice)} />{choice}</label>)}
        {choices.length === 0 && "none exist"}
      </fieldset>
    );
  }
  const common = { name, placeholder: placeholder ?? "", required: !optional, autocomplete: "off" } as const;
  return (
    <label>{label}
      {options
        ? <select name={name}>{options.map(([key, text]) => <option key={key} value={key} selected={key === value}>{text}</option>)}</select>
        : lines
          ? <textarea {...common} rows={lines} spellcheck={false} defaultValue={value ?? ""} />
          : <input {...common} defaultValue={value ?? ""} list={suggestions && `${name}-list`} />}
      {suggestions && <datalist id={`${name}-list`}>{suggestions.map((one) => <option key={one} value={one} />)}</datalist>}
    </label>
  );
}

export function Dialog() {
  const asked = question.value;
  const element = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setTyped("");
    if (asked && element.current && !element.current.open) element.current.showModal();
  }, [asked]);
  if (!asked) return null;
  const close = () => { element.current?.close(); question.value = null; };
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const values: Record<string, string> = {};
    new FormData(event.target as HTMLFormElement).forEach((value, name) => { values[name] = (values[name] === undefined ? "" : `${values[name]},`) + String(value).trim(); });
    setBusy(true);
    const done = await asked.run(values);
    setBusy(false);
    if (done) close();
  };
  const isLocked = asked.destroys !== undefined && typed !== asked.destroys.name;
  return (
    <dialog ref={element} onCancel={close} aria-labelledby="dialog-title">
      <form onSubmit={submit}>
        <h2 id="dialog-title">{asked.title}</h2>
        {asked.text}
        {asked.fields?.map((field) => <FormField key={field.name} field={field} />)}
        {asked.destroys && (
          <div class="destroys">
            <strong>This destroys:</strong>
            {asked.destroys.data}
            <label>Type <code>{asked.destroys.name}</code> to confirm
              <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
            </label>
          </div>
        )}
        <Notice />
        <div class="buttons">
          <button type="button" onClick={close}>Cancel</button>
          <button type="submit" class={asked.destroys ? "danger" : "primary"} disabled={busy || isLocked}>{asked.button}</button>
        </div>
      </form>
    </dialog>
  );
}
export const ask = (asked: Question) => { notice.value = null; question.value = asked; };
