// Shared by the pages: the pools, paths of the API, and polled data.
import { useEffect, useState } from "preact/hooks";
import { enc, type Pool } from "../api";
import { size } from "../format";
import { live } from "../live";
import { changes } from "../ui";

export const pools = () => live.value?.pools ?? [];
export const openPools = () => pools().filter((pool) => pool.state === "open");
export const poolPath = (pool: string) => `/v1/pools/${enc(pool)}`;
export const volumePath = (volume: { pool: string; name: string }) => `${poolPath(volume.pool)}/volumes/${enc(volume.name)}`;
/** Rows of a table. A filter finds the others. */
export const SHOWN = 200;

export function Fill({ pool }: { pool: Pool }) {
  const space = pool.space;
  if (!space) return null;
  const used = space.capacity - space.free;
  return (
    <p class="fill"><meter min={0} max={space.capacity} high={space.capacity * 0.8} value={used} aria-label={`Space of ${pool.name}`} />
      {size(used)} of {size(space.capacity)} used, {size(space.free)} free</p>
  );
}

/** Data that is read while its page is open: after changes, and every few seconds, long lists less often. */
export function usePolled<T>(load: () => Promise<T>, key: string): T | null {
  const [value, setValue] = useState<T | null>(null);
  const change = changes.value;
  useEffect(() => {
    let active = true;
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      const loaded = await load().catch(() => null);
      if (!active) return;
      if (loaded !== null) setValue(loaded);
      timer = setTimeout(read, Array.isArray(loaded) && loaded.length > 2000 ? 15_000 : 3000);
    };
    void read();
    return () => { active = false; clearTimeout(timer); };
  }, [key, change]);
  return value;
}
