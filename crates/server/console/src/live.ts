// Live status by server-sent events, with rates from the difference of two states.
import { signal } from "@preact/signals";
import { identity, whoAmI, type ExportIo, type LiveStatus } from "./api";

export interface Rates { reads: number; writes: number; readBytes: number; writeBytes: number }
export const live = signal<LiveStatus | null>(null);
export const connected = signal(false);
export const rates = signal<Map<string, Rates>>(new Map());

let source: EventSource | null = null;
let before: { at: number; io: Map<string, ExportIo> } | null = null;

export const ioKey = (io: { pool: string; volume: string; id: string }) => `${io.pool}/${io.volume}:${io.id}`;

function updateRates(status: LiveStatus) {
  const at = performance.now();
  const io = new Map(status.io.map((one) => [ioKey(one), one]));
  const next = new Map<string, Rates>();
  if (before) {
    const seconds = Math.max((at - before.at) / 1000, 0.1);
    for (const [key, now] of io) {
      const old = before.io.get(key);
      // Counters begin again when the daemon is restarted.
      const per = (field: keyof ExportIo) => Math.max(0, (now[field] as number) - ((old?.[field] as number) ?? 0)) / seconds;
      if (old) next.set(key, { reads: per("read_operations"), writes: per("write_operations"), readBytes: per("read_bytes"), writeBytes: per("write_bytes") });
    }
  }
  before = { at, io };
  rates.value = next;
}

/** Connects. The browser reconnects alone after a restart of the daemon; a session that has ended needs a login. */
export function connect() {
  if (source) return;
  source = new EventSource("/v1/live");
  source.addEventListener("status", (event) => {
    const status = JSON.parse((event as MessageEvent<string>).data) as LiveStatus;
    connected.value = true;
    updateRates(status);
    live.value = status;
  });
  source.onerror = () => {
    connected.value = false;
    const closed = source?.readyState === EventSource.CLOSED;
    if (!closed) return;
    disconnect();
    // A refused request ends the source: the daemon was restarted, or the session has ended.
    setTimeout(async () => { await whoAmI(); if (identity.value) connect(); }, 1000);
  };
}

export function disconnect() { source?.close(); source = null; before = null; connected.value = false; }
