// Shared by the pages: the pools, paths of the API, and polled data.
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { enc, type Pool } from "../api";
import { size } from "../format";
import { live } from "../live";
import { changes } from "../ui";

export const pools = () => live.value?.pools ?? [];
export const openPools = () => pools().filter((pool) => pool.state === "open");
export const poolPath = (pool: string) => `/v1/pools/${enc(pool)}`;
export const volumePath = (volume: { pool: string; name: string }) => `${poolPath(volume.pool)}/volumes/${enc(volume.name)}`;
/** Rows of a page of a long table. */
const PAGE_ROWS = 100;

/**
 * Returns the rows of one page of a long list, and the buttons for the others. The list remains the same object while it does not
 * change; a change of the filter returns to the first page.
 */
export function usePages<T>(all: T[], filter: string): { shown: T[]; pager: VNode | null } {
  const [page, setPage] = useState(0);
  useEffect(() => setPage(0), [filter]);
  const last = Math.max(0, Math.ceil(all.length / PAGE_ROWS) - 1);
  const current = Math.min(page, last);
  const from = current * PAGE_ROWS;
  const shown = useMemo(() => all.slice(from, from + PAGE_ROWS), [all, from]);
  const to = (next: number) => { setPage(next); document.getElementById("content")?.scrollIntoView(); };
  const pager = last === 0 ? null : (
    <span class="pager">{from + 1} to {from + shown.length} of {all.length}
      <button disabled={current === 0} onClick={() => to(current - 1)}>Previous</button><button disabled={current === last} onClick={() => to(current + 1)}>Next</button></span>);
  return { shown, pager };
}

export function Fill({ pool }: { pool: Pool }) {
  const space = pool.space;
  if (!space) return null;
  const used = space.capacity - space.free;
  return (
    <p class="fill"><meter min={0} max={space.capacity} high={space.capacity * 0.8} value={used} aria-label={`Space of ${pool.name}`} />
      {size(used)} of {size(space.capacity)} used, {size(space.free)} free</p>
  );
}

/** Pause in milliseconds after the last key before a filter is applied: drawing a page of rows takes longer than a key. */
const FILTER_PAUSE = 150;

export function Filter({ apply }: { apply: (text: string) => void }) {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const later = (text: string) => { clearTimeout(timer.current); timer.current = setTimeout(() => apply(text), FILTER_PAUSE); };
  return <label>Filter <input type="search" onInput={(event) => later(event.currentTarget.value)} /></label>;
}

/** Data that is read while its page is open: after changes, and every few seconds, long lists less often. */
export function usePolled<T>(load: () => Promise<T>, key: string, interval = 3000): T | null {
  const [value, setValue] = useState<T | null>(null);
  const change = changes.value;
  useEffect(() => {
    let active = true;
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      const loaded = await load().catch(() => null);
      if (!active) return;
      if (loaded !== null) setValue(loaded);
      const lists = Array.isArray(loaded) ? [loaded] : Object.values(loaded ?? {});
      timer = setTimeout(read, lists.some((list) => Array.isArray(list) && list.length > 2000) ? 15_000 : interval);
    };
    void read();
    return () => { active = false; clearTimeout(timer); };
  }, [key, change]);
  return value;
}
