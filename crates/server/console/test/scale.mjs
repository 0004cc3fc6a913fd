// Measures the page of volumes with many volumes: node test/scale.mjs GABION DIRECTORY VOLUMES. See './run console-scale'.
import { Agent, request } from "node:http";
import { daemonIn, login, openBrowser } from "./daemon.mjs";

const [gabion, dir, volumes] = process.argv.slice(2);
const { url, env, run, start, stop } = await daemonIn(gabion, dir);
const agent = new Agent({ keepAlive: true });
const nameOf = (number) => `vm${String(number).padStart(5, "0")}`;
const create = (body) => new Promise((resolve, reject) => {
  const sent = request({ socketPath: env.GABION_SOCKET, agent, method: "POST", path: "/v1/pools/fast/volumes", headers: { "content-type": "application/json" } },
    (response) => { response.resume(); response.on("end", () => (response.statusCode === 201 ? resolve() : reject(new Error(`status ${response.statusCode}`)))); });
  sent.on("error", reject);
  sent.end(JSON.stringify(body));
});
/** Runs in the page: times between frames in milliseconds, while `step` runs before each of them. */
const frames = ({ milliseconds, pixels }) => new Promise((resolve) => {
  const times = [];
  const begun = performance.now();
  let last = begun;
  const frame = () => {
    const now = performance.now();
    times.push(now - last);
    last = now;
    scrollBy(0, pixels);
    if (now - begun < milliseconds) requestAnimationFrame(frame); else resolve(times.slice(1));
  };
  requestAnimationFrame(frame);
});
const text = (times) => {
  const sorted = [...times].sort((a, b) => a - b);
  return `${sorted.length} frames, median ${sorted[sorted.length >> 1].toFixed(1)} ms, p99 ${sorted[Math.floor(sorted.length * 0.99)].toFixed(1)} ms, longest ${sorted.at(-1).toFixed(1)} ms`;
};

const daemon = await start();
const { browser, page } = await openBrowser();
try {
  run("pool", "create", "fast", "--level", "5", "--files", `${dir}/drives`, "--file-size", "1G", "--count", "4");
  let number = 0;
  await Promise.all(Array.from({ length: 8 }, async () => { while (number < Number(volumes)) await create({ name: nameOf((number += 1)), size: 1 << 30 }); }));
  await page.addInitScript(() => {
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
  });
  /** Tasks of more than 50 ms since the last call, which delay frames and keys. */
  const report = async (what, measured) => {
    const tasks = await page.evaluate(() => window.tasks.splice(0));
    console.log(`${what}: ${measured}; ${tasks.length} tasks over 50 ms, longest ${Math.round(Math.max(0, ...tasks))} ms`);
  };
  await page.goto(url);
  await login(page, run("token", "create", "admin", "--role", "admin").trim());
  await page.getByText("healthy").first().waitFor();
  await page.evaluate(() => window.tasks.splice(0));
  const begun = performance.now();
  await page.getByRole("link", { name: "Volumes", exact: true }).click();
  await page.getByRole("rowheader").first().waitFor();
  await report("open", `first rows after ${Math.round(performance.now() - begun)} ms`);
  await report("scroll", text(await page.evaluate(frames, { milliseconds: 5000, pixels: 30 })));
  // Every second a status, every 15 seconds the list.
  await report("watch", text(await page.evaluate(frames, { milliseconds: 35000, pixels: 0 })));
  await page.getByRole("searchbox").pressSequentially(nameOf(Number(volumes)), { delay: 100 });
  await page.getByText("1 shown", { exact: true }).waitFor();
  await report("filter", "7 keys, one per 100 ms");
} finally {
  await browser.close();
  await stop(daemon);
}
