// Live status by server-sent events, with rates from the difference of two states, and their
// history.
import { signal } from "@preact/signals";
import { identity, whoAmI, type ExportIo, type LiveStatus } from "./api";

/** Rates per second, and mean latencies of the last interval in seconds; null without requests. */
export interface Rates {
  reads: number; writes: number; readBytes: number; writeBytes: number; readLatency: number | null; writeLatency: number | null;
}
export interface Sample extends Rates { at: number }
export const live = signal<LiveStatus | null>(null);
export const connected = signal(false);
/** The rates of each export. */
export const rates = signal<Map<string, Rates>>(new Map());
/** The rates of each pool over the last minutes. */
export const history = signal<Map<string, Sample[]>>(new Map());

const SAMPLES = 300;
let source: EventSource | null = null;
let before: { at: number; io: Map<string, ExportIo> } | null = null;

export const ioKey = (io: { pool: string; volume: string; id: string }) => `${io.pool}/${io.volume}:${io.id}`;

const FIELDS = ["read_operations", "write_operations", "read_bytes", "write_bytes", "read_timed", "read_nanos", "write_timed", "write_nanos"] as const;
type Sums = Record<(typeof FIELDS)[number], number>;
const zero = (): Sums => Object.fromEntries(FIELDS.map((field) => [field, 0])) as Sums;

function ratesOf(sums: Sums, seconds: number): Rates {
  const mean = (nanos: number, timed: number) => (timed > 0 ? nanos / timed / 1e9 : null);
  return {
    reads: sums.read_operations / seconds, writes: sums.write_operations / seconds,
    readBytes: sums.read_bytes / seconds, writeBytes: sums.write_bytes / seconds,
    readLatency: mean(sums.read_nanos, sums.read_timed), writeLatency: mean(sums.write_nanos, sums.write_timed),
  };
}

function updateRates(status: LiveStatus) {
  const at = performance.now();
  const io = new Map(status.io.map((one) => [ioKey(one), one]));
  if (before) {
    const seconds = Math.max((at - before.at) / 1000, 0.1);
    const next = new Map<string, Rates>();
    const pools = new Map(status.pools.map((pool) => [pool.name, zero()]));
    for (const [key, now] of io) {
      const old = before.io.get(key);
      // Counters begin again when the daemon is restarted.
      const sums = zero();
      if (old) for (const field of FIELDS) sums[field] = Math.max(0, now[field] - old[field]);
      next.set(key, ratesOf(sums, seconds));
      const pool = pools.get(now.pool);
      if (pool) for (const field of FIELDS) pool[field] += sums[field];
    }
    rates.value = next;
    const kept = new Map<string, Sample[]>();
    for (const [name, sums] of pools) kept.set(name, [...(history.value.get(name) ?? []).slice(1 - SAMPLES), { at: status.time, ...ratesOf(sums, seconds) }]);
    history.value = kept;
  }
  before = { at, io };
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
    if (source?.readyState !== EventSource.CLOSED) return;
    // A refused request ends the source: the daemon is starting, or the session has ended.
    disconnect();
    setTimeout(retry, 1000);
  };
}

async function retry() {
  await whoAmI();
  if (identity.value) connect();
}

export function disconnect() { source?.close(); source = null; before = null; connected.value = false; }
