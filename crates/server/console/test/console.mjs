// Drives the console in Chromium against a daemon that it starts, and takes screenshots:
// node test/console.mjs GABION DIRECTORY. See './run console-test'.
import AxeBuilder from "@axe-core/playwright";
import { execFile, execFileSync, spawn, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { promisify } from "node:util";
import { daemonIn, freePort, login, openBrowser } from "./daemon.mjs";
import { identities } from "./identities.mjs";

const [gabion, dir] = process.argv.slice(2);
const { url, env, run, start, stop } = await daemonIn(gabion, dir);
const s3Port = await freePort();

const failures = [];
let checks = 0;
const check = (what, holds) => {
  checks += 1;
  if (!holds) failures.push(what);
};
// A cluster of three hosts in network namespaces, which './run console-test' removes.
const cluster = (...words) => run("cluster", ...words, "--dir", `${dir}/clusters`, "--quiet");
cluster("quickstart", "rack", "--hosts", "3", "--drives", "1", "--deploy-only");
cluster("services", "rack");
// A run of the benchmark on a file, and one whose target is missing.
const measure = (target) => spawnSync(gabion, ["bench", "run", "raid-vm", "--quick", "--seconds", "1", "--only", "4k random", "--target", target, "--overwrite", "--results", `${dir}/runs`], { env });
execFileSync("truncate", ["--size", "64M", `${dir}/disk.img`]);
measure(`disk=${dir}/disk.img`);
measure("gone=/no/such/file");
let daemon = await start();
const token = (role) => run("token", "create", role, "--role", role).trim();
const tokens = { admin: token("admin"), operator: token("operator"), viewer: token("viewer") };
const { browser, context, page } = await openBrowser();
// Other tests run beside this one.
page.setDefaultTimeout(120000);
page.on("pageerror", (error) => failures.push(`script: ${error.message}`));
// A violation of the content security policy is an error in the browser's console. A request without a session, those while the
// daemon is restarted, and those that the test expects to be refused, are errors as well.
let restarting = false;
let refusals = 0;
page.on("console", (message) => {
  if (message.type() !== "error" || restarting || message.text().includes("401")) return;
  if (/status of 4(00|09) /.test(message.text())) refusals += 1;
  else failures.push(message.text());
});

const dialog = page.getByRole("dialog");
const press = (name) => dialog.getByRole("button", { name, exact: true }).click();
const closed = () => dialog.waitFor({ state: "detached" });
const open = (name) => page.getByRole("link", { name, exact: true }).click();
const shot = (name, shown = page) => shown.screenshot({ path: `${dir}/${name}.png`, fullPage: true });
async function accessible(what, shown = page) {
  checks += 1;
  const { violations } = await new AxeBuilder({ page: shown }).analyze();
  for (const one of violations) failures.push(`axe, ${what}: ${one.id}: ${one.help}: ${one.nodes.slice(0, 2).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

try {
  await page.goto(url);
  await accessible("login");
  await page.getByLabel("Token").fill("gabion_0_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  await shot("login");
  await login(page, tokens.admin);

  // A pool on files, a volume, a snapshot, a clone, an export.
  await open("Pools");
  await page.getByRole("button", { name: "Create a pool" }).click();
  await page.getByLabel("Name", { exact: true }).fill("fast");
  await page.getByLabel("Or a directory for file drives").fill(`${dir}/drives`);
  await page.getByLabel("Size of each file drive").fill("many");
  await press("Create");
  await dialog.getByText("is not a size").waitFor();
  await page.getByLabel("Size of each file drive").fill("256M");
  await accessible("a dialog");
  await shot("dialog");
  await press("Create");
  await page.getByRole("row", { name: /fast.*healthy/ }).waitFor();
  await page.keyboard.press("4");
  await page.getByRole("button", { name: "Create a volume" }).click();
  await page.getByLabel("Name", { exact: true }).fill("vm01");
  await page.getByLabel("Size", { exact: true }).fill("1G");
  await press("Create");
  await closed();
  const volume = (name) => page.getByRole("row", { name: new RegExp(`fast/${name} `) }).first();
  await volume("vm01").getByRole("button", { name: "Snapshot" }).click();
  await page.getByLabel("Name of the snapshot").fill("before");
  await press("Create");
  await closed();
  await volume("vm01@before").getByRole("button", { name: "Clone" }).click();
  await page.getByLabel("Name of the new volume").fill("vm02");
  await press("Create");
  await closed();
  await volume("vm02").waitFor();
  const names = await page.getByRole("rowheader").allInnerTexts();
  check("the tree has the snapshot below its volume and the clone below the snapshot", names.map((name) => name.split("\n")[0]).join() === "fast/vm01,fast/vm01@before,fast/vm02");
  await volume("vm01").getByRole("button", { name: "Limits" }).click();
  await page.getByLabel("Operations per second").fill("5000");
  await press("Set");
  await closed();
  await page.getByRole("row", { name: /vm01.*5000 operations/ }).waitFor();
  await volume("vm01").getByRole("button", { name: "Export" }).click();
  await press("Export");
  await closed();
  await page.getByRole("row", { name: /vm01 (?!.*not exported).*exported/ }).waitFor();
  // A load for the charts.
  const load = spawn("nbdcopy", ["--", `nbd+unix:///fast%2Fvm01?socket=${dir}/nbd.sock`, "null:"], { stdio: "ignore" });
  load.on("error", () => undefined);

  // Objects.
  await open("Objects");
  await page.getByRole("button", { name: "Start S3 on a pool" }).click();
  await page.getByLabel("Address and port for clients").fill(`127.0.0.1:${s3Port}`);
  await press("Start");
  await closed();
  await page.getByRole("button", { name: "Create a bucket" }).click();
  await page.getByLabel("Name", { exact: true }).fill("backups");
  await press("Create");
  await closed();
  const { access_key: key, secret } = JSON.parse(run("key", "create", "--json"));
  writeFileSync(`${dir}/object.txt`, "some data\n");
  // Older versions of curl do not send the hash of the data, which S3 requires.
  for (const name of ["readme.txt", "2026/monday.img", "2026/tuesday.img"]) {
    execFileSync("curl", ["--silent", "--fail", "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", `${key}:${secret}`, "--upload-file", `${dir}/object.txt`, `http://127.0.0.1:${s3Port}/backups/${name}`]);
  }
  await page.getByRole("row", { name: /backups 3/ }).waitFor();
  await shot("objects");
  await page.getByRole("row", { name: /backups/ }).getByRole("button", { name: "Browse" }).click();
  await page.getByRole("button", { name: "2026/" }).click();
  await page.getByRole("row", { name: /tuesday.img/ }).waitFor();
  check("the folder has two objects", (await page.getByRole("rowheader").count()) === 2);
  await accessible("the object browser");
  await shot("browser");
  await identities({ page, dialog, press, closed, open, shot, accessible, check, run, dir, s3Port });

  // The destruction of a pool names its buckets. The volume of the objects is none of the user's.
  await open("Pools");
  check("the page counts the volumes of the user", (await page.locator('td[data-title="Volumes"]').innerText()) === "3");
  await page.getByRole("row", { name: /fast/ }).getByRole("button", { name: "Destroy" }).click();
  await dialog.getByText("bucket backups (4 objects, 40 B)").waitFor();
  await dialog.getByText(" in 2 volumes and 1 snapshots").waitFor();
  await press("Cancel");
  await closed();

  // A failed drive: the problem, the replacement and the rebuild.
  await open("Drives");
  await page.getByRole("row", { name: /fast-2.drive/ }).getByRole("button", { name: "Fail" }).click();
  const fail = dialog.getByRole("button", { name: "Fail the drive" });
  check("a destructive button is locked before the name is typed", await fail.isDisabled());
  await accessible("a destructive dialog");
  await shot("fail");
  await page.getByLabel(/to confirm/).fill(`${dir}/drives/fast-2.drive`);
  await fail.click();
  await page.getByRole("row", { name: /fast-2.drive failed/ }).waitFor();
  await open("Health");
  await page.getByText("To solve it").first().waitFor();
  await accessible("health with problems");
  await shot("problems");
  await page.getByRole("link", { name: "Show the drives" }).first().click();
  execFileSync("truncate", ["--size", "256M", `${dir}/new.drive`]);
  await page.getByRole("row", { name: /fast-2.drive/ }).getByRole("button", { name: "Replace" }).click();
  await page.getByLabel("New drive").fill(`${dir}/new.drive`);
  await press("Replace");
  await page.getByRole("row", { name: /new.drive online/ }).waitFor();
  await page.keyboard.press("1");
  await page.getByText("No problems in 1 pool and 1 cluster.").waitFor();

  // The serial console of a machine, for which this process stands.
  run("volume", "create", "fast/boot", "--size", "64M");
  run("vm", "create", "web", "--boot", "fast/boot", "--accelerator", "tcg");
  const machine = `${dir}/state/machines/web`;
  const begun = Number(readFileSync("/proc/self/stat", "utf8").split(") ").at(-1).split(" ")[19]);
  const placement = { cpus: [], rest: "", node: null, why: "a test" };
  writeFileSync(`${machine}/running.json`, JSON.stringify({ pid: process.pid, begun, since: 1700000000, accelerator: "tcg", instead: null, placement }));
  let typed = "";
  const serial = createServer((socket) => {
    socket.write("\x1b[2J\r\nWelcome to web\r\nlogin: ");
    socket.on("data", (data) => { typed += data; socket.write(String(data).replace("\r", "\r\nPassword: ")); });
    socket.on("error", () => undefined);
  }).listen(`${machine}/console.sock`);
  await open("Machines");
  await page.getByRole("row", { name: /web running/ }).getByRole("button", { name: "Console" }).click();
  const terminal = page.getByRole("textbox", { name: "Serial console of web" });
  await terminal.getByText("login:").waitFor();
  await page.keyboard.type("ada");
  await page.keyboard.press("Enter");
  await terminal.getByText("Password:").waitFor();
  check(`the machine gets the keys: ${JSON.stringify(typed)}`, typed === "ada\r");
  await accessible("a serial console");
  await shot("console");
  await page.getByRole("button", { name: "Close console" }).click();
  serial.close();

  // A cluster: a bucket, a volume and its export, then the loss of a monitor.
  run("bucket", "create", "rack/photos");
  await open("Clusters");
  await page.getByText("No problems.").waitFor();
  for (const row of [/node1 .* 1 of 1/, /0 node. up/, /rbd 3 copies/]) await page.getByRole("row", { name: row }).first().waitFor();
  await page.getByRole("button", { name: "Create a volume on rack" }).click();
  await page.getByLabel("Name", { exact: true }).fill("disk");
  await page.getByLabel("Size", { exact: true }).fill("1G");
  await press("Create");
  await closed();
  await page.getByRole("row", { name: /rack.disk/ }).getByRole("button", { name: "Export" }).click();
  await press("Export");
  await closed();
  await page.getByRole("row", { name: /rack.disk/ }).getByRole("link", { name: /nbd/ }).waitFor();
  await page.getByRole("row", { name: /rack.photos 0 .* none gabion/ }).waitFor();
  await accessible("a healthy cluster");
  await shot("cluster-healthy");
  process.kill(Number(readFileSync(`${dir}/clusters/rack/hosts/node3/run/mon.node3.pid`, "utf8")), "SIGKILL");
  await page.getByRole("listitem").getByText("Consequence: none while most monitors run").waitFor({ timeout: 180000 });
  await page.getByRole("row", { name: /node3 .* missing/ }).waitFor();
  await open("Health");
  await page.getByRole("listitem").getByText("To solve it: restart stopped daemons with 'gabion cluster deploy rack'").waitFor();

  // Benchmark runs, and the report of one in a page of its own.
  await open("Runs");
  await page.getByRole("row", { name: /incomplete continue with gabion bench resume/ }).waitFor();
  const measured = page.getByRole("row", { name: /raid-vm.* complete disk 3/ });
  const [opened] = await Promise.all([context.waitForEvent("page"), measured.getByRole("link", { name: /^Report of raid-vm/ }).click()]);
  await opened.waitForURL(/\/v1\/runs\/raid-vm-[0-9-]+\/report$/);
  const answer = await context.request.get(opened.url());
  await opened.close();
  check("the report is a page without scripts", answer.status() === 200 && answer.headers()["content-security-policy"].endsWith("sandbox"));
  // The sandbox stops axe as well, which needs scripts: the same text in a page without it.
  const report = await context.newPage();
  await report.setContent(await answer.text());
  await report.getByRole("heading", { name: "Summary" }).waitFor();
  for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
    await report.emulateMedia({ colorScheme: scheme });
    await report.setViewportSize({ width, height: 800 });
    const kind = width < 500 ? "phone" : scheme;
    check(`the report fits, ${kind}`, await report.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await accessible(`the report, ${kind}`, report);
    await shot(`report-${kind}`, report);
  }
  await report.close();

  // Each page: axe, light, dark, phone width.
  const pages = ["Health", "Pools", "Drives", "Volumes", "Exports", "Objects", "Machines", "Clusters", "Operations", "Events", "Runs", "Identities", "Tokens", "Audit"];
  for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 800 });
    for (const name of pages) {
      await open(name);
      await page.getByRole("heading", { name: new RegExp(`${name}$`, "i"), level: 1 }).waitFor();
      await page.getByText("Loading").first().waitFor({ state: "detached" });
      const kind = width < 500 ? "phone" : scheme;
      await accessible(`${name}, ${kind}`);
      await shot(`${name.toLowerCase()}-${kind}`);
      check(`${name} fits a phone`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 800 });

  // More volumes than a page of the table has rows.
  // Asynchronous commands: the log of the daemon must be read meanwhile.
  for (let number = 100; number < 210; number += 1) await promisify(execFile)(gabion, ["volume", "create", `fast/zz-${number}`, "--size", "64M"], { env });
  await open("Volumes");
  const pager = page.locator(".pager").first();
  await pager.getByText("1 to 100 of 114").waitFor();
  await pager.getByRole("button", { name: "Next" }).click();
  await pager.getByText("101 to 114 of 114").waitFor();
  check("the last page has the other rows", (await page.getByRole("rowheader").count()) === 14 && await pager.getByRole("button", { name: "Next" }).isDisabled());
  await accessible("the last page of volumes");
  await page.getByLabel("Filter").fill("zz-");
  await pager.getByText("1 to 100 of 110").waitFor();
  await page.getByLabel("Filter").fill("zz-15");
  await page.getByText("10 shown").waitFor();
  await page.getByLabel("Filter").fill("");
  await open("Audit");

  // The keyboard alone: the skip link, a dialog, its end.
  await page.reload();
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  await page.keyboard.press("4");
  await volume("vm01").waitFor();
  await volume("vm01").getByRole("button", { name: "Resize" }).focus();
  await page.keyboard.press("Enter");
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await closed();
  check("the focus returns to the button", (await page.evaluate(() => document.activeElement?.textContent)) === "Resize");

  // A restart of the daemon: the page reconnects without a login.
  restarting = true;
  load.kill();
  await stop(daemon);
  await page.getByText("reconnecting").waitFor();
  daemon = await start();
  await page.getByText("live", { exact: true }).waitFor();
  await page.getByRole("row", { name: /fast\/vm01 / }).first().waitFor();
  restarting = false;

  // A viewer.
  await page.getByRole("button", { name: "Log out" }).click();
  await login(page, tokens.viewer);
  for (const name of ["Pools", "Drives", "Volumes", "Exports", "Objects", "Machines", "Clusters", "Operations", "Events", "Runs"]) {
    await open(name);
    await page.getByRole("heading", { name: new RegExp(`${name}$`, "i"), level: 1 }).waitFor();
    await page.getByText("Loading").first().waitFor({ state: "detached" });
    const buttons = await page.getByRole("main").getByRole("button").allInnerTexts();
    check(`a viewer has no buttons on ${name}: ${buttons}`, buttons.every((text) => ["Browse", "Previous", "Next"].includes(text)));
  }
  for (const name of ["Identities", "Tokens"]) check(`a viewer has no page of ${name}`, (await page.getByRole("link", { name }).count()) === 0);
  // The address of the page alone opens another one.
  await page.evaluate(() => { location.hash = "identities"; });
  await page.getByRole("heading", { name: "Health", level: 1 }).waitFor();
  check(`the daemon refuses the requests that are to be refused, and no others: ${refusals}`, refusals === 5);
} catch (error) {
  await shot("failure").catch(() => undefined);
  failures.push(String(error));
}
await browser.close();
await stop(daemon);
failures.forEach((failure) => console.error(`failed: ${failure}`));
console.log(`console: ${checks} checks, ${failures.length} failed`);
process.exit(failures.length === 0 ? 0 : 1);
