// A daemon of the tests with its files in one directory, and a page that is logged in to it.
import { chromium } from "playwright-core";
import { execFileSync, spawn } from "node:child_process";
import { appendFileSync } from "node:fs";
import { createServer } from "node:net";

export const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => { const { port } = server.address(); server.close(() => resolve(port)); });
});

/** Returns the settings of a daemon, and functions to run commands, to start it and to stop it. */
export async function daemonIn(gabion, dir) {
  const port = await freePort();
  const env = {
    ...process.env, GABION_CONFIG: "/dev/null", GABION_SOCKET: `${dir}/gabion.sock`, GABION_STATE_DIR: `${dir}/state`, GABION_NBD_SOCKET: `${dir}/nbd.sock`,
    GABION_VHOST_DIRECTORY: `${dir}/vhost`, GABION_FUSE_DIRECTORY: `${dir}/fuse`, GABION_UBLK_DIRECTORY: `${dir}/ublk`, GABION_API_LISTEN: `127.0.0.1:${port}`,
    GABION_CLUSTERS_DIRECTORY: `${dir}/clusters`, GABION_RUNS_DIRECTORY: `${dir}/runs`,
  };
  const run = (...words) => execFileSync(gabion, words, { env, encoding: "utf8" });
  async function start() {
    const daemon = spawn(gabion, ["serve"], { env, stdio: ["ignore", "ignore", "pipe"] });
    const ready = new Promise((resolve, reject) => {
      daemon.stderr.on("data", (text) => { appendFileSync(`${dir}/log`, text); if (String(text).includes(" ready ")) resolve(); });
      daemon.on("exit", (code) => reject(new Error(`the daemon ended with ${code}`)));
    });
    await ready;
    return daemon;
  }
  const stop = (daemon) => new Promise((resolve) => { daemon.removeAllListeners("exit"); daemon.on("exit", resolve); daemon.kill("SIGTERM"); });
  return { url: `https://127.0.0.1:${port}/`, env, run, start, stop };
}

/** Starts the browser with a page of the size of a desktop. */
export async function openBrowser() {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 } });
  return { browser, context, page: await context.newPage() };
}

export async function login(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "Log out" }).waitFor();
}
