// Drives: state and errors; add, replace, remove, fail, return.
import { call, may, type Drive } from "../api";
import { size, time } from "../format";
import { Badge, Table, ask, attempt } from "../ui";
import { openPools, poolPath, pools } from "./shared";

function DriveActions({ drive }: { drive: Drive }) {
  if (drive.index === null) return null;
  const path = `${poolPath(drive.pool)}/drives/${drive.index}`;
  const one = (text: string, verb: string) => () => void attempt(text, () => call("POST", `${path}/${verb}`, {}));
  const replace = () => ask({
    title: `Replace drive ${drive.index} of ${drive.pool}`, button: "Replace",
    text: <p>The data of {drive.path} is migrated to the new drive, and the old drive leaves the pool.</p>,
    fields: [{ name: "path", label: "New drive", placeholder: "/dev/disk/by-id/..." }],
    run: (values) => attempt("Replacing the drive", () => call("POST", `${path}/replace`, { path: values.path })),
  });
  const fail = () => ask({
    title: `Fail drive ${drive.index} of ${drive.pool}`, button: "Fail the drive",
    destroys: { name: drive.path, data: <ul><li>the redundancy that {drive.path} provides, until it is rebuilt or returned</li></ul> },
    run: () => attempt("Drive failed", () => call("POST", `${path}/fail`, {})),
  });
  return (
    <>
      {may("admin") && drive.state !== "removing" && <button onClick={replace}>Replace</button>}
      {may("operator") && drive.state === "online" && <button onClick={one("Removing the drive", "remove")}>Remove</button>}
      {may("operator") && drive.state === "removing" && <button onClick={one("Removal cancelled", "remove/cancel")}>Cancel removal</button>}
      {may("operator") && ["failed", "missing"].includes(drive.state) && <button onClick={one("Drive returned", "return")}>Return</button>}
      {may("operator") && drive.state === "online" && <button class="danger" onClick={fail}>Fail</button>}
    </>
  );
}

const known = (value: number | null | undefined, unit: string) => (value == null ? "-" : `${value}${unit}`);

export function Drives() {
  const add = () => ask({
    title: "Add a drive", button: "Add",
    fields: [{ name: "pool", label: "Pool", options: openPools().map((pool) => [pool.name, pool.name]) }, { name: "path", label: "Drive", placeholder: "/dev/disk/by-id/..." }],
    run: (values) => attempt("Adding the drive", () => call("POST", `${poolPath(values.pool ?? "")}/drives`, { path: values.path })),
  });
  const drives = pools().flatMap((pool) => pool.drives).filter((drive) => drive.state !== "removed");
  // Columns for SMART data only if a drive has some.
  const smart = drives.some((drive) => drive.smart);
  return (
    <>
      <h1>Drives</h1>
      {may("admin") && openPools().length > 0 && <p><button class="primary" onClick={add}>Add a drive</button></p>}
      <Table label="Drives" head={["Pool", ">Drive", "Path", "State", ">Size", ">Used", ">Read errors", ">Checksum errors", "Last error (UTC)", ...(smart ? [">Wear", ">Temperature", ">Media errors"] : []), "Actions"]} empty="No drives.">
        {drives.map((drive) => (
          <tr key={`${drive.pool}/${drive.index}/${drive.path}`}>
            <td>{drive.pool}</td><th scope="row" class="number">{drive.index ?? "-"}</th><td class="path">{drive.path}</td>
            <td><Badge state={drive.failing ? "failing" : drive.state} />{drive.smart?.passed === false && <Badge state="SMART_failed" />}</td>
            <td class="number">{size(drive.size)}</td><td class="number">{size(drive.used)}{drive.size ? <small>{Math.round(100 * (drive.used ?? 0) / drive.size)} %</small> : null}</td>
            <td class="number">{drive.read_errors ?? "-"}</td><td class="number">{drive.checksum_errors ?? "-"}</td><td class="time">{time(drive.last_error)}</td>
            {smart && <><td class="number">{known(drive.smart?.wear_percent, " %")}</td><td class="number">{known(drive.smart?.temperature, " °C")}</td><td class="number">{known(drive.smart?.media_errors, "")}</td></>}
            <td class="actions"><DriveActions drive={drive} /></td>
          </tr>))}
      </Table>
    </>
  );
}
