// The events of all pools, the newest first.
import { call, type PoolEvent } from "../api";
import { time } from "../format";
import { Badge, Table } from "../ui";
import { openPools, poolPath, usePolled } from "./shared";

export function Events() {
  const names = openPools().map((pool) => pool.name);
  const load = async () => {
    const lists = await Promise.all(names.map(async (name) => (await call<PoolEvent[]>("GET", `${poolPath(name)}/events?last=200`)).map((event) => ({ ...event, pool: name }))));
    return lists.flat().sort((a, b) => b.time - a.time || b.number - a.number);
  };
  const events = usePolled(load, names.join());
  return (
    <>
      <h1>Events</h1>
      <Table label="Events" head={["Time (UTC)", "Pool", "Severity", "Event"]} empty={events ? "No events." : "Loading"}>
        {(events ?? []).map((event) => (
          <tr key={`${event.pool}/${event.number}`}><td class="time">{time(event.time)}</td><td>{event.pool}</td><td><Badge state={event.severity} /></td><td>{event.message}</td></tr>))}
      </Table>
    </>
  );
}
