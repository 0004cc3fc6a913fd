// The API of the daemon: requests with the session's cookie and CSRF header.
import { signal } from "@preact/signals";

export type Role = "viewer" | "operator" | "admin";
export interface Identity { name: string; role: Role; csrf_token?: string | null }
export interface Problem { message: string; action: string }
export interface Drive {
  pool: string; index: number | null; path: string; size: number | null; used: number | null; state: string;
  read_errors: number | null; checksum_errors: number | null; last_error: number | null; failing: boolean | null;
  smart?: { passed: boolean | null; wear_percent: number | null; temperature: number | null; media_errors: number | null; power_on_hours: number | null } | null;
}
export interface Space { capacity: number; free: number; stored: number; provisioned: number; volumes: number }
export interface Pool {
  name: string; state: string; activity: string | null; health: string; problems: Problem[]; scheme: string | null;
  space: Space | null; drives: Drive[]; error: { message: string } | null;
  rebuild: { state: string; remaining: number; percent: number; seconds_left: number | null; paused: boolean; rate_limit: number; bytes_per_second: number } | null;
  scrub: { current: object | null; percent: number; last: { finished: number | null; damaged: number; lost: number } | null } | null;
  counters: { write_amplification: number | null } | null;
}
export interface Volume {
  pool: string; name: string; snapshot: boolean; origin: string | null; size: number; stored: number; created: number;
  deleting: boolean; exported: boolean; qos: Qos;
}
export interface Qos { iops: number | null; bandwidth: number | null; burst_ms: number; weight: number; thick: boolean }
export interface Export {
  id: string; pool: string; volume: string; protocol: string; read_only: boolean; state: string; reason: string | null;
  uris: string[]; connections: number; owner?: string;
}
export interface ExportIo {
  pool: string; volume: string; id: string; read_operations: number; write_operations: number; read_bytes: number;
  write_bytes: number; errors: number; read_timed: number; read_nanos: number; write_timed: number; write_nanos: number;
}
export interface Operation {
  id: number; kind: string; target: string; state: string; step: string; done: number | null; total: number | null;
  seconds: number; error: { message: string; hint?: string } | null; cancellable: boolean;
  log: { seconds: number; step: string }[];
}
export interface HostMachine { name: string; started: number | null; cpus: number; memory: number; disks: string[] }
export interface BenchmarkRun { id: string; started: number; state: string; targets: string[]; results: number; command: string }
export interface Cluster { name: string; configured: boolean; volumes: boolean }
export interface ClusterStatus {
  name: string; fsid: string; adopted: boolean; health: string; problems: { check: string | null; message: string; consequence: string; action: string }[];
  replicas: number; monitors_in_quorum: string[]; monitors: string[]; manager: string | null; capacity: number; free: number; stored: number;
  placement_groups: Record<string, number>; read_bytes: number; write_bytes: number; recovery_bytes: number;
  pools: { name: string; applications: string[]; protection: string; placement_groups: number; objects: number; stored: number; used: number; available: number }[];
  hosts: { name: string; roles: string[]; address: string | null; in_quorum: boolean | null; osds: number; osds_up: number }[];
  osds: { id: number; host: string; drive: string | null; db: string | null; wal: string | null; state: string; bytes: number; used: number }[];
}
export interface S3Service { pool: string; listen: string; region: string; state: string; reason: string | null }
export interface Bucket {
  name: string; created: number; objects: number; versions: number; bytes: number; quota: number | null; owner: string;
  versioning: string;
}
export interface ObjectPage {
  objects: { key: string; size: number; modified: number; etag: string }[]; prefixes: string[]; next: string | null;
}
export interface AccessKey { access_key: string; created: number; user: string; secret: string | null; expires: number | null }
export interface S3User { name: string; created: number; policies: string[]; groups: string[]; keys: string[] }
export interface S3Group { name: string; created: number; policies: string[]; users: string[] }
/** `created` is null for a built-in policy. */
export interface S3Policy { name: string; created: number | null; document: unknown; users: string[]; groups: string[]; roles: string[] }
export interface S3Provider {
  name: string; created: number; issuer: string; audiences: string[]; user_claim: string; key_file: string | null; authorities: string | null;
  roles: string[]; keys: number; fetched: number | null; problem: string | null;
}
export interface S3Role { name: string; created: number; provider: string; policies: string[]; claims: Record<string, string>; session_max: number }
export interface PoolEvent { number: number; time: number; kind: string; severity: string; message: string; pool?: string }
export interface Token { id: string; name: string; role: Role; created: number; expires: number | null; last_used: number | null }
export interface AuditRecord { time: number; client: string; address: string | null; role: Role | null; method: string; path: string; status: number; detail: string | null; operation: number | null; result: string | null }
export interface LiveStatus { time: number; pools: Pool[]; exports: Export[]; io: ExportIo[]; operations: Operation[] }

export class ApiError extends Error {
  constructor(message: string, readonly status: number, readonly hint?: string) { super(message); }
}

/** The client's identity; null until it has logged in, undefined until that is known. */
export const identity = signal<Identity | null | undefined>(undefined);

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const csrf = identity.value?.csrf_token;
  if (method !== "GET" && csrf) headers["x-csrf-token"] = csrf;
  const response = await fetch(path, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
  const text = await response.text();
  let value;
  try { value = text ? JSON.parse(text) : undefined; } catch { throw new ApiError("the response is not JSON", response.status); }
  if (response.ok) return value as T;
  if (response.status === 401) identity.value = null;
  const error = value?.error;
  throw new ApiError(error?.message ?? `status ${response.status}`, response.status, error?.hint);
}

export const enc = encodeURIComponent;

export async function whoAmI(): Promise<void> {
  // While the daemon does not respond, the session may still be valid.
  try { identity.value = await call<Identity>("GET", "/v1/access/self"); } catch (error) { if (error instanceof ApiError || identity.value === undefined) identity.value = null; }
}

export function may(role: Role): boolean {
  const order: Role[] = ["viewer", "operator", "admin"];
  const own = identity.value?.role;
  return own !== undefined && order.indexOf(own) >= order.indexOf(role);
}
